#include "kernels/cuda/cuda_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "third_party/absl_compat/check.h"

namespace kernels {
namespace {

std::vector<uint8_t> Encode(DType dtype, const std::vector<double>& values) {
  std::vector<uint8_t> bytes(values.size() * SizeOf(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    uint8_t* at = bytes.data() + i * SizeOf(dtype);
    const float f = static_cast<float>(values[i]);
    const BF16 bf16 = ToBF16(f);
    const int32_t i32 = static_cast<int32_t>(values[i]);
    const int64_t i64 = static_cast<int64_t>(values[i]);
    const uint16_t u16 = static_cast<uint16_t>(i32);
    switch (dtype) {
      case DType::kF32:
        std::memcpy(at, &f, sizeof(f));
        break;
      case DType::kBF16:
        std::memcpy(at, &bf16, sizeof(bf16));
        break;
      case DType::kU16:
        std::memcpy(at, &u16, sizeof(u16));
        break;
      case DType::kI32:
        std::memcpy(at, &i32, sizeof(i32));
        break;
      case DType::kI64:
        std::memcpy(at, &i64, sizeof(i64));
        break;
      default:
        CHECK(false) << dtype;
    }
  }
  return bytes;
}

std::vector<double> Decode(DType dtype, const std::vector<uint8_t>& bytes) {
  std::vector<double> values(bytes.size() / SizeOf(dtype));
  const auto read = [&](auto sample, size_t i) {
    std::memcpy(&sample, bytes.data() + i * sizeof(sample), sizeof(sample));
    return sample;
  };
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::kF32:
        values[i] = read(0.0f, i);
        break;
      case DType::kBF16:
        values[i] = ToFloat(read(BF16{}, i));
        break;
      case DType::kI32:
        values[i] = read(int32_t{}, i);
        break;
      case DType::kI64:
        values[i] = static_cast<double>(read(int64_t{}, i));
        break;
      default:
        CHECK(false) << dtype;
    }
  }
  return values;
}

int64_t Elements(const std::vector<int64_t>& dims) {
  int64_t size = 1;
  for (int64_t dim : dims) size *= dim;
  return size;
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum);
}

// "[1, 5, 7]"
std::string Place(int64_t index, const Tensor& tensor) {
  std::vector<int64_t> place;
  for (int i = tensor.rank() - 1; i >= 0; --i) {
    place.insert(place.begin(), index % tensor.dim(i));
    index /= tensor.dim(i);
  }
  std::ostringstream out;
  for (size_t i = 0; i < place.size(); ++i) out << (i == 0 ? "[" : ", ") << place[i];
  out << "]";
  return out.str();
}

}  // namespace

struct CudaTest::Memory {
  Backend* cuda = nullptr;
  std::vector<std::pair<Backend*, void*>> owned;
  ~Memory() {
    for (const auto& [backend, memory] : owned) backend->Free(memory);
  }
};

CudaTest::CudaTest() : memory_(std::make_unique<Memory>()) {
  absl::StatusOr<Backend*> backend = CudaBackend();
  CHECK(backend.ok()) << backend.status();
  memory_->cuda = *backend;
  absl::StatusOr<std::unique_ptr<Queue>> queue = MakeCudaQueue(0, {});
  CHECK(queue.ok()) << queue.status();
  cuda_ = *std::move(queue);
  cpu_ = MakeCpuQueue();
}

CudaTest::~CudaTest() = default;

Queue& CudaTest::deterministic() {
  if (deterministic_ == nullptr) {
    absl::StatusOr<std::unique_ptr<Queue>> queue = MakeCudaQueue(0, {.deterministic = true});
    CHECK(queue.ok()) << queue.status();
    deterministic_ = *std::move(queue);
  }
  return *deterministic_;
}

Tensor CudaTest::Allocate(Side side, DType dtype, const std::vector<int64_t>& dims) {
  Backend* backend = side == Side::kCpu ? &CpuBackend() : memory_->cuda;
  const int64_t bytes = std::max<int64_t>(1, Elements(dims) * SizeOf(dtype));
  void* memory = backend->Allocate(bytes);
  CHECK(memory != nullptr) << bytes << " bytes";
  memory_->owned.emplace_back(backend, memory);
  return Tensor(memory, dtype, dims, backend->device());
}

void CudaTest::Set(Tensor tensor, const std::vector<double>& values) {
  CHECK_EQ(static_cast<int64_t>(values.size()), tensor.size());
  const std::vector<uint8_t> bytes = Encode(tensor.dtype(), values);
  Queue& queue = tensor.device() == DeviceKind::kCpu ? *cpu_ : *cuda_;
  queue.Upload(bytes.data(), tensor);
  queue.Synchronize();
}

Twin CudaTest::Of(DType dtype, std::vector<int64_t> dims, const std::vector<double>& values) {
  const Twin twin{Allocate(Side::kCpu, dtype, dims), Allocate(Side::kCuda, dtype, dims)};
  Set(twin.cpu, values);
  Set(twin.cuda, values);
  return twin;
}

