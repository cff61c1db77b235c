// What a graphics card can run of the CUDA backend: questions about numbers, answered without a
// card.
#ifndef KERNELS_CUDA_CARD_SUPPORT_H_
#define KERNELS_CUDA_CARD_SUPPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kernels {

// A card's compute capability, such as 9.0 of an H100.
struct ComputeCapability {
  int major = 0, minor = 0;
  bool AtLeast(int other_major, int other_minor) const {
    return major > other_major || (major == other_major && minor >= other_minor);
  }
};
// "9.0"
std::string Text(const ComputeCapability& capability);

// The architectures that this program's kernels were compiled for, as --//kernels:cuda_archs names
// them: "80;90a". Empty in a build without --config=cuda.
absl::string_view CompiledArchs();

// Whether a program compiled for `archs` has kernels for a card. An architecture without a letter
// serves cards of its major version from its minor version on, and the newest of them all later
// cards too, since its PTX is compiled by the driver. One with "f" serves cards of its major
// version from its minor version on, one with "a" its own alone.
bool CompiledFor(absl::string_view archs, const ComputeCapability& card);

// FailedPrecondition, with the flag that would build them, where the program has none.
absl::Status CheckCompiledFor(absl::string_view archs, absl::string_view card_name,
                              const ComputeCapability& card);

// What a model asks of a card beside memory.
struct CardNeeds {
  bool fp8_head = false;  // products of 8-bit floats, which cards have from 8.9 on
  int64_t head_dim = 0;   // of attention
};

// FailedPrecondition, with the card's name and what it lacks, where a card cannot train a model.
absl::Status CheckCardRuns(const CardNeeds& needs, absl::string_view card_name,
                           const ComputeCapability& card);

// Shared memory that a block may ask for, in bytes: CUDA's programming guide, by compute
// capability. 0: unknown to this program.
int64_t SharedBytesPerBlock(const ComputeCapability& card);

}  // namespace kernels

#endif  // KERNELS_CUDA_CARD_SUPPORT_H_
