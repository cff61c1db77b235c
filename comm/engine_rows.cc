#include "comm/engine_rows.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/checking.h"
#include "comm/engine_tensors.h"
#include "gtest/gtest.h"

namespace comm {

using kernels::DType;
using kernels::Tensor;

namespace {

// Rows from `from` to `to`: none, one or many, also of a rank for itself.
int64_t RowsBetween(int from, int to, int call) {
  constexpr int64_t kRows[] = {3, 0, 1, 40, 0};
  return call == 0 ? 0 : kRows[(3 * from + to + call) % 5];
}
// Whole numbers below 256 for up to 8 ranks: exact in bf16.
double RowValue(int from, int to, int64_t i) {
  return static_cast<double>(4 * (8 * from + to) + i % 3);
}

}  // namespace

void RowsOfDifferingNumbers(const EngineRank& rank) {
  const int size = rank.comm.size(), own = rank.comm.rank();
  for (int call = 0; call < 4; ++call) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const int64_t cols = call == 3 ? 1 : 769;
      std::vector<int64_t> send, receive;
      std::vector<double> in_values, want;
      for (int other = 0; other < size; ++other) {
        send.push_back(RowsBetween(own, other, call));
        receive.push_back(RowsBetween(other, own, call));
        for (int64_t i = 0; i < send.back() * cols; ++i) {
          in_values.push_back(RowValue(own, other, i));
        }
        for (int64_t i = 0; i < receive.back() * cols; ++i) want.push_back(RowValue(other, own, i));
      }
      // Room for one row more, which stays.
      in_values.resize(in_values.size() + cols, -1.0);
      want.resize(want.size() + cols, -1.0);
      const auto entries = [](const std::vector<double>& values) {
        return [&values](int64_t i) { return values[i]; };
      };
      const DeviceTensor in(rank, dtype, static_cast<int64_t>(in_values.size()),
                            entries(in_values));
      const DeviceTensor out(rank, dtype, static_cast<int64_t>(want.size()),
                             [](int64_t) { return -1.0; });
      const std::string what = absl::StrCat("rows of call ", call);
      ExpectOk(rank,
               rank.comm.AllToAllRows("rows", Tensor(in).Reshape({-1, cols}), send,
                                      Tensor(out).Reshape({-1, cols}), receive, rank.queue),
               what);
      ExpectValues(rank, out, entries(want), what);
      ExpectValues(rank, in, entries(in_values), "input of " + what);
    }
  }
}

// Rank 0 sends a row more than the last rank expects; all are told by how many.
void DifferentCountsAreNamed(const EngineRank& rank) {
  const int size = rank.comm.size(), last = size - 1;
  if (size == 1) return;
  const std::unique_ptr<Communicator> checking =
      MakeChecking(std::make_unique<Borrowed>(rank.comm));
  const Value one = [](int64_t) { return 1.0; };
  const DeviceTensor in(rank, DType::kF32, 8 * size, one), out(rank, DType::kF32, 8 * size, one);
  const Tensor in_rows = Tensor(in).Reshape({-1, 4}), out_rows = Tensor(out).Reshape({-1, 4});
  std::vector<int64_t> send(size, 1), receive(size, 1);
  ExpectOk(rank, checking->AllToAllRows("same", in_rows, send, out_rows, receive, rank.queue),
           "same counts");
  if (rank.comm.rank() == 0) send[last] = 2;
  const absl::Status status =
      checking->AllToAllRows("rows", in_rows, send, out_rows, receive, rank.queue).Wait(rank.queue);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  const std::string want = absl::StrCat(
      "collective 1, all_to_all_rows(rows, rows of f32 x 4): rank 0 sends 2 rows to "
      "rank ",
      last, ", which expects 1");
  EXPECT_NE(std::string(status.message()).find(want), std::string::npos) << status;
}

}  // namespace comm
