"""fuzz_target: a libFuzzer target, and the test that replays its corpus."""

load("//tools/build:cc.bzl", "cc_binary", "cc_test")

def fuzz_target(name, srcs, corpus, deps, data = [], size = "small"):
    """Declares NAME, for --config=fuzz alone, and NAME_corpus_test, for every build.

    Args:
      name: ends in _fuzz; tools/ci/fuzz.sh finds the targets by that.
      srcs: define LLVMFuzzerTestOneInput (tools/build/fuzz_file.h helps parsers of files).
      corpus: the inputs to begin with and to replay; what once was a finding belongs there.
      deps: of srcs.
      data: files that srcs read, by their path in the workspace.
      size: of the test.
    """
    cc_binary(
        name = name,
        testonly = True,
        srcs = srcs,
        linkopts = ["-fsanitize=fuzzer"],
        data = data,
        tags = ["manual"],  # gcc has no libFuzzer
        deps = deps,
    )
    cc_test(
        name = name + "_corpus_test",
        size = size,
        srcs = srcs,
        args = ["$(rootpaths %s)" % file for file in corpus],
        data = corpus + data,
        deps = deps + ["//tools/build:fuzz_replay"],
    )
