// The gradient of an embedding table on CUDA, without atomics.
//
// The positions are sorted by (leaf, token), stably, so that a table row's gradients are one run
// in token order. Runs may be one row long or a tenth of all rows, hence the sorted positions are
// cut into tiles of kTileRows, counted from the start of the leaf, and a warp walks a tile. A run
// inside a tile goes straight to the table. A run across tiles leaves one partial row per tile,
// and a second kernel adds those in order. So the order of a leaf's sums depends on the leaf's
// tokens alone.
#include <algorithm>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/card_memory.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/embedding_grad.h"
#include "third_party/absl_compat/check.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTileRows = 32;      // one per lane; known to card_memory.cc
constexpr int kBatch = 4;          // rows that a warp has in flight
constexpr int kSlice = 8 * kWarp;  // features that a warp sums
constexpr int kPartialSlice = 4 * kWarp;
constexpr int64_t kAlign = 256;

// How n positions of `leaves` leaves are cut.
struct Tiles {
  int64_t leaf_rows;  // positions of a leaf
  int64_t per_leaf;
  int64_t count;

  static Tiles Of(int64_t positions, int64_t leaves) {
    const int64_t leaf_rows = positions / leaves;
    const int64_t per_leaf = CeilDiv(leaf_rows, kTileRows);
    return {leaf_rows, per_leaf, leaves * per_leaf};
  }
  __device__ int64_t Begin(int64_t tile) const {
    return tile / per_leaf * leaf_rows + tile % per_leaf * kTileRows;
  }
  __device__ int64_t End(int64_t tile) const {
    return min(Begin(tile) + kTileRows, (tile / per_leaf + 1) * leaf_rows);
  }
};

struct Sorted {
  const uint32_t* keys;       // leaf * V + token, ascending: a row of [leaves * V, D]
  const uint32_t* positions;  // in de
  int64_t size;
};

// f32 [tiles, 2, D]: of the run that enters the tile, and of the one that begins in it and leaves.
enum PartialKind { kEntering = 0, kLeaving = 1 };

__device__ __forceinline__ float* PartialRow(float* partials, int64_t tile, PartialKind kind,
                                             int64_t dim) {
  return partials + (tile * 2 + kind) * dim;
}

__global__ void __launch_bounds__(kThreads)
    MakeKeys(const int32_t* tokens, int64_t size, int64_t leaf_rows, uint32_t vocab, uint32_t* keys,
             uint32_t* positions) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  keys[i] = static_cast<uint32_t>(i / leaf_rows) * vocab + static_cast<uint32_t>(tokens[i]);
  positions[i] = static_cast<uint32_t>(i);
}

// `starts`: bit r says that a run starts at a tile's row r. Whether the row's run ends with it, and
// whether it has come from the tile before.
__device__ __forceinline__ bool EndsRun(uint32_t starts, int row, int rows) {
  return row + 1 == rows || (row + 1 < rows && (starts >> (row + 1) & 1));
}
__device__ __forceinline__ bool Entered(uint32_t starts, int row) {
  return (starts & ((2u << row) - 1)) == 0;
}

__device__ __forceinline__ void AddTo(float4& sum, const float4& x) {
  sum.x += x.x;
  sum.y += x.y;
  sum.z += x.z;
  sum.w += x.w;
}

