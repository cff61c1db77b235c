#include "data/loader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/shard.h"
#include "third_party/absl_compat/check.h"
#include "third_party/absl_compat/status_macros.h"

namespace data {
namespace {

// Of all stages.
BatchMode ModeOf(const LoaderOptions& options) { return options.stages.front().batch.mode; }

// Index of the stage that `step` belongs to.
size_t StageAt(const LoaderOptions& options, int64_t step) {
  size_t stage = options.stages.size() - 1;
  while (stage > 0 && step < options.stages[stage].first_step) --stage;
  return stage;
}

const BatchOptions& BatchAt(const LoaderOptions& options, int64_t step) {
  return options.stages[StageAt(options, step)].batch;
}

// Input tokens of the batches of `steps` steps from `first_step` on.
int64_t InputTokens(const LoaderOptions& options, int64_t first_step, int64_t steps) {
  int64_t tokens = 0;
  const int64_t end = first_step + steps;
  while (first_step < end) {
    const size_t stage = StageAt(options, first_step);
    const bool last = stage + 1 == options.stages.size();
    const int64_t stage_end = last ? end : std::min(end, options.stages[stage + 1].first_step);
    const BatchOptions& batch = options.stages[stage].batch;
    tokens += (stage_end - first_step) * batch.slots * batch.slot_tokens;
    first_step = stage_end;
  }
  return tokens;
}

absl::Status ValidateStages(const std::vector<LoaderStage>& stages) {
  if (stages.empty() || stages.front().first_step != 0) {
    return absl::InvalidArgumentError(
        "the stages of the batches must begin with one whose first step is 0");
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i > 0 && stages[i].first_step <= stages[i - 1].first_step) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stage ", i, " of the batches begins at step ", stages[i].first_step,
          ", the one before at ", stages[i - 1].first_step, "; their first steps must ascend"));
    }
    if (stages[i].batch.mode != stages.front().batch.mode) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stage ", i, " of the batches and the first one differ in mode; where a batch ends is ",
          "a document's number in one and a token's position in the other"));
    }
    ABSL_RETURN_IF_ERROR(ValidateBatchOptions(stages[i].batch));
  }
  return absl::OkStatus();
}

}  // namespace

// The run's shards with their documents. A shard is scanned once, when first asked for: here a
// reader thread and CheckEnough meet, so Get may be called from several threads.
class ShardTable {
 public:
  struct Documents {
    absl::Span<const uint16_t> tokens;
    std::vector<int64_t> bos;
  };

  static absl::StatusOr<std::unique_ptr<ShardTable>> Open(const LoaderOptions& options) {
    const bool needs_bos = ModeOf(options) == BatchMode::kDocuments;
    auto table = std::make_unique<ShardTable>(options.token_map, needs_bos);
    for (const std::string& file : options.files) {
      ABSL_ASSIGN_OR_RETURN(Shard shard, Shard::Open(file));
      table->entries_.push_back(std::make_unique<Entry>(std::move(shard)));
    }
    return table;
  }

  ShardTable(const TokenMap& token_map, bool needs_bos)
      : token_map_(token_map), needs_bos_(needs_bos) {}

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t tokens(int64_t file) const {
    return static_cast<int64_t>(entries_[file]->shard.tokens().size());
  }

  absl::StatusOr<const Documents*> Get(int64_t file) {
    Entry& entry = *entries_[file];
    std::lock_guard<std::mutex> lock(entry.mutex);
    if (!entry.scanned) {
      entry.status = Scan(&entry);
      entry.scanned = true;
    }
    if (!entry.status.ok()) return entry.status;
    return &entry.documents;
  }

 private:
  struct Entry {
    explicit Entry(Shard opened) : shard(std::move(opened)) {}

    const Shard shard;
    std::mutex mutex;
    bool scanned = false;
    absl::Status status;
    Documents documents;  // not changed once scanned
  };

  absl::Status Scan(Entry* entry) const {
    ABSL_RETURN_IF_ERROR(token_map_.CheckTokens(entry->shard));
    entry->documents = {entry->shard.tokens(), BosPositions(entry->shard.tokens())};
    if (needs_bos_ && entry->documents.bos.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          entry->shard.path(), ": no BOS (", kGpt2Bos, ") among its ", entry->shard.tokens().size(),
          " tokens, so no document begins here and all would be skipped; write the "
          "shard with BOS before each document, or leave it out"));
    }
    return absl::OkStatus();
  }

  const TokenMap token_map_;
  const bool needs_bos_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

namespace {

absl::Status CheckLargeEnough(const LoaderOptions& options, int64_t first_step,
                              const ShardTable& shards) {
  int64_t largest = 0;
  for (int64_t file = 0; file < shards.size(); ++file) {
    if (shards.tokens(file) > shards.tokens(largest)) largest = file;
  }
  int64_t needed = 0;
  for (size_t i = StageAt(options, first_step); i < options.stages.size(); ++i) {
    needed = std::max(needed, ShardTokensOfBatch(options.stages[i].batch));
  }
  if (shards.tokens(largest) >= needed) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      options.files[largest], ": a batch needs ", needed, " tokens of one shard, the largest of ",
      shards.size(), " holds ", shards.tokens(largest), "; lower --batch_tokens or join shards"));
}

