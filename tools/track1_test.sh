#!/usr/bin/env bash
# track1's command line: exit codes, one-line errors, and that bad input leaves nothing behind.
set -euo pipefail

track1="$(realpath "$1")"
folder="$TEST_TMPDIR/track1"
mkdir -p "$folder/in"
cd "$folder"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# shards: what each file is wrong with stands in its name.
python3 - "$folder/in" << 'PYTHON'
import json, struct, sys

folder = sys.argv[1]
BOS = 50256


def shard(name, tokens, magic=20240520, version=1, count=None):
    header = [magic, version, len(tokens) if count is None else count]
    with open(f"{folder}/{name}.bin", "wb") as out:
        out.write(struct.pack("<256i", *header, *[0] * 253))
        out.write(struct.pack(f"<{len(tokens)}H", *tokens))


text = [BOS if i % 20 == 0 else i % 256 for i in range(8000)]
shard("train", text)
shard("val", text[:5000])
shard("magic", text, magic=20240521)
with open(f"{folder}/big_endian.bin", "wb") as out:  # case D13
    out.write(struct.pack(">256i", 20240520, 1, len(text), *[0] * 253))
    out.write(struct.pack(f">{len(text)}H", *text))
shard("version", text, version=2)
shard("promises_more", text, count=len(text) + 1)
shard("promises_less", text, count=len(text) - 1)
shard("zero", [])
shard("outside", text[:50] + [50304] + text[51:])
shard("no_bos", [i % 256 for i in range(8000)])


