// The Python files of an export, as they are in this folder.
#ifndef TOOLS_EXPORT_HF_MODELING_FILES_H_
#define TOOLS_EXPORT_HF_MODELING_FILES_H_

namespace tools {

extern const char kConfigurationFile[];
extern const char kModelingFile[];

}  // namespace tools

#endif  // TOOLS_EXPORT_HF_MODELING_FILES_H_
