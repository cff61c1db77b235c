// The engine's suite on real ranks. Each of them runs all tests; mpirun fails if one of them does.
#include <cstdlib>
#include <memory>

#include "comm/engine_suite.h"
#include "comm/mpi/mpi.h"
#include "comm/process_rank.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "third_party/absl_compat/check.h"

namespace comm {
namespace {

class MpiEngineTest : public testing::TestWithParam<EngineCase> {
 public:
  static std::unique_ptr<Communicator> comm;
};
std::unique_ptr<Communicator> MpiEngineTest::comm;

TEST_P(MpiEngineTest, Works) {
  const std::unique_ptr<kernels::Queue> queue = kernels::MakeCpuQueue(1);
  GetParam().run({*comm, *queue, kernels::CpuBackend()});
  // Ranks stay in step from test to test, and a failure is its own test's.
  const absl::Status status = comm->Barrier("end of test");
  ASSERT_TRUE(status.ok()) << status;
}

std::string NameOf(const testing::TestParamInfo<EngineCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, MpiEngineTest, testing::ValuesIn(CollectiveCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Checking, MpiEngineTest, testing::ValuesIn(CheckingCases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Order, MpiEngineTest, testing::ValuesIn(RankOrderCases()), NameOf);

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // An argument: how many bytes MPI may move at once, as if its counts ended there.
  int64_t piece = kMpiPieceBytes;
  if (argc > 1) piece = std::atoll(argv[1]);
  const absl::StatusOr<ProcessRank> where = GetProcessRank();
  CHECK(where.ok()) << where.status();
  CHECK(where->size >= 2) << "start it with mpirun -n 2";
  absl::StatusOr<std::unique_ptr<Communicator>> made =
      MakeMpi(*where, absl::Seconds(60), {}, piece);
  CHECK(made.ok()) << made.status();
  MpiEngineTest::comm = *std::move(made);
  CHECK(MpiEngineTest::comm->backend() == "mpi");
  const int failed = RUN_ALL_TESTS();
  MpiEngineTest::comm.reset();
  return failed;
}

}  // namespace
}  // namespace comm

int main(int argc, char** argv) { return comm::Main(argc, argv); }
