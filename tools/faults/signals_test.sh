#!/usr/bin/env bash
# signals_test.sh TRACK1 FILE_FAULTS
# Case X8: whenever a signal asks to stop, the step is finished and saved, and the run ends with 130;
# a second one ends it at once; a reader that leaves does not end it.
set -euo pipefail
track1="$(realpath "$1")"
faults="$(realpath "$2")"
cd "$TEST_TMPDIR"

small=(--preset=demo --slots=2 --batch_tokens=32 --val_tokens=32 --val_every=1000 --threads=1
  --sample_lines=0 --epochs=100)

fail() {
  echo "FAILED: $*" >&2
  cat err >&2
  exit 1
}
# expect TEXT: in what the run said on standard error.
expect() { grep -qF -- "$1" err || fail "no \"$1\""; }
# Nothing of an earlier run is left, whose log await would read until the next one begins its own.
fresh() {
  rm -rf run
  : > out
  : > err
}
# begin FLAGS...: a run in the background. This script itself may have been started under nohup.
begin() {
  fresh
  env --default-signal=HUP "$track1" "${small[@]}" --out_dir=run "$@" > out 2> err &
  child=$!
}
# await PATTERN: in the log, while the run lives.
await() {
  for ((i = 0; i < 3600; i++)); do
    if grep -qE "$1" out; then return; fi
    kill -0 "$child" 2> /dev/null || fail "the run ended before \"$1\": $(cat out)"
    sleep 0.05
  done
  fail "no \"$1\" in three minutes: $(cat out)"
}
# ends CODE SECONDS: the run ends so, within that time.
ends() {
  local code=0 start="$SECONDS"
  wait "$child" || code=$?
  [[ "$code" == "$1" ]] || fail "ended with $code, not $1"
  ((SECONDS - start <= $2)) || fail "ended $((SECONDS - start)) s after the signal"
}
# saved: the last step that the log tells of is the latest checkpoint; prints it.
saved() {
  local step
  step="$(grep -oE '^step:[0-9]+/[0-9]+ train' out | tail -n 1 | grep -oE '[0-9]+' | head -n 1)"
  [[ -s "$(printf 'run/checkpoints/step-%08d/checksums.json' "$step")" ]] || fail "step $step is not saved"
  echo "$step"
}
passed() { echo "X8 $1: ended $((SECONDS - begun)) s after it began"; begun="$SECONDS"; }
begun="$SECONDS"
# Seconds for a step and a checkpoint, which take less than one; 25 on a machine with 17 times its
# work at least.
soon=200

# Each signal, on one rank and on two.
for signal in INT TERM HUP; do
  ranks=1
  [[ "$signal" != TERM ]] || ranks=2
  begin --steps=1000 --world_size="$ranks"
  await '^step:1/'
  kill -"$signal" "$child"
  ends 130 "$soon"
  step="$(saved)"
  expect "SIG$signal: stopping after the step in hand"
  expect "track1: interrupted after step $step; go on with --out_dir=run --resume"
  passed "SIG$signal on $ranks ranks"
done

# During the validation before the first step.
begin --steps=1000 --val_tokens=8192 --world_size=2
await '^1000 steps of'
until grep -qs 'SigBlk:.*[1-9a-f]' "/proc/$child/status"; do sleep 0.05; done  # it takes signals
kill -TERM "$child"
ends 130 "$soon"
[[ "$(saved)" == 1 ]] || fail "during validation: not after step 1"
passed "during validation, on two ranks"

# Twice: at once, though a shell starts its background jobs with SIGINT ignored.
for signal in INT TERM; do
  begin --steps=1000 --val_tokens=131072  # most of what the demo has: seconds
  await '^1000 steps of'
  until grep -qs 'SigBlk:.*[1-9a-f]' "/proc/$child/status"; do sleep 0.05; done
  kill -"$signal" "$child"
  until grep -q "SIG$signal: stopping" err; do sleep 0.05; done
  kill -"$signal" "$child"
  ends $((128 + $(kill -l "$signal"))) 10
  [[ ! -e run/checkpoints ]] || fail "twice SIG$signal: it went on to a checkpoint"
  ! grep -q "interrupted after" err || fail "twice SIG$signal: it ended in good order"
  passed "twice SIG$signal"
done

# A terminal that is closed says so twice.
begin --steps=1000
await '^step:1/'
kill -HUP "$child"
until grep -q "SIGHUP: stopping" err; do sleep 0.05; done
kill -HUP "$child" 2> /dev/null || true
ends 130 "$soon"
saved > step
passed "SIGHUP twice"

# Under nohup it goes on.
fresh
(trap '' HUP; exec "$track1" "${small[@]}" --out_dir=run --steps=1000 > out 2> err) &
child=$!
await '^step:1/'
kill -HUP "$child"
await '^step:4/'
! grep -q SIGHUP err || fail "nohup: it heard SIGHUP"
kill -TERM "$child"
ends 130 "$soon"
saved > step
passed "nohup"

# While a checkpoint is written: at the first, a middle and one of the last calls.
for call in 3 30 55; do  # the first is of the start, which looks for checkpoints
  rm -rf run
  FAULTS_BELOW="$PWD/run/checkpoints" FAULT="$call:sigterm" LD_PRELOAD="$faults" \
    "$track1" "${small[@]}" --out_dir=run --steps=1000 --checkpoint_every=1 > out 2> err &
  child=$!
  ends 130 "$soon"
  saved > step
  "$track1" "${small[@]}" --out_dir=run --steps=1000 --resume --plan > out 2> err || fail "resume"
  passed "in call $call of a checkpoint"
done

# While the finished model writes its samples.
begin --steps=2 --sample_lines=1000
await '^sample, temperature 0:'
kill -TERM "$child"
ends 130 "$soon"
expect "interrupted while sampling; the training itself is complete"
[[ "$(saved)" == 2 ]] || fail "sampling: the last step is not saved"
passed "while sampling"

# Nobody reads the log any more.
rm -rf run
code=0
{ "$track1" "${small[@]}" --out_dir=run --steps=3 2> err || echo "$?" > code; } | head -n 1 > out
[[ "$(cat code)" == 2 ]] || fail "| head: ended with $(cat code)"
expect "warning: standard output: cannot write: Broken pipe; training goes on"
expect "track1: standard output: was not written in full: Broken pipe"
[[ -s run/checkpoints/step-00000003/checksums.json ]] || fail "| head: the last step is not saved"
passed "| head"
