#!/bin/bash
# mpi_faults_test.sh PROGRAM FAULT [CODE]: three ranks, of which the last has the fault and ends
# with CODE (0); the others have to see it in time and end by themselves with 0.
set -eu
program="$1"
fault="$2"
code="${3:-0}"

source tools/build/mpi_env.sh

export CODES="$TMPDIR"
# Each rank's own exit code. mpirun is not to end the ranks that are to notice by themselves.
"${mpirun[@]}" --enable-recovery -n 3 bash -c '
  code=0
  "$0" "$1" || code=$?
  echo "$code" > "$CODES/rank$OMPI_COMM_WORLD_RANK"
' "$program" "$fault" &
job=$!

all_ended() { [[ -s "$CODES/rank0" && -s "$CODES/rank1" && -s "$CODES/rank2" ]]; }
for ((tries = 0; tries < 400; ++tries)); do
  ! all_ended || break
  sleep 0.1
done
# It may wait for a rank that was lost before mpirun knew it.
kill "$job" 2> /dev/null || true
wait "$job" || true

for rank in 0 1 2; do
  want=0
  [[ "$rank" != 2 ]] || want="$code"
  got="$(cat "$CODES/rank$rank" || echo "none, as it did not end")"
  [[ "$got" == "$want" ]] || { echo "FAILED: rank $rank ended with code $got, not $want"; exit 1; }
done
