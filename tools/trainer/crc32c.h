// The checksum of TFRecord files.
#ifndef TOOLS_TRAINER_CRC32C_H_
#define TOOLS_TRAINER_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tools {

// CRC-32C (Castagnoli, 1993), as RFC 3720 defines it for iSCSI.
uint32_t Crc32c(absl::string_view data);

}  // namespace tools

#endif  // TOOLS_TRAINER_CRC32C_H_
