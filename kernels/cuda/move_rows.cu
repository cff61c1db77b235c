// Rows of a table by number. A warp does a row, 16 bytes a lane at a time. Floor: the rows once
// read and once written (kAdd: read on both sides) over memory bandwidth; a row of 768 is 1.5 or 3
// KiB, so that scattered rows cost little more than neighbours.
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/move_rows.h"
#include "third_party/absl_compat/check.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

template <RowMove move>
__global__ void __launch_bounds__(kThreads)
    Move(const int32_t* rows, int64_t count, int vectors, uint4* table, uint4* packed) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (i >= count) return;
  table += rows[i] * int64_t{vectors};
  packed += i * vectors;
  for (int v = threadIdx.x % kWarp; v < vectors; v += kWarp) {
    if constexpr (move == RowMove::kGather) {
      packed[v] = table[v];
    } else if constexpr (move == RowMove::kScatter) {
      table[v] = packed[v];
    } else {
      const float4 more = reinterpret_cast<const float4*>(packed)[v];
      float4& sum = reinterpret_cast<float4*>(table)[v];
      const float4 old = sum;
      sum = make_float4(old.x + more.x, old.y + more.y, old.z + more.z, old.w + more.w);
    }
  }
}

}  // namespace

void MoveRows(RowMove move, const Tensor& rows, const Tensor& table, const Tensor& packed,
              CudaQueue& queue) {
  const int64_t count = rows.size(), row_bytes = table.cols() * SizeOf(table.dtype());
  CHECK_EQ(row_bytes % 16, 0) << Name(move) << ": table " << table
                              << "; on CUDA rows of whole vectors of 16 bytes";
  const auto blocks = static_cast<unsigned>(CeilDiv(count, kWarps));
  const auto kernel = move == RowMove::kGather    ? Move<RowMove::kGather>
                      : move == RowMove::kScatter ? Move<RowMove::kScatter>
                                                  : Move<RowMove::kAdd>;
  kernel<<<blocks, kThreads, 0, queue.stream()>>>(
      rows.i32(), count, static_cast<int>(row_bytes / 16), static_cast<uint4*>(table.data()),
      static_cast<uint4*>(packed.data()));
  CheckLaunch(Name(move));
}

}  // namespace kernels::cuda
