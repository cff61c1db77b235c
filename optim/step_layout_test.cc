#include "optim/step_layout.h"

#include "gtest/gtest.h"
#include "optim/record_a.h"

namespace optim {
namespace {

TEST(StepLayout, ProcessingOrderOfRecordA) {
  const StepLayout layout = *PlanStep(RecordAConfig(), RecordASpecs());
  std::vector<std::string> adam;
  for (const BufferLayout& buffer : layout.adam) adam.push_back(buffer.label);
  EXPECT_EQ(adam, (std::vector<std::string>{"scalars", "lm_head.weight", "embed.weight",
                                            "value_embeds.0.weight", "value_embeds.1.weight",
                                            "value_embeds.2.weight"}));
  EXPECT_EQ(layout.adam[0].Chunk(8), 9);
  EXPECT_EQ(layout.adam[1].Chunk(8), 6288 * 768);
}

// In the dtypes of the PyTorch original: the weights'.
TEST(StepLayout, T1_52_Payloads) {
  const StepLayout layout = *PlanStep(RecordAConfig(), RecordASpecs());
  const std::vector<PlannedCollective> planned =
      PlanCollectives(layout, 8, GradientWire::kWeightDType);
  ASSERT_EQ(planned.size(), size_t{2 * 6 + 2 * 4});
  int64_t adam = 0;
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(planned[i].op, "reduce_scatter");
    EXPECT_EQ(planned[6 + i].op, "all_gather");
    adam += planned[i].bytes;
  }
  EXPECT_EQ(adam, 386334720 + 288);
  const int64_t muon[] = {192, 2304, 150994944, 150994944};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(planned[12 + i].op, "reduce_scatter");
    EXPECT_EQ(planned[12 + i].bytes, muon[i]);
    EXPECT_EQ(planned[16 + i].op, "all_gather");
    EXPECT_EQ(planned[16 + i].bytes, muon[i]);
  }
}

TEST(StepLayout, OurGradientsTravelInF32) {
  const StepLayout layout = *PlanStep(RecordAConfig(), RecordASpecs());
  const std::vector<PlannedCollective> planned = PlanCollectives(layout, 8, GradientWire::kF32);
  EXPECT_EQ(planned[1].bytes, 2 * 77266944);
  EXPECT_EQ(planned[7].bytes, 77266944);  // gathers carry weights
  EXPECT_EQ(planned[14].bytes, 150994944);
}

TEST(StepLayout, DescriptionExplains) {
  const OptimizerConfig config = RecordAConfig();
  const StepLayout layout = *PlanStep(config, RecordASpecs());
  const std::string eight = DescribeStep(layout, config, RecordASpecs(), 8);
  for (const char* text :
       {"attn+mlp: 16 x 2359296 f32, chunk 2, padding 0", "rank 3: blocks.8.attn.qkvo_w",
        "attn_gate: 10 x 72 bf16, chunk 2, padding 6 (864 B)", "150994944 B  attn+mlp"}) {
    EXPECT_NE(eight.find(text), std::string::npos) << text << " not in\n" << eight;
  }
  const std::string five = DescribeStep(layout, config, RecordASpecs(), 5);
  for (const char* text : {"padded by 3 (72 is not divisible by 5)", "rank 2 holds two labels"}) {
    EXPECT_NE(five.find(text), std::string::npos) << text << " not in\n" << five;
  }
}

}  // namespace
}  // namespace optim