// A warp per tile and slice of kSlice features.
// Bytes: 2 D per position read; 8 D per run inside a tile, 4 D per other run and tile.
__global__ void __launch_bounds__(kThreads)
    SumTiles(Sorted sorted, Tiles tiles, const BF16* de, int64_t dim, int slices, float* table,
             float* partials) {
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int64_t tile = item / slices;
  if (tile >= tiles.count) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t column = item % slices * kSlice + lane * 8;
  const bool live = column < dim;

  const int64_t begin = tiles.Begin(tile), end = tiles.End(tile);
  const int rows = static_cast<int>(end - begin);
  const int64_t mine = begin + min(lane, rows - 1);
  const uint32_t key = sorted.keys[mine], position = sorted.positions[mine];
  const bool start = mine == 0 || sorted.keys[mine - 1] != key;
  const uint32_t starts = __ballot_sync(0xffffffffu, start && lane < rows);
  const bool leaves = end < sorted.size && sorted.keys[end] == sorted.keys[end - 1];

  float4 sum[2] = {};
  for (int first = 0; first < rows; first += kBatch) {
    // All rows of the batch, and the table rows that runs ending here are added to.
    BF16x8 packed[kBatch];
    float4 old[kBatch][2];
    float* to[kBatch];  // null where no run ends
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int row = first + b;
      const uint32_t row_position = __shfl_sync(0xffffffffu, position, row % kWarp);
      const uint32_t row_key = __shfl_sync(0xffffffffu, key, row % kWarp);
      packed[b] = BF16x8{};
      old[b][0] = old[b][1] = float4{};
      to[b] = nullptr;
      if (row >= rows || !live) continue;
      packed[b] = LoadStreaming8(de + row_position * dim + column);
      if (!EndsRun(starts, row, rows)) continue;
      if (Entered(starts, row)) {
        to[b] = PartialRow(partials, tile, kEntering, dim) + column;
      } else if (leaves && row + 1 == rows) {
        to[b] = PartialRow(partials, tile, kLeaving, dim) + column;
      } else {
        to[b] = table + row_key * dim + column;
        old[b][0] = reinterpret_cast<const float4*>(to[b])[0];
        old[b][1] = reinterpret_cast<const float4*>(to[b])[1];
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      float f[8];
      Unpack(packed[b], f);
      AddTo(sum[0], {f[0], f[1], f[2], f[3]});
      AddTo(sum[1], {f[4], f[5], f[6], f[7]});
      if (to[b] == nullptr) continue;
      AddTo(old[b][0], sum[0]);
      AddTo(old[b][1], sum[1]);
      reinterpret_cast<float4*>(to[b])[0] = old[b][0];
      reinterpret_cast<float4*>(to[b])[1] = old[b][1];
      sum[0] = sum[1] = float4{};
    }
  }
}

// A block per tile and slice of kPartialSlice features; works where a run begins in the tile and
// leaves it. The run's partial rows are dealt to the warps in equal stretches.
__global__ void __launch_bounds__(kThreads)
    AddPartialRows(Sorted sorted, Tiles tiles, int64_t dim, float* partials, float* table) {
  __shared__ float4 sums[kWarps][kWarp];
  const int64_t tile = blockIdx.x;
  const int64_t begin = tiles.Begin(tile), end = tiles.End(tile);
  if (end == sorted.size) return;
  const uint32_t key = sorted.keys[end - 1];
  if (sorted.keys[end] != key) return;
  if (begin > 0 && sorted.keys[begin - 1] == key) return;

  // The run enters the tiles after this one as long as their first key is its own.
  int64_t parts = 1;
  while (true) {
    const int64_t next = tile + parts + threadIdx.x;
    const bool enters = next < tiles.count && sorted.keys[tiles.Begin(next)] == key;
    const int count = __syncthreads_count(enters);
    parts += count;
    if (count < kThreads) break;
  }

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t column = int64_t{blockIdx.y} * kPartialSlice + lane * 4;
  const int64_t share = (parts + kWarps - 1) / kWarps;
  const int64_t first = warp * share, last = min(first + share, parts);
  float4 sum = {};
  if (column < dim) {
#pragma unroll 4
    for (int64_t part = first; part < last; ++part) {
      const PartialKind kind = part == 0 ? kLeaving : kEntering;
      AddTo(sum, *reinterpret_cast<const float4*>(PartialRow(partials, tile + part, kind, dim) +
                                                  column));
    }
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= dim) return;
  for (int w = 1; w < kWarps; ++w) AddTo(sum, sums[w][lane]);
  float4* row = reinterpret_cast<float4*>(table + key * dim + column);
  float4 total = *row;
  AddTo(total, sum);
  *row = total;
}

int BitsOf(int64_t values) {
  int bits = 1;
  while (int64_t{1} << bits < values) ++bits;
  return bits;
}

// Temporary memory of the sort, which differs with the number of its digits.
int64_t SortBytes(int positions, int64_t keys) {
  cub::DoubleBuffer<uint32_t> none;
  size_t bytes = 0;
  CUDA_CHECK(
      cub::DeviceRadixSort::SortPairs(nullptr, bytes, none, none, positions, 0, BitsOf(keys)));
  return static_cast<int64_t>(bytes);
}

