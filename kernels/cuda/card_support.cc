#include "kernels/cuda/card_support.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda/card_memory.h"

#ifdef NANOSPEED_CUDA
extern const char kCompiledArchs[];  // of a file that the build writes
#endif

namespace kernels {
namespace {

constexpr ComputeCapability kFirstWithFp8 = {8, 9};

struct Arch {
  ComputeCapability capability;
  char kind = ' ';  // 'a', 'f' or ' ' for none
};

// "90a" -> 9.0, 'a'. The build has checked the spelling.
Arch Parse(absl::string_view text) {
  Arch arch;
  if (!text.empty() && (text.back() == 'a' || text.back() == 'f')) {
    arch.kind = text.back();
    text.remove_suffix(1);
  }
  int number = 0;
  if (absl::SimpleAtoi(text, &number)) arch.capability = {number / 10, number % 10};
  return arch;
}

}  // namespace

std::string Text(const ComputeCapability& capability) {
  return absl::StrCat(capability.major, ".", capability.minor);
}

absl::string_view CompiledArchs() {
#ifdef NANOSPEED_CUDA
  return kCompiledArchs;
#else
  return "";
#endif
}

bool CompiledFor(absl::string_view archs, const ComputeCapability& card) {
  ComputeCapability newest;  // of those without a letter
  for (const absl::string_view text : absl::StrSplit(archs, ';', absl::SkipWhitespace())) {
    const Arch arch = Parse(text);
    const auto [major, minor] = arch.capability;
    if (card.major == major && card.minor == minor) return true;
    if (arch.kind != 'a' && card.major == major && card.minor > minor) return true;
    if (arch.kind == ' ' && arch.capability.AtLeast(newest.major, newest.minor)) {
      newest = arch.capability;
    }
  }
  return newest.major > 0 && card.AtLeast(newest.major, newest.minor);
}

absl::Status CheckCompiledFor(absl::string_view archs, absl::string_view card_name,
                              const ComputeCapability& card) {
  if (CompiledFor(archs, card)) return absl::OkStatus();
  // Hopper's own instructions need the letter.
  const std::string wanted =
      absl::StrCat(card.major, card.minor, card.major == 9 && card.minor == 0 ? "a" : "");
  return absl::FailedPreconditionError(
      absl::StrCat(card_name, " has compute capability ", Text(card),
                   ", for which this program holds no kernels (it holds those for ", archs,
                   "); build it with --//kernels:cuda_archs=", wanted));
}

int64_t SharedBytesPerBlock(const ComputeCapability& card) {
  constexpr int64_t kKiB = 1024;
  switch (card.major * 10 + card.minor) {
    case 80:
    case 87:
      return 163 * kKiB;
    case 86:
    case 89:
    case 120:
    case 121:
      return 99 * kKiB;
    case 90:
    case 100:
    case 103:
      return 227 * kKiB;
    default:
      return 0;
  }
}

absl::Status CheckCardRuns(const CardNeeds& needs, absl::string_view card_name,
                           const ComputeCapability& card) {
  const std::string who = absl::StrCat(card_name, " (compute capability ", Text(card), ")");
  if (needs.fp8_head && !card.AtLeast(kFirstWithFp8.major, kFirstWithFp8.minor)) {
    return absl::FailedPreconditionError(
        absl::StrCat(who,
                     " has no products of 8-bit floats, in which this record trains its head; "
                     "cards have them from compute capability ",
                     Text(kFirstWithFp8), " on"));
  }
  const int64_t shared = SharedBytesPerBlock(card);
  const int64_t wanted =
      needs.head_dim > 64 ? cuda::kAttentionSharedBytes128 : cuda::kAttentionSharedBytes64;
  if (shared > 0 && shared < wanted) {
    return absl::FailedPreconditionError(absl::StrCat(
        who, " gives a block ", shared, " bytes of shared memory, and attention with heads of ",
        needs.head_dim, " takes ", wanted));
  }
  return absl::OkStatus();
}

}  // namespace kernels
