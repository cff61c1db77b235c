#!/bin/bash
# lost_rank_on_mpi_test.sh TRACK1_ON_MPI TIMES: kills one process of a run at a random time, so
# many times. Every other one has to end within 10 s, with code 2 and a report that names it.
set -euo pipefail
program="$1" times="$2"

source tools/build/mpi_env.sh
export FOLDER="$TMPDIR"

# What each rank runs: leaves its process' id, what it says and its exit code. mpirun of Open MPI 4
# ends the other ranks itself, first by SIGTERM, one second after it has noticed.
cat > "$TMPDIR/rank" << 'RANK'
#!/bin/bash
trap '' TERM
"$@" > "$FOLDER/out$OMPI_COMM_WORLD_RANK" 2> "$FOLDER/err$OMPI_COMM_WORLD_RANK" &
echo "$!" > "$FOLDER/pid$OMPI_COMM_WORLD_RANK"
code=0
wait "$!" || code=$?
date +%s.%N > "$FOLDER/end$OMPI_COMM_WORLD_RANK"
echo "$code" > "$FOLDER/code$OMPI_COMM_WORLD_RANK"
RANK
chmod +x "$TMPDIR/rank"

fail() {
  echo "FAILED: $*" >&2
  tail -n 50 "$FOLDER"/{err,code}* >&2 || true
  exit 1
}

# await SECONDS CONDITION...
await() {
  local tries
  for ((tries = $1 * 20; tries > 0; --tries)); do
    if "${@:2}"; then return 0; fi
    sleep 0.05
  done
  return 1
}
trains() { grep -qs "^step:0/" "$FOLDER/out0"; }
ended() { ! kill -0 "$job" 2> /dev/null; }

for ((round = 1; round <= times; ++round)); do
  ranks=$((2 + RANDOM % 3)) victim=0
  victim=$((RANDOM % ranks))
  rm -f "$FOLDER"/{out,err,pid,code,end}[0-9]
  "${patient_mpirun[@]}" -n "$ranks" "$FOLDER/rank" "$program" --preset=demo --steps=1000 --threads=1 \
    --batch_tokens=384 --val_tokens=256 --comm_timeout=60s --epochs=100 > "$FOLDER/mpirun" 2>&1 &
  job=$!
  await 60 trains || fail "round $round: the run did not start"
  sleep "$((RANDOM % 3)).$((RANDOM % 1000))"
  killed="$(date +%s.%N)"
  kill -KILL "$(cat "$FOLDER/pid$victim")"
  await 20 ended || fail "round $round: mpirun still runs"
  if wait "$job"; then ((open_mpi >= 5)) || fail "round $round: mpirun ended with code 0"; fi
  slowest=0
  for ((rank = 0; rank < ranks; ++rank)); do
    code="$(cat "$FOLDER/code$rank" 2> /dev/null || echo none)"
    [[ "$rank" != "$victim" ]] || { [[ "$code" == 137 ]] || fail "the victim: $code"; continue; }
    what="round $round, rank $victim of $ranks killed"
    [[ "$code" == 2 ]] || fail "$what: rank $rank ended with $code"
    grep -q "rank $victim is gone" "$FOLDER/err$rank" || fail "$what: rank $rank does not say so"
    grep -q "  rank $rank started" "$FOLDER/err$rank" || fail "$what: rank $rank has no report"
    slowest="$(python3 -c "print('%.2f' % max($slowest, $(cat "$FOLDER/end$rank") - $killed))")"
  done
  python3 -c "exit($slowest > 10)" || fail "$what: the last one ended after $slowest s"
  echo "rank $victim of $ranks killed: the others ended within $slowest s"
done
