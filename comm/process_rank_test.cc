#include "comm/process_rank.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace comm {
namespace {

using Values = std::map<std::string, std::string>;

absl::StatusOr<ProcessRank> From(const Values& values) {
  return ProcessRankFrom([&](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

ProcessRank Of(const Values& values) {
  const absl::StatusOr<ProcessRank> where = From(values);
  EXPECT_TRUE(where.ok()) << where.status();
  return where.ok() ? *where : ProcessRank();
}

void ExpectRefused(const Values& values, const std::vector<std::string>& words) {
  const absl::StatusOr<ProcessRank> where = From(values);
  ASSERT_EQ(where.status().code(), absl::StatusCode::kInvalidArgument) << where.status();
  for (const std::string& word : words) {
    EXPECT_NE(where.status().message().find(word), absl::string_view::npos) << where.status();
  }
}

TEST(ProcessRank, C1_NoLauncherIsOneRank) {
  const ProcessRank where = Of({{"HOME", "/root"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(where.rank, 0);
  EXPECT_EQ(where.size, 1);
  EXPECT_EQ(where.local_rank, 0);
  EXPECT_TRUE(where.one_host());
  EXPECT_EQ(where.launcher, "");
}

TEST(ProcessRank, OwnVariables) {
  const Values values = {
      {"NANOSPEED_RANK", "1"}, {"NANOSPEED_WORLD_SIZE", "3"}, {"NANOSPEED_LOCAL_RANK", "1"}};
  const ProcessRank where = Of(values);
  EXPECT_EQ(where.rank, 1);
  EXPECT_EQ(where.size, 3);
  EXPECT_EQ(where.local_rank, 1);
  EXPECT_TRUE(where.one_host());
  Values two_hosts = values;
  two_hosts["NANOSPEED_LOCAL_SIZE"] = "2";
  EXPECT_FALSE(Of(two_hosts).one_host());
  EXPECT_EQ(Of(two_hosts).local_size, 2);
}

TEST(ProcessRank, C7_OpenMpiOnTwoHosts) {
  const ProcessRank where = Of({{"OMPI_COMM_WORLD_RANK", "4"},
                                {"OMPI_COMM_WORLD_SIZE", "5"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_NAMESPACE", "77"},
                                {"MASTER_ADDR", "node1"},
                                {"MASTER_PORT", "2222"}});
  EXPECT_EQ(where.rank, 4);
  EXPECT_EQ(where.size, 5);
  EXPECT_EQ(where.local_rank, 1);
  EXPECT_FALSE(where.one_host());
  EXPECT_EQ(where.rendezvous, "node1:2222");
  EXPECT_EQ(where.job, "77");
  EXPECT_EQ(where.launcher, "Open MPI");
}

TEST(ProcessRank, TorchrunInsideSlurm) {
  Values values = {{"RANK", "2"},
                   {"WORLD_SIZE", "4"},
                   {"LOCAL_RANK", "0"},
                   {"SLURM_PROCID", "1"},
                   {"SLURM_NTASKS", "2"},
                   {"SLURM_LOCALID", "0"},
                   {"MASTER_ADDR", "10.0.0.1"},
                   {"MASTER_PORT", "29500"}};
  EXPECT_EQ(Of(values).rank, 2);
  EXPECT_EQ(Of(values).size, 4);
  EXPECT_EQ(Of(values).rendezvous, "10.0.0.1:29500");
  values["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // the agent holds 29500
  EXPECT_EQ(Of(values).rendezvous, "10.0.0.1:29501");
  values["MASTER_PORT"] = "65535";
  ExpectRefused(values, {"MASTER_PORT=65535"});
}

TEST(ProcessRank, Slurm) {
  Values values = {{"SLURM_PROCID", "3"},
                   {"SLURM_NTASKS", "4"},
                   {"SLURM_LOCALID", "1"},
                   {"SLURM_JOB_ID", "12"},
                   {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(Of(values).rank, 3);
  EXPECT_EQ(Of(values).local_size, 0);
  EXPECT_EQ(Of(values).job, "12.0");
  values["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_TRUE(Of(values).one_host());
  Values allocation = values;  // without srun
  allocation.erase("SLURM_PROCID");
  EXPECT_EQ(Of(allocation).size, 1);
  Values batch_script = values;  // likewise
  batch_script.erase("SLURM_STEP_ID");
  batch_script["SLURM_PROCID"] = batch_script["SLURM_LOCALID"] = "0";
  EXPECT_EQ(Of(batch_script).size, 1);
}

TEST(ProcessRank, K2_30_AnInteractiveShellOfSlurmIsOneRank) {
  // salloc's shell on a node, in the step that Slurm makes for it.
  Values shell = {{"SLURM_PROCID", "0"},        {"SLURM_LOCALID", "0"},
                  {"SLURM_NTASKS", "8"},        {"SLURM_STEP_NUM_TASKS", "1"},
                  {"SLURM_JOB_ID", "12"},       {"SLURM_STEP_ID", "4294967290"},
                  {"SLURM_STEP_NUM_NODES", "1"}};
  EXPECT_EQ(Of(shell).size, 1);
  EXPECT_EQ(Of(shell).launcher, "");
  shell.erase("SLURM_STEP_NUM_TASKS");  // of older versions
  EXPECT_EQ(Of(shell).size, 1);
  shell["PMI_RANK"] = "0";  // where PMI is the default of the site
  shell["PMI_SIZE"] = "1";
  shell["PMIX_RANK"] = "0";
  EXPECT_EQ(Of(shell).size, 1);
  // srun --pty -n 1 in an allocation of eight tasks.
  const Values pty = {{"SLURM_PROCID", "0"},  {"SLURM_LOCALID", "0"},
                      {"SLURM_NTASKS", "8"},  {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(Of(pty).size, 1);
  EXPECT_TRUE(Of(pty).one_host());
  // A step smaller than its allocation, and one that contradicts itself.
  Values step = pty;
  step["SLURM_PROCID"] = step["SLURM_LOCALID"] = "3";
  step["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_EQ(Of(step).size, 4);
  step["SLURM_STEP_NUM_TASKS"] = "3";
  ExpectRefused(step, {"SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=3"});
}

TEST(ProcessRank, K2_30_HowToBeOneRank) {
  EXPECT_EQ(HowToBeOneRank(Of({})), "");
  const Values shell = {{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "0"}};
  Values told = shell;
  for (const char* name :
       {"NANOSPEED_RANK=0", "NANOSPEED_WORLD_SIZE=1", "NANOSPEED_LOCAL_RANK=0"}) {
    const std::string text = name;
    EXPECT_NE(HowToBeOneRank(Of(shell)).find(text), std::string::npos) << text;
    told[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  EXPECT_EQ(Of(told).size, 1);
}

// MPICH's mpirun starts its proxies by srun: all of a host's ranks have the proxy's SLURM_PROCID.
TEST(ProcessRank, K2_30_RanksOfPmiThatSlurmDoesNotKnow) {
  Values values = {{"SLURM_PROCID", "0"},  {"SLURM_LOCALID", "0"},
                   {"SLURM_NTASKS", "1"},  {"SLURM_STEP_NUM_TASKS", "1"},
                   {"SLURM_STEP_ID", "0"}, {"PMI_RANK", "5"},
                   {"PMI_SIZE", "8"}};
  ExpectRefused(values, {"PMI_RANK=5", "PMI_SIZE=8", "MPICH"});
  // srun --mpi=pmi2.
  values["SLURM_PROCID"] = values["SLURM_LOCALID"] = "5";
  values["SLURM_STEP_NUM_TASKS"] = "8";
  EXPECT_EQ(Of(values).rank, 5);
  EXPECT_EQ(Of(values).size, 8);
  ExpectRefused({{"PMI_RANK", "0"}}, {"PMI_RANK=0"});
  ExpectRefused({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, {"PMI_SIZE=2"});
  EXPECT_EQ(Of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).size, 1);
  ExpectRefused({{"PMIX_RANK", "1"}}, {"PMIX_RANK=1", "NANOSPEED_WORLD_SIZE"});
}

TEST(ProcessRank, IncompleteSetsNameTheVariable) {
  ExpectRefused({{"NANOSPEED_RANK", "0"}}, {"NANOSPEED_WORLD_SIZE"});
  ExpectRefused({{"NANOSPEED_WORLD_SIZE", "2"}}, {"NANOSPEED_RANK"});
  ExpectRefused({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
                {"OMPI_COMM_WORLD_LOCAL_RANK"});
  ExpectRefused({{"LOCAL_RANK", "0"}}, {"RANK"});
  ExpectRefused({{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_ID", "0"}},
                {"SLURM_NTASKS"});
  const Values two = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}};
  Values with = two;
  with["MASTER_ADDR"] = "node1";
  ExpectRefused(with, {"MASTER_ADDR=node1", "MASTER_PORT"});
  with = two;
  with["MASTER_PORT"] = "80";
  ExpectRefused(with, {"MASTER_PORT=80", "MASTER_ADDR"});
}

TEST(ProcessRank, BadNumbersAndContradictions) {
  const auto own = [](const char* rank, const char* size, const char* local, const char* locals) {
    return Values{{"NANOSPEED_RANK", rank},
                  {"NANOSPEED_WORLD_SIZE", size},
                  {"NANOSPEED_LOCAL_RANK", local},
                  {"NANOSPEED_LOCAL_SIZE", locals}};
  };
  EXPECT_TRUE(From(own("3", "4", "1", "2")).ok());
  ExpectRefused(own("4", "4", "0", "4"), {"NANOSPEED_RANK=4", "NANOSPEED_WORLD_SIZE=4"});
  ExpectRefused(own("-1", "4", "0", "4"), {"NANOSPEED_RANK=-1"});
  ExpectRefused(own("0", "0", "0", "1"), {"NANOSPEED_WORLD_SIZE=0"});
  ExpectRefused(own("1x", "4", "0", "4"), {"NANOSPEED_RANK=1x"});
  ExpectRefused(own("", "4", "0", "4"), {"NANOSPEED_RANK="});
  ExpectRefused(own("99999999999", "4", "0", "4"), {"NANOSPEED_RANK=99999999999"});
  ExpectRefused(own("3", "4", "2", "2"), {"NANOSPEED_LOCAL_RANK=2", "NANOSPEED_LOCAL_SIZE=2"});
  ExpectRefused(own("0", "2", "0", "3"), {"NANOSPEED_LOCAL_SIZE=3", "NANOSPEED_WORLD_SIZE=2"});
  ExpectRefused({{"SLURM_PROCID", "0"},
                 {"SLURM_NTASKS", "2"},
                 {"SLURM_LOCALID", "2"},
                 {"SLURM_STEP_ID", "0"}},
                {"SLURM_LOCALID=2", "SLURM_NTASKS=2"});
}

}  // namespace
}  // namespace comm
