#!/bin/bash
# Formats every C++, CUDA and Bazel file that git knows or would add:
#
#   ./bazelw run //tools/dev:format
#
# With --check it changes nothing, and fails when a file is not formatted. C++ and CUDA
# by clang-format 14 (Debian 12's); Bazel files by buildifier if it is on PATH.
set -eu
cd "${BUILD_WORKSPACE_DIRECTORY:-.}"
mode=(-i)
buildifier_mode=(-mode=fix)
if [[ "${1:-}" == --check ]]; then
  mode=(--dry-run --Werror)
  buildifier_mode=(-mode=check)
fi
if ! command -v clang-format > /dev/null; then
  echo "format: no clang-format; install it:  sudo apt-get install clang-format" >&2
  exit 1
fi

# A file that was deleted but is still in the index is no file to format.
list() {
  git ls-files -z --cached --others --exclude-standard -- "$@" |
    while IFS= read -r -d '' file; do
      [[ ! -f "$file" ]] || printf '%s\0' "$file"
    done
}

list '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 -r clang-format "${mode[@]}"
if command -v buildifier > /dev/null; then
  list '*BUILD' '*WORKSPACE' '*.bzl' | xargs -0 -r buildifier "${buildifier_mode[@]}"
else
  echo "format: no buildifier on PATH (npm install -g @bazel/buildifier): Bazel files left alone" >&2
fi