Twin CudaTest::Normal(DType dtype, std::vector<int64_t> dims, double stddev, double mean) {
  std::mt19937 random(++seed_);
  std::normal_distribution<double> normal(mean, stddev);
  std::vector<double> values(Elements(dims));
  for (double& value : values) value = normal(random);
  return Of(dtype, std::move(dims), values);
}

Twin CudaTest::Uniform(DType dtype, std::vector<int64_t> dims, double low, double high) {
  std::mt19937 random(++seed_);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(Elements(dims));
  for (double& value : values) value = uniform(random);
  return Of(dtype, std::move(dims), values);
}

Twin CudaTest::Ints(std::vector<int64_t> dims, int32_t low, int32_t high) {
  std::mt19937 random(++seed_);
  std::uniform_int_distribution<int32_t> uniform(low, high - 1);
  std::vector<double> values(Elements(dims));
  for (double& value : values) value = uniform(random);
  return Of(DType::kI32, std::move(dims), values);
}

Twin CudaTest::Zeros(DType dtype, std::vector<int64_t> dims) {
  return Of(dtype, dims, std::vector<double>(Elements(dims), 0.0));
}

Twin CudaTest::Output(DType dtype, std::vector<int64_t> dims) {
  const bool integers = dtype == DType::kI32 || dtype == DType::kI64;
  return Of(dtype, dims, std::vector<double>(Elements(dims), integers ? 0x5A5A5A5A : NAN));
}

void CudaTest::Both(const std::function<void(Side, Queue&)>& op) {
  op(Side::kCpu, *cpu_);
  op(Side::kCuda, *cuda_);
  cuda_->Synchronize();
}

std::vector<uint8_t> CudaTest::Bytes(Tensor tensor) {
  std::vector<uint8_t> bytes(tensor.bytes());
  Queue& queue = tensor.device() == DeviceKind::kCpu ? *cpu_ : *cuda_;
  queue.Download(tensor, bytes.data());
  queue.Synchronize();
  return bytes;
}

std::vector<double> CudaTest::OnHost(Tensor tensor) {
  return Decode(tensor.dtype(), Bytes(tensor));
}

void CudaTest::ExpectClose(const Twin& twin, double relative, double absolute,
                           const std::string& what) {
  const std::vector<double> want = OnHost(twin.cpu), got = OnHost(twin.cuda);
  const double rms = Norm(want) / std::sqrt(static_cast<double>(want.size()));
  int64_t bad = 0, worst = -1;
  double worst_error = 0;
  std::ostringstream first;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(got[i] - want[i]);
    const double bound = relative * std::max(std::fabs(want[i]), rms) + absolute;
    if (error <= bound) continue;
    if (++bad <= 5) {
      first << "\n  " << Place(i, twin.cpu) << ": cuda " << got[i] << ", cpu " << want[i];
    }
    if (worst < 0 || !(error <= worst_error)) {
      worst = static_cast<int64_t>(i);
      worst_error = error;
    }
  }
  if (bad == 0) return;
  ADD_FAILURE() << what << " " << twin.cpu << ": " << bad << " of " << want.size()
                << " elements differ by more than " << relative << " of max(|cpu|, rms " << rms
                << ") + " << absolute << "; worst at " << Place(worst, twin.cpu) << ": cuda "
                << got[worst] << ", cpu " << want[worst] << "; first:" << first.str();
}

void CudaTest::ExpectNormClose(const Twin& twin, double bound, const std::string& what) {
  const std::vector<double> want = OnHost(twin.cpu), got = OnHost(twin.cuda);
  std::vector<double> difference(want.size());
  for (size_t i = 0; i < want.size(); ++i) difference[i] = got[i] - want[i];
  EXPECT_LE(Norm(difference), bound * Norm(want)) << what << " " << twin.cpu;
}

void CudaTest::ExpectSameBits(const Twin& twin, const std::string& what) {
  const std::vector<uint8_t> want = Bytes(twin.cpu), got = Bytes(twin.cuda);
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got[i]) continue;
    const int64_t element = static_cast<int64_t>(i) / SizeOf(twin.cpu.dtype());
    ADD_FAILURE() << what << " " << twin.cpu << ": first difference at " << Place(element, twin.cpu)
                  << ": cuda " << OnHost(twin.cuda)[element] << ", cpu "
                  << OnHost(twin.cpu)[element];
    return;
  }
}

void CudaTest::ExpectRepeats(const std::function<void(Queue&)>& op,
                             const std::vector<Tensor>& outputs) {
  std::vector<std::vector<uint8_t>> before, first;
  for (const Tensor& output : outputs) before.push_back(Bytes(output));
  for (int run = 0; run < 2; ++run) {
    for (size_t i = 0; i < outputs.size(); ++i) cuda_->Upload(before[i].data(), outputs[i]);
    op(*cuda_);
    cuda_->Synchronize();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (run == 0) {
        first.push_back(Bytes(outputs[i]));
      } else {
        EXPECT_TRUE(Bytes(outputs[i]) == first[i])
            << "output " << i << " of the second run differs";
      }
    }
  }
}

}  // namespace kernels
