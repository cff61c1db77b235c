#!/bin/bash
# bench_step on the CPU at a tiny size: the report has all its parts, and bad flags are named.
set -euo pipefail

bench="$1"
out="$TEST_TMPDIR/report.md"

fail() { echo "FAIL: $*" >&2; cat "$out" >&2; exit 1; }

"$bench" --device=cpu --batch_tokens=512 --threads=2 --warmup_steps=1 --steps=2 --trace_steps=1 \
  --trace="$TEST_TMPDIR/trace.json" >"$out" || fail "exit code $?"
for part in 'Ceilings: bf16 product of' '| steps timed | 2 |' '| tokens/s |' '| of the bf16 ceiling |' \
  '| phase | calls |' '| gemm |' '| attention |' '| head+loss |' '| optimizer |' '| gaps |' \
  '| traced step |' '| op | phase | shape |' '| HeadLossGrad | head+loss |' \
  '| SymmetricProduct | optimizer |' '| AttentionGrad | attention |'; do
  grep -qF "$part" "$out" || fail "no \"$part\""
done
for name in '"traceEvents"' '"batch wait"' '"forward+backward"' '"losses"' '"optimizer"' \
  '"step 4"' '"all_gather slot losses"' '"LinearRelu2Grad"'; do
  grep -qF -- "$name" "$TEST_TMPDIR/trace.json" || fail "no $name in the trace"
done

# Case F2: refused before anything is timed.
sum="$(cksum <"$TEST_TMPDIR/trace.json")" code=0
"$bench" --device=cpu --trace="$TEST_TMPDIR/trace.json" >"$out" 2>&1 || code=$?
[[ $code == 1 ]] || fail "a trace that is there: exit code $code"
grep -qF -- 'trace.json: exists; give another name, or --overwrite' "$out" || fail "no such message"
[[ "$(cksum <"$TEST_TMPDIR/trace.json")" == "$sum" ]] || fail "the trace was written over"

code=0
"$bench" --device=cpu --steps=0 >"$out" 2>&1 || code=$?
[[ $code == 1 ]] || fail "--steps=0: exit code $code"
grep -qF -- '--steps=0: must be from 1' "$out" || fail "--steps=0: no such message"
echo PASS
