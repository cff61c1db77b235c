#!/bin/bash
# track_on_mpi_test.sh TRACK1 TRACK2 TRACK1_ON_MPI TRACK2_ON_MPI short|full
# With --deterministic a run has one loss curve, bit for bit: on one rank of this build, and under
# mpirun on any number of processes.
#   short: few steps of small batches, the other recipes on 3 and 8 processes
#   full: 30 steps of the demo, all recipes on 1, 2, 3, 4 and 8
set -euo pipefail
track1="$1" track2="$2" track1_on_mpi="$3" track2_on_mpi="$4" mode="$5"

source tools/build/mpi_env.sh

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# curve FILE: of each step the number and the losses, as the metrics print them.
curve() { cut -d, -f1,2 "$1"; }

# same STEPS RECORD PROGRAM PROGRAM_ON_MPI RANKS...
same() {
  local steps="$1" record="$2" program="$3" on_mpi="$4" ranks start
  shift 4
  local flags=(--preset=demo --record="$record" --deterministic --steps="$steps" --threads=1
    --sample_lines=0 --comm_timeout=5m)
  [[ "$mode" == full ]] || flags+=(--batch_tokens=384 --val_tokens=256)
  start="$SECONDS"
  rm -f "$TMPDIR/want"
  "$program" "${flags[@]}" --metrics="$TMPDIR/want" > "$TMPDIR/out" || fail "$record on one rank"
  echo "$record, $steps steps on one rank: $((SECONDS - start)) s, $(tail -1 "$TMPDIR/want")"
  [[ "$(curve "$TMPDIR/want" | grep -c '"loss"')" == "$steps" ]] || fail "$record: not $steps losses"
  for ranks in "$@"; do
    start="$SECONDS"
    rm -f "$TMPDIR/got"
    "${mpirun[@]}" -n "$ranks" "$on_mpi" "${flags[@]}" --metrics="$TMPDIR/got" > "$TMPDIR/out" ||
      fail "$record on $ranks processes"
    grep -q "comm=mpi" "$TMPDIR/out" || fail "not on MPI: $(head -1 "$TMPDIR/out")"
    grep -q " $ranks ranks on CPU" "$TMPDIR/out" || fail "not $ranks ranks: $(cat "$TMPDIR/out")"
    diff <(curve "$TMPDIR/want") <(curve "$TMPDIR/got") || fail "$record on $ranks processes differs"
    echo "$record on $ranks processes: $((SECONDS - start)) s, the same losses"
  done
}

if [[ "$mode" == full ]]; then
  for record in unified_optimizers fix_muon_lr muon_custom_sizing; do
    same 30 "$record" "$track1" "$track1_on_mpi" 1 2 3 4 8
  done
  same 30 record7 "$track2" "$track2_on_mpi" 1 2 3 4 8
else
  same 10 unified_optimizers "$track1" "$track1_on_mpi" 1 2 3 4 8
  same 4 fix_muon_lr "$track1" "$track1_on_mpi" 8
  same 4 muon_custom_sizing "$track1" "$track1_on_mpi" 3
  same 4 record7 "$track2" "$track2_on_mpi" 3
fi
