// Which rank of how many this process is, as its launcher says in the environment.
#ifndef COMM_PROCESS_RANK_H_
#define COMM_PROCESS_RANK_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace comm {

struct ProcessRank {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;  // ranks of this host; 0: the launcher does not say
  // host:port at which rank 0 may listen. Empty: not given, enough when all are on one host.
  std::string rendezvous;
  // Tells jobs apart that run on one host at the same time.
  std::string job;
  std::string launcher;  // for messages; empty: no launcher

  bool one_host() const { return local_size == size; }
};

// The first of these sets of which a variable is there; none of them: rank 0 of 1.
//
//   NANOSPEED_RANK, NANOSPEED_WORLD_SIZE, NANOSPEED_LOCAL_RANK [, NANOSPEED_LOCAL_SIZE]
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK [, _LOCAL_SIZE]       Open MPI's mpirun
//   RANK, WORLD_SIZE, LOCAL_RANK [, LOCAL_WORLD_SIZE]              torchrun
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID              srun
//
// The order is from the inside out: mpirun and torchrun are often started by Slurm. Slurm's count
// only if SLURM_STEP_ID is there too, as it is under srun, and is that of a step which srun
// started: a batch script and an allocation's interactive shell, which are no ranks of anything,
// have SLURM_PROCID=0 as well, and the shell has a step's id, but one of Slurm's reserved ones. The
// size is the step's; SLURM_NTASKS, which an allocation sets, counts only where Slurm does not say
// the step's. MASTER_ADDR and MASTER_PORT, with any launcher, say where rank 0 listens.
//
// InvalidArgument, naming the variable and its value: one of a set is missing, is no number, or
// contradicts another (rank 4 of 4); the variables of PMI or PMIx alone say that there are several
// processes (MPICH, Intel MPI), or PMI's say so where Slurm's say something else.
absl::StatusOr<ProcessRank> ProcessRankFrom(
    const std::function<const char*(const char* name)>& environment);

// The same from this process's environment.
absl::StatusOr<ProcessRank> GetProcessRank();

// Tells a user whose process was not meant to be one rank of several how to say so: a part of a
// sentence, for the end of an error. Empty if no launcher was found.
std::string HowToBeOneRank(const ProcessRank& where);

}  // namespace comm

#endif  // COMM_PROCESS_RANK_H_
