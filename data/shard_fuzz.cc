// Shard files: what Open takes is what the file holds, and no byte of it makes a reader fail.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/batcher.h"
#include "data/shard.h"
#include "data/token_map.h"
#include "third_party/absl_compat/check.h"
#include "tools/build/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::File file(data, size);
  const absl::StatusOr<data::Shard> shard = data::Shard::Open(file.path());
  if (!shard.ok()) return 0;
  CHECK_EQ(shard->tokens().size() * 2 + data::kShardHeaderBytes, size);
  const data::TokenMap map = data::TokenMap::Identity(data::kGpt2Vocabulary);
  if (!map.CheckTokens(*shard).ok()) return 0;
  const std::vector<int64_t> bos = data::BosPositions(shard->tokens());
  if (bos.empty()) return 0;
  const data::BatchOptions options{
      .slots = 2, .slot_tokens = 16, .max_doc_len = 8, .max_documents = 16};
  const auto tokens = static_cast<int64_t>(shard->tokens().size());
  const auto plan = data::PlanBatch(options, bos, tokens, 0);
  if (!plan.ok() || !plan->has_value()) return 0;
  const data::GlobalBatch batch = data::BuildBatch(options, **plan, shard->tokens(), map);
  CHECK_EQ(batch.slots.size(), 2u);
  for (const data::SlotBatch& slot : batch.slots) CHECK_EQ(slot.inputs.size(), 16u);
  return 0;
}
