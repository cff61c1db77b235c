#include "comm/process_rank.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl_compat/status_macros.h"

namespace comm {
namespace {

using Environment = std::function<const char*(const char*)>;

struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;  // may be missing
  const char* job;         // may be missing
  const char* sign;  // set where ranks were launched, and there only; null: rank, size, local_rank
  bool one_host_unless_told;  // when local_size is missing
};

constexpr Variables kLaunchers[] = {
    {"the NANOSPEED_* variables", "NANOSPEED_RANK", "NANOSPEED_WORLD_SIZE", "NANOSPEED_LOCAL_RANK",
     "NANOSPEED_LOCAL_SIZE", "NANOSPEED_JOB", nullptr, true},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", nullptr, false},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
     nullptr, false},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, "SLURM_JOB_ID",
     "SLURM_STEP_ID", false},
};

const char* Get(const Environment& environment, const char* name) {
  return name == nullptr ? nullptr : environment(name);
}

bool IsThere(const Environment& environment, const Variables& names) {
  const bool rank = Get(environment, names.rank) != nullptr;
  if (names.sign != nullptr) return rank && Get(environment, names.sign) != nullptr;
  return rank || Get(environment, names.size) != nullptr ||
         Get(environment, names.local_rank) != nullptr;
}

absl::StatusOr<int> Number(const Environment& environment, const char* name, int least) {
  const char* text = Get(environment, name);
  if (text == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment variable ", name, " is not set, but others of its set are"));
  }
  int value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "=", text, ": not a whole number of at least ", least));
  }
  return value;
}

absl::Status Contradiction(absl::string_view name, int value, absl::string_view bound_name,
                           int bound) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", value, " contradicts ", bound_name, "=", bound));
}

// Ranks of this host, 0 if nobody says.
absl::StatusOr<int> LocalSize(const Environment& environment, const Variables& names, int size) {
  if (Get(environment, names.local_size) != nullptr) {
    return Number(environment, names.local_size, 1);
  }
  const char* nodes = environment("SLURM_STEP_NUM_NODES");
  const bool one_node =
      names.sign != nullptr && nodes != nullptr && absl::string_view(nodes) == "1";
  return one_node || names.one_host_unless_told || size == 1 ? size : 0;
}

absl::StatusOr<std::string> Rendezvous(const Environment& environment) {
  const char* host = environment("MASTER_ADDR");
  const char* port = environment("MASTER_PORT");
  if (host == nullptr && port == nullptr) return std::string();
  if (host == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("MASTER_PORT=", port, " without MASTER_ADDR"));
  }
  if (port == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("MASTER_ADDR=", host, " without MASTER_PORT"));
  }
  ABSL_ASSIGN_OR_RETURN(int number, Number(environment, "MASTER_PORT", 1));
  // torchrun's agent itself listens at the port that it announces.
  const char* agent = environment("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && absl::string_view(agent) == "True") ++number;
  if (number > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("MASTER_PORT=", port, ": ports end at 65535"));
  }
  return absl::StrCat(host, ":", number);
}

}  // namespace

absl::StatusOr<ProcessRank> ProcessRankFrom(const Environment& environment) {
  ProcessRank where;
  for (const Variables& names : kLaunchers) {
    if (!IsThere(environment, names)) continue;
    where.launcher = names.launcher;
    ABSL_ASSIGN_OR_RETURN(where.rank, Number(environment, names.rank, 0));
    ABSL_ASSIGN_OR_RETURN(where.size, Number(environment, names.size, 1));
    ABSL_ASSIGN_OR_RETURN(where.local_rank, Number(environment, names.local_rank, 0));
    ABSL_ASSIGN_OR_RETURN(where.local_size, LocalSize(environment, names, where.size));
    if (where.rank >= where.size) {
      return Contradiction(names.rank, where.rank, names.size, where.size);
    }
    if (where.local_size > where.size) {
      return Contradiction(names.local_size, where.local_size, names.size, where.size);
    }
    const bool told = Get(environment, names.local_size) != nullptr;
    const int locals = where.local_size > 0 ? where.local_size : where.size;
    if (where.local_rank >= locals) {
      return Contradiction(names.local_rank, where.local_rank, told ? names.local_size : names.size,
                           locals);
    }
    if (const char* job = Get(environment, names.job)) where.job = job;
    if (names.sign != nullptr) absl::StrAppend(&where.job, ".", environment(names.sign));
    ABSL_ASSIGN_OR_RETURN(where.rendezvous, Rendezvous(environment));
    return where;
  }
  // N processes that each take themselves for the only rank would overwrite one another's files.
  if (const char* rank = environment("PMI_RANK")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PMI_RANK=", rank,
        ": started by an mpirun of MPICH's family, which is not supported; use Open MPI's mpirun, "
        "torchrun or srun, or set NANOSPEED_RANK, NANOSPEED_WORLD_SIZE and NANOSPEED_LOCAL_RANK"));
  }
  return where;
}

absl::StatusOr<ProcessRank> GetProcessRank() {
  ABSL_ASSIGN_OR_RETURN(ProcessRank where,
                        ProcessRankFrom([](const char* name) { return std::getenv(name); }));
  // Ranks that one shell or launcher started have it as their parent. Two jobs that one shell
  // starts side by side need NANOSPEED_JOB to tell them apart.
  if (where.job.empty()) where.job = absl::StrCat("parent", getppid());
  return where;
}

}  // namespace comm
