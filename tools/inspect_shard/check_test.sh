#!/usr/bin/env bash
# inspect_shard's exit codes and the place of its messages.
set -euo pipefail

inspect="$1"
good="$2"  # the training shard of the built-in corpus; empty where its texts are absent
vocab="$3"
folder="$TEST_TMPDIR"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in the output ("" for no output).
expect() {
  local code="$1" text="$2" got=0
  shift 2
  "$inspect" "$@" >"$folder/out" 2>&1 || got=$?
  [[ $got == "$code" ]] || fail "$* ended with $got, not $code: $(cat "$folder/out")"
  if [[ -z $text ]]; then
    [[ ! -s "$folder/out" ]] || fail "$* printed: $(cat "$folder/out")"
  else
    grep -qF -- "$text" "$folder/out" || fail "$*: no \"$text\" in: $(cat "$folder/out")"
  fi
}

# shard FILE TOKENS...: header of 1024 bytes and little-endian tokens (below 65536).
little_endian() {
  local bytes="$1" value="$2" i
  for ((i = 0; i < bytes; i++)); do
    printf "\\x$(printf %02x $((value >> 8 * i & 255)))"
  done
}
shard() {
  local file="$1" token
  shift
  {
    little_endian 4 20240520
    little_endian 4 1
    little_endian 4 $#
    head -c 1012 /dev/zero
    for token in "$@"; do little_endian 2 "$token"; done
  } >"$file"
}

shard "$folder/sound.bin" 50256 39 72
expect 0 "1 documents; 0 tokens before the first" "$folder/sound.bin"
expect 0 "Hi" "$folder/sound.bin"
expect 0 "" --check "$folder/sound.bin"

shard "$folder/outside.bin" 50256 50257
expect 0 "FAULT: 1 tokens are outside" "$folder/outside.bin"
expect 1 "outside.bin: 1 tokens are outside" --check "$folder/sound.bin" "$folder/outside.bin"
expect 1 "1 of 2 shards are faulty" --check "$folder/sound.bin" "$folder/outside.bin"
expect 0 "" --check --vocab_size=50304 "$folder/outside.bin"

shard "$folder/no_bos.bin" 1 2
expect 1 "none of the 2 tokens is BOS" --check "$folder/no_bos.bin"

head -c 1027 "$folder/sound.bin" >"$folder/cut.bin"
expect 1 "cut.bin: header promises 3 tokens" --check "$folder/cut.bin"
expect 1 "cut.bin: header promises 3 tokens" "$folder/cut.bin"

head -c 1000 "$folder/sound.bin" >"$folder/short.bin"
expect 1 "short.bin: holds 1000 bytes, less than" --check "$folder/short.bin"
: >"$folder/nothing.bin"
expect 1 "nothing.bin: holds 0 bytes" --check "$folder/nothing.bin"
{ little_endian 4 7; tail -c +5 "$folder/sound.bin"; } >"$folder/magic.bin"
expect 1 "magic.bin: magic number is 7, not 20240520" --check "$folder/magic.bin"
shard "$folder/empty.bin"
expect 1 "empty.bin: an empty shard" --check "$folder/empty.bin"
# One bad file among good ones does not hide the others.
expect 1 "3 of 4 shards are faulty" --check "$folder"/{cut,empty,magic,sound}.bin
expect 1 "no_bos.bin: none" --check "$folder"/{cut,no_bos}.bin

shard "$folder/words.bin" 50256 15496 11 995 0
expect 0 "Hello, world!" --merges="$vocab" "$folder/words.bin"
expect 0 "<15496>,<995>!" "$folder/words.bin"
expect 0 "longer tokens are shown by id" "$folder/words.bin"
expect 0 "4-7 " "$folder/words.bin"
mkdir -p "$folder/home/data/gpt2"
cp "$vocab" "$folder/home/data/gpt2/merges.txt"
export DATA_PATH="$folder/home"
expect 0 "Hello, world!" "$folder/words.bin"
echo nonsense >"$folder/home/data/gpt2/merges.txt"
expect 1 "merges.txt:1: begins neither" "$folder/words.bin"
unset DATA_PATH

expect 1 "no shards" --check
expect 1 "none.bin" "$folder/none.bin"
expect 1 "--top=-1: must be from 0" --top=-1 "$folder/sound.bin"
expect 1 "no_merges: cannot open" --merges="$folder/no_merges" "$folder/sound.bin"

if [[ -s "$good" ]]; then
  expect 0 "" --check --vocab_size=50257 "$good"
fi
