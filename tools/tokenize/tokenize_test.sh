#!/usr/bin/env bash
# tokenize as its users call it: inputs, outputs, exit codes, messages, bounded memory.
set -euo pipefail

tokenize="$1"
inspect="$2"
vocab="$3"
first_merges="$4"  # a vocabulary that is cut
folder="$TEST_TMPDIR"
out="$folder/out"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# run CODE ARGUMENTS...: into an empty folder $out; standard output in $folder/o, error in $folder/e.
run() {
  local code="$1"
  shift
  rm -rf "$out"
  again "$code" "$@"
}
again() {
  local code="$1" got=0
  shift
  "$tokenize" --merges="$vocab" --out_dir="$out" "$@" >"$folder/o" 2>"$folder/e" || got=$?
  [[ $got == "$code" ]] || fail "$* ended with $got, not $code: $(cat "$folder/e")"
}
says() { grep -qF -- "$1" "$folder/e" || fail "no \"$1\" in: $(cat "$folder/e")"; }
prints() { grep -qF -- "$1" "$folder/o" || fail "no \"$1\" in: $(cat "$folder/o")"; }
# tokens FILE EXPECTED...
tokens() {
  local file="$1" got
  shift
  "$inspect" --check "$file" || fail "$file is not sound"
  got="$(tail -c +1025 "$file" | od -An -v -tu2 | xargs)"
  [[ "$got" == "$*" ]] || fail "$file holds $got, not $*"
}
none() { [[ -z "$(ls -A "$out" 2>/dev/null)" ]] || fail "$1 left $(ls -A "$out")"; }

printf 'Hello, world!' >"$folder/a.txt"
printf '{"id": 1, "text": "It\\u0027s a test"}\n{"id": 2, "text": "hello world"}\n' >"$folder/b.jsonl"

# Text, JSONL and standard input, one after the other.
printf ' world' | run 0 --val_tokens=0 "$folder/a.txt" "$folder/b.jsonl" -
tokens "$out/tokens_train_000001.bin" \
  50256 15496 11 995 0 50256 1026 338 257 1332 50256 31373 995 50256 995
prints "4 documents, "
prints " MB/s, "
[[ ! -s "$folder/e" ]] || fail "notes without need: $(cat "$folder/e")"

# The first shard is for validation; a document goes on in the next shard.
run 0 --prefix=x --shard_tokens=3 "$folder/a.txt"
tokens "$out/x_val_000000.bin" 50256 15496 11
"$inspect" "$out/x_train_000001.bin" >/dev/null || fail "the second shard is not readable"
[[ "$(tail -c +1025 "$out/x_train_000001.bin" | od -An -v -tu2 | xargs)" == "995 0" ]] ||
  fail "the second shard holds other tokens"
again 1 --prefix=x --shard_tokens=3 "$folder/a.txt"
says "x_train_000001.bin and 1 more exist already"
again 0 --prefix=x --shard_tokens=3 --overwrite "$folder/a.txt"

run 1 "$folder/a.txt"
says "all 5 tokens fit into the validation shard (--val_tokens=100000000)"
none "a run without training tokens"

# Formats and separators.
run 0 --val_tokens=0 --format=jsonl - <"$folder/b.jsonl"
prints "2 documents"
printf 'hello world\n--\n world' | run 0 --val_tokens=0 --split_on='\n--\n' -
tokens "$out/tokens_train_000001.bin" 50256 31373 995 50256 995

# Cases K2-04 and K2-03: JSON lines under another name never become text in silence.
cp "$folder/b.jsonl" "$folder/b.json"
cp "$folder/b.jsonl" "$folder/c.JSONL"
run 1 --val_tokens=0 "$folder/a.txt" "$folder/b.json"
says "b.json: begins as lines of JSON"
says "--format=jsonl"
none "JSON under another name"
run 1 --val_tokens=0 - <"$folder/b.jsonl"
says "-: begins as lines of JSON"
run 0 --val_tokens=0 --format=jsonl "$folder/b.json"
prints "2 documents"
run 0 --val_tokens=0 "$folder/c.JSONL"
prints "2 documents"
run 0 --val_tokens=0 --format=text "$folder/b.json"
prints "1 documents"
{ printf '\xef\xbb\xbf'; cat "$folder/b.jsonl"; } >"$folder/mark.jsonl"
run 0 --val_tokens=0 "$folder/mark.jsonl"
tokens "$out/tokens_train_000001.bin" 50256 1026 338 257 1332 50256 31373 995

