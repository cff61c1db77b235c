#include "tools/sample/decoder.h"

#include <algorithm>

#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace tools {
namespace {

using kernels::DType;

// Of a pass. A longer text goes through in several; products of more rows are hardly faster.
constexpr int64_t kMostRows = 256;
constexpr int64_t kBoundaries = 2;  // one document

// One pass runs one new token, and others the powers of two up to the context or kMostRows.
std::vector<int64_t> PassRows(int64_t looked_back, int64_t context_tokens) {
  std::vector<int64_t> rows = {looked_back + 1};
  for (int64_t n = 8; n <= kMostRows && rows.back() < looked_back + context_tokens; n *= 2) {
    rows.push_back(n);
  }
  return rows;
}

// A pass' rows behind the context's end are computed for nothing, but have places.
int64_t CacheTokens(int64_t context_tokens) { return context_tokens + kMostRows; }

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelState& state,
                                                         int64_t context_tokens,
                                                         kernels::Backend& backend,
                                                         kernels::Queue& queue) {
  CHECK_GT(context_tokens, 0);
  ABSL_ASSIGN_OR_RETURN(RotaryTable rotary,
                        RotaryTable::Create(state.config, CacheTokens(context_tokens), backend));
  std::unique_ptr<Decoder> decoder(new Decoder(state, context_tokens, std::move(rotary), queue));
  ABSL_RETURN_IF_ERROR(decoder->Allocate(backend));
  decoder->rotary_.Set(state.rotary, queue);
  decoder->passes_[0].gpt->PrepareWeights(*state.parameters, queue);
  return decoder;
}

Decoder::Decoder(const ModelState& state, int64_t context_tokens, RotaryTable rotary,
                 kernels::Queue& queue)
    : state_(state),
      context_tokens_(context_tokens),
      looked_back_(model::RowsLookedBack(state.config)),
      rotary_(std::move(rotary)),
      queue_(queue),
      cache_(state.config, CacheTokens(context_tokens)) {}

absl::Status Decoder::Allocate(kernels::Backend& backend) {
  std::vector<kernels::ArenaPlan> plans;
  for (int64_t rows : PassRows(looked_back_, context_tokens_)) {
    Pass& pass = passes_.emplace_back();
    kernels::ArenaPlan& plan = plans.emplace_back();
    const model::PassShape shape{
        .slots = 1, .slot_tokens = rows, .max_boundaries = kBoundaries, .train = false};
    pass.rows = rows;
    pass.gpt = std::make_unique<model::Gpt>(state_.config, shape);
    if (passes_.size() > 1) pass.gpt->UseWeightsOf(*passes_[0].gpt);
    pass.gpt->Plan(plan, queue_);
    pass.input.Plan(state_.config, shape, plan);
    pass.losses_id = plan.Add("losses", DType::kF32, {1, rows});
    pass.logits_id = plan.Add("logits", DType::kF32, {1, 1, state_.config.vocab_size});
  }
  // The first pass holds the prepared weights; the others hold nothing from one run to the next.
  ABSL_ASSIGN_OR_RETURN(passes_[0].arena, kernels::Arena::Create(plans[0], backend));
  if (plans.size() > 1) {
    ABSL_ASSIGN_OR_RETURN(
        std::vector<kernels::Arena> arenas,
        kernels::Arena::CreateOverlapping({plans.begin() + 1, plans.end()}, backend));
    for (size_t i = 0; i < arenas.size(); ++i) passes_[i + 1].arena = std::move(arenas[i]);
  }
  for (Pass& pass : passes_) {
    pass.gpt->Bind(pass.arena);
    pass.input.Bind(pass.arena);
    pass.losses = pass.arena.Get(pass.losses_id);
    pass.logits = pass.arena.Get(pass.logits_id);
  }
  kernels::ArenaPlan cache_plan;
  cache_.Plan(cache_plan);
  ABSL_ASSIGN_OR_RETURN(cache_arena_, kernels::Arena::Create(cache_plan, backend));
  cache_.Bind(cache_arena_);
  return absl::OkStatus();
}

