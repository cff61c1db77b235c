#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cublaslt_api.h"
#include "kernels/cuda/gemm_choices.h"
#include "third_party/absl_compat/status_macros.h"

namespace kernels {
namespace {

// What NVIDIA advises for Hopper. With a workspace of our own the library allocates nothing, so
// products can be captured, and results repeat bit for bit for one algorithm.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kCandidates = 12;
constexpr int kTimedRuns = 3;

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    case DType::kF8E5M2:
      return CUDA_R_8F_E5M2;
    default:
      CHECK(false) << "no products of " << dtype;
      return CUDA_R_32F;
  }
}

// Up to the 256 bytes beyond which nothing gets faster.
uint32_t AlignmentOf(const void* pointer) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(bits & -bits);
}

std::string AddendText(const GemmArgs& g) {
  if (g.beta == 0) return "";
  return g.c == g.d ? " +=" : absl::StrCat(" +c @", AlignmentOf(g.c));
}

// All that the choice of an algorithm depends on.
std::string ShapeText(const GemmArgs& g) {
  const auto operand = [](const GemmOperand& x) {
    return absl::StrCat(Name(x.dtype), x.trans ? "T" : "N", " ld", x.ld, " s", x.stride, " @",
                        AlignmentOf(x.data));
  };
  return absl::StrCat(g.m, "x", g.n, "x", g.k, " b", g.batch, " ", operand(g.a), " ", operand(g.b),
                      " ", Name(g.d_dtype), " ld", g.d_ld, " s", g.d_stride, " @", AlignmentOf(g.d),
                      AddendText(g), g.fast_accumulate ? " fast" : "");
}

// A product's descriptors and the algorithm chosen for it.
struct Product {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algo = {};
};

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgoBits));

class CublasLt : public Gemm {
 public:
  CublasLt(const CublasLtApi& api, cublasLtHandle_t handle, void* workspace, GemmChoices choices)
      : api_(api), handle_(handle), workspace_(workspace), choices_(std::move(choices)) {}
  ~CublasLt() override {
    for (auto& [shape, product] : products_) Destroy(product);
    api_.cublasLtDestroy(handle_);
    CUDA_CHECK(cudaFree(workspace_));
  }

  void Run(const GemmArgs& args, CudaQueue& queue) override {
    const std::string shape = ShapeText(args);
    auto found = products_.find(shape);
    if (found == products_.end()) {
      Product product = Describe(args);
      product.algo = Choose(args, shape, product, queue);
      found = products_.emplace(shape, product).first;
    }
    Launch(args, found->second, args.c, args.d, queue.stream());
  }

  absl::Status SaveChoices() override { return choices_.Save(); }

 private:
  void Check(cublasStatus_t status, const char* what, const GemmArgs& args) const {
    CHECK(status == CUBLAS_STATUS_SUCCESS)
        << what << ": " << api_.cublasLtGetStatusString(status) << ": " << ShapeText(args);
  }

