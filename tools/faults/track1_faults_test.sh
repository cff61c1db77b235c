#!/usr/bin/env bash
# track1_faults_test.sh TRACK1 FILE_FAULTS
# Cases X2 and X5 with the real program: disks that are full, broken or read-only while a checkpoint,
# the metrics, the trace or the log is written, and checkpoints that are damaged when they are read.
set -euo pipefail
track1="$(realpath "$1")"
faults="$(realpath "$2")"
cd "$TEST_TMPDIR"

small=(--preset=demo --slots=2 --batch_tokens=32 --val_tokens=32 --val_every=1000 --threads=1
  --sample_lines=0 --steps=3 --checkpoint_every=1 --keep_checkpoints=2)

fail() {
  echo "FAILED: $*" >&2
  cat err >&2
  exit 1
}
# expect TEXT...: in what the run said on standard error.
expect() { for text in "$@"; do grep -qF -- "$text" err || fail "no \"$text\""; done; }
# runs CODE FLAGS...
runs() {
  local code=0 want="$1"
  shift
  "$track1" "${small[@]}" "$@" > out 2> err || code=$?
  [[ "$code" == "$want" ]] || fail "$*: ended with $code, not $want"
}
# faulty FAULT CODE FLAGS...: with a fault below run/checkpoints.
faulty() {
  local fault="$1"
  shift
  FAULTS_BELOW="$PWD/run/checkpoints" FAULTS_LOG="$PWD/calls" FAULT="$fault" LD_PRELOAD="$faults" \
    runs "$@"
}
# has STEP...: these are the checkpoints in run/, and nothing is left beside them.
has() {
  [[ "$(cd run/checkpoints && echo .[!.]* step-*)" == ".[!.]* $(printf 'step-%08d ' "$@" | sed 's/ $//')" ]] ||
    fail "not the checkpoints $*: $(ls -A run/checkpoints)"
}

# The bytes that every resumed run has to come to.
runs 0 --out_dir=whole
want="$(cat whole/checkpoints/step-00000003/{model,optimizer}.safetensors | sha256sum)"
# finishes: the fault has gone; the run goes on to the same end.
finishes() {
  local complete=
  [[ ! -e run/checkpoints/step-00000003 ]] || complete=yes
  runs 0 --out_dir=run --resume
  [[ -n "$complete" ]] || has 2 3  # a save cleans up, and a complete run makes none
  [[ "$(cat run/checkpoints/step-00000003/{model,optimizer}.safetensors | sha256sum)" == "$want" ]] ||
    fail "resumed to other bytes"
}

# How many calls the first checkpoint, and all three, make.
faulty 1:none 0 --out_dir=run
has 2 3
last="$(tail -n 1 calls | cut -d' ' -f1)"
first="$(grep -m 1 'rename .*/step-00000001$' calls | cut -d' ' -f1)"
echo "$last calls in three checkpoints, $first until the first has its name"
((first > 40 && last > 2 * first)) || fail "not the calls of three checkpoints"

# From a call in the middle of the second checkpoint on, everything fails.
for fault in ENOSPC:"No space left on device" EIO:"Input/output error" \
  EROFS:"Read-only file system" EMFILE:"Too many open files"; do
  rm -rf run
  faulty "$((first + 30))+:${fault%%:*}" 2 --out_dir=run
  expect "run/checkpoints/.tmp-step-00000002" "${fault#*:}"
  [[ "$(wc -l < err)" == 1 ]] || fail "not one line"
  echo "${fault%%:*}: $(tail -n 1 err)"
  [[ -s run/checkpoints/step-00000001/checksums.json ]] || fail "the last good checkpoint is gone"
  finishes
done

# Killed at calls all over the three checkpoints.
killed=0
for ((call = 3; call <= last; call += last / 5)); do
  rm -rf run
  faulty "$call:kill_after" 137 --out_dir=run
  killed=$((killed + 1))
  if ((call < first)); then
    runs 1 --out_dir=run --resume
    expect "no checkpoint"
    runs 0 --out_dir=run
    has 2 3
  else
    finishes
  fi
