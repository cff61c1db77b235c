// Runs save_checkpoint with a fault in one of its calls.
#ifndef TOOLS_FAULTS_FAULTY_SAVE_H_
#define TOOLS_FAULTS_FAULTY_SAVE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tools {

struct SaveResult {
  int code = 0;         // of the exit; 128 + N if signal N ended it
  std::string error;    // its standard error
  std::string warning;  // its standard output
};

struct FileCall {
  int number = 0;  // from 1
  std::string name;
  std::string path;
  std::string to;  // of a rename
};

// The two programs, as arguments of a test: save_checkpoint and libfile_faults.so.
struct FaultPrograms {
  std::string save;
  std::string library;
};

// `fault` as in file_faults.cc; empty: none. `scratch`: where files may lie whose names begin so.
// `calls`, unless null, gets the calls that were made.
SaveResult FaultySave(const FaultPrograms& programs, const std::string& root, int64_t step,
                      int keep, const std::string& fault, const std::string& scratch,
                      std::vector<FileCall>* calls);

// The faults that can happen to a call, without its number.
std::vector<std::string> FaultsOf(const FileCall& call);

}  // namespace tools

#endif  // TOOLS_FAULTS_FAULTY_SAVE_H_
