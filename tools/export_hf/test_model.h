// Models whose weights are noise that every machine makes alike, so that no part of them is idle as
// in a new model, and files can be compared with a fixture.
#ifndef TOOLS_EXPORT_HF_TEST_MODEL_H_
#define TOOLS_EXPORT_HF_TEST_MODEL_H_

#include <string>

#include "tools/checkpoint/safetensors.h"

namespace tools {

// Of the record's preset demo, in the middle of its run, where windows differ from the first.
// CHECKs that the record is known.
SafetensorsFile TestModel(const std::string& record);

}  // namespace tools

#endif  // TOOLS_EXPORT_HF_TEST_MODEL_H_
