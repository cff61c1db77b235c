// One fault of three ranks or more, by name; the last rank is the one that has it. Exit code 0 if
// this rank saw what it should, 3 and a line on stderr if not. For mpi_faults_test.sh.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/mpi/mpi.h"
#include "comm/process_rank.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/testing.h"
#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

using kernels::DType;
using kernels::testing::HostTensor;
using Made = absl::StatusOr<std::unique_ptr<Communicator>>;

class Rank {
 public:
  explicit Rank(const ProcessRank& where) : where_(where) {}

  // The last rank skips a collective; the report says which.
  void Timeout() {
    const std::unique_ptr<Communicator> comm = Connect(absl::Seconds(2));
    if (last()) {
      std::this_thread::sleep_for(std::chrono::seconds(4));
      ExpectFailure(comm->Barrier("late"), {absl::StatusCode::kUnavailable}, {"gave up"});
      return;
    }
    // Of the others one is first, and the rest may hear from it.
    const absl::Status status = Sum(*comm, "skipped");
    ExpectFailure(status, {absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable},
                  {"all_reduce(skipped, f32 x 1000, sum)", "rank 2"});
    Expect(comm->Barrier("b") == status, "a later call fails likewise");
    ExpectSeconds(1.5, 8);
  }

  // A reason reaches the others.
  void Reason() {
    const std::unique_ptr<Communicator> comm = Connect(absl::Seconds(60));
    if (last()) {
      comm->Abort(absl::DataLossError("shard 7 is torn"));
      ExpectFailure(comm->Barrier("b"), {absl::StatusCode::kUnavailable}, {"shard 7 is torn"});
      return;
    }
    ExpectFailure(Sum(*comm, "x"), {absl::StatusCode::kUnavailable},
                  {"rank 2 gave up", "shard 7 is torn"});
    ExpectSeconds(0, 5);
  }

  void Lost() {
    const std::unique_ptr<Communicator> comm = Connect(absl::Seconds(60));
    if (last()) raise(SIGKILL);
    ExpectFailure(Sum(*comm, "x"), {absl::StatusCode::kUnavailable},
                  {"rank 2 is gone", "all_reduce(x, f32 x 1000, sum)"});
    ExpectSeconds(0, 5);
  }

  // Others may have connected by then, or not.
  void LostAtTheStart() {
    if (last()) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(std::random_device()() % 400));
        raise(SIGKILL);
      }).detach();
    }
    start_ = std::chrono::steady_clock::now();
    const Made made = MakeMpi(where_, absl::Seconds(10));
    const absl::Status status = made.ok() ? WaitForEver(**made) : made.status();
    ExpectFailure(status, {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded},
                  {"rank 2"});
    ExpectSeconds(0, 15);
  }

  // The communicator's own end must not wait for ever.
  void LostAtTheEnd() {
    std::unique_ptr<Communicator> comm = Connect(absl::Seconds(60));
    if (last()) raise(SIGKILL);
    comm.reset();
    ExpectSeconds(0, 8);
  }

  void Missing() {
    if (last()) return;
    start_ = std::chrono::steady_clock::now();
    const Made made = MakeMpi(where_, absl::Seconds(2));
    ExpectFailure(made.status(),
                  {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded},
                  {"timeout after 2s"});
    ExpectSeconds(1.5, 6);
  }

  // MPI can be started once.
  void Twice() {
    Connect(absl::Seconds(60));
    const Made again = MakeMpi(where_, absl::Seconds(20));
    Expect(absl::IsFailedPrecondition(again.status()) || absl::IsUnavailable(again.status()),
           absl::StrCat("twice: ", again.status().ToString()));
    ExpectSeconds(0, 10);
  }

  int failed() const { return failed_; }

 private:
  bool last() const { return where_.rank == where_.size - 1; }

  void Expect(bool good, const std::string& what) {
    if (good) return;
    ++failed_;
    std::fprintf(stderr, "rank %d: FAILED %s\n", where_.rank, what.c_str());
  }
  void ExpectFailure(const absl::Status& status, const std::vector<absl::StatusCode>& codes,
                     const std::vector<std::string>& texts) {
    bool expected = false;
    for (const absl::StatusCode code : codes) expected |= status.code() == code;
    Expect(expected, absl::StrCat("code of: ", status.ToString()));
    for (const std::string& text : texts) {
      Expect(status.message().find(text) != absl::string_view::npos,
             absl::StrCat("no \"", text, "\" in: ", status.ToString()));
    }
  }
  void ExpectSeconds(double least, double most) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    Expect(seconds >= least && seconds <= most, absl::StrCat("it took ", seconds, " s"));
  }

  std::unique_ptr<Communicator> Connect(absl::Duration timeout) {
    Made made = MakeMpi(where_, timeout);
    CHECK(made.ok()) << made.status();
    const absl::Status together = (*made)->Barrier("together");
    CHECK(together.ok()) << together;
    // A fault that came now could end the others before they are out of the barrier.
    if (last()) std::this_thread::sleep_for(std::chrono::seconds(1));
    start_ = std::chrono::steady_clock::now();
    return *std::move(made);
  }
  absl::Status Sum(Communicator& comm, absl::string_view label) {
    const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
    const HostTensor x(DType::kF32, {1000});
    return comm.AllReduce(label, x, ReduceOp::kSum, *queue).Wait(*queue);
  }
  absl::Status WaitForEver(Communicator& comm) {
    while (true) {
      const absl::Status status = Sum(comm, "x");
      if (!status.ok()) return status;
    }
  }

  const ProcessRank where_;
  std::chrono::steady_clock::time_point start_;
  int failed_ = 0;
};

int Main(int argc, char** argv) {
  const std::map<std::string, void (Rank::*)()> faults = {
      {"timeout", &Rank::Timeout},
      {"reason", &Rank::Reason},
      {"lost", &Rank::Lost},
      {"lost_at_the_start", &Rank::LostAtTheStart},
      {"lost_at_the_end", &Rank::LostAtTheEnd},
      {"missing", &Rank::Missing},
      {"twice", &Rank::Twice},
  };
  CHECK(argc == 2 && faults.contains(argv[1])) << "one argument: the fault's name";
  const absl::StatusOr<ProcessRank> where = GetProcessRank();
  CHECK(where.ok()) << where.status();
  CHECK(where->size == 3) << "start it with mpirun -n 3";
  Rank rank(*where);
  (rank.*faults.at(argv[1]))();
  return rank.failed() == 0 ? 0 : 3;
}

}  // namespace
}  // namespace comm

int main(int argc, char** argv) { return comm::Main(argc, argv); }
