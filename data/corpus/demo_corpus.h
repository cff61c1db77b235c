// The corpus that is built into the binaries that depend on this library: fortunes, as two token
// shards of GPT-2's single-byte ids.
#ifndef DATA_CORPUS_DEMO_CORPUS_H_
#define DATA_CORPUS_DEMO_CORPUS_H_

#include <string>

#include "absl/status/statusor.h"

namespace data {

struct DemoCorpus {
  std::string train, val;  // paths of the shards
};

// Looks in the runfiles of this program: in $RUNFILES_DIR, $TEST_SRCDIR, and beside the executable
// (a folder of runfiles, or the list of them that `bazel build` alone leaves there). NotFound where
// the shards are missing, or empty because the texts were not there when they were built.
absl::StatusOr<DemoCorpus> FindDemoCorpus();

}  // namespace data

#endif  // DATA_CORPUS_DEMO_CORPUS_H_
