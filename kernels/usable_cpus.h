// How many threads are worth starting.
#ifndef KERNELS_USABLE_CPUS_H_
#define KERNELS_USABLE_CPUS_H_

#include <string>

namespace kernels {

// Returns the number of CPUs that this process may use, at least 1: those of the calling thread's
// affinity mask (taskset, Slurm, cpusets), or fewer if the CPU quota of its control groups (docker
// --cpus, Kubernetes' limits) is worth less; a part of a CPU counts as one.
int UsableCpus();

// The CPUs that the quotas of a process' control groups are worth, rounded up; 0 if there is none.
// `proc_cgroup`: the text of /proc/self/cgroup; `root`: the folder where control groups are
// mounted, /sys/fs/cgroup. Versions 1 and 2 are read, and the limits of all groups above.
int CpusOfQuota(const std::string& proc_cgroup, const std::string& root);

}  // namespace kernels

#endif  // KERNELS_USABLE_CPUS_H_
