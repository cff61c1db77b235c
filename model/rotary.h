// Tables of the rotary position embedding (Su et al., 2021), filled on the host.
#ifndef MODEL_ROTARY_H_
#define MODEL_ROTARY_H_

#include <span>
#include <vector>

#include "kernels/dtype.h"

namespace model {

// cos and sin of position * frequency, [positions, frequencies] row-major; as many positions as
// the spans (of equal size) have room for. Angle, cosine and sine in f32, rounded to bf16 at the
// end if the tables are bf16, as in the PyTorch originals; positions count from the slot's start,
// not the document's. (The angle's own rounding, up to 2^-7 at position 2^17, is in both q and k.)
void FillRotary(const std::vector<float>& frequencies, std::span<kernels::BF16> cos,
                std::span<kernels::BF16> sin);
void FillRotary(const std::vector<float>& frequencies, std::span<float> cos, std::span<float> sin);

}  // namespace model

#endif  // MODEL_ROTARY_H_
