#!/bin/bash
# Shows that a long run may be stopped at any moment and loses nothing. Two trainings of the same
# flags run side by side: one that nobody disturbs, whose memory is watched, and one that is killed
# at random moments by random signals and resumed each time on another number of ranks. Their final
# weights and moments have to be the same bytes.
#
#   tools/ci/soak.sh                         2,000 steps of the demo, 40 kills: 15 minutes of 2 cores
#   STEPS=200 KILLS=10 tools/ci/soak.sh      shorter
#   BINARY=path/to/track1 tools/ci/soak.sh   without building
#
# Others: EVERY (steps between checkpoints, 10), SIGNALS ("KILL KILL KILL TERM INT HUP"), RANKS
# ("1 2 3 4"), FLAGS (of both runs), MEMORY=no (not watched), RANDOM_SEED (repeats the draws).
# Ends with 0 if every resume worked, every signal that can be answered was within 30 s, the bytes
# are equal, and memory in the last quarter of the run is less than 1 MiB above that in the third.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
steps="${STEPS:-2000}"
kills="${KILLS:-40}"
every="${EVERY:-10}"
read -ra signals <<< "${SIGNALS:-KILL KILL KILL TERM INT HUP}"
read -ra ranks <<< "${RANKS:-1 2 3 4}"
read -ra flags <<< "${FLAGS:---deterministic --slots=4 --batch_tokens=64 --threads=1 --epochs=50}"
if [[ -z "${BINARY:-}" ]]; then
  ./bazelw build //tools:track1
  BINARY=bazel-bin/tools/track1
fi
RANDOM="${RANDOM_SEED:-$$}"
scratch="$(mktemp -d)"
unbroken=
child=
finish() {
  for process in $unbroken $child; do kill -KILL "$process" 2> /dev/null || true; done
  rm -rf "$scratch"
}
trap finish EXIT

flags+=(--preset=demo --steps="$steps" --checkpoint_every="$every" --val_every=1000000
  --val_tokens=4096 --sample_lines=0 --comm_timeout=5m)

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
milliseconds() { date +%s%3N; }
# draw N: drawn is then a number from 0 to N. Not printed: a subshell has other random numbers.
draw() { drawn=$(((RANDOM * 32768 + RANDOM) % ($1 + 1))); }
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

# The newest checkpoint of a folder, by its step; empty if there is none.
newest() {
  find "$1/checkpoints" -mindepth 1 -maxdepth 1 -name 'step-*' 2> /dev/null | sort | tail -n 1
}
# saved_step FOLDER: of that; 0 if there is none.
saved_step() {
  local name
  name="$(basename "$(newest "$1")")"
  echo "$((10#0${name#step-}))"
}
# hash FOLDER: of the final weights and moments.
hash() { cat "$(newest "$1")"/{model,optimizer}.safetensors | sha256sum | cut -c1-16; }
# The last step that a log tells of; empty before the first.
step_of() { grep -oE '^step:[0-9]+' "$1" 2> /dev/null | tail -n 1 | cut -d: -f2; }

# The undisturbed run, and lines "step KiB" of its resident memory.
start="$(milliseconds)"
"$BINARY" "${flags[@]}" --out_dir="$scratch/unbroken" > "$scratch/unbroken.log" 2>&1 &
unbroken=$!
watch_memory() {
  while kill -0 "$unbroken" 2> /dev/null; do
    sleep 1
    echo "$(step_of "$scratch/unbroken.log") $(awk '/^VmRSS/ {print $2}' "/proc/$unbroken/status" 2> /dev/null)"
  done > "$scratch/memory"
}
[[ "${MEMORY:-}" == no ]] || watch_memory &

