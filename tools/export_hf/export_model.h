// A model as a folder that transformers loads, and back.
#ifndef TOOLS_EXPORT_HF_EXPORT_MODEL_H_
#define TOOLS_EXPORT_HF_EXPORT_MODEL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/queue.h"
#include "tools/sample/saved_model.h"

namespace tools {

struct ExportOptions {
  std::string out;         // the folder
  std::string merges;      // GPT-2's vocab.bpe, for the tokenizer; empty: none is written
  bool overwrite = false;  // replace an export that is there
};

// Writes weights (names, shapes and dtypes are the checkpoint's), configuration, modeling code,
// model card and tokenizer. The folder appears under its name when it is complete; it may exist
// before if it is empty or, with `overwrite`, an export. InvalidArgument: a folder in the way, or
// merges for a model of byte tokens, whose tokenizer needs none. Returns the names of the files.
absl::StatusOr<std::vector<std::string>> ExportModel(const SavedModel& saved,
                                                     const ExportOptions& options,
                                                     kernels::Queue& queue);

struct ImportOptions {
  std::string folder;  // that ExportModel or save_pretrained of its model wrote
  std::string out;     // model.safetensors
  bool round = false;  // weights that lie between values of the model's dtype become the nearest
  bool overwrite = false;
};

// Writes the folder's weights as the trainer's --init_from and the sampler take them: with the
// recipe's names, shapes and dtypes, checked one by one. A tensor in another dtype is converted if
// that changes no value, or with `round`. Returns a line for each tensor that was converted.
// NotFound, DataLoss, or InvalidArgument with file and tensor.
absl::StatusOr<std::vector<std::string>> ImportModel(const ImportOptions& options);

}  // namespace tools

#endif  // TOOLS_EXPORT_HF_EXPORT_MODEL_H_
