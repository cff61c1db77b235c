// config.json of a folder to import.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/export_hf/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)tools::ParseHfConfig(std::string(reinterpret_cast<const char*>(data), size), "config.json");
  return 0;
}
