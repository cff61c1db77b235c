#!/bin/bash
# Every tool given: --help shows all flags, in groups, with examples (a flag that is missing from
# the groups ends the program); a misspelt flag is answered with the nearest; bash can load the
# completion.
set -u

fail() {
  echo "$*" >&2
  exit 1
}

for tool in "$@"; do
  name="$(basename "$tool")"
  help="$("$tool" --help)" || fail "$tool --help failed"
  for part in "$name: " "Usage: " "Examples:" "(defaults are shown)" "Of every tool"; do
    [[ "$help" == *"$part"* ]] || fail "$tool --help has no \"$part\":" "$help"
  done
  [[ -z "$(awk 'length > 110' <<< "$(grep -v '^  bazel run' <<< "$help")")" ]] ||
    fail "$tool --help has long lines"

  # F1: --help and --version are as boolean flags are.
  for flag in --help=1 --help=true -help --help=yes; do
    [[ "$("$tool" "$flag" 2>&1)" == "$help" ]] || fail "$tool $flag is not --help"
  done
  version="$("$tool" --version)" || fail "$tool --version failed"
  for flag in --version=1 --version=TRUE -version; do
    [[ "$("$tool" "$flag" 2>&1)" == "$version" ]] || fail "$tool $flag is not --version"
  done
  said="$("$tool" --help=maybe 2>&1)" && fail "$tool --help=maybe is good"
  [[ "$said" == "$name: --help=maybe: --help takes no value but true or false" ]] || fail "$said"

  "$tool" --hepl > /dev/null 2> "$TEST_TMPDIR/error"
  [[ $? == 1 ]] || fail "$tool --hepl ended with another code than 1"
  grep -q -- "$name: --hepl: no such flag; did you mean --help?" "$TEST_TMPDIR/error" ||
    fail "$tool --hepl says: $(cat "$TEST_TMPDIR/error")"

  "$tool" --version | grep -q "$name" || fail "$tool --version does not name it"

  "$tool" --completion=bash > "$TEST_TMPDIR/completion" || fail "$tool --completion=bash failed"
  (
    # shellcheck source=/dev/null
    source "$TEST_TMPDIR/completion" && complete -p "$name" > "$TEST_TMPDIR/loaded"
  ) || fail "bash does not take $tool's completion"
  first="$(grep -m 1 -oE '^  --[a-z_]+' <<< "$help" | tr -d ' ')"
  grep -q -- "$first" "$TEST_TMPDIR/loaded" || fail "$tool's completion lacks $first"
done