out="$scratch/killed"
# begin: starts or resumes the other run in the background, on some number of ranks.
begin() {
  local resume=()
  if [[ -n "$(newest "$out")" ]]; then resume=(--resume); fi
  draw $((${#ranks[@]} - 1))
  size="${ranks[drawn]}"
  # A script's background jobs begin with SIGINT ignored, and this one may be under nohup.
  env --default-signal=INT,HUP \
    "$BINARY" "${flags[@]}" --out_dir="$out" --world_size="$size" "${resume[@]}" \
    > "$scratch/killed.log" 2>&1 &
  child=$!
}
# The undisturbed run's result; waits for it.
await_unbroken() {
  [[ -z "${want:-}" ]] || return 0
  wait "$unbroken" || fail "the undisturbed run ended with $?: $(tail -n 1 "$scratch/unbroken.log")"
  unbroken=
  want="$(hash "$scratch/unbroken")"
  echo "undisturbed run: $(($(milliseconds) - start)) ms, $(basename "$(newest "$scratch/unbroken")"), $want"
}

killed=0
finished=0
lost=0
slowest=0
# Waits for the end of a run, and compares.
check_end() {
  finished=$((finished + 1))
  await_unbroken
  local got
  got="$(hash "$out")"
  [[ "$got" == "$want" ]] || fail "end $finished after $killed kills: $got, not the bits of the undisturbed run"
  echo "end $finished after $killed kills: the same bits"
  rm -rf "$out"
}

# kill_once: of a run that has begun, after some more steps and milliseconds.
kill_once() {
  local signal from after delay at code=0 to was
  from="$(saved_step "$out")"
  draw $((${#signals[@]} - 1))
  signal="${signals[drawn]}"
  draw $((3 * steps / kills / 2 > 2 ? 3 * steps / kills / 2 : 2))
  after=$((from + drawn))
  draw 400
  delay="$drawn"
  begin
  while kill -0 "$child" 2> /dev/null; do
    at="$(step_of "$scratch/killed.log")"
    if ((after == from || ${at:-0} >= after)); then break; fi
    sleep 0.1
  done
  pause "$delay"
  was="$(milliseconds)"
  kill -"$signal" "$child" 2> /dev/null || true  # it may have ended
  wait "$child" 2> /dev/null || code=$?
  child=
  was=$(($(milliseconds) - was))
  at="$(step_of "$scratch/killed.log")"
  case "$signal $code" in
    *" 0") check_end; return ;;
    "KILL 137") ;;
    # Before the program takes signals there is nothing to save.
    "TERM 143" | "INT 130" | "HUP 129" | "TERM 130" | "HUP 130")
      ((was <= 30000)) || fail "SIG$signal was answered after $was ms"
      if ((was > slowest)); then slowest="$was"; fi
      ;;
    *) fail "SIG$signal: the run ended with $code: $(tail -n 3 "$scratch/killed.log")" ;;
  esac
  killed=$((killed + 1))
  to="$(saved_step "$out")"
  at="${at:-$from}"
  lost=$((lost + at - to))
  echo "kill $killed: SIG$signal to $size ranks in step $at, from step $from; $to is saved, ended with $code in $was ms"
  # What was told to be saved is.
  [[ "$code" != 130 || "$signal" == INT && "$at" == "$from" ]] || ((at == to)) ||
    fail "ended with 130, and step $at is not saved"
  ((at - to <= every)) || fail "step $at was reached, and the last checkpoint is $to"
}

while ((killed < kills)); do kill_once; done
begin
wait "$child" || fail "the last resume ended with $?: $(tail -n 1 "$scratch/killed.log")"
child=
check_end

if [[ "${MEMORY:-}" != no ]]; then
  wait
  python3 - "$scratch/memory" "$steps" << 'PYTHON'
import statistics
import sys

# A checkpoint in the making is a peak of tens of MiB in some samples: medians do not see it.
samples = [tuple(map(int, line.split())) for line in open(sys.argv[1]) if len(line.split()) == 2]
steps = int(sys.argv[2])
third = [kib for step, kib in samples if steps / 2 <= step < steps * 3 / 4]
last = [kib for step, kib in samples if step >= steps * 3 / 4]
if min(len(third), len(last)) < 10:
    sys.exit(f"FAILED: {len(third)} and {len(last)} samples of memory; give more STEPS")
before, after = statistics.median(third), statistics.median(last)
print(f"memory: {before:.0f} KiB resident in the third quarter of the run, {after:.0f} in the last "
      f"(medians of {len(third)} and {len(last)} samples; at most {max(third + last)})")
if after - before > 1024:
    sys.exit("FAILED: memory grows")
PYTHON
fi
echo "PASSED: $killed kills, $lost steps done again, signals answered within $slowest ms," \
  "$finished ends with the bits of the undisturbed run"
