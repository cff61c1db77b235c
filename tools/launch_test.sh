#!/usr/bin/env bash
# launch: ranks' places, who prints where, exit codes, signals, and that nothing is left running.
set -euo pipefail

launch="$(realpath "$1")"
track1="$(realpath "$2")"
cd "$TEST_TMPDIR"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# expect FILE TEXT
expect() { grep -qF -- "$2" "$1" || fail "no \"$2\" in $1:" "$(cat "$1")"; }

# gone PID: whether that process has ended, or does so soon. One that waits to be reaped has.
gone() {
  for _ in {1..50}; do
    [[ -e "/proc/$1" && "$(cut -d' ' -f3 "/proc/$1/stat" 2> /dev/null)" != Z ]] || return 0
    sleep 0.1
  done
  return 1
}

# A program that does in rank R what its argument R says.
cat > ranks << 'RANKS'
#!/usr/bin/env bash
shift "$RANK"
eval "$1"
RANKS
chmod +x ranks

# run CODE SECONDS ARGUMENT...: launches, and checks its exit code and that it ended in time.
run() {
  local code=0 want="$1" seconds="$2" start="$SECONDS"
  shift 2
  "$launch" "$@" > out 2> err || code=$?
  [[ "$code" == "$want" ]] || fail "launch $*: exit code $code, not $want; $(cat err)"
  ((SECONDS - start <= seconds)) || fail "launch $*: took $((SECONDS - start)) s"
}

# Places and streams.
export MASTER_ADDR=elsewhere MASTER_PORT=1 NANOSPEED_JOB=other
say='echo "out $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE ${MASTER_ADDR-none}"; echo err >&2'
run 0 20 --nproc=3 ./ranks "$say" "$say" "$say; printf 'no end'"
unset MASTER_ADDR MASTER_PORT NANOSPEED_JOB
[[ "$(cat out)" == "out 0 3 0 3 none" ]] || fail "standard output: $(cat out)"
for rank in 0 1 2; do expect err "[rank $rank] err"; done
expect err "[rank 1] out 1 3 1 3 none"
expect err "[rank 2] no end"
[[ "$(wc -l < err)" == 6 ]] || fail "standard error: $(cat err)"

# Arguments are the program's, flags too; standard input is empty.
run 0 20 --nproc=1 ./ranks 'echo "$2 $3"; cat' --nproc=7 'a b'
[[ "$(cat out)" == "--nproc=7 a b" ]] || fail "arguments: $(cat out)"

# The first rank that fails gives the exit code; the others have time to say something.
run 3 9 --nproc=3 ./ranks 'sleep 2; echo bye >&2; exit 4' 'exit 3' 'sleep 0.5'
expect err "launch: rank 1 ended first, with exit code 3"
expect err "[rank 0] bye"
run 137 9 --nproc=2 ./ranks 'kill -KILL $$' 'sleep 2; exit 2'
expect err "launch: rank 0 ended first, with signal 9"

# A rank that does not end is killed, with what it has started.
run 2 20 --nproc=3 --grace=1s ./ranks \
  'until [[ -s child ]]; do sleep 0.1; done; exit 2' 'trap "" TERM; sleep 1000 & echo $! > child; wait' 'exit 0'
expect err "launch: killed rank 1, still running 1s later"
gone "$(cat child)" || fail "a rank's child is still running"

# One signal reaches each rank once, and leaves it its time; the second starts the grace period.
"$launch" --nproc=2 --grace=1s ./ranks \
  'trap "echo INT >&2; sleep 1.5; echo saved >&2; exit 130" INT; touch up0; while :; do sleep 0.1; done' \
  'trap "exit 130" INT; touch up1; while :; do sleep 0.1; done' > out 2> err &
job=$!
until [[ -e up0 && -e up1 ]]; do sleep 0.1; done
kill -INT "$job"
code=0
wait "$job" || code=$?
[[ "$code" == 130 ]] || fail "interrupted: exit code $code; $(cat err)"
expect err "[rank 0] saved"
[[ "$(grep -c INT err)" == 1 ]] || fail "$(cat err)"

# A terminal that is closed sends SIGHUP, twice: each rank gets it and keeps its time.
rm -f up0 up1
"$launch" --nproc=2 --grace=1s ./ranks \
  'trap "" HUP; touch up0; sleep 2.5; echo saved >&2; exit 130' \
  'trap "touch hup1" HUP; touch up1; until [[ -e hup1 ]]; do sleep 0.1; done; exit 130' > out 2> err &
job=$!
until [[ -e up0 && -e up1 ]]; do sleep 0.1; done
kill -HUP "$job"
kill -HUP "$job" 2> /dev/null
code=0
wait "$job" || code=$?
[[ "$code" == 130 ]] || fail "X8, hung up: exit code $code; $(cat err)"
expect err "[rank 0] saved"

# Nobody reads the launcher's standard error any more: the ranks go on.
rm -f done0
"$launch" --nproc=1 ./ranks 'for i in 1 2 3 4; do echo line >&2; sleep 0.2; done; touch done0' 2>&1 |
  true
for _ in {1..50}; do [[ ! -e done0 ]] || break; sleep 0.1; done
[[ -e done0 ]] || fail "X8: a rank died with its launcher, on a broken pipe"

rm -f up0 up1
"$launch" --nproc=2 --grace=1s ./ranks \
  'trap "" TERM; touch up0; sleep 1000' 'trap "" TERM; touch up1; sleep 1000' > out 2> err &
job=$!
until [[ -e up0 && -e up1 ]]; do sleep 0.1; done
kill -TERM "$job"
sleep 1
kill -TERM "$job"
code=0
wait "$job" || code=$?
[[ "$code" == 137 ]] || fail "stopped twice: exit code $code; $(cat err)"

# Ranks do not outlive a launcher that is killed.
"$launch" --nproc=2 ./ranks 'echo $$ > pid0; exec sleep 1000' 'echo $$ > pid1; exec sleep 1000' \
  > out 2> err &
job=$!
until [[ -s pid0 && -s pid1 ]]; do sleep 0.1; done
kill -KILL "$job"
wait "$job" 2> /dev/null || true
for rank in 0 1; do gone "$(cat "pid$rank")" || fail "rank $rank outlived the launcher"; done

# What cannot be started.
refused() {
  local text="$1"
  shift
  run 1 20 "$@"
  expect err "$text"
}
refused "--nproc=N is missing" ./ranks
refused "--nproc=0: must be from 1" --nproc=0 ./ranks
refused "which program?" --nproc=2
refused "--steps=3: no flag of launch" --nproc=2 --steps=3 ./ranks
refused "no/such: no such program" --nproc=2 no/such
refused "//no/such:thing: there is no" --nproc=2 //no/such:thing
refused "//a:b:c: not a label" --nproc=2 //a:b:c
RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 refused "itself rank 1 of 2, started by torchrun" --nproc=2 ./ranks
"$launch" --help | grep -q "launch --nproc=N" || fail "--help"

# Ranks that are threads are not launched: each process would train alone.
if "$track1" --version | grep -q comm=local; then
  run 1 30 --nproc=2 "$track1" --plan
  expect err "[rank 0] track1: rank 0 of 2: torchrun started 2 processes, but the ranks of this build"
  expect err "--world_size=2"
fi
echo passed
