// save_checkpoint ROOT STEP KEEP: saves an example; for checkpoint_faults_test, which lets it fail.
// Ends with the trainer's exit codes; a warning goes to standard output.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tools/checkpoint/checkpoint.h"
#include "tools/faults/example_checkpoint.h"
#include "tools/trainer/exit_code.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: save_checkpoint ROOT STEP KEEP\n", stderr);
    return 1;
  }
  std::string warning;
  const absl::Status status = tools::SaveCheckpoint(
      argv[1], tools::ExampleCheckpoint(std::atoll(argv[2])), std::atoi(argv[3]), &warning);
  std::fputs(warning.c_str(), stdout);
  std::fputs(std::string(status.message()).c_str(), stderr);
  return tools::ExitCode(status);
}
