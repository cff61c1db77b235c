#!/bin/bash
# What several GPUs of one host have to show, in one call of at most nine minutes:
#
#   tools/gpu/multi_gpu_suite.sh BIN_DIR TRAIN_GLOB VAL_GLOB [OUT_DIR]
#
# BIN_DIR holds track1 and nccl_ranks of a build with --config=nccl; neither Bazel nor a network is
# needed, only bash, python3 and the NCCL library. Ranks are started as torchrun would, by their
# environment. Ends with one table and "N passed, N failed"; exit code 1 if any failed.
#
#   STEPS=60           steps of each training run (a multiple of 3: as many in each stage)
#   WORLD_SIZES="1 2"  default: 1, 2, 4, 8, as far as there are GPUs
#   VAL_TOKENS=1048576 of a validation
#   LINK_GBPS=3600     of NVLink in one direction, for the prediction (8 GPUs of an HGX board)
#   LATENCY_US=12      of a collective's step, for the prediction
set -u
if (($# < 3)); then
  sed -n '2,15s/^# \{0,1\}//p' "$0"
  exit 1
fi
bin="$1" train="$2" val="$3" out="${4:-$(mktemp -d)}"
steps="${STEPS:-60}"
export NCCL_NVLS_ENABLE=0  # multicast of NVLink is not everywhere allowed
mkdir -p "$out" || exit 1

gpus="$(nvidia-smi -L | grep -c '^GPU')"
if ((gpus < 2)); then
  echo "this host has $gpus GPU(s); the suite is about 2 and more" >&2
  exit 1
fi
for program in track1 nccl_ranks; do
  [[ -x "$bin/$program" ]] || { echo "no program $bin/$program" >&2; exit 1; }
done

sizes=()
for n in ${WORLD_SIZES:-1 2 4 8}; do ((n <= gpus)) && sizes+=("$n"); done

passed=0 failed=0
# check NAME STATUS: counts one result.
check() {
  if [[ "$2" == 0 ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  echo "--- $1: $([[ "$2" == 0 ]] && echo passed || echo FAILED)"
}

# ranks N LOG SECONDS COMMAND...: one process a GPU; its output in LOG.RANK. Leaves their process
# ids in pids. wait_ranks answers the worst exit code.
pids=() jobs=0
ranks() {
  local n="$1" log="$2" limit="$3" r
  shift 3
  pids=() jobs=$((jobs + 1))
  for ((r = 0; r < n; ++r)); do
    RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n TORCHELASTIC_RUN_ID="suite$$.$jobs" \
      timeout --kill-after=5 "$limit" "$@" > "$log.$r" 2>&1 &
    pids+=($!)
  done
}
wait_ranks() {
  local worst=0 code pid
  for pid in "${pids[@]}"; do
    wait "$pid"
    code=$?
    ((code > worst)) && worst=$code
  done
  return "$worst"
}

common=(--record=unified_optimizers --preset=full "--train_files=$train" "--val_files=$val"
        --epochs=1000 --overwrite "--val_tokens=${VAL_TOKENS:-1048576}" --comm_timeout=60s)

suite() {
  local n status
  for ((n = 2; n <= gpus; ++n)); do
    ranks "$n" "$out/nccl$n" 100 "$bin/nccl_ranks"
    wait_ranks
    status=$?
    check "collectives on $n ranks ($(grep -hE '[0-9]+ passed' "$out/nccl$n.0" | tail -1))" \
      "$status"
  done
}

training() {
  local n
  for n in "${sizes[@]}"; do
    ranks "$n" "$out/train$n" 120 "$bin/track1" "${common[@]}" --steps="$steps" --val_every=1000 \
      --metrics="$out/train$n.jsonl"
    wait_ranks
    check "$steps steps on $n ranks" $?
    ranks "$n" "$out/same$n" 60 "$bin/track1" "${common[@]}" --steps=9 --batch_tokens=16384 \
      --val_every=1000 --deterministic --metrics="$out/same$n.jsonl"
    wait_ranks
    check "9 deterministic steps on $n ranks" $?
  done
}

# The trace of the last stage's step, and what the compute phases of the first size's predict for as
# many ranks.
tracing() {
  local n trace
  for n in "${sizes[@]}"; do
    trace="$out/trace$n.json"
    ranks "$n" "$out/traced$n" 60 "$bin/track1" "${common[@]}" --steps=4 --batch_tokens=393216 \
      --val_every=1000 --trace="$trace" --trace_steps=2
    wait_ranks
    check "traced steps on $n ranks" $?
    ((n == 1)) && continue
    echo "measured on $n ranks:"
    sed -n '/^collective  *label/,/^all /p' "$out/traced$n.0"
    echo "predicted for $n ranks:"
    "$bin/track1" "${common[@]}" --batch_tokens=393216 --plan --ranks="$n" \
      --link_gbps="${LINK_GBPS:-3600}" --latency_us="${LATENCY_US:-12}" \
      --phases="$out/trace${sizes[0]}.json" > "$out/plan$n" 2>&1
    check "prediction for $n ranks" $?
    sed -n '/^communication/,$p' "$out/plan$n"
  done
}

# Kills the last rank in mid-run. The others have to end with exit code 2 and a report.
killing() {
  local n="${sizes[-1]}" start code r status=0
  ranks "$n" "$out/kill" 120 "$bin/track1" "${common[@]}" --steps=5000 --val_every=100000
  sleep 12
  pkill -KILL -P "${pids[-1]}"  # the child of timeout
  start="$SECONDS"
  for ((r = 0; r + 1 < n; ++r)); do
    wait "${pids[$r]}"
    code=$?
    [[ "$code" == 2 ]] || { status=1; echo "rank $r ended with $code"; }
  done
  wait "${pids[-1]}"
  echo "the others ended $((SECONDS - start)) s after rank $((n - 1)) was killed; rank 0 said:"
  tail -n 12 "$out/kill.0"
  ((SECONDS - start <= 70)) || status=1
  check "one of $n ranks killed" "$status"
}

suite
training
tracing
killing

python3 "$(dirname "$0")/multi_gpu_table.py" "$out" "$steps" "${sizes[@]}"
check "curves and scaling" $?
echo "$passed passed, $failed failed"
((failed == 0))
