// What another rank says of its progress, over the network.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "comm/flight_record.h"
#include "third_party/absl_compat/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<comm::Progress> progress = comm::ParseProgress(text);
  if (!progress.ok()) return 0;
  // It is reported beside others, and understood by whoever gets it next.
  CHECK(!comm::ReportText({{comm::RankState::kHere, *progress}, {}}).empty());
  const std::string sent = comm::Serialize(*progress);
  CHECK(sent.size() <= size_t{7} << 10) << sent.size();
  const absl::StatusOr<comm::Progress> again = comm::ParseProgress(sent);
  CHECK(again.ok()) << again.status();
  CHECK_EQ(comm::Serialize(*again), sent);
  return 0;
}
