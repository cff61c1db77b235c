"""Holds an export against the model it was made from, in transformers.

Needs torch, transformers and safetensors, and so is run by hand:

  bazel build //tools/export_hf:dump_logits //tools/export_hf
  bazel-bin/tools/export_hf/export_hf --model=OUT_DIR --out=FOLDER
  python3 tools/export_hf/verify_hf.py --export=FOLDER --model=OUT_DIR \
      --dump_logits=bazel-bin/tools/export_hf/dump_logits

compares the logits of random documents (or of --text, by the export's tokenizer) in float32 and in
bfloat16, a padded batch with its texts alone, and generates. With --write_fixture=FILE it writes
what logits_test reads; OUT_DIR is then a file of //tools/export_hf:write_test_model. With
--save=FOLDER it writes the float32 model by save_pretrained, for export_hf --import.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def random_documents(config, tokens: int) -> torch.Tensor:
    """A long document between two short ones, of ids that have a text."""
    torch.manual_seed(0)
    bos = config.bos_token_id
    ids = torch.randint(0, bos, (tokens,))
    ids[[0, tokens // 8, tokens - tokens // 8]] = bos
    return ids


def own_logits(args: argparse.Namespace, ids: torch.Tensor) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}.safetensors" for name in ("tokens", "logits")]
        save_file({"tokens": ids.int()}, paths[0])
        subprocess.run([args.dump_logits, f"--model={args.model}", f"--tokens={paths[0]}",
                        f"--out={paths[1]}"], check=True)
        return load_file(paths[1])["logits"]


def load(folder: str, dtype: torch.dtype):
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=dtype).eval()


@torch.no_grad()
def compare(args: argparse.Namespace, ids: torch.Tensor,
            own: torch.Tensor) -> dict[str, torch.Tensor]:
    print(f"{len(ids)} tokens; own logits from {own.min():.3f} to {own.max():.3f}, "
          f"standard deviation {own.std():.3f}")
    found = {}
    for name, dtype in DTYPES.items():
        logits = load(args.export, dtype)(ids[None]).logits[0]
        difference = logits - own
        agree = (logits.argmax(-1) == own.argmax(-1)).float().mean()
        loss = [torch.nn.functional.cross_entropy(x[:-1], ids[1:]).item() for x in (logits, own)]
        print(f"{name:9} max difference {difference.abs().max():.5f}, "
              f"rms {difference.square().mean().sqrt():.6f}, same argmax {agree:.1%}, "
              f"loss {loss[0]:.5f} (own {loss[1]:.5f})")
        found[name] = logits
    return found


@torch.no_grad()
def check_padding(model, ids: torch.Tensor) -> float:
    """The largest difference that padding in front makes to a text's logits."""
    texts = [ids[: len(ids) // 2], ids[len(ids) // 8 : len(ids) // 8 + 7]]
    length = max(len(text) for text in texts)
    padded = torch.full((len(texts), length), model.config.eos_token_id)
    mask = torch.zeros_like(padded)
    for row, text in enumerate(texts):
        padded[row, length - len(text) :] = text
        mask[row, length - len(text) :] = 1
    together = model(padded, attention_mask=mask).logits
    alone = [model(text[None]).logits[0] for text in texts]
    return max((row[length - len(text) :] - text).abs().max().item()
               for row, text in zip(together, alone))


def greedy(model, ids: torch.Tensor, count: int) -> torch.Tensor:
    """What generate() should answer, by hand."""
    usable = model.config.bos_token_id + 1
    for _ in range(count):
        best = model(ids[None]).logits[0, -1, :usable].argmax()
        ids = torch.cat([ids, best[None]])
        if best == model.config.eos_token_id:
            break
    return ids


@torch.no_grad()
def generate(args: argparse.Namespace, ids: torch.Tensor) -> bool:
    model = load(args.export, torch.float32)
    print(f"padding in front changes logits by {check_padding(model, ids):.2e}")
    prompt = ids[: min(len(ids), 12)]
    answer = model.generate(prompt[None], attention_mask=torch.ones_like(prompt[None]),
                            max_new_tokens=16, do_sample=False)[0]
    same = torch.equal(answer, greedy(model, prompt, 16))
    print(f"generate(): {answer[len(prompt):].tolist()}, "
          f"{'as' if same else 'NOT as'} step by step")
    if (pathlib.Path(args.export) / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(args.export, trust_remote_code=True)
        inputs = tokenizer(args.prompt, return_tensors="pt")
        text = model.generate(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask,
                              max_new_tokens=60, do_sample=False)[0]
        print(f"{args.prompt!r} -> {tokenizer.decode(text, skip_special_tokens=True)!r}")
    return same


def write_fixture(args: argparse.Namespace, ids: torch.Tensor,
                  found: dict[str, torch.Tensor]) -> None:
    modeling = (pathlib.Path(args.export) / "modeling_nanospeed.py").read_bytes()
    positions = torch.tensor([0, 1, 27, 28, 29, 90, 141, 160, 180, 195, 196, 223])
    tensors = {"tokens": ids.int(), "positions": positions.int()}
    for name, key in (("float32", "logits_f32"), ("bfloat16", "logits_bf16")):
        tensors[key] = found[name][positions].contiguous()
    save_file(tensors, args.write_fixture, metadata={"modeling_crc32c": str(crc32c(modeling))})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--export", required=True, help="the folder that export_hf wrote")
    parser.add_argument("--model", required=True, help="what it was made from")
    parser.add_argument("--dump_logits", required=True, help="the program")
    parser.add_argument("--tokens", type=int, default=224)
    parser.add_argument("--text", help="a file to take the tokens from")
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--write_fixture")
    parser.add_argument("--save")
    args = parser.parse_args()
    config = load(args.export, torch.float32).config
    ids = random_documents(config, args.tokens)
    if args.text:
        tokenizer = AutoTokenizer.from_pretrained(args.export, trust_remote_code=True)
        ids = torch.tensor(tokenizer(pathlib.Path(args.text).read_text()).input_ids[: args.tokens])
    found = compare(args, ids, own_logits(args, ids))
    if args.save:
        load(args.export, torch.float32).save_pretrained(args.save)
    if args.write_fixture:
        write_fixture(args, ids, found)
    return 0 if generate(args, ids) else 1


if __name__ == "__main__":
    sys.exit(main())
