// The training batches of a run, read ahead on a thread of their own.
#ifndef DATA_LOADER_H_
#define DATA_LOADER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/batcher.h"
#include "data/token_map.h"

namespace data {

// The shape of the batches from a step of the run on.
struct LoaderStage {
  int64_t first_step = 0;
  BatchOptions batch;
};

struct LoaderOptions {
  std::vector<std::string> files;   // in the order of use
  std::vector<LoaderStage> stages;  // by ascending first_step, the first's is 0
  TokenMap token_map;
  int epochs = 1;  // times that the files are gone through
};

// What was left out of the batches that Next returned, since the loader was created.
struct LoaderStats {
  int64_t batches = 0;
  BatchStats documents;
  // Tails of documents that began in an earlier shard; none of kStream, which uses them.
  int64_t tokens_before_first_bos = 0;
  int64_t tokens_at_shard_ends = 0;  // too few for a further batch
  int64_t shards_skipped = 0;        // too small for a single batch
};

class ShardTable;

// Next, Peek, State and Stats are for one thread. The batches depend on the options and the start
// alone; a loader that starts at the State() of another, and at the step of its next batch, goes on
// with the same batches.
//
// Each call of Next is a step. The batch of a stage's first step has that stage's shape already,
// and begins at the document where the batch before ended.
//
// At the end of a shard the batch that cannot be filled is dropped as a whole, and the next
// shard begins. A shard without a single batch is skipped and counted. With BatchMode::kStream
// positions are tokens instead of documents, and a shard needs no BOS.
class TrainLoader {
 public:
  // Opens all files and checks their headers; reads the first shard completely. A shard's
  // tokens are checked before it is used: a token outside the vocabulary is DataLoss, a shard
  // without BOS is InvalidArgument. OutOfRange if no file is large enough for one batch of each
  // stage from `first_step` on, the step of the first batch. InvalidArgument if the stages do not
  // have one mode. CHECKs first_step >= 0.
  static absl::StatusOr<std::unique_ptr<TrainLoader>> Create(const LoaderOptions& options,
                                                             LoaderState start, int64_t first_step);
  ~TrainLoader();
  TrainLoader(const TrainLoader&) = delete;
  TrainLoader& operator=(const TrainLoader&) = delete;

  // Waits for the reader. OutOfRange at the end of the last epoch; an error is final, the
  // following calls return it again.
  absl::StatusOr<std::shared_ptr<const GlobalBatch>> Next();
  // What Next will return after `ahead` calls more, 0 being its next one. Waits for the reader,
  // which from then on keeps one more than so many batches ready.
  absl::StatusOr<std::shared_ptr<const GlobalBatch>> Peek(int64_t ahead);

  // After the last batch that Next returned.
  LoaderState State() const { return state_; }
  LoaderStats Stats() const { return stats_; }

  // OutOfRange if the data ends before `steps` batches, counted from the loader's start (not
  // from State()). Exact: reads the shards up to the last one needed, so it also finds bad
  // tokens and shards without BOS before the first step.
  absl::Status CheckEnough(int64_t steps) const;

 private:
  struct Item {
    std::shared_ptr<const GlobalBatch> batch;
    LoaderState after;
    LoaderStats stats;
  };

  TrainLoader(const LoaderOptions& options, LoaderState start, int64_t first_step,
              std::unique_ptr<ShardTable> shards);
  void Read();               // the thread
  absl::Status ReadFiles();  // Cancelled when the loader goes away
  absl::Status ReadShard(LoaderState at, LoaderStats* stats);
  bool Push(Item item);  // waits for room; false when the loader goes away

  const LoaderOptions options_;
  const LoaderState start_;
  const int64_t first_step_;
  const std::unique_ptr<ShardTable> shards_;
  LoaderState state_;
  LoaderStats stats_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> ready_;  // guarded by mutex_
  size_t read_ahead_ = 2;   // guarded by mutex_: batches that are kept ready
  bool stopping_ = false;   // guarded by mutex_
  bool finished_ = false;   // guarded by mutex_: no more items come
  absl::Status end_;        // guarded by mutex_: why
  std::thread reader_;      // last: uses all of the above
};

}  // namespace data

#endif  // DATA_LOADER_H_