done
echo "SIGKILL: $killed times, each resumed to the same bytes"

# A limit on the size of files: no injected fault, the kernel's own.
rm -rf run
(ulimit -f 1000; runs 2 --out_dir=run)
expect "run/checkpoints/.tmp-step-00000001/model.safetensors" "File too large"
[[ -z "$(ls -A run/checkpoints)" ]] || fail "something is left: $(ls -A run/checkpoints)"

# Old checkpoints that cannot be deleted stay, with a warning.
rm -rf run
deletion="$(awk '/ unlinkat / {print $1; exit}' calls)"
faulty "$deletion:EACCES" 0 --out_dir=run
grep -qE "^warning: the checkpoint of step 3 is saved, but something old stays: .*Permission denied" out ||
  fail "no warning: $(cat out)"

# Metrics, log, trace, initial weights.
rm -rf run
runs 2 --metrics=/dev/full --out_dir=run
expect "warning: /dev/full: cannot write: No space left on device; training goes on" \
  "track1: /dev/full: was not written in full: No space left on device"
has 2 3
code=0
"$track1" "${small[@]}" --out_dir=full > /dev/full 2> err || code=$?
[[ "$code" == 2 ]] || fail "log on a full disk: ended with $code"
expect "track1: standard output: was not written in full: No space left on device"
for device in full null; do
  runs 1 --trace="/dev/$device" --out_dir=traced
  expect "--trace=/dev/$device" "not a file"
  [[ -c "/dev/$device" ]] || fail "/dev/$device was replaced"
done
(ulimit -f 1000; runs 2 --save_init=init.safetensors --out_dir=saved)
expect "init.safetensors" "File too large"
[[ -z "$(ls init.safetensors* 2> /dev/null)" ]] || fail "half a file is left"

# Another run's checkpoints are not gone on from, or deleted.
runs 1 --out_dir=run
expect "--out_dir=run: holds a run's checkpoints, the latest of step 3" "--resume"
has 2 3

# Damaged checkpoints: named, with what to do; and that works.
damage() {
  rm -rf run
  cp -r whole run
  local latest=run/checkpoints/step-00000003
  (cd "$latest" && eval "$1")
  runs 1 --out_dir=run --resume
  expect "$latest/$2" "$3" \
    "run/checkpoints/step-00000002 is whole: to go on from step 2, move $latest away"
  echo "$1: $(cat err)"
  mv "$latest" "$latest.damaged"
  runs 0 --out_dir=run --resume
  [[ -s "$latest/state.json" ]] || fail "$1: did not go on from step 2"
}
damage "printf x | dd of=model.safetensors bs=1 seek=100000 conv=notrunc status=none" \
  model.safetensors "its bytes have changed since"
damage "truncate -s -1 optimizer.safetensors" optimizer.safetensors "were saved"
damage "sed -i 's/\"tokens\": ./\"tokens\": 8/' state.json" state.json "its CRC-32C is"
damage "rm checksums.json" checksums.json "no such file"

# A newer format. Its checksums are right.
rm -rf run
cp -r whole run
python3 - run/checkpoints/step-00000003 << 'PYTHON'
import json, re, sys

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

folder = sys.argv[1]
state = re.sub(r'"format": \d+', '"format": 77', open(f"{folder}/state.json").read())
assert '"format": 77' in state
open(f"{folder}/state.json", "w").write(state)
sums = json.load(open(f"{folder}/checksums.json"))
sums["state.json"] = {"bytes": len(state), "crc32c": "%08x" % crc32c(state.encode())}
json.dump(sums, open(f"{folder}/checksums.json", "w"))
PYTHON
runs 1 --out_dir=run --resume
expect "state.json: format 77, this program reads format "
echo "format: $(cat err)"
