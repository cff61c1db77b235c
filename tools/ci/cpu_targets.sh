#!/bin/bash
# Runs the tests of the CPU's ops with every instruction set that this build and machine have, one
# after the other (NANOSPEED_CPU_TARGET, see kernels/cpu/simd_target.h), and says which it could not
# run:
#
#   tools/ci/cpu_targets.sh            in a checkout, by Bazel; nothing is compiled twice
#   tools/ci/cpu_targets.sh FOLDER     every program *_test in FOLDER, which also has list_targets
#
# The second is for machines that have no Bazel: copy the programs, and beside them libdnnl.so.2 with the
# libraries that it needs where oneDNN is not installed. BAZEL_FLAGS="--config=werror" goes to Bazel. Fails if a test fails with any
# instruction set; the others are run all the same.
set -eu

# run_all COMMAND: runs it with each of `targets`, the slowest first; SLOWEST is 1 for that one.
status=0
run_all() {
  local target slowest=1
  for target in "${targets[@]}"; do
    echo "cpu_targets: $target"
    NANOSPEED_CPU_TARGET="$target" SLOWEST="$slowest" "$1" || {
      status=1
      failed+=("$target")
    }
    slowest=0
  done
}

# Those of the ops; with the slowest set also of what computes with them. The fastest is what every
# other run of the tests has.
by_bazel() {
  local tests=(//kernels/cpu/... //kernels/testing/...)
  ((SLOWEST == 0)) || tests+=(//kernels/trace/... //model/... //optim/...)
  ./bazelw test --noshow_progress --color=no --curses=no "${flags[@]}" --keep_going \
    --build_tests_only --test_tag_filters=-slow,-mpi --build_tag_filters=-slow,-mpi "${tests[@]}"
}

# The library path is for copies of libraries beside the programs.
in_folder() {
  local test log bad=0
  log="$(mktemp)"
  for test in "$folder"/*_test; do
    if LD_LIBRARY_PATH="$folder" "$test" > "$log" 2>&1; then
      echo "  $(basename "$test") passed"
    else
      bad=1
      cat "$log"
      echo "  $(basename "$test") FAILED with ${NANOSPEED_CPU_TARGET:-the variable unset}"
    fi
  done
  rm -f "$log"
  return "$bad"
}

failed=()
if (($#)); then
  folder="$(realpath "$1")"
  list="$(LD_LIBRARY_PATH="$folder" "$folder/list_targets")"
  mode=in_folder
else
  cd "$(dirname "${BASH_SOURCE[0]}")/../.."
  read -ra flags <<< "${BAZEL_FLAGS:-}"
  ./bazelw build --noshow_progress --color=no --curses=no "${flags[@]}" //kernels/cpu:list_targets
  list="$(bazel-bin/kernels/cpu/list_targets)"
  mode=by_bazel
fi

targets=()
missing=()
while read -r name reason; do
  if [[ "$reason" == runs ]]; then
    targets+=("$name")
  else
    missing+=("$name ($reason)")
  fi
done <<< "$list"
((${#targets[@]})) || { echo "cpu_targets: list_targets names none that runs" >&2; exit 1; }

run_all "$mode"
# As users run: the best, with a oneDNN that is not limited. In a checkout all other runs are that.
if [[ "$mode" == in_folder ]]; then
  echo "cpu_targets: the variable unset"
  NANOSPEED_CPU_TARGET='' in_folder || { status=1; failed+=("the variable unset"); }
fi
join() { local IFS=,; local all="$*"; echo "${all//,/, }"; }
echo "cpu_targets: ran with $(join "${targets[@]}")"
((${#missing[@]} == 0)) || echo "cpu_targets: not run here: $(join "${missing[@]}")"
((${#failed[@]} == 0)) || echo "cpu_targets: tests FAILED with $(join "${failed[@]}")" >&2
exit "$status"
