// main() of a fuzz target's corpus test: each file of the command line is an input.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) {
      std::fprintf(stderr, "%s: cannot be read\n", argv[i]);
      return 1;
    }
    std::printf("%s, %zu bytes\n", argv[i], input.size());
    std::fflush(stdout);  // the one that fails is the last
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  // The empty input belongs to every corpus.
  LLVMFuzzerTestOneInput(nullptr, 0);
  if (argc < 2) std::fprintf(stderr, "no inputs: the corpus is missing\n");
  return argc < 2 ? 1 : 0;
}
