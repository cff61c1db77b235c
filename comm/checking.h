// A decorator that finds ranks which do not make the same calls.
#ifndef COMM_CHECKING_H_
#define COMM_CHECKING_H_

#include <memory>

#include "comm/communicator.h"

namespace comm {

// Before each collective, all ranks compare (sequence number, op, label, dtype, count, reduce
// op or root; of rows, what each rank sends to each and expects of it) through `inner`. On a
// difference every rank's Future fails with Aborted, and the message names both ranks and both
// calls; after that the communicator stays failed. Barriers are compared on the queue of the latest
// call, which has to exist still; one that comes before any other call is not.
std::unique_ptr<Communicator> MakeChecking(std::unique_ptr<Communicator> inner);

}  // namespace comm

#endif  // COMM_CHECKING_H_