absl::Status CheckStart(const LoaderOptions& options, LoaderState start, ShardTable* shards) {
  if (start.epoch < 0 || start.epoch >= options.epochs || start.file < 0 ||
      start.file >= shards->size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data position to resume at is file ", start.file, " in epoch ", start.epoch,
        " (both from 0), the run has ", shards->size(), " training files and ", options.epochs,
        " epochs; resume with the files and --epochs of the saved run"));
  }
  ABSL_ASSIGN_OR_RETURN(const ShardTable::Documents* documents, shards->Get(start.file));
  const bool stream = ModeOf(options) == BatchMode::kStream;
  const int64_t count = static_cast<int64_t>(stream ? documents->tokens.size()  //
                                                    : documents->bos.size());
  if (start.next_document < 0 || start.next_document > count) {
    const char* what = stream ? "token" : "document";
    return absl::InvalidArgumentError(
        absl::StrCat(options.files[start.file], ": the data position to resume at is ", what, " ",
                     start.next_document, ", the file holds ", count, " ", what,
                     "s; resume with the files of the saved run"));
  }
  return absl::OkStatus();
}

// The batch of `step`. An error about the shard's tokens says which.
absl::StatusOr<std::optional<BatchPlan>> Plan(const LoaderOptions& options, int64_t step,
                                              const ShardTable::Documents& documents,
                                              LoaderState at) {
  absl::StatusOr<std::optional<BatchPlan>> plan =
      PlanBatch(BatchAt(options, step), documents.bos,
                static_cast<int64_t>(documents.tokens.size()), at.next_document);
  if (plan.ok()) return plan;
  return absl::Status(plan.status().code(),
                      absl::StrCat(options.files[at.file], ": ", plan.status().message()));
}

// How many batches shards hold. Remembers those that were read from their front, so that many
// epochs of the same shards take no longer than one.
class BatchCounter {
 public:
  BatchCounter(const LoaderOptions& options, ShardTable* shards)
      : options_(options), shards_(shards), whole_(options.stages.size() * shards->size(), -1) {}

  // Of the rest of shard at.file, the first of them the batch of `step`. Steps never fall from call
  // to call, so a count that reached into the next stage is not looked up again.
  absl::StatusOr<int64_t> Count(LoaderState at, int64_t step) {
    const size_t stage = StageAt(options_, step);
    int64_t& whole = whole_[stage * shards_->size() + at.file];
    // `step + whole` is the batch that could not be filled: it too has to be of this stage.
    if (at.next_document == 0 && whole >= 0 && StageAt(options_, step + whole) == stage) {
      return whole;
    }
    const bool from_front = at.next_document == 0;
    ABSL_ASSIGN_OR_RETURN(const ShardTable::Documents* documents, shards_->Get(at.file));
    for (int64_t batches = 0;; ++batches) {
      ABSL_ASSIGN_OR_RETURN(const std::optional<BatchPlan> plan,
                            Plan(options_, step + batches, *documents, at));
      if (!plan) {
        if (from_front) whole = batches;
        return batches;
      }
      at.next_document = plan->next_document;
    }
  }

 private:
  const LoaderOptions& options_;
  ShardTable* const shards_;
  std::vector<int64_t> whole_;  // by stage and file; -1: not known
};

void Add(const BatchStats& more, BatchStats* stats) {
  stats->documents += more.documents;
  stats->documents_truncated += more.documents_truncated;
  stats->tokens_truncated += more.tokens_truncated;
  stats->tokens_cut += more.tokens_cut;
}

}  // namespace

TrainLoader::TrainLoader(const LoaderOptions& options, LoaderState start, int64_t first_step,
                         std::unique_ptr<ShardTable> shards)
    : options_(options),
      start_(start),
      first_step_(first_step),
      shards_(std::move(shards)),
      state_(start) {}

absl::StatusOr<std::unique_ptr<TrainLoader>> TrainLoader::Create(const LoaderOptions& options,
                                                                 LoaderState start,
                                                                 int64_t first_step) {
  CHECK_GE(first_step, 0);
  if (options.files.empty()) return absl::InvalidArgumentError("no training file");
  if (options.epochs < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--epochs=", options.epochs, ": must be at least 1"));
  }
  ABSL_RETURN_IF_ERROR(ValidateStages(options.stages));
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<ShardTable> shards, ShardTable::Open(options));
  ABSL_RETURN_IF_ERROR(CheckLargeEnough(options, first_step, *shards));
  ABSL_RETURN_IF_ERROR(CheckStart(options, start, shards.get()));
  std::unique_ptr<TrainLoader> loader(
      new TrainLoader(options, start, first_step, std::move(shards)));
  loader->reader_ = std::thread(&TrainLoader::Read, loader.get());
  return loader;
}

