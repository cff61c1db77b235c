// Whole numbers out of JSON that others have written.
#ifndef TOOLS_JSON_INTEGER_H_
#define TOOLS_JSON_INTEGER_H_

#include <cstdint>
#include <utility>

#include "nlohmann/json.hpp"

namespace tools {

// False, and *out as it was, unless `value` is a whole number that fits. nlohmann's get<int>()
// converts any number: 1e300 too, which is undefined behaviour, and 2^40, which it cuts.
template <typename Json, typename Integer>
bool ReadInteger(const Json& value, Integer* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned()) {
    const auto number = value.template get<uint64_t>();
    if (!std::in_range<Integer>(number)) return false;
    *out = static_cast<Integer>(number);
    return true;
  }
  const auto number = value.template get<int64_t>();
  if (!std::in_range<Integer>(number)) return false;
  *out = static_cast<Integer>(number);
  return true;
}

}  // namespace tools

#endif  // TOOLS_JSON_INTEGER_H_
