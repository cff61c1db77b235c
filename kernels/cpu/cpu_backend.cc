#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd_target.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/usable_cpus.h"
#include "third_party/absl_compat/status_macros.h"

namespace kernels {
namespace {

class Cpu : public Backend {
 public:
  absl::string_view name() const override { return "cpu"; }
  DeviceKind device() const override { return DeviceKind::kCpu; }
  void* Allocate(int64_t bytes) override {
    const int64_t rounded = (bytes + 255) / 256 * 256;
    void* memory = std::aligned_alloc(256, rounded);
    if (memory != nullptr) std::memset(memory, 0, rounded);
    return memory;
  }
  void Free(void* memory) override { std::free(memory); }
};

// A pool of one size and the ops that run on it.
struct Engine {
  explicit Engine(int threads)
      : pool(threads),
        attention(MakeCpuAttentionOps(pool)),
        elementwise(MakeCpuElementwiseOps(pool)),
        embedding(MakeCpuEmbeddingOps(pool)),
        head(MakeCpuHeadOps(pool)),
        matmul(MakeCpuMatMulOps(pool)),
        norm(MakeCpuNormOps(pool)),
        optimizer(MakeCpuOptimizerOps(pool)),
        qkv(MakeCpuQkvOps(pool)),
        gated(MakeCpuGatedOps(pool)),
        weight(MakeCpuWeightOps(pool)),
        table{attention.get(), elementwise.get(), embedding.get(), head.get(),
              matmul.get(),    norm.get(),        optimizer.get(), qkv.get(),
              gated.get(),     weight.get(),      embedding.get(), head.get()} {}

  ThreadPool pool;
  const std::unique_ptr<AttentionOps> attention;
  const std::unique_ptr<ElementwiseOps> elementwise;
  const std::unique_ptr<EmbeddingOps> embedding;
  const std::unique_ptr<HeadOps> head;
  const std::unique_ptr<MatMulOps> matmul;
  const std::unique_ptr<NormOps> norm;
  const std::unique_ptr<OptimizerOps> optimizer;
  const std::unique_ptr<QkvOps> qkv;
  const std::unique_ptr<GatedOps> gated;
  const std::unique_ptr<WeightOps> weight;
  const OpTable table;
};

class CopiedBytes : public Readback {
 public:
  explicit CopiedBytes(const Tensor& tensor)
      : bytes_(static_cast<const char*>(tensor.data()),
               static_cast<const char*>(tensor.data()) + tensor.bytes()) {}
  const void* Wait() override { return bytes_.data(); }

 private:
  const std::vector<char> bytes_;
};

// On an executor that runs each op at once, enqueueing again is calling again.
class RepeatedCall : public Recording {
 public:
  explicit RepeatedCall(std::function<void()> call) : call_(std::move(call)) {}
  void Replay() override { call_(); }

 private:
  const std::function<void()> call_;
};

class CpuQueue : public Queue {
 public:
  explicit CpuQueue(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  const OpTable& ops() const override { return engine_->table; }
  DeviceKind device() const override { return DeviceKind::kCpu; }
  void Synchronize() override {}  // every op has run when its call returns
  void Upload(const void* host, Tensor tensor) override {
    std::memcpy(tensor.data(), host, tensor.bytes());
  }
  void Download(Tensor tensor, void* host) override {
    std::memcpy(host, tensor.data(), tensor.bytes());
  }
  std::unique_ptr<Readback> StartDownload(Tensor tensor) override {
    return std::make_unique<CopiedBytes>(tensor);
  }
  std::unique_ptr<Recording> Record(const std::function<void()>& enqueue) override {
    return std::make_unique<RepeatedCall>(enqueue);
  }
  int64_t MarkTime() override {
    marks_.push_back(std::chrono::steady_clock::now());
    return static_cast<int64_t>(marks_.size()) - 1;
  }
  std::vector<double> TakeTimes() override {
    std::vector<double> seconds;
    for (const auto& mark : marks_) {
      seconds.push_back(std::chrono::duration<double>(mark - marks_.front()).count());
    }
    marks_.clear();
    return seconds;
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace

absl::Status CheckCpuBackend() {
  ABSL_RETURN_IF_ERROR(CheckCpuTarget());
  return OpenSgemm();
}

Backend& CpuBackend() {
  static Cpu& cpu = *new Cpu;
  return cpu;
}

std::string DescribeCpu() { return "CPU with " + CpuTarget().name + ", " + SgemmLibrary(); }

std::unique_ptr<Queue> MakeCpuQueue(int threads) {
  static std::mutex& mutex = *new std::mutex;
  static auto& engines = *new std::map<int, std::weak_ptr<Engine>>;
  if (threads == 0) threads = UsableCpus();
  CpuTarget();  // before oneDNN's first product, which reads what it sets
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Engine> engine = engines[threads].lock();
  if (engine == nullptr) {
    engine = std::make_shared<Engine>(threads);
    engines[threads] = engine;
  }
  return std::make_unique<CpuQueue>(std::move(engine));
}

}  // namespace kernels
