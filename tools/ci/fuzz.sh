#!/bin/bash
# Runs the fuzz targets, two at a time, and ends with a table and 1 if one found something:
#
#   tools/ci/fuzz.sh                              20 s each
#   EACH=600 tools/ci/fuzz.sh                     10 minutes each
#   tools/ci/fuzz.sh //data:shard_fuzz            this one
#   KEEP=~/corpora tools/ci/fuzz.sh               leaves what it found worth keeping there
#
# Needs clang with libFuzzer (Debian: clang, libclang-rt-14-dev). An input that fails is left in the
# current folder as TARGET-crash-..., -timeout-... or -oom-...: mend the parser, and add the input to
# the target's corpus, whose test replays it in every build.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

each="${EACH:-20}"
scratch="$(mktemp -d)"
keep="${KEEP:-$scratch/corpora}"
# An output base of its own: another compiler in the same one would throw away what the other made.
bazel=(./bazelw ${FUZZ_OUTPUT_BASE:+--output_base="$FUZZ_OUTPUT_BASE"})

finish() {
  rm -rf "$scratch"
  # A server of its own, which nobody else will end.
  [[ -z "${FUZZ_OUTPUT_BASE:-}" ]] || "${bazel[@]}" shutdown
}
trap finish EXIT

targets=("$@")
if ((${#targets[@]} == 0)); then
  # Not //..., which reads the links bazel-* of another output base as packages.
  folders=()
  for build in */BUILD; do
    [[ "$build" == bazel-* ]] || folders+=("//${build%BUILD}...")
  done
  mapfile -t targets < <("${bazel[@]}" query --noshow_progress \
    "kind(cc_binary, filter(\"_fuzz\$\", set(${folders[*]})))")
fi
((${#targets[@]})) || { echo "fuzz.sh: no targets" >&2; exit 1; }
"${bazel[@]}" build --noshow_progress --color=no --config=fuzz "${targets[@]}" || exit 1
bin="$("${bazel[@]}" info --noshow_progress --config=fuzz bazel-bin 2> /dev/null)"

# fuzz //PACKAGE:NAME: its log is left in scratch/NAME.log, its exit status in scratch/NAME.status.
fuzz() {
  local package="${1%%:*}" name="${1##*:}"
  package="${package#//}"
  local corpus="$keep/$name"
  mkdir -p "$corpus"
  # Found inputs go to the first folder, the others are read.
  "$bin/$package/$name" "$corpus" "$package/testdata/fuzz/${name%_fuzz}" \
    -max_total_time="$each" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="$name-" > "$scratch/$name.log" 2>&1
  echo $? > "$scratch/$name.status"
}

for target in "${targets[@]}"; do
  fuzz "$target" &
  while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
done
wait

failed=0
printf '%-40s %12s %10s %10s  %s\n' target executions coverage inputs outcome
for target in "${targets[@]}"; do
  name="${target##*:}"
  log="$scratch/$name.log"
  outcome="nothing found"
  if [[ "$(cat "$scratch/$name.status")" != 0 ]]; then
    failed=1
    outcome="FAILED"
    cat "$log" >&2
  fi
  last="$(grep -E '^#[0-9]+' "$log" | tail -n 1)"
  printf '%-40s %12s %10s %10s  %s\n' "$target" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' <<< "$last")" \
    "$(sed -n 's/.* corp: \([0-9]*\).*/\1/p' <<< "$last")" "$outcome"
done
exit "$failed"