def safetensors(name, size, claimed, header_bytes=None):
    header = json.dumps({"w": {"dtype": "F32", "shape": [claimed // 4],
                               "data_offsets": [0, claimed]}}).encode()
    with open(f"{folder}/{name}.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(header) if header_bytes is None else header_bytes))
        out.write(header + bytes(size))


safetensors("truncated", 20, 40)
safetensors("header_too_long", 40, 40, header_bytes=1 << 40)
safetensors("other_model", 40, 40)
four = lambda begin: {"dtype": "F32", "shape": [1], "data_offsets": [begin, begin + 4]}
header = json.dumps({"v": four(0), "w": four(2)}).encode()  # case K2-10
with open(f"{folder}/overlapping.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(header)) + header + bytes(6))
with open(f"{folder}/notes.txt", "w") as out:
    out.write("of another program")
PYTHON

small=(--preset=demo --train_files=in/train.bin --val_files=in/val.bin --slots=2
  --batch_tokens=64 --val_tokens=64 --steps=2 --sample_lines=0 --threads=1)

# refused TEXT... -- FLAGS...: exit code 1, the texts in one line of errors, nothing written.
refused() {
  local texts=() text code=0
  while [[ "$1" != -- ]]; do
    texts+=("$1")
    shift
  done
  shift
  "$track1" "${small[@]}" "$@" > out.txt 2> err.txt || code=$?
  [[ "$code" == 1 ]] || fail "$*: ended with $code: $(cat err.txt)"
  [[ "$(grep -c . err.txt)" == 1 ]] || fail "$*: not one line: $(cat err.txt)"
  for text in "${texts[@]}"; do
    grep -qF -- "$text" err.txt || fail "$*: no \"$text\" in: $(cat err.txt)"
  done
  left="$(find . -mindepth 1 -not -path './in*' -not -path './before*' -not -name out.txt -not -name err.txt)"
  [[ -z "$left" ]] || fail "$*: left behind $left"
}
# accepted FLAGS...: exit code 0.
accepted() {
  "$track1" "${small[@]}" "$@" > out.txt 2> err.txt || fail "$*: ended with $?: $(cat err.txt)"
}

# Flags. Abseil's own message takes several lines when it is unsure.
code=0
"$track1" "${small[@]}" --step=3 > out.txt 2> err.txt || code=$?
[[ "$code" == 1 ]] || fail "--step=3 ended with $code"
grep -q "did you mean --steps?" err.txt || fail "--step: $(cat err.txt)"
code=0
"$track1" "${small[@]}" --steps=12abc > out.txt 2> err.txt || code=$?
[[ "$code" == 1 ]] || fail "--steps=12abc ended with $code"
grep -q "12abc" err.txt || fail "--steps=12abc: $(cat err.txt)"
refused '"12": not a flag' -- 12
refused "--steps=-2" -- --steps=-2
refused "--record=nobody" "muon_custom_sizing" -- --record=nobody
refused "--preset=huge" "full, demo" -- --preset=huge
refused "--batch_tokens=65" "multiple of 32" -- --batch_tokens=65
refused "--world_size=3" "2 slots" -- --world_size=3
refused "--out_dir=in/train.bin" -- --out_dir=in/train.bin
refused "--resume" "--out_dir" -- --resume

# Shards.
refused "in/missing.bin" -- --train_files=in/missing.bin
refused "in/none*.bin" -- --train_files='in/none*.bin'
refused "in/none*.bin" -- --val_files='in/none*.bin'
for kind in train val; do
  refused "in/magic.bin" "20240521" "20240520" -- --"$kind"_files=in/magic.bin
  refused "in/big_endian.bin" "big-endian byte order" -- --"$kind"_files=in/big_endian.bin
  refused "in/version.bin" "version is 2" -- --"$kind"_files=in/version.bin
  refused "in/promises_more.bin" "8001" -- --"$kind"_files=in/promises_more.bin
  refused "in/promises_less.bin" "7999" -- --"$kind"_files=in/promises_less.bin
  refused "in/zero.bin" -- --"$kind"_files=in/zero.bin
  refused "in/outside.bin" "50304" -- --"$kind"_files=in/outside.bin
done
refused "in/no_bos.bin" "50256" -- --train_files=in/no_bos.bin
refused "in/train.bin" -- --val_files=in/train.bin

# Initial weights.
refused "in/missing.safetensors" -- --init_from=in/missing.safetensors
refused "in/truncated.safetensors" -- --init_from=in/truncated.safetensors
refused "in/header_too_long.safetensors" -- --init_from=in/header_too_long.safetensors
refused "in/other_model.safetensors" -- --init_from=in/other_model.safetensors
refused "in/overlapping.safetensors" "tensor w" "byte 2" "tensor v" -- \
  --init_from=in/overlapping.safetensors

# Case F2: files that are there are not written over, and nothing has run when that is said.
cp -r in before
for flag in metrics trace save_init; do
  refused "--$flag=in/notes.txt: exists" "--overwrite" -- --"$flag"=in/notes.txt
  refused "--$flag=in: is a folder" -- --"$flag"=in --overwrite
  refused "--$flag=no/file: its folder no: No such file" -- --"$flag"=no/file
done
refused "--metrics=in/x: is what --trace names" -- --trace=in/x --metrics=in/x
diff -r in before || fail "something was written over"
rm -r before

# What works.
accepted --preset=full --record=muon_custom_sizing --slots=8 --batch_tokens=393216 \
  --val_tokens=10485760 --plan
grep -qF "268,665,636" out.txt || fail "--plan: no number of parameters in: $(cat out.txt)"
accepted --steps=0
grep -qE "step:0/0 val_loss:10[.]8[23]" out.txt || fail "--steps=0: $(cat out.txt)"

# Case F2: what may be written over is, and a resumed run goes on in its own metrics file only.
accepted --metrics=run.jsonl --trace=run.json --save_init=run.safetensors
lines="$(wc -l < run.jsonl)" again=(--metrics=run.jsonl --trace=run.json --save_init=run.safetensors)
accepted "${again[@]}" --overwrite
[[ "$(wc -l < run.jsonl)" == "$lines" ]] || fail "--overwrite: $(wc -l < run.jsonl) lines"
accepted --out_dir=run --metrics=own.jsonl
rm -r run/checkpoints/step-00000002 2> /dev/null || fail "no checkpoint of step 2"
accepted --out_dir=whole --checkpoint_every=1 --metrics=whole.jsonl
rm -r whole/checkpoints/step-00000002
accepted --out_dir=whole --metrics=whole.jsonl --resume --overwrite
[[ "$(wc -l < whole.jsonl)" -gt "$(wc -l < own.jsonl)" ]] || fail "--resume wrote over its metrics"
code=0
"$track1" "${small[@]}" --out_dir=whole --metrics=in/notes.txt --resume > out.txt 2> err.txt || code=$?
[[ "$code" == 1 ]] || fail "metrics of another kind: ended with $code"
grep -qF -- "--metrics=in/notes.txt: is no metrics file" err.txt || fail "$(cat err.txt)"

# Case K2-24: there is nothing to resume.
code=0
"$track1" "${small[@]}" --out_dir=run --resume > out.txt 2> err.txt || code=$?
[[ "$code" == 1 ]] || fail "--resume without a checkpoint: ended with $code"
grep -qF "no checkpoint to go on from; without --resume a run begins there" err.txt ||
  fail "--resume without a checkpoint: $(cat err.txt)"

# An interrupt: the step in hand ends, and a checkpoint is there to go on from.
"$track1" "${small[@]}" --steps=100 --out_dir=interrupted > out.txt 2> err.txt &
child=$!
for ((i = 0; i < 600; i++)); do
  if grep -q "^step:1/" out.txt; then break; fi
  sleep 0.1
done
kill -INT "$child"
code=0
wait "$child" || code=$?
[[ "$code" == 130 ]] || fail "SIGINT: ended with $code: $(cat err.txt)"
grep -qF -- "--out_dir=interrupted --resume" err.txt || fail "SIGINT: $(cat err.txt)"
[[ -s "$(echo interrupted/checkpoints/step-*/state.json)" ]] || fail "SIGINT: no checkpoint"
