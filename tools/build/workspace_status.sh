#!/bin/bash
# What Bazel stamps programs with: the commit of this checkout, and whether files differ from it.
# Runs in the workspace's root at every build; a new answer relinks the tools.
set -u

commit="not a git checkout"
# Not of a repository that merely has this tree somewhere inside.
if command -v git > /dev/null && [[ "$(git rev-parse --show-toplevel 2> /dev/null)" == "$PWD" ]]; then
  commit="$(git rev-parse --short=12 HEAD 2> /dev/null)" || commit="no commit yet"
  [[ -z "$(git status --porcelain 2> /dev/null | head -n 1)" ]] || commit+=" with changes"
fi
echo "STABLE_COMMIT $commit"
