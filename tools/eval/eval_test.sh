#!/bin/bash
# What people do with a trained model: sample and eval on the folder of a short run of each track.
# usage: eval_test.sh TRACK1 TRACK2 SAMPLE EVAL ENDINGS.jsonl
set -euo pipefail
track1=$PWD/$1 track2=$PWD/$2 sample=$PWD/$3 eval=$PWD/$4 endings=$PWD/$5
cd "${TEST_TMPDIR:-$(mktemp -d)}"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Exit code 1 is expected; what the program says is then in the file `message`.
refused() {
  local code=0
  "$@" >out.txt 2>message || code=$?
  [[ $code == 1 ]] || fail "$* ended with $code"
}

for track in track1 track2; do
  "${!track}" --preset=demo --steps=2 --val_tokens=8192 --out_dir=$track >log.txt 2>&1 ||
    { cat log.txt; fail "$track"; }
  trained=$(grep -o 'val_loss:[0-9.]*' log.txt | tail -1)

  # The training's own last validation, and another one.
  "$eval" --model=$track --val_tokens=8192 --hellaswag="$endings" --out=$track.json >out.txt
  grep -q "^$trained tokens:8192 " out.txt || { cat out.txt; fail "$track had $trained"; }
  grep -q '^hellaswag examples:3 acc:' out.txt || { cat out.txt; fail "$track: HellaSwag"; }
  grep -q '"acc_norm_chars"' $track.json || fail "$track: no results in the file"
  "$eval" --model=$track --val_tokens=8192 --window=32 >out.txt
  grep -q 'window:32 short_window:16' out.txt || { cat out.txt; fail "$track: window"; }
  ! grep -q "^$trained tokens" out.txt || fail "$track: the window changes nothing"

  # The prompt is whole, and the cache moves logits by no more than roundings.
  printf 'Once \xc3\xa9' >prompt
  "$sample" --model=$track --prompt=- --max_tokens=40 --temperature=2 --top_k=200 --top_p=0.95 \
    --seed=3 --compare_cache <prompt >answer.txt 2>speed.txt
  cat speed.txt
  awk '/with cache: / { for (i = 1; i < NF; ++i) if ($i " " $(i + 1) == "at most") most = $(i + 2) }
    END { exit !(most != "" && most < 0.25) }' speed.txt || fail "$track: the cache changes logits"
  [[ $(head -c 7 answer.txt) == "$(cat prompt)" ]] || fail "$track: the prompt"
  iconv -f UTF-8 -t UTF-8 answer.txt >/dev/null || fail "$track: not UTF-8"
done

refused "$sample" --model=track1 --top_p=0
grep -q -- '--top_p=0' message || fail "$(cat message)"
refused "$sample" --model=track1 --max_tokens=5000
grep -q '4096 positions' message || fail "$(cat message)"
refused "$sample" --model=nowhere
# Case K2-18: a written end-of-text is text, and a note says so.
"$sample" --model=track1 --prompt='<|endoftext|>' --max_tokens=1 >answer.txt 2>notes.txt
[[ $(head -c 13 answer.txt) == '<|endoftext|>' ]] || fail "the prompt: $(cat answer.txt)"
grep -qF '<|endoftext|> in the prompt is text here, of 13 tokens' notes.txt || fail "$(cat notes.txt)"
printf '{"ctx": "a"}\n' >bad.jsonl
refused "$eval" --model=track1 --val=false --hellaswag=bad.jsonl
grep -q 'bad.jsonl: line 1 has no "endings"' message || fail "$(cat message)"
refused "$eval" --model=track1 --window=20
grep -q 'blocks of 16' message || fail "$(cat message)"
refused "$eval" --model=track1 --out=no/such/folder.json
# Case F2: results that are there stay, unless told to replace them.
refused "$eval" --model=track1 --out=track1.json
grep -q -- '--out=track1.json: exists; give another name, or --overwrite' message ||
  fail "$(cat message)"
grep -q '"acc_norm_chars"' track1.json || fail "track1.json was written over"
echo PASSED
