#!/usr/bin/env bash
# verify_record's exit codes and messages, from files and from lists.
set -euo pipefail

verify="$1"
cd "$TEST_TMPDIR"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in the output.
expect() {
  local code="$1" text="$2" got=0
  shift 2
  "$OLDPWD/$verify" "$@" >out 2>&1 || got=$?
  [[ $got == "$code" ]] || fail "$* ended with $got, not $code: $(cat out)"
  grep -qF -- "$text" out || fail "$*: no \"$text\" in: $(cat out)"
}

# log FILE STEPS LOSS MS
log() {
  printf 'step:0/%s val_loss:10.8258 train_time:0ms step_avg:0.00ms\n' "$2" >"$1"
  printf 'step:%s/%s val_loss:%s train_time:%sms step_avg:1.00ms\n' "$2" "$2" "$3" "$4" >>"$1"
}
log run_1.txt 2285 3.2774 139000
log run_2.txt 2285 3.2776 141000
log old_1.txt 2315 3.2790 142000
echo '{"step":2315,"val_loss":3.2794,"train_ms":144000}' >old_2.jsonl
log short.txt 10 3.2 5
log diverged.txt 2285 nan 139000
head -n 1 run_1.txt >unfinished.txt

expect 0 "losses of 2 runs: 3.2775 +- 0.0001" run_1.txt run_2.txt
expect 0 "t -25.0000, 1 degrees of freedom, p 0.013" run_1.txt run_2.txt
expect 0 "with p < 0.01, is not met." run_1.txt run_2.txt
expect 0 "times of 2 runs: 140.0000 +- 1.4142 s" --logs='run_*.txt'
expect 0 "difference of times: -3.0000 s (-2.10 %)" --logs='run_*.txt' --baseline='old_*'
expect 0 "2315 steps of 61.771 ms" 'run_*.txt' --baseline=old_1.txt,old_2.jsonl
losses=3.2804,3.2754,3.2753,3.2800,3.2780,3.2813,3.2778,3.2771,3.2780,3.2783
expect 0 "p 0.0083" --losses="$losses"
expect 0 "mean loss below 3.28 with p < 0.01, is met." --losses="$losses"
expect 0 "mean loss below 2.92 with p < 0.01, is not met." --losses="$losses" --target=2.92

expect 1 "no runs; give logs"
expect 1 "losses: 1 value: a standard deviation needs two" run_1.txt
expect 1 "baseline's losses: 1 value" 'run_*.txt' --baseline=old_1.txt
expect 1 '--losses: value 2 is "x"' --losses=3.28,x
expect 1 '--times: value 1 is "nan"' --times=nan,139
expect 1 '--baseline_times: value 3 is ""' --losses="$losses" --baseline_times=1,2,
expect 1 '--baseline_losses: value 1 is "-1"' --losses="$losses" --baseline_losses=-1,2
expect 1 'give either logs or numbers' --losses="$losses" run_1.txt
expect 1 'give either logs or numbers' --losses="$losses" --baseline=old_1.txt --baseline_times=1,2
expect 1 "short.txt: a run of 10 steps, but run_1.txt has 2285" run_1.txt short.txt
expect 1 "unfinished.txt:1: the last validation is at step 0 of 2285" run_1.txt unfinished.txt
expect 1 "diverged.txt:2: the final val_loss is nan" run_1.txt diverged.txt
expect 1 "run_1.txt: given twice" run_1.txt 'run_*.txt'
expect 1 '"none.txt": no such file' none.txt
expect 1 "not a regular file" .
expect 1 "--target=nan: must be a positive number" --losses="$losses" --target=nan
expect 1 "did you mean --losses?" --loses="$losses"

# K2-20: a path that exists is meant.
mkdir odd
log 'odd/muon:lr=0.035 wd=0.025-1.txt' 10 3.2774 139000
log 'odd/a,b.txt' 10 3.2776 141000
log 'odd/[x].txt' 10 3.2775 140000
expect 0 "losses of 3 runs" 'odd/muon:lr=0.035 wd=0.025-1.txt' 'odd/a,b.txt' 'odd/[x].txt'
expect 0 "losses of 3 runs" --logs='odd/a,b.txt,odd/[x].txt,odd/muon:lr=0.035 wd=0.025-1.txt'

# K2-19: several trials of the original's track 3 in one file, whose clock counts seconds.
for trial in 1 2 3; do
  printf 'trial:%s/3 seed:%s\nstep:0/1000 val_loss:10.77650 train_time:0.000s step_avg:nanms\n' \
    $trial $trial
  printf 'step:1000/1000 val_loss:3.27%s41 train_time:24%s.778s step_avg:778.00ms\n' $trial $trial
done >trials.txt
expect 0 "losses of 3 runs: 3.2724 +- 0.0010" trials.txt
expect 0 "times of 3 runs: 242.7780 +- 1.0000 s" trials.txt

# K2-21: what one run left counts once, and copies are refused.
mkdir runs
for run in 1 2 3 4; do
  printf 'step:0/40 val_loss:10.8258 train_time:0ms step_avg:nanms\nstep:20/40 train_time:5ms\n' \
    >runs/$run.txt
  printf 'step:40/40 val_loss:3.27%s0 train_time:10%sms step_avg:1.00ms\n' $((run * 2)) $run \
    >>runs/$run.txt
  printf '{"step":40,"val_loss":3.27%s0123,"train_ms":10%s.2}\n' $((run * 2)) $run \
    >runs/$run.jsonl
done
expect 0 "losses of 4 runs" 'runs/*'
expect 0 "runs/1.txt and runs/1.jsonl are one run" 'runs/*'
ln -s 4.txt runs/latest.txt
expect 0 "runs/latest.txt is a link to runs/4.txt, and counts once" 'runs/*'
grep -v 'step:20' runs/2.txt >runs/console.out
mkdir runs/checkpoints
expect 0 "losses of 4 runs" 'runs/*'
expect 0 "runs/2.txt and runs/console.out and runs/2.jsonl are one run" 'runs/*'
expect 0 "runs/checkpoints: a folder, passed over" 'runs/*'
cp runs/3.txt runs/copy.txt
expect 1 "runs/3.txt and runs/copy.txt are copies of one run" 'runs/*'
expect 1 "are copies of one run" 'runs/[1-4].txt' --baseline=runs/copy.txt
expect 0 "is not judged" --losses=3.27,3.27,3.27
echo "passed"
