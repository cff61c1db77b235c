#include "comm/process_rank.h"

#include <unistd.h>

#include <cstdint>
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
  const char* own_size;       // used in place of `size` if it is there; null: none
};

constexpr Variables kLaunchers[] = {
    {"the NANOSPEED_* variables", "NANOSPEED_RANK", "NANOSPEED_WORLD_SIZE", "NANOSPEED_LOCAL_RANK",
     "NANOSPEED_LOCAL_SIZE", "NANOSPEED_JOB", nullptr, true, nullptr},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", nullptr, false, nullptr},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
     nullptr, false, nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, "SLURM_JOB_ID",
     "SLURM_STEP_ID", false, "SLURM_STEP_NUM_TASKS"},
};

// Step ids from here on are not of srun's steps: an allocation's interactive shell, a batch script,
// processes that were adopted.
constexpr uint32_t kLeastReservedStep = 0xfffffff0;

const char* Get(const Environment& environment, const char* name) {
  return name == nullptr ? nullptr : environment(name);
}

bool IsThere(const Environment& environment, const Variables& names) {
  const bool rank = Get(environment, names.rank) != nullptr;
  if (names.sign != nullptr) {
    const char* const step = Get(environment, names.sign);
    uint32_t id = 0;
    const bool reserved =
        step != nullptr && absl::SimpleAtoi(step, &id) && id >= kLeastReservedStep;
    return rank && step != nullptr && !reserved;
  }
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

// What is said of N processes that would each take themselves for the only rank, and overwrite one
// another's files. OK if the variables of PMI, which MPICH's family and Slurm set, are not there,
// say that this process is alone, or agree with `where`.
absl::Status CheckPmi(const Environment& environment, const ProcessRank& where) {
  const char* const rank = environment("PMI_RANK");
  if (rank == nullptr) return absl::OkStatus();
  const char* const size = environment("PMI_SIZE");
  int pmi_rank = 0, pmi_size = 0;
  if (size != nullptr && absl::SimpleAtoi(rank, &pmi_rank) && absl::SimpleAtoi(size, &pmi_size) &&
      (pmi_size == 1 || (pmi_rank == where.rank && pmi_size == where.size))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "PMI_RANK=", rank, size == nullptr ? "" : absl::StrCat(", PMI_SIZE=", size),
      ": started by an mpirun of MPICH's family, which is not supported; use Open MPI's mpirun, "
      "torchrun or srun, or set NANOSPEED_RANK, NANOSPEED_WORLD_SIZE and NANOSPEED_LOCAL_RANK"));
}

// Likewise of PMIx, where no launcher that is known has said more. It does not say how many there
// are.
absl::Status CheckPmix(const Environment& environment) {
  const char* const rank = environment("PMIX_RANK");
  if (rank == nullptr || environment("SLURM_STEP_ID") != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "PMIX_RANK=", rank,
      ": started by a launcher of PMIx that does not say how many ranks there are; use Open MPI's "
      "mpirun, torchrun or srun, or set NANOSPEED_RANK, NANOSPEED_WORLD_SIZE and "
      "NANOSPEED_LOCAL_RANK"));
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
    const bool own = Get(environment, names.own_size) != nullptr;
    const char* const size_name = own ? names.own_size : names.size;
    ABSL_ASSIGN_OR_RETURN(where.rank, Number(environment, names.rank, 0));
    ABSL_ASSIGN_OR_RETURN(where.size, Number(environment, size_name, 1));
    ABSL_ASSIGN_OR_RETURN(where.local_rank, Number(environment, names.local_rank, 0));
    ABSL_ASSIGN_OR_RETURN(where.local_size, LocalSize(environment, names, where.size));
    if (where.rank >= where.size) {
      return Contradiction(names.rank, where.rank, size_name, where.size);
    }
    if (where.local_size > where.size) {
      return Contradiction(names.local_size, where.local_size, size_name, where.size);
    }
    const bool told = Get(environment, names.local_size) != nullptr;
    const int locals = where.local_size > 0 ? where.local_size : where.size;
    if (where.local_rank >= locals) {
      return Contradiction(names.local_rank, where.local_rank, told ? names.local_size : size_name,
                           locals);
    }
    if (const char* job = Get(environment, names.job)) where.job = job;
    if (names.sign != nullptr) absl::StrAppend(&where.job, ".", environment(names.sign));
    if (names.sign != nullptr) ABSL_RETURN_IF_ERROR(CheckPmi(environment, where));
    ABSL_ASSIGN_OR_RETURN(where.rendezvous, Rendezvous(environment));
    return where;
  }
  ABSL_RETURN_IF_ERROR(CheckPmi(environment, where));
  ABSL_RETURN_IF_ERROR(CheckPmix(environment));
  return where;
}

std::string HowToBeOneRank(const ProcessRank& where) {
  if (where.launcher.empty()) return "";
  return "if this process is the only one, as in an interactive shell of a job, say so by "
         "NANOSPEED_RANK=0 NANOSPEED_WORLD_SIZE=1 NANOSPEED_LOCAL_RANK=0";
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
