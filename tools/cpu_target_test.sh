#!/bin/bash
# NANOSPEED_CPU_TARGET: the log of a track names the instruction set that it chose, and each program
# given refuses a name that is unknown or that this build lacks, before it does anything else.
set -u
track1="$1"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

for tool in "$@"; do
  flags=(--model="$TEST_TMPDIR/missing")
  [[ "$tool" != *track1 ]] || flags=(--steps=0)
  [[ "$tool" != *export_hf ]] || flags+=(--out="$TEST_TMPDIR/out")
  for wrong in AVX5 avx2; do
    code=0
    NANOSPEED_CPU_TARGET="$wrong" "$tool" "${flags[@]}" \
      > "$TEST_TMPDIR/out.txt" 2> "$TEST_TMPDIR/err.txt" || code=$?
    [[ "$code" == 1 ]] || fail "$tool with $wrong: ended with $code"
    [[ "$(grep -c . "$TEST_TMPDIR/err.txt")" == 1 ]] ||
      fail "$tool: not one line: $(cat "$TEST_TMPDIR/err.txt")"
    grep -qE ": NANOSPEED_CPU_TARGET=$wrong: no such target; here it can be [A-Z0-9_, ]+" \
      "$TEST_TMPDIR/err.txt" || fail "$tool: $(cat "$TEST_TMPDIR/err.txt")"
  done
done
# What the message lists, the slowest first.
read -ra names <<< "$(sed 's/.*here it can be //; s/,//g' "$TEST_TMPDIR/err.txt")"

# The slowest and the best, which is also the default.
for name in "${names[0]}" "${names[-1]}" ""; do
  NANOSPEED_CPU_TARGET="$name" "$track1" --steps=0 --batch_tokens=1024 --val_tokens=1024 \
    --sample_lines=0 > "$TEST_TMPDIR/out.txt" || fail "$track1 with $name: ended with $?"
  grep -qF "CPU with ${name:-${names[-1]}}, oneDNN " "$TEST_TMPDIR/out.txt" ||
    fail "$track1 with $name: $(cat "$TEST_TMPDIR/out.txt")"
done
