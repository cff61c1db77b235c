// checksums.json of a checkpoint: size and CRC-32C of its other files, so that bytes that changed
// on the disk are an error and not another run.
#ifndef TOOLS_CHECKPOINT_CHECKSUMS_H_
#define TOOLS_CHECKPOINT_CHECKSUMS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/checkpoint/files.h"

namespace tools {

using Checksums = std::map<std::string, FileSum>;  // by name in the folder

std::string FormatChecksums(const Checksums& checksums);

// DataLoss, with `path`, for a text that FormatChecksums did not write.
absl::StatusOr<Checksums> ParseChecksums(const std::string& path, const std::string& text);

// The content of folder/name. DataLoss, with both values, if it is not what was saved; NotFound if
// there is none.
absl::StatusOr<std::string> ReadChecked(const std::string& folder, const std::string& name,
                                        const Checksums& checksums);

}  // namespace tools

#endif  // TOOLS_CHECKPOINT_CHECKSUMS_H_
