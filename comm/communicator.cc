#include "comm/communicator.h"

#include "third_party/absl_compat/check.h"

namespace comm {

Future& Future::operator=(Future&& other) noexcept {
  CHECK(!valid()) << "a future was overwritten before it was waited for";
  wait_ = std::exchange(other.wait_, nullptr);
  return *this;
}

Future::~Future() { CHECK(!valid()) << "a future was dropped before it was waited for"; }

absl::Status Future::Wait(kernels::Queue& queue) {
  CHECK(valid()) << "a future was waited for twice";
  return std::exchange(wait_, nullptr)(queue);
}

}  // namespace comm
