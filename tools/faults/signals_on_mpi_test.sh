#!/bin/bash
# signals_on_mpi_test.sh TRACK1_ON_MPI
# Case X8 with ranks that are processes: a signal to one of them ends all with 130, after the same
# step, which is saved.
set -euo pipefail
program="$1"

source tools/build/mpi_env.sh
export FOLDER="$TMPDIR"

# What each rank runs: leaves its process' id, what it says and its exit code. mpirun ends the ranks
# itself when one has ended with an error; here they have to end by themselves.
cat > "$TMPDIR/rank" << 'RANK'
#!/bin/bash
trap '' TERM
env --default-signal=TERM,HUP,INT "$@" > "$FOLDER/out$OMPI_COMM_WORLD_RANK" \
  2> "$FOLDER/err$OMPI_COMM_WORLD_RANK" &
echo "$!" > "$FOLDER/pid$OMPI_COMM_WORLD_RANK"
code=0
wait "$!" || code=$?
echo "$code" > "$FOLDER/code$OMPI_COMM_WORLD_RANK"
RANK
chmod +x "$TMPDIR/rank"

fail() {
  echo "FAILED: $*" >&2
  tail -n 20 "$FOLDER"/{err,code}* >&2 || true
  exit 1
}

ranks=3
for victim in 0 2; do
  rm -rf "$FOLDER"/{out,err,pid,code}[0-9] "$FOLDER/run"
  "${patient_mpirun[@]}" -n "$ranks" "$FOLDER/rank" "$program" --preset=demo --steps=1000 --threads=1 \
    --slots=3 --batch_tokens=48 --val_tokens=48 --comm_timeout=5m --epochs=100 \
    --out_dir="$FOLDER/run" > "$FOLDER/mpirun" 2>&1 &
  job=$!
  until grep -qs "^step:1/" "$FOLDER/out0"; do
    kill -0 "$job" 2> /dev/null || fail "the run did not start: $(cat "$FOLDER/mpirun")"
    sleep 0.05
  done
  start="$SECONDS"
  kill -TERM "$(cat "$FOLDER/pid$victim")"
  wait "$job" || true  # the ranks' own codes count
  took="$((SECONDS - start))"
  step="$(grep -oE '^step:[0-9]+' "$FOLDER/out0" | tail -n 1 | cut -d: -f2)"
  for ((rank = 0; rank < ranks; ++rank)); do
    code="$(cat "$FOLDER/code$rank" 2> /dev/null || echo none)"
    [[ "$code" == 130 ]] || fail "a signal to rank $victim: rank $rank ended with $code"
    grep -q "interrupted after step $step;" "$FOLDER/err$rank" || fail "rank $rank stopped elsewhere"
  done
  [[ -s "$(printf '%s/run/checkpoints/step-%08d/checksums.json' "$FOLDER" "$step")" ]] ||
    fail "step $step is not saved"
  ((took <= 200)) || fail "all had ended after $took s"
  echo "X8 on MPI: SIGTERM to rank $victim of $ranks: all ended with 130 after step $step, in $took s"
done
