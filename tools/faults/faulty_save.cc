#include "tools/faults/faulty_save.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "third_party/absl_compat/check.h"

namespace tools {
namespace {

std::string Content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// In the new process.
[[noreturn]] void Become(const FaultPrograms& programs, const std::string& root, int64_t step,
                         int keep, const std::string& fault, const std::string& scratch) {
  dup2(open((scratch + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
  dup2(open((scratch + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
  setenv("LD_PRELOAD", programs.library.c_str(), 1);
  setenv("FAULTS_BELOW", root.c_str(), 1);
  setenv("FAULTS_LOG", (scratch + ".calls").c_str(), 1);
  if (!fault.empty()) setenv("FAULT", fault.c_str(), 1);
  execl(programs.save.c_str(), programs.save.c_str(), root.c_str(), std::to_string(step).c_str(),
        std::to_string(keep).c_str(), nullptr);
  _exit(127);
}

}  // namespace

SaveResult FaultySave(const FaultPrograms& programs, const std::string& root, int64_t step,
                      int keep, const std::string& fault, const std::string& scratch,
                      std::vector<FileCall>* calls) {
  unlink((scratch + ".calls").c_str());
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) Become(programs, root, step, keep, fault, scratch);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  SaveResult result;
  result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.error = Content(scratch + ".err");
  result.warning = Content(scratch + ".out");
  if (calls == nullptr) return result;
  calls->clear();
  std::istringstream lines(Content(scratch + ".calls"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    FileCall call;
    words >> call.number >> call.name >> call.path >> call.to;
    calls->push_back(call);
  }
  return result;
}

std::vector<std::string> FaultsOf(const FileCall& call) {
  static const std::map<std::string, std::vector<std::string>> kFaults = {
      {"create", {"EACCES", "EINTR", "EIO", "EMFILE", "ENOSPC", "EROFS"}},
      {"open", {"EACCES", "EINTR", "EIO", "EMFILE"}},
      // By the library, as opendir; it does not try again after EINTR, and no file system needs it.
      {"openat", {"EACCES", "EIO", "EMFILE"}},
      {"write", {"EINTR", "EIO", "ENOSPC", "short", "kill_half"}},
      {"fsync", {"EINTR", "EIO", "ENOSPC"}},
      {"close", {"EINTR", "EIO", "ENOSPC"}},
      {"rename", {"EACCES", "EIO", "ENOSPC", "EROFS"}},
      {"mkdir", {"EACCES", "EIO", "ENOSPC", "EROFS"}},
      {"unlink", {"EACCES", "EIO", "EROFS"}},
      {"unlinkat", {"EACCES", "EIO", "EROFS"}},
      {"rmdir", {"EACCES", "EIO", "EROFS"}},
      {"remove", {"EACCES", "EIO", "EROFS"}},
      {"opendir", {"EACCES", "EIO", "EMFILE"}},
      {"readdir", {"EIO"}},
      {"stat", {"EACCES", "EIO"}},
  };
  const auto found = kFaults.find(call.name);
  CHECK(found != kFaults.end()) << call.name;
  std::vector<std::string> faults = found->second;
  faults.push_back("kill_before");
  faults.push_back("kill_after");
  return faults;
}

}  // namespace tools
