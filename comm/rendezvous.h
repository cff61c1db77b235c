// How the processes of a job find each other before they can talk over the GPUs, and how they
// learn afterwards that one of them is gone.
//
// A star of TCP connections around rank 0. Rank 0's address is MASTER_ADDR:MASTER_PORT where the
// environment gives it. Else all ranks have to be on one host: rank 0 listens at a free port of
// the loopback device and publishes it with a random token in a file that only this user can
// write, named after the job and replaced by an atomic rename. A file that an earlier job left
// behind does no harm: nobody who knows its token answers at its port, and the ranks read the
// file again until rank 0 has replaced it. Jobs side by side have different names and tokens.
//
// NCCL_COMM_ID would need no code, but somebody has to choose its port, and a rank of one job
// cannot tell that it reached another job's rank 0.
#ifndef COMM_RENDEZVOUS_H_
#define COMM_RENDEZVOUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/process_rank.h"

namespace comm {

// What a rank said, or did not say, when all were asked for their last words.
struct LastWords {
  enum Kind : uint8_t {
    kHere,     // `text` is its own
    kLeft,     // ended in good order
    kLost,     // the connection ended without a word
    kSilent,   // connected, but said nothing in time
    kUnknown,  // rank 0, which all are connected to, could not be asked
  };
  Kind kind = kUnknown;
  std::string text;
};

// Safe from any thread.
class Rendezvous {
 public:
  // Returns when all ranks are connected. DeadlineExceeded names the ranks (or the address) that
  // did not show up within `timeout`; InvalidArgument if two processes claim one rank, or another
  // world size; FailedPrecondition if the ranks are on several hosts and nothing says where rank
  // 0 is, or the folder of the file is not this user's own.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Meet(const ProcessRank& where,
                                                          absl::Duration timeout);
  virtual ~Rendezvous() = default;  // tells the others that this rank left in good order

  // All ranks' texts, by rank. A collective call. Fails like Poll(), or with DeadlineExceeded.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(const std::string& mine,
                                                             absl::Duration timeout) = 0;
  // Whether all are well, without waiting: Unavailable if a rank gave up (with its reason) or is
  // gone without a word. Stays as it is once it failed.
  virtual absl::Status Poll() = 0;
  // Tells the others that this rank gives up.
  virtual void GiveUp(const absl::Status& reason) = 0;
  // After a failure (CHECK), once: sends `mine`, at most 8191 bytes, and returns what all ranks
  // have sent, by rank. Rank 0 collects for `patience`, the others wait for twice as long for what
  // it has collected; ranks that are gone or stuck hold up nobody for longer. Zero: returns at
  // once; of the others nothing is known.
  virtual std::vector<LastWords> SayLastWords(const std::string& mine, absl::Duration patience) = 0;
};

}  // namespace comm

#endif  // COMM_RENDEZVOUS_H_
