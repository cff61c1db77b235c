#!/bin/bash
# Shows that the optimizer's build flags reach the training:
#
#   tools/ci/build_choices.sh
#   BAZEL_FLAGS="--config=werror" tools/ci/build_choices.sh
#
# Builds track1 with each value of --//optim:matrix_optimizer and --//optim:orthogonalizer, which
# compiles one file each time, and trains some steps of the demo on the same data. The log's head has
# to name the choice, and no two choices may come to the same losses but those that are the recipe's
# own.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

read -ra flags <<< "${BAZEL_FLAGS:-}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# losses NAME [BUILD FLAGS...]: leaves what the run printed in NAME.log.
losses() {
  local name="$1"
  shift
  ./bazelw run --noshow_progress --color=no --curses=no --ui_event_filters=-info,-stdout,-stderr \
    "${flags[@]}" "$@" //tools:track1 -- \
    --record=unified_optimizers --steps=8 --batch_tokens=1024 --val_every=2 --val_tokens=8192 \
    > "$scratch/$name.log" 2> "$scratch/$name.err" || { cat "$scratch/$name.err" >&2; exit 1; }
  grep -o 'val_loss:[0-9.]*' "$scratch/$name.log" | tr '\n' ' ' | tee "$scratch/$name.losses"
  echo " $name"
}

fail() {
  echo "build_choices: $*" >&2
  exit 1
}

losses recipe
for rule in muon normuon anvil adamw; do
  losses "$rule" --//optim:matrix_optimizer="$rule"
  grep -q " matrix_optimizer=$rule " "$scratch/$rule.log" || fail "$rule is not in the log's head"
done
for orth in newton_schulz newton_schulz_tuned polar_express anvil_cascade; do
  losses "$orth" --//optim:orthogonalizer="$orth"
  grep -q " orthogonalizer=$orth " "$scratch/$orth.log" || fail "$orth is not in the log's head"
done

# The record's own rule is normuon, by polar_express.
for same in normuon polar_express; do
  cmp "$scratch/recipe.losses" "$scratch/$same.losses" || fail "$same is not what the recipe does"
  rm "$scratch/$same.losses"
done
distinct="$(sort -u "$scratch"/*.losses | wc -l)"
[[ "$distinct" == 7 ]] || fail "$distinct different curves, not 7"
echo "build_choices: 7 different curves"