int64_t Aligned(int64_t bytes) { return CeilDiv(bytes, kAlign) * kAlign; }

// Hands out a workspace from front to back.
class Carver {
 public:
  Carver(void* data, int64_t bytes) : data_(static_cast<char*>(data)), left_(bytes) {}

  template <typename T>
  T* Take(int64_t count) {
    const int64_t bytes = Aligned(count * static_cast<int64_t>(sizeof(T)));
    CHECK_LE(bytes, left_) << "EmbeddingGrad: workspace";
    T* taken = reinterpret_cast<T*>(data_);
    data_ += bytes;
    left_ -= bytes;
    return taken;
  }
  void* rest() const { return data_; }
  int64_t left() const { return left_; }

 private:
  char* data_;
  int64_t left_;
};

}  // namespace

int64_t EmbeddingGradWorkspaceBytes(int64_t slots, int64_t slot_tokens, int64_t vocab,
                                    int64_t dim) {
  // The longest keys are those of a leaf per slot.
  const int count = static_cast<int>(slots * slot_tokens);  // CUB's offsets have this type's size
  const int64_t sort = std::max(SortBytes(count, vocab), SortBytes(count, slots * vocab));
  CHECK_LE(sort, EmbeddingSortBytes(count)) << "EmbeddingGrad: the sort's memory";
  return EmbeddingGradBytes(slots, slot_tokens, vocab, dim);
}

void EmbeddingGrad(const Tensor& tokens, const Tensor& de, const Tensor& dtable,
                   const Tensor& workspace, CudaQueue& queue) {
  const int64_t positions = tokens.size(), dim = de.cols();
  const int64_t leaves = dtable.dim(0), vocab = dtable.dim(1);
  CHECK_EQ(dim % 8, 0) << "EmbeddingGrad: de " << de << "; on CUDA rows of whole vectors";
  CHECK(leaves * vocab <= UINT32_MAX && positions <= INT32_MAX)
      << "EmbeddingGrad: tokens " << tokens << ", dtable " << dtable
      << "; on CUDA keys have 32 bits";
  const Tiles tiles = Tiles::Of(positions, leaves);
  Carver carver(workspace.data(), workspace.bytes());
  auto* keys = carver.Take<uint32_t>(positions);
  auto* other_keys = carver.Take<uint32_t>(positions);
  auto* values = carver.Take<uint32_t>(positions);
  auto* other_values = carver.Take<uint32_t>(positions);
  auto* partials = carver.Take<float>(tiles.count * 2 * dim);

  const auto key_blocks = static_cast<unsigned>(CeilDiv(positions, kThreads));
  MakeKeys<<<key_blocks, kThreads, 0, queue.stream()>>>(tokens.i32(), positions, tiles.leaf_rows,
                                                        static_cast<uint32_t>(vocab), keys, values);
  CheckLaunch("EmbeddingGrad keys");
  cub::DoubleBuffer<uint32_t> sorted_keys(keys, other_keys), sorted_values(values, other_values);
  size_t sort_bytes = static_cast<size_t>(carver.left());
  CUDA_CHECK(cub::DeviceRadixSort::SortPairs(carver.rest(), sort_bytes, sorted_keys, sorted_values,
                                             static_cast<int>(positions), 0, BitsOf(leaves * vocab),
                                             queue.stream()));
  const Sorted sorted = {sorted_keys.Current(), sorted_values.Current(), positions};

  const int64_t slices = CeilDiv(dim, kSlice);
  const auto tile_blocks = static_cast<unsigned>(CeilDiv(tiles.count * slices, kWarps));
  SumTiles<<<tile_blocks, kThreads, 0, queue.stream()>>>(
      sorted, tiles, de.bf16(), dim, static_cast<int>(slices), dtable.f32(), partials);
  CheckLaunch("EmbeddingGrad tiles");
  const dim3 grid(static_cast<unsigned>(tiles.count),
                  static_cast<unsigned>(CeilDiv(dim, kPartialSlice)));
  AddPartialRows<<<grid, kThreads, 0, queue.stream()>>>(sorted, tiles, dim, partials, dtable.f32());
  CheckLaunch("EmbeddingGrad partial rows");
}

}  // namespace kernels::cuda
