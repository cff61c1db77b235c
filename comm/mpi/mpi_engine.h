// What the thread that owns MPI does: it alone calls MPI, from the start of MPI to its end.
#ifndef COMM_MPI_MPI_ENGINE_H_
#define COMM_MPI_MPI_ENGINE_H_

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "comm/mpi/mpi_moves.h"
#include "comm/process_rank.h"

namespace comm {

// One collective: first, then, where there are such, after_first, second and after_second. What a
// rank computes between lies in `scratch` or in the caller's tensors.
struct MpiOperation {
  std::string call;    // "all_reduce(loss, f32 x 1, sum)"
  int64_t number = 0;  // of this rank's collectives
  MpiStart first;
  std::function<void()> after_first;
  MpiStart second;
  std::function<void()> after_second;
  std::vector<std::unique_ptr<std::vector<char>>> scratch;

  // The engine's.
  int requests_left = 0;
  bool in_second = false;
};

class MpiEngine {
 public:
  // Starts MPI, together with all ranks. FailedPrecondition if MPI was started before in this
  // process, or sees other ranks than `where` (then mpirun did not start it).
  absl::Status Init(const ProcessRank& where);
  // The order of these calls is the same on all ranks.
  absl::Status Start(std::shared_ptr<MpiOperation> operation);
  bool idle() const { return requests_.empty() && seconds_.empty(); }
  // Lets MPI work, without waiting. The operations that have ended.
  absl::StatusOr<std::vector<std::shared_ptr<MpiOperation>>> Progress();
  // Ends MPI. To be called when all ranks are about to: it waits for them.
  absl::Status Finalize();

 private:
  absl::Status Check(int error, absl::string_view what) const;
  absl::Status StartPart(const MpiStart& start, MPI_Comm comm,
                         const std::shared_ptr<MpiOperation>& operation);
  absl::Status StartSeconds();

  // Second parts start when a rank has ended the first, in the order of the calls, and on a
  // communicator of their own: on each, all ranks start the same things in the same order.
  MPI_Comm firsts_comm_ = MPI_COMM_NULL, seconds_comm_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;
  std::vector<std::shared_ptr<MpiOperation>> owners_;  // of each request
  std::deque<std::shared_ptr<MpiOperation>> seconds_;  // second parts not started yet
  std::vector<int> ended_;                             // of Testsome
  std::vector<MPI_Status> statuses_;
  int rank_ = 0, size_ = 1;
};

}  // namespace comm

#endif  // COMM_MPI_MPI_ENGINE_H_
