#!/bin/bash
# Where oneDNN is missing, programs start, plan and tell their version; what computes on the CPU is
# refused before it begins, with exit code 1 and what to install.
set -euo pipefail

track1="$(realpath "$1")"
bench_step="$(realpath "$2")"
sample="$(realpath "$3")"
folder="$TEST_TMPDIR/no_onednn"
mkdir -p "$folder/lib" "$folder/run"
cd "$folder/run"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# The loader stops at a file of the name that is no library, so that none of the system's is found.
touch "$folder/lib"/libdnnl.so.{2,3} "$folder/lib"/libdnnl.so.{2,3}.{0..19}
export LD_LIBRARY_PATH="$folder/lib"

# refused COMMAND...
refused() {
  local code=0
  "$@" > out.txt 2> err.txt || code=$?
  [[ "$code" == 1 ]] || fail "$*: ended with $code: $(cat err.txt)"
  [[ "$(grep -c . err.txt)" == 1 ]] || fail "$*: not one line: $(cat err.txt)"
  for text in oneDNN libdnnl.so "apt-get install libdnnl-dev"; do
    grep -qF -- "$text" err.txt || fail "$*: no \"$text\" in: $(cat err.txt)"
  done
  ! grep -q "^step:" out.txt || fail "$*: began to train"
}
accepted() {
  "$@" > out.txt 2> err.txt || fail "$*: ended with $?: $(cat err.txt)"
}

refused "$track1" --device=cpu --preset=demo --steps=1
refused "$bench_step" --device=cpu --preset=demo
refused "$sample" --model=none
for tool in "$track1" "$bench_step" "$sample"; do
  accepted "$tool" --version
  accepted "$tool" --help
done
accepted "$track1" --device=cpu --preset=demo --plan
accepted "$track1" --preset=full --plan --card=h200-141gb
grep -q "card h200-141gb" out.txt || fail "--plan: no card in: $(cat out.txt)"

# With the library the same run trains: what was refused above was so for its lack.
unset LD_LIBRARY_PATH
accepted "$track1" --device=cpu --preset=demo --steps=0
grep -q "oneDNN [0-9]" out.txt || fail "no version of oneDNN in: $(cat out.txt)"
