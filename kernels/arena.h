// Memory that is planned first and allocated once.
//
//   ArenaPlan plan;
//   const TensorId x = plan.Add("x", DType::kBF16, {slots, tokens, dim});
//   ABSL_ASSIGN_OR_RETURN(Arena arena, Arena::Create(plan, backend));
//   Tensor t = arena.Get(x);
#ifndef KERNELS_ARENA_H_
#define KERNELS_ARENA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace kernels {

// A place in the plan that made it.
struct TensorId {
  int index = -1;
};

class ArenaPlan {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    std::vector<int64_t> dims;
    int64_t offset;  // bytes from the arena's start, a multiple of 256
  };

  TensorId Add(std::string name, DType dtype, std::vector<int64_t> dims);
  int64_t bytes() const { return bytes_; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  int64_t bytes_ = 0;
};

// One allocation, laid out by a plan and filled with zeros at first.
class Arena {
 public:
  // ResourceExhausted, with the number of bytes, if the device has not enough memory.
  static absl::StatusOr<Arena> Create(ArenaPlan plan, Backend& backend);
  // As many arenas, of which only one is in use at a time: they lie over each other in one
  // allocation of the largest one's size. Whoever changes over finds bytes of the one before.
  static absl::StatusOr<std::vector<Arena>> CreateOverlapping(std::vector<ArenaPlan> plans,
                                                              Backend& backend);

  Arena() = default;
  Arena(Arena&&) = default;
  Arena& operator=(Arena&&) = default;

  Tensor Get(TensorId id) const;
  const ArenaPlan& plan() const { return plan_; }

 private:
  ArenaPlan plan_;
  DeviceKind device_ = DeviceKind::kCpu;
  std::shared_ptr<void> memory_;
};

}  // namespace kernels

#endif  // KERNELS_ARENA_H_