  template <typename Value>
  void Set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, Value value,
           const GemmArgs& args) const {
    Check(api_.cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute", args);
  }

  cublasLtMatrixLayout_t Layout(DType dtype, int64_t rows, int64_t cols, int64_t ld, int64_t stride,
                                const GemmArgs& args) const {
    cublasLtMatrixLayout_t layout = nullptr;
    Check(api_.cublasLtMatrixLayoutCreate(&layout, TypeOf(dtype), rows, cols, ld),
          "cublasLtMatrixLayoutCreate", args);
    const int32_t batch = static_cast<int32_t>(args.batch);
    Check(api_.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                sizeof(batch)),
          "batch count", args);
    Check(api_.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &stride, sizeof(stride)),
          "batch stride", args);
    return layout;
  }

  // The library is column-major: it computes d^T = op(b)^T op(a)^T, so b comes first.
  Product Describe(const GemmArgs& g) const {
    Product product;
    Check(api_.cublasLtMatmulDescCreate(&product.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate", g);
    const auto op = [](bool trans) { return trans ? CUBLAS_OP_T : CUBLAS_OP_N; };
    Set(product.desc, CUBLASLT_MATMUL_DESC_TRANSA, op(g.b.trans), g);
    Set(product.desc, CUBLASLT_MATMUL_DESC_TRANSB, op(g.a.trans), g);
    const bool fp8 = SizeOf(g.a.dtype) == 1;
    if (fp8) {
      Set(product.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(g.fast_accumulate), g);
    }
    product.a =
        Layout(g.b.dtype, g.b.trans ? g.k : g.n, g.b.trans ? g.n : g.k, g.b.ld, g.b.stride, g);
    product.b =
        Layout(g.a.dtype, g.a.trans ? g.m : g.k, g.a.trans ? g.k : g.m, g.a.ld, g.a.stride, g);
    product.d = Layout(g.d_dtype, g.n, g.m, g.d_ld, g.d_stride, g);
    return product;
  }

  void Destroy(Product& product) const {
    api_.cublasLtMatmulDescDestroy(product.desc);
    for (cublasLtMatrixLayout_t layout : {product.a, product.b, product.d}) {
      api_.cublasLtMatrixLayoutDestroy(layout);
    }
  }

  cublasStatus_t TryLaunch(const GemmArgs& g, const Product& product, const void* c, void* d,
                           cudaStream_t stream) const {
    return api_.cublasLtMatmul(handle_, product.desc, &g.alpha, g.b.data, product.a, g.a.data,
                               product.b, &g.beta, g.beta == 0 ? d : c, product.d, d, product.d,
                               &product.algo, workspace_, kWorkspaceBytes, stream);
  }
  void Launch(const GemmArgs& g, const Product& product, const void* c, void* d,
              cudaStream_t stream) const {
    Check(TryLaunch(g, product, c, d, stream), "cublasLtMatmul", g);
  }

  cublasLtMatmulAlgo_t Choose(const GemmArgs& g, const std::string& shape, Product& product,
                              CudaQueue& queue) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    CUDA_CHECK(cudaStreamIsCapturing(queue.stream(), &capture));
    CHECK(capture == cudaStreamCaptureStatusNone)
        << "a product first seen while recording: " << shape;
    if (queue.deterministic()) return Candidates(g, product).front();
    if (const AlgoBits* bits = choices_.Find(shape)) {
      cublasLtMatmulAlgo_t algo;
      std::memcpy(&algo, bits, sizeof(algo));
      cublasLtMatmulHeuristicResult_t result = {};
      if (api_.cublasLtMatmulAlgoCheck(handle_, product.desc, product.a, product.b, product.d,
                                       product.d, &algo, &result) == CUBLAS_STATUS_SUCCESS &&
          result.workspaceSize <= kWorkspaceBytes) {
        return algo;
      }
    }
    const std::vector<cublasLtMatmulAlgo_t> candidates = Candidates(g, product);
    const std::optional<cublasLtMatmulAlgo_t> best =
        Fastest(g, product, candidates, queue.stream());
    if (!best.has_value()) return candidates.front();
    AlgoBits bits;
    std::memcpy(&bits, &*best, sizeof(bits));
    choices_.Add(shape, bits);
    return *best;
  }

  // The library's, best guess first. Split-K only with partial sums in f32 in the workspace: the
  // other schemes round in between or depend on the order in which blocks end.
  std::vector<cublasLtMatmulAlgo_t> Candidates(const GemmArgs& g, const Product& product) const {
    cublasLtMatmulPreference_t preference = nullptr;
    Check(api_.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", g);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      Check(api_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
            "cublasLtMatmulPreferenceSetAttribute", g);
    };
    const void* c = g.beta == 0 ? g.d : g.c;
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(g.b.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(g.a.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(g.d));
    std::vector<cublasLtMatmulHeuristicResult_t> results(kCandidates);
    int found = 0;
    const cublasStatus_t status = api_.cublasLtMatmulAlgoGetHeuristic(
        handle_, product.desc, product.a, product.b, product.d, product.d, preference, kCandidates,
        results.data(), &found);
    api_.cublasLtMatmulPreferenceDestroy(preference);
    Check(status, "cublasLtMatmulAlgoGetHeuristic", g);
    std::vector<cublasLtMatmulAlgo_t> algos;
    for (int i = 0; i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) algos.push_back(results[i].algo);
    }
    CHECK(!algos.empty()) << "cuBLASLt has no algorithm for " << ShapeText(g);
    return algos;
  }

  // Times the candidates on the operands at hand, into memory of its own: the real output may be
  // a running sum. Nothing if there is no memory for that; then the library's first guess has to
  // do for this run.
  std::optional<cublasLtMatmulAlgo_t> Fastest(const GemmArgs& g, Product& product,
                                              const std::vector<cublasLtMatmulAlgo_t>& candidates,
                                              cudaStream_t stream) const {
    const int64_t bytes =
        SizeOf(g.d_dtype) * ((g.batch - 1) * g.d_stride + (g.m - 1) * g.d_ld + g.n);
    void* d = nullptr;
    if (cudaMalloc(&d, bytes) != cudaSuccess) {
      (void)cudaGetLastError();
      return std::nullopt;
    }
    CUDA_CHECK(cudaMemsetAsync(d, 0, bytes, stream));
    cudaEvent_t start, stop;
    CUDA_CHECK(cudaEventCreate(&start));
    CUDA_CHECK(cudaEventCreate(&stop));
    cublasLtMatmulAlgo_t best = candidates.front();
    float best_ms = 0;
    for (const cublasLtMatmulAlgo_t& algo : candidates) {
      product.algo = algo;
      const void* c = g.c == g.d ? d : g.c;
      if (TryLaunch(g, product, c, d, stream) != CUBLAS_STATUS_SUCCESS) continue;
      CUDA_CHECK(cudaEventRecord(start, stream));
      for (int run = 0; run < kTimedRuns; ++run) Launch(g, product, c, d, stream);
      CUDA_CHECK(cudaEventRecord(stop, stream));
      CUDA_CHECK(cudaEventSynchronize(stop));
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, start, stop));
      if (best_ms == 0 || ms < best_ms) {
        best_ms = ms;
        best = algo;
      }
    }
    CUDA_CHECK(cudaEventDestroy(start));
    CUDA_CHECK(cudaEventDestroy(stop));
    CUDA_CHECK(cudaFree(d));
    CHECK(best_ms > 0) << "no algorithm of cuBLASLt runs " << ShapeText(g);
    return best;
  }

  const CublasLtApi api_;
  const cublasLtHandle_t handle_;
  void* const workspace_;
  GemmChoices choices_;
  std::unordered_map<std::string, Product> products_;
};

}  // namespace

absl::StatusOr<int64_t> CublasLtVersion() {
  ABSL_ASSIGN_OR_RETURN(const CublasLtApi api, CublasLtApi::Open());
  return static_cast<int64_t>(api.cublasLtGetVersion());
}

absl::StatusOr<std::unique_ptr<Gemm>> MakeGemm(int device) {
  ABSL_ASSIGN_OR_RETURN(const CublasLtApi api, CublasLtApi::Open());
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t created = api.cublasLtCreate(&handle);
  if (created != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("cublasLtCreate: ", api.cublasLtGetStatusString(created)));
  }
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  ABSL_ASSIGN_OR_RETURN(
      GemmChoices choices,
      GemmChoices::Load(properties.name, static_cast<int64_t>(api.cublasLtGetVersion())));
  void* workspace = nullptr;
  if (cudaMalloc(&workspace, kWorkspaceBytes) != cudaSuccess) {
    (void)cudaGetLastError();
    return absl::ResourceExhaustedError(absl::StrCat(
        "the device has no room for cuBLASLt's workspace of ", kWorkspaceBytes, " bytes"));
  }
  return std::make_unique<CublasLt>(api, handle, workspace, std::move(choices));
}

}  // namespace kernels