# Bad input is named with its place, and leaves nothing.
printf '{"text": "x"}\n{"text": 7}\n' >"$folder/bad.jsonl"
run 1 --val_tokens=0 "$folder/a.txt" "$folder/bad.jsonl"
says "bad.jsonl:2: the field \"text\" is no string"
none "a bad line"
printf 'caf\351 au lait' >"$folder/latin1.txt"
run 1 --val_tokens=0 --invalid_utf8=error "$folder/latin1.txt"
says "latin1.txt: byte 3: 0xe9 begins no UTF-8"
run 0 --val_tokens=0 "$folder/latin1.txt"
says "malformed UTF-8 sequences: 1; each became U+FFFD"
run 1 "$folder/none.txt"
says "none.txt: cannot open"
run 1
says "no input"
run 1 --format=html "$folder/a.txt"
says "--format=html: must be text, jsonl or auto"
run 1 --threads=-1 "$folder/a.txt"
says "--threads=-1: must be from 0"
run 1 --split_on='\q' "$folder/a.txt"
says '--split_on=\q: '
run 1 - -
says "can be read once only"
run 1 --merges="$first_merges" "$folder/a.txt"
says "has 2000 merges, where GPT-2's vocabulary has 50000"
run 1 --merges="$folder/none.bpe" "$folder/a.txt"
says "none.bpe: cannot open"
says "fetch_fineweb"

# Bounded memory: after the first 12 MB, 40 MB more take no more of it; and the same tokens for any
# number of threads.
awk 'BEGIN { for (i = 0; i < 1000000; i++) print "Line " i " of a text that is long: " i * 7919 % 104729 }' |
  head -c 52000000 >"$folder/long.txt"
peak_kib() { awk '/VmHWM/ { print $2 }' "/proc/$1/status"; }
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:quarantine_size_mb=1"  # which keeps freed memory
rm -rf "$out"
mkfifo "$folder/slow"
"$tokenize" --merges="$vocab" --out_dir="$out" --val_tokens=0 --threads=2 - \
  <"$folder/slow" >"$folder/o" 2>"$folder/e" &
pid=$!
exec 3>"$folder/slow"
head -c 12000000 "$folder/long.txt" >&3  # returns when nearly all is read
before="$(peak_kib "$pid")"
tail -c +12000001 "$folder/long.txt" >&3
after="$(peak_kib "$pid")"
exec 3>&-
wait "$pid" || fail "a long text: $(cat "$folder/e")"
((after - before < 20000)) || fail "memory grew from $before to $after KiB"
sum="$(cksum <"$out/tokens_train_000001.bin")"
run 0 --val_tokens=0 --threads=1 "$folder/long.txt"
[[ "$(cksum <"$out/tokens_train_000001.bin")" == "$sum" ]] || fail "threads change the tokens"

# An interrupt ends it in time and leaves nothing.
rm -rf "$out"
mkfifo "$folder/silent"
"$tokenize" --merges="$vocab" --out_dir="$out" "$folder/a.txt" - <"$folder/silent" 2>"$folder/e" &
pid=$!
exec 3>"$folder/silent"  # open, and silent
for ((i = 0; i < 300; i++)); do  # the signals are taken before the folder is made
  [[ -d "$out" ]] && break
  sleep 0.1
done
kill -TERM "$pid"
got=0
wait "$pid" || got=$?
exec 3>&-
[[ $got == 130 ]] || fail "an interrupt ended with $got: $(cat "$folder/e")"
says "interrupted: no shard was written"
none "an interrupt"
