// The loss of a model that knows nothing but how frequent each token is.
#ifndef DATA_UNIGRAM_H_
#define DATA_UNIGRAM_H_

#include "data/shard.h"

namespace data {

// Entropy of the shard's token frequencies, in nats per token: a model below it has learned
// from context.
double UnigramEntropy(const Shard& shard);

}  // namespace data

#endif  // DATA_UNIGRAM_H_
