#!/usr/bin/env bash
# report's exit codes and messages, and the file it writes.
set -euo pipefail

report="$1"
cd "$TEST_TMPDIR"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in the output.
expect() {
  local code="$1" text="$2" got=0
  shift 2
  "$OLDPWD/$report" "$@" >out 2>&1 || got=$?
  [[ $got == "$code" ]] || fail "$* ended with $got, not $code: $(cat out)"
  grep -qF -- "$text" out || fail "$*: no \"$text\" in: $(cat out)"
}

# log FILE STEPS LOSS
log() {
  printf 'step:0/%s val_loss:10.8258 train_time:0ms step_avg:0.00ms\n' "$2" >"$1"
  printf 'step:%s/%s val_loss:%s train_time:1000ms step_avg:1.00ms\n' "$2" "$2" "$3" >>"$1"
}
log one.log 100 3.27
log two.log 100 3.28
echo 'step:3/9 train_time:5ms step_avg:1.00ms' >cut.log
: >empty.log
echo 'no log' >prose.txt

expect 0 "report.html: 2 runs, 0 traces" one.log two.log
[[ -s report.html ]] || fail "report.html is not there"
grep -q 'one' report.html || fail "no run in the page"
expect 0 "other.html: 2 runs" --out=other.html 'g:*o.log' one.log --title='A <b>'
grep -qF '<title>A &lt;b&gt;</title>' other.html || fail "no title"
expect 0 "report: cut: ends at step 3 of 9" --overwrite cut.log
grep -qF 'cut: ends at step 3 of 9' report.html || fail "the page does not tell of the cut"

expect 0 "svgs/loss_time.svg: " --overwrite --svg_dir=svgs a:one.log a:two.log
expect 0 "loss_tokens.svg: without one, two" --overwrite --svg_dir=svgs a:one.log a:two.log
[[ ! -e svgs/loss_tokens.svg ]] || fail "a chart against tokens that no file tells"
grep -qF '>a (2)</text>' svgs/loss_step.svg || fail "no group in the chart"
expect 1 "--svg_dir=none: no run has a validation loss" --overwrite --svg_dir=none cut.log
expect 1 "--svg_dir=one.log" --overwrite --svg_dir=one.log one.log

# Case F2: what is there is not written over unless told to, whatever it is.
before="$(cat one.log report.html svgs/*.svg | cksum)"
expect 1 "--out=report.html: exists; give another name, or --overwrite to replace it" one.log
expect 1 "--out=one.log: exists" --out=one.log one.log
expect 1 "--svg_dir=svgs/loss_step.svg: exists" --out=new.html --svg_dir=svgs one.log
expect 1 "--out=svgs: is a folder" --overwrite --out=svgs one.log
[[ ! -e new.html ]] || fail "a page was written beside charts that were not"
[[ "$(cat one.log report.html svgs/*.svg | cksum)" == "$before" ]] || fail "written over"

expect 1 "nothing to report" --overwrite
expect 1 "\"none.log\": no such file" --overwrite none.log
expect 1 "empty.log: the file is empty" --overwrite empty.log
expect 1 "prose.txt: neither a printed log" --overwrite prose.txt
expect 1 "one.log: given twice" --overwrite one.log one.log
expect 1 "--target=-1" --target=-1 one.log
expect 1 "nowhere" --out=nowhere/report.html one.log
expect 1 "titel" --titel=x one.log
expect 0 "two programs, several runs each" --help
echo "passed"
