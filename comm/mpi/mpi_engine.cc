#include "comm/mpi/mpi_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {

absl::Status MpiEngine::Check(int error, absl::string_view what) const {
  if (error == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) length = 0;
  return absl::UnavailableError(absl::StrCat("rank ", rank_, " of ", size_, ": MPI failed in ",
                                             what, ": error ", error, " ",
                                             absl::string_view(text, length)));
}

absl::Status MpiEngine::Init(const ProcessRank& where) {
  rank_ = where.rank;
  size_ = where.size;
  int before = 0;
  ABSL_RETURN_IF_ERROR(Check(MPI_Initialized(&before), "MPI_Initialized"));
  if (before) {
    return absl::FailedPreconditionError(
        "MPI was started before in this process, and cannot be started twice");
  }
  int provided = 0;
  ABSL_RETURN_IF_ERROR(
      Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread"));
  ABSL_RETURN_IF_ERROR(
      Check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  if (provided < MPI_THREAD_FUNNELED) {
    return absl::FailedPreconditionError(
        absl::StrCat("this Open MPI knows no threads: MPI_THREAD_FUNNELED was asked for, level ",
                     provided, " was given; install one that does"));
  }
  int rank = 0, size = 0;
  ABSL_RETURN_IF_ERROR(Check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank"));
  ABSL_RETURN_IF_ERROR(Check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size"));
  if (rank != rank_ || size != size_) {
    return absl::FailedPreconditionError(absl::StrCat(
        where.launcher, " started rank ", rank_, " of ", size_, ", but for MPI it is rank ", rank,
        " of ", size, "; start it with Open MPI's mpirun, of the version that it is linked with"));
  }
  ABSL_RETURN_IF_ERROR(Check(MPI_Comm_dup(MPI_COMM_WORLD, &firsts_comm_), "MPI_Comm_dup"));
  return Check(MPI_Comm_dup(MPI_COMM_WORLD, &seconds_comm_), "MPI_Comm_dup");
}

absl::Status MpiEngine::StartPart(const MpiStart& start, MPI_Comm comm,
                                  const std::shared_ptr<MpiOperation>& operation) {
  const size_t before = requests_.size();
  const int error = start(comm, requests_);
  operation->requests_left = static_cast<int>(requests_.size() - before);
  owners_.resize(requests_.size(), operation);
  return Check(error, operation->call);
}

absl::Status MpiEngine::Start(std::shared_ptr<MpiOperation> operation) {
  if (operation->second) seconds_.push_back(operation);
  return StartPart(operation->first, firsts_comm_, operation);
}

absl::Status MpiEngine::StartSeconds() {
  while (!seconds_.empty() && seconds_.front()->requests_left == 0) {
    const std::shared_ptr<MpiOperation> operation = seconds_.front();
    seconds_.pop_front();
    operation->in_second = true;
    ABSL_RETURN_IF_ERROR(StartPart(operation->second, seconds_comm_, operation));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::shared_ptr<MpiOperation>>> MpiEngine::Progress() {
  std::vector<std::shared_ptr<MpiOperation>> finished;
  if (requests_.empty()) return finished;
  ended_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int error = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                 ended_.data(), statuses_.data());
  if (error == MPI_ERR_IN_STATUS) {
    for (int i = 0; i < count; ++i) {
      ABSL_RETURN_IF_ERROR(Check(statuses_[i].MPI_ERROR, owners_[ended_[i]]->call));
    }
  }
  ABSL_RETURN_IF_ERROR(Check(error, "MPI_Testsome"));
  for (int i = 0; i < count; ++i) {
    const std::shared_ptr<MpiOperation>& operation = owners_[ended_[i]];
    if (--operation->requests_left > 0) continue;
    const std::function<void()>& after =
        operation->in_second ? operation->after_second : operation->after_first;
    if (after) after();
    if (operation->in_second || !operation->second) finished.push_back(operation);
  }
  if (count > 0) {
    // MPI has made the ended requests null.
    size_t kept = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      owners_[kept++] = owners_[i];
    }
    requests_.resize(kept);
    owners_.resize(kept);
    ABSL_RETURN_IF_ERROR(StartSeconds());
  }
  return finished;
}

absl::Status MpiEngine::Finalize() {
  ABSL_RETURN_IF_ERROR(Check(MPI_Comm_free(&firsts_comm_), "MPI_Comm_free"));
  ABSL_RETURN_IF_ERROR(Check(MPI_Comm_free(&seconds_comm_), "MPI_Comm_free"));
  return Check(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace comm
