#include "tools/trainer/weights.h"

#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"

namespace tools {
namespace {

using kernels::DType;
using kernels::Parameter;
using kernels::testing::HostTensor;
using kernels::testing::RandomTensor;

class WeightsTest : public testing::Test {
 protected:
  WeightsTest() {
    Add("embed.weight", DType::kBF16, {6, 4}, a_);
    Add("blocks.1.mlp.c_fc", DType::kF32, {3, 2}, b_);
  }
  void Add(const std::string& name, DType dtype, std::vector<int64_t> shape, const HostTensor& t) {
    Parameter parameter;
    parameter.spec.name = name;
    parameter.spec.dtype = dtype;
    parameter.spec.shape = shape;
    parameter.value = t;
    parameters_.push_back(parameter);
  }
  void ExpectRefused(const TensorMap& tensors, const std::string& part) {
    const std::vector<double> before = a_.ToDouble();
    const absl::Status status = WeightsFromHost(tensors, "w.safetensors", parameters_, *queue_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
    EXPECT_EQ(a_.ToDouble(), before);  // nothing was changed
  }

  std::unique_ptr<kernels::Queue> queue_ = kernels::MakeCpuQueue(1);
  HostTensor a_ = RandomTensor(DType::kBF16, {6, 4}, 1);
  HostTensor b_ = RandomTensor(DType::kF32, {3, 2}, 2);
  std::vector<Parameter> parameters_;
};

TEST_F(WeightsTest, RoundTrip) {
  const TensorMap saved = WeightsToHost(parameters_, *queue_);
  const std::vector<double> a = a_.ToDouble(), b = b_.ToDouble();
  a_.Set(std::vector<double>(24, 7.0));
  b_.Set(std::vector<double>(6, 7.0));
  ASSERT_TRUE(WeightsFromHost(saved, "w.safetensors", parameters_, *queue_).ok());
  EXPECT_EQ(a_.ToDouble(), a);
  EXPECT_EQ(b_.ToDouble(), b);
}

TEST_F(WeightsTest, X5_OtherModelsAreRefusedWithBothValues) {
  const TensorMap good = WeightsToHost(parameters_, *queue_);
  TensorMap bad = good;
  bad["embed.weight"].shape = {4, 6};
  ExpectRefused(bad, "bf16 [4, 6], the model's is bf16 [6, 4]");
  bad = good;
  bad["blocks.1.mlp.c_fc"].dtype = DType::kI32;
  ExpectRefused(bad, "i32 [3, 2], the model's is f32 [3, 2]");
  bad = good;
  bad.erase("embed.weight");
  ExpectRefused(bad, "no tensor embed.weight");
  bad = good;
  bad["extra"] = good.at("embed.weight");
  ExpectRefused(bad, "tensor extra");
}

}  // namespace
}  // namespace tools
