#!/bin/bash
# Shows that a run may be killed at any moment: SIGKILLs a training that saves a checkpoint after
# every step, at random moments, resumes it each time, and compares the final weights with those
# of a run that nobody disturbed.
#
#   tools/ci/kill_resume.sh                         20 kills
#   KILLS=5 tools/ci/kill_resume.sh                 fewer
#   BINARY=path/to/track1 tools/ci/kill_resume.sh   without building
#
# Ends with 0 if every resume worked and the bytes are equal. RANDOM_SEED repeats the moments.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kills="${KILLS:-20}"
if [[ -z "${BINARY:-}" ]]; then
  ./bazelw build //tools:track1
  BINARY=bazel-bin/tools/track1
fi
RANDOM="${RANDOM_SEED:-$$}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

flags=(--preset=demo --steps=12 --batch_tokens=1024 --val_every=100 --val_tokens=4096
  --checkpoint_every=1 --sample_lines=0)

milliseconds() { date +%s%3N; }

# The newest checkpoint of a folder, by its step; empty if there is none.
newest() {
  find "$1/checkpoints" -mindepth 1 -maxdepth 1 -name 'step-*' 2> /dev/null | sort | tail -n 1
}

# hash FOLDER: of the final weights and moments.
hash() {
  local last
  last="$(newest "$1")"
  sha256sum < "$last/model.safetensors"
  sha256sum < "$last/optimizer.safetensors"
}

start="$(milliseconds)"
"$BINARY" "${flags[@]}" --out_dir="$scratch/unbroken" > "$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
took=$(($(milliseconds) - start))
want="$(hash "$scratch/unbroken")"
echo "unbroken run: ${took} ms, $(basename "$(newest "$scratch/unbroken")"), $(cut -c1-16 <<< "$want" | tr '\n' ' ')"

# Each round kills a run once, and starts afresh when a run came to its end before its kill.
out="$scratch/killed"
round=0
killed=0
finished=0
status=0
check_end() {
  finished=$((finished + 1))
  if [[ "$(hash "$out")" == "$want" ]]; then
    echo "  end $finished: same bits"
  else
    echo "  end $finished: DIFFERENT BITS"
    status=1
  fi
  rm -rf "$out"
}
# start: begins or resumes the run in the background.
start() {
  local resume=()
  if [[ -n "$(newest "$out")" ]]; then resume=(--resume); fi
  "$BINARY" "${flags[@]}" --out_dir="$out" "${resume[@]}" > "$scratch/log" 2>&1 &
  child=$!
}
while ((killed < kills)); do
  round=$((round + 1))
  from="$(newest "$out")"
  start
  # RANDOM has 15 bits; up to a quarter of a run, so that most runs are killed several times.
  delay=$((RANDOM * (took / 4) / 32768))
  sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
  kill -KILL "$child" 2> /dev/null || true  # it may have ended
  ended=0
  wait "$child" 2> /dev/null || ended=$?
  case "$ended" in
    137)
      killed=$((killed + 1))
      halves="$(find "$out/checkpoints" -maxdepth 1 -name '.tmp-*' 2> /dev/null | wc -l)"
      to="$(newest "$out")"
      echo "kill $killed after $delay ms: from $(basename "${from:-start}") to" \
        "$(basename "${to:-nothing}"), $halves half written"
      ;;
    0) check_end ;;
    *)
      echo "round $round: the run ended with $ended instead: $(tail -n 1 "$scratch/log")"
      exit 1
      ;;
  esac
done
start
if ! wait "$child"; then
  echo "the last resume failed: $(tail -n 1 "$scratch/log")"
  exit 1
fi
check_end
if ((status == 0)); then
  echo "PASSED: $killed kills, every resume worked, $finished ends with the bits of the unbroken run"
else
  echo "FAILED: $killed kills, different bits"
fi
exit "$status"
