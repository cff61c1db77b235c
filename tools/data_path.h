// Where tools look for data if they are not told.
#ifndef TOOLS_DATA_PATH_H_
#define TOOLS_DATA_PATH_H_

#include <cstdlib>
#include <string>

namespace tools {

// `name` below $DATA_PATH, or below the current folder if that is not set.
inline std::string BelowDataPath(const std::string& name) {
  const char* const root = std::getenv("DATA_PATH");
  return root != nullptr && *root != '\0' ? std::string(root) + "/" + name : name;
}

// GPT-2's merges, where fetch_fineweb --vocab puts them.
inline std::string DefaultMergesPath() { return BelowDataPath("data/gpt2/merges.txt"); }

}  // namespace tools

#endif  // TOOLS_DATA_PATH_H_
