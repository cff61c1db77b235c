// Where tools look for GPT-2's merges if they are not told.
#ifndef TOOLS_MERGES_PATH_H_
#define TOOLS_MERGES_PATH_H_

#include <cstdlib>
#include <string>

namespace tools {

// data/gpt2/merges.txt below $DATA_PATH or the current folder, where fetch_fineweb --vocab puts it.
inline std::string DefaultMergesPath() {
  const char* folder = std::getenv("DATA_PATH");
  return (folder == nullptr || *folder == '\0' ? "" : std::string(folder) + "/") +
         "data/gpt2/merges.txt";
}

}  // namespace tools

#endif  // TOOLS_MERGES_PATH_H_
