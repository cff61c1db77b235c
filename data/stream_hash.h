// Numbers that tell whether two runs read the same tokens.
#ifndef DATA_STREAM_HASH_H_
#define DATA_STREAM_HASH_H_

#include <cstdint>

#include "data/batcher.h"

namespace data {

// Of a slot's inputs, targets and boundaries, and of where in the run they stand. The sum modulo
// 2^64 over all slots of all steps is the stream's, whichever rank had which; a slot that is
// missing, read twice or in another's place changes it. Not for use against an adversary. The same
// on every machine.
uint64_t HashOfSlot(int64_t step, int64_t slot, const SlotBatch& batch);

}  // namespace data

#endif  // DATA_STREAM_HASH_H_
