// CRC-32C (Castagnoli): finds bits that changed between writing and reading a file.
#ifndef TOOLS_CHECKPOINT_CRC32C_H_
#define TOOLS_CHECKPOINT_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tools {

// The sum of `before` followed by `data`, from the sum of `before`; 0 is the sum of nothing. As
// in RFC 3720: Crc32c(0, "123456789") is 0xE3069283. 3 GB/s and more where the processor has an
// instruction for it (SSE4.2), else some 0.4 GB/s.
uint32_t Crc32c(uint32_t before, absl::string_view data);

// The same without the instruction.
uint32_t PortableCrc32c(uint32_t before, absl::string_view data);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_CRC32C_H_