std::vector<float> Decoder::Logits(const std::vector<int32_t>& tokens) {
  const auto size = static_cast<int64_t>(tokens.size());
  CHECK(size >= 1 && size <= context_tokens_) << size << " tokens";
  KeepCommon(tokens, size - 1);  // the last one's hidden state is needed
  int64_t row = 0;
  Pass& pass = Run(tokens, size, nullptr, &row);
  pass.gpt->Logits(*state_.parameters, 0, row, pass.logits, queue_);
  std::vector<float> logits(pass.logits.size());
  queue_.Download(pass.logits, logits.data());
  queue_.Synchronize();
  return logits;
}

std::vector<float> Decoder::Losses(const std::vector<int32_t>& tokens, int64_t from) {
  const auto size = static_cast<int64_t>(tokens.size());
  CHECK(from >= 1 && from < size && size <= context_tokens_ + 1) << size << " tokens from " << from;
  KeepCommon(tokens, from - 1);
  int64_t row = 0;
  if (static_cast<int64_t>(known_.size()) < from - 1) Run(tokens, from - 1, nullptr, &row);
  std::vector<float> losses;
  Run(tokens, size - 1, &losses, &row);
  return losses;
}

void Decoder::KeepCommon(const std::vector<int32_t>& tokens, int64_t most) {
  const int64_t limit = std::min<int64_t>(most, known_.size());
  int64_t common = 0;
  while (common < limit && tokens[common] == known_[common]) ++common;
  known_.resize(common);
}

Decoder::Pass& Decoder::PassOf(int64_t rows) {
  for (Pass& pass : passes_) {
    if (pass.rows >= rows) return pass;
  }
  return passes_.back();
}

Decoder::Pass& Decoder::Run(const std::vector<int32_t>& tokens, int64_t end,
                            std::vector<float>* losses, int64_t* last_row) {
  while (true) {
    const auto first = static_cast<int64_t>(known_.size());
    const int64_t begin = std::max<int64_t>(0, first - looked_back_);
    Pass& pass = PassOf(end - begin);
    const int64_t chunk_end = std::min(end, begin + pass.rows);
    RunChunk(tokens, begin, first, chunk_end, losses != nullptr, pass);
    known_.insert(known_.end(), tokens.begin() + first, tokens.begin() + chunk_end);
    if (losses != nullptr) {
      std::vector<float> all(pass.losses.size());
      queue_.Download(pass.losses, all.data());
      queue_.Synchronize();
      losses->insert(losses->end(), all.begin() + (first - begin),
                     all.begin() + (chunk_end - begin));
    }
    *last_row = chunk_end - begin - 1;
    if (chunk_end == end) return pass;
  }
}

// The tokens [begin, end), of which those from `kept_from` on are new.
void Decoder::RunChunk(const std::vector<int32_t>& tokens, int64_t begin, int64_t kept_from,
                       int64_t end, bool losses, Pass& pass) {
  CHECK(kept_from < end && end - begin <= pass.rows) << begin << ", " << kept_from << ", " << end;
  std::vector<int32_t> padded(tokens.begin() + begin, tokens.begin() + end);
  padded.resize(pass.rows, 0);
  queue_.Upload(padded.data(), pass.input.tokens());
  pass.input.UploadBoundaries(0, {0, static_cast<int32_t>(cache_.tokens())}, queue_);
  model::PassInput input = pass.input.Input(state_.windows, rotary_);
  input.cache = &cache_;
  input.begin = begin;
  input.kept_from = kept_from - begin;
  if (losses) {
    std::vector<int32_t> targets(tokens.begin() + begin + 1, tokens.begin() + end + 1);
    targets.resize(pass.rows, 0);
    queue_.Upload(targets.data(), input.targets);
    pass.gpt->Loss(input, *state_.parameters, pass.losses, queue_);
  } else {
    pass.gpt->Hidden(input, *state_.parameters, queue_);
  }
  rows_run_ += end - begin;
}

}  // namespace tools
