#!/bin/bash
# Shows that --deterministic gives the same bits for every number of ranks and slots a pass:
#
#   tools/ci/same_bits.sh                        12 steps of the demo, 8 + 2 runs
#   STEPS=60 tools/ci/same_bits.sh               the whole demo
#   RECORD=fix_muon_lr tools/ci/same_bits.sh     another record; BINARY=.../track2 for record7
#   BINARY=path/to/track1 tools/ci/same_bits.sh  without building
#
# Compares the losses of all steps as the metrics have them (9 digits: exact for f32 sums) and
# the bytes of the final weights and of the optimizer's state.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ -z "${BINARY:-}" ]]; then
  ./bazelw build //tools:track1
  BINARY=bazel-bin/tools/track1
fi
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# run NAME FLAGS...: prints hashes of the losses, of the weights and of the optimizer's state.
run() {
  local out="$scratch/$1"
  shift
  "$BINARY" --preset=demo --steps="${STEPS:-12}" --sample_lines=0 --out_dir="$out" \
    --keep_checkpoints=1 --metrics="$out.jsonl" ${RECORD:+--record=$RECORD} "$@" > "$out.log" ||
    { cat "$out.log"; exit 1; }
  grep -oE '"(step|loss|val_loss)":[^,}]*' "$out.jsonl" | sha256sum | cut -c1-16
  sha256sum "$out"/checkpoints/step-*/{model,optimizer}.safetensors | cut -c1-16
}

status=0
want="$(run reference --deterministic --world_size=1 | tr '\n' ' ')"
echo "world_size=1 slots_per_pass=1: $want"
# check NAME FLAGS...
check() {
  local got
  got="$(run "$@" --deterministic | tr '\n' ' ')"
  if [[ "$got" == "$want" ]]; then
    echo "$1: same bits"
  else
    echo "$1: DIFFERENT: $got"
    status=1
  fi
}
check again --world_size=1
for ranks in 2 3 4 5 6 7 8; do
  check "world_size=$ranks" --world_size="$ranks"
done
if [[ -n "${RECORD:-}" ]]; then exit "$status"; fi
# Deterministic runs of records with banks, such as the default one, have one slot a pass.
want="$(run reference_slots --record=muon_custom_sizing --deterministic | tr '\n' ' ')"
echo "muon_custom_sizing, slots_per_pass=1: $want"
for slots in 3 8; do
  check "slots_per_pass=$slots" --record=muon_custom_sizing --slots_per_pass="$slots"
done
check world_size=3,slots_per_pass=2 --record=muon_custom_sizing --world_size=3 --slots_per_pass=2
exit "$status"
