// The memory that processes of one host share, which containers often make small.
#ifndef COMM_SHARED_MEMORY_H_
#define COMM_SHARED_MEMORY_H_

#include <string>

namespace comm {

// A line that names the folder (such as /dev/shm), its size and what to do if the file system there
// has less than 1 GiB in all, or is not there. Empty if there is nothing to say.
std::string SmallSharedMemoryWarning(const std::string& folder);

}  // namespace comm

#endif  // COMM_SHARED_MEMORY_H_