TrainLoader::~TrainLoader() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

absl::StatusOr<std::shared_ptr<const GlobalBatch>> TrainLoader::Next() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || finished_; });
  if (ready_.empty()) return end_;
  Item item = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  state_ = item.after;
  stats_ = item.stats;
  return std::move(item.batch);
}

absl::StatusOr<std::shared_ptr<const GlobalBatch>> TrainLoader::Peek(int64_t ahead) {
  CHECK_GE(ahead, 0);
  const auto index = static_cast<size_t>(ahead);
  std::unique_lock<std::mutex> lock(mutex_);
  if (read_ahead_ < index + 2) {
    read_ahead_ = index + 2;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return ready_.size() > index || finished_; });
  if (ready_.size() <= index) return end_;
  return ready_[index].batch;
}

bool TrainLoader::Push(Item item) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return ready_.size() < read_ahead_ || stopping_; });
  if (stopping_) return false;
  ready_.push_back(std::move(item));
  lock.unlock();
  changed_.notify_all();
  return true;
}

void TrainLoader::Read() {
  absl::Status end = ReadFiles();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    end_ = std::move(end);
    finished_ = true;
  }
  changed_.notify_all();
}

absl::Status TrainLoader::ReadFiles() {
  LoaderStats stats;
  LoaderState at = start_;
  for (; at.epoch < options_.epochs; ++at.epoch, at.file = 0) {
    const bool whole_epoch = at.file == 0 && at.next_document == 0;
    const int64_t before = stats.batches;
    for (; at.file < shards_->size(); ++at.file, at.next_document = 0) {
      ABSL_RETURN_IF_ERROR(ReadShard(at, &stats));
    }
    // Further epochs would be as empty.
    if (whole_epoch && stats.batches == before) break;
  }
  return absl::OutOfRangeError(absl::StrCat(
      "the training data is used up: ", shards_->size(), " files, ", options_.epochs, " epochs, ",
      stats.batches, " batches since this start; raise --epochs or give more files"));
}

absl::Status TrainLoader::ReadShard(LoaderState at, LoaderStats* stats) {
  ABSL_ASSIGN_OR_RETURN(const ShardTable::Documents* documents, shards_->Get(at.file));
  const bool stream = ModeOf(options_) == BatchMode::kStream;
  const bool from_front = at.next_document == 0;
  const int64_t before = stats->batches;
  if (from_front && !stream) stats->tokens_before_first_bos += documents->bos.front();
  while (true) {
    const int64_t step = first_step_ + stats->batches;
    ABSL_ASSIGN_OR_RETURN(const std::optional<BatchPlan> plan,
                          Plan(options_, step, *documents, at));
    if (!plan) break;
    at.next_document = plan->next_document;
    ++stats->batches;
    Add(plan->stats, &stats->documents);
    auto batch = std::make_shared<const GlobalBatch>(
        BuildBatch(BatchAt(options_, step), *plan, documents->tokens, options_.token_map));
    if (!Push({std::move(batch), at, *stats})) {
      return absl::CancelledError("the loader is going away");
    }
  }
  if (from_front && stats->batches == before) ++stats->shards_skipped;
  const int64_t tokens = static_cast<int64_t>(documents->tokens.size());
  if (stream) {
    stats->tokens_at_shard_ends += tokens - at.next_document;
  } else if (at.next_document < static_cast<int64_t>(documents->bos.size())) {
    stats->tokens_at_shard_ends += tokens - documents->bos[at.next_document];
  }
  return absl::OkStatus();
}

absl::Status TrainLoader::CheckEnough(int64_t steps) const {
  int64_t found = 0;
  int64_t present = 0;  // tokens
  LoaderState at = start_;
  BatchCounter counter(options_, shards_.get());
  for (; at.epoch < options_.epochs && found < steps; ++at.epoch, at.file = 0) {
    const bool whole_epoch = at.file == 0 && at.next_document == 0;
    const int64_t before = found;
    for (; at.file < shards_->size() && found < steps; ++at.file, at.next_document = 0) {
      ABSL_ASSIGN_OR_RETURN(const int64_t batches, counter.Count(at, first_step_ + found));
      found += batches;
      present += shards_->tokens(at.file);
    }
    // Further epochs would be as empty.
    if (whole_epoch && found == before) break;
  }
  if (found >= steps) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      steps, " steps need ", InputTokens(options_, first_step_, steps), " training tokens; ",
      options_.files.front(),
      shards_->size() > 1 ? absl::StrCat(" and ", shards_->size() - 1, " more") : "", " hold ",
      present, " in ", options_.epochs, " epochs from where the run starts, of which whole batches",
      ModeOf(options_) == BatchMode::kStream ? "" : " and document limits", " leave ", found,
      " steps with ", InputTokens(options_, first_step_, found),
      " tokens; raise --epochs, lower --steps (at most ", found, ") or give more files"));
}

}  // namespace data
