#!/usr/bin/env bash
# bench_comm measures all three collectives and prints flags that --plan takes.
set -euo pipefail
"$1" --world_size=3 --max_mib=1 --repeats=2 > "$TEST_TMPDIR/out.txt"
for word in reduce_scatter all_gather all_reduce "--link_shape=ring --link_gbps=" "--latency_us="; do
  grep -qF -- "$word" "$TEST_TMPDIR/out.txt" || { echo "no $word in:"; cat "$TEST_TMPDIR/out.txt"; exit 1; }
done
code=0
"$1" --world_size=1 2> "$TEST_TMPDIR/err.txt" || code=$?
[[ "$code" == 1 ]] && grep -qF -- "--world_size=1" "$TEST_TMPDIR/err.txt"
