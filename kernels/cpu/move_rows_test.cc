// Rows of a table by number.
#include <cstring>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/embedding.h"
#include "kernels/testing/testing.h"

namespace kernels {
namespace {

using testing::HostTensor;
using testing::RandomTensor;

// `count` distinct rows of `vocab`, in no order.
std::vector<int32_t> Rows(int64_t vocab, int64_t count) {
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>((i * 7 + 3) % vocab));
  return rows;
}

struct Case {
  int64_t vocab, count, cols;  // vocab is no multiple of 7
};
const Case kCases[] = {{1, 1, 1}, {5, 5, 8}, {100, 33, 24}, {500, 65, 769}, {50, 0, 8}};

TEST(MoveRows, EachIsItsDefinition) {
  for (const int threads : {1, 3}) {
    const auto queue = MakeCpuQueue(threads);
    for (const Case& c : kCases) {
      const std::vector<int32_t> numbers = Rows(c.vocab, c.count);
      HostTensor rows(DType::kI32, {c.count + 1});
      std::copy(numbers.begin(), numbers.end(), rows.get().i32());
      const Tensor ids = rows.get().Slice(0, c.count);
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const HostTensor table = RandomTensor(dtype, {c.vocab, c.cols}, 1);
        const HostTensor packed = RandomTensor(dtype, {c.count + 1, c.cols}, 2);
        const Tensor leading = packed.get().Slice(0, c.count);
        const std::vector<double> before = table.ToDouble(), given = packed.ToDouble();
        std::vector<double> want = before;
        MoveRows(RowMove::kScatter, ids, table, leading, *queue);
        for (int64_t i = 0; i < c.count * c.cols; ++i) {
          want[numbers[i / c.cols] * c.cols + i % c.cols] = given[i];
        }
        EXPECT_EQ(table.ToDouble(), want);
        EXPECT_EQ(packed.ToDouble(), given);

        table.Set(before);
        MoveRows(RowMove::kGather, ids, table, leading, *queue);
        want = given;  // the row behind stays
        for (int64_t i = 0; i < c.count * c.cols; ++i) {
          want[i] = before[numbers[i / c.cols] * c.cols + i % c.cols];
        }
        EXPECT_EQ(packed.ToDouble(), want);
        EXPECT_EQ(table.ToDouble(), before);
        if (dtype != DType::kF32) continue;

        packed.Set(given);
        MoveRows(RowMove::kAdd, ids, table, leading, *queue);
        want = before;
        for (int64_t i = 0; i < c.count * c.cols; ++i) {
          double& sum = want[numbers[i / c.cols] * c.cols + i % c.cols];
          sum = static_cast<float>(sum) + static_cast<float>(given[i]);
        }
        EXPECT_EQ(table.ToDouble(), want);
      }
    }
  }
}

TEST(MoveRows, WrongArgumentsAreBugs) {
  const auto queue = MakeCpuQueue(1);
  const HostTensor rows(DType::kI32, {2}), table(DType::kBF16, {3, 4});
  const HostTensor packed(DType::kBF16, {2, 4}), wide(DType::kF32, {2, 4});
  EXPECT_DEATH(MoveRows(RowMove::kGather, rows, table, wide, *queue), "GatherRows: packed");
  EXPECT_DEATH(MoveRows(RowMove::kAdd, rows, table, packed, *queue), "AddRows: table");
  rows.get().i32()[1] = 3;
  EXPECT_DEATH(MoveRows(RowMove::kScatter, rows, table, packed, *queue), "ScatterRows: row 3 at 1");
}

}  // namespace
}  // namespace kernels
