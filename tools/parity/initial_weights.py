"""Initial weights of a record as its PyTorch original draws them on a CPU after
torch.manual_seed(seed): the same calls in the same order, those included whose numbers are
replaced afterwards. Writes a safetensors file for `--init_from`.

    python3 initial_weights.py --record=muon_custom_sizing --seed=0 --out=w.safetensors
    python3 initial_weights.py --record=record7 --seed=0 --check=data/record7.json

Needs torch and numpy. --check compares sums of squares with those that the original's run noted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

import torch

VOCAB, PADDED_VOCAB, GATE = 50257, 50304, 12
BF16 = torch.bfloat16
SUM_TOLERANCE = 1e-6  # relative; other draws differ by 1e-4 and more

Weights = dict[str, torch.Tensor]


def uniform(tensor: torch.Tensor, deviation: float) -> torch.Tensor:
    """Fills in place, symmetric, with this standard deviation."""
    bound = math.sqrt(3) * deviation
    return tensor.uniform_(-bound, bound)


def table(rows: int, dim: int) -> torch.Tensor:
    """What torch.nn.Embedding draws."""
    return torch.empty(rows, dim).normal_()


def linear(rows: int, columns: int) -> torch.Tensor:
    """What torch.nn.Linear draws: uniform, with a bound of columns^-0.5."""
    return uniform(torch.empty(rows, columns), columns**-0.5 / math.sqrt(3))


def scalar_pairs(first: float, second: float, layers: int) -> torch.Tensor:
    return torch.tensor([first, second]).repeat(layers)


def _layered(draws_gates: bool, last_scalars: torch.Tensor) -> Weights:
    """The records of 2025 on track 1; later ones draw nothing for gates and the head."""
    dim, heads, layers = 768, 6, 12
    deviation = 0.5 * dim**-0.5

    def zero_gate(rows: int, columns: int) -> torch.Tensor:
        if draws_gates:
            uniform(torch.empty(rows, columns), 0.5 * columns**-0.5)
        return torch.zeros(rows, columns, dtype=BF16)

    w = {"embed.weight": table(PADDED_VOCAB, dim).to(BF16), "smear_gate.weight": zero_gate(1, GATE)}
    w |= {f"value_embeds.{k}.weight": table(PADDED_VOCAB, dim).to(BF16) for k in range(3)}
    for i in range(1, layers):
        if i != 7:
            qkvo = torch.zeros(4, dim, dim)
            uniform(qkvo[:3], deviation)
            w[f"blocks.{i}.attn.qkvo_w"] = qkvo.view(dim, 4 * dim)
            w[f"blocks.{i}.attn.attn_gate.weight"] = zero_gate(heads, GATE)
        w[f"blocks.{i}.mlp.c_fc"] = uniform(torch.empty(dim, 4 * dim), deviation)
        w[f"blocks.{i}.mlp.c_proj"] = torch.zeros(dim, 4 * dim)
    w["lm_head.weight"] = zero_gate(PADDED_VOCAB, dim)
    w["scalars"] = torch.cat([torch.full((layers,), -1.5), scalar_pairs(1, 0, layers),
                              scalar_pairs(0.5, 0.5, layers), last_scalars])
    return w


def muon_custom_sizing() -> Weights:
    return _layered(draws_gates=True, last_scalars=torch.zeros(12))


def fix_muon_lr() -> Weights:
    return _layered(draws_gates=False, last_scalars=torch.tensor([0, 0.5]))


def unified_optimizers() -> Weights:
    dim, heads, layers, padding = 768, 6, 11, 1
    for _ in range(2):  # smear and skip gate
        linear(1, GATE)
    for _ in range(3):  # value embeddings
        table(PADDED_VOCAB, dim)
    attn = torch.zeros(layers - 1, 4 * dim, dim)
    mlp = torch.zeros(layers + padding, 2, 4 * dim, dim)
    uniform(attn[:, : 3 * dim, :], dim**-0.5)
    uniform(mlp[:, 0, :, :], 0.5 * dim**-0.5)
    head = torch.empty(dim, PADDED_VOCAB, dtype=BF16).normal_(mean=0, std=0.005)
    table(PADDED_VOCAB, dim)  # the embedding, which begins as the head
    w = {f"value_embeds.{k}.weight": torch.zeros(PADDED_VOCAB, dim) for k in range(3)}
    w |= {"smear_gate.weight": torch.zeros(1, GATE), "skip_gate.weight": torch.zeros(1, GATE),
          "attn_gate_bank": torch.zeros(layers - 1, heads, GATE),
          "ve_gate_bank": torch.zeros(5, heads, GATE), "attn_bank": attn, "mlp_bank": mlp,
          "lm_head.weight": head, "embed.weight": head.T.contiguous()}
    w = {name: value.to(BF16) for name, value in w.items()}
    w["x0_lambdas"] = torch.zeros(layers)
    w["scalars"] = torch.cat([torch.full((layers,), 1.1), scalar_pairs(0.5, 1, layers),
                              torch.tensor([0, 0.5, -1.5])])
    return w


def record7() -> Weights:
    dim, layers = 1024, 16
    deviation = 0.5 * dim**-0.5
    w = {"embed.weight": table(VOCAB, dim).to(BF16)}
    w |= {f"value_embeds.{k}.weight": table(VOCAB, dim).to(BF16) for k in range(3)}
    for i in range(layers):
        if i != 7:
            qkvo = uniform(torch.empty(4, dim, dim), deviation).to(BF16)
            qkvo[3] = 0
            w[f"blocks.{i}.attn.qkvo_w"] = qkvo
        w[f"blocks.{i}.mlp.fc_w"] = uniform(torch.empty(4 * dim, dim), deviation).to(BF16)
        w[f"blocks.{i}.mlp.proj_w"] = torch.zeros(dim, 4 * dim, dtype=BF16)
    w["lm_head_w"] = torch.zeros(PADDED_VOCAB, dim)
    w["scalars"] = torch.cat([torch.ones(layers), scalar_pairs(1, 0, layers),
                              scalar_pairs(0.5, 0.5, layers)])
    return w


RECORDS = {f.__name__: f for f in (muon_custom_sizing, fix_muon_lr, unified_optimizers, record7)}


def draw(record: str, seed: int) -> Weights:
    torch.manual_seed(seed)
    with torch.no_grad():
        return RECORDS[record]()


def sums_of_squares(weights: Weights) -> dict[str, float]:
    """In float64, of the values as they are stored."""
    return {name: w.double().square().sum().item() for name, w in weights.items()}


def check_sums(weights: Weights, noted: dict[str, float], who: str) -> None:
    """ValueError that names the first weight that the original did not have."""
    found = sums_of_squares(weights)
    if found.keys() != noted.keys():
        raise ValueError(f"{who}: other weights than the original's: "
                         f"{sorted(found.keys() ^ noted.keys())}")
    for name, value in found.items():
        if abs(value - noted[name]) > SUM_TOLERANCE * abs(noted[name]):
            raise ValueError(f"{who}: {name} has a sum of squares of {value:.9g}, the original's "
                             f"{noted[name]:.9g}: torch {torch.__version__} draws other numbers")


def write_safetensors(path: str, weights: Weights, metadata: dict[str, str]) -> None:
    names = {torch.float32: "F32", BF16: "BF16"}
    header, at = {"__metadata__": metadata}, 0
    for name, w in weights.items():
        size = w.numel() * w.element_size()
        header[name] = {"dtype": names[w.dtype], "shape": list(w.shape),
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for w in weights.values():
            file.write(w.contiguous().view(torch.uint8).numpy().data)


def save(path: str, record: str, weights: Weights) -> None:
    write_safetensors(path, weights, {
        "format": "pt", "record": record, "preset": "full", "tokens": "gpt2",
        "vocab_size": str(PADDED_VOCAB), "step": "0", "total_steps": "0"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", required=True, choices=sorted(RECORDS))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out")
    parser.add_argument("--check", metavar="DATA.json")
    args = parser.parse_args()
    weights = draw(args.record, args.seed)
    if args.check:
        with open(args.check, encoding="utf-8") as file:
            seeds = json.load(file)["seeds"]
        if str(args.seed) not in seeds:
            raise ValueError(f"{args.check}: has the seeds {', '.join(seeds)}, not {args.seed}")
        check_sums(weights, seeds[str(args.seed)]["initial_sums"], f"seed {args.seed}")
        print(f"{args.record}, seed {args.seed}: {len(weights)} weights as the original's")
    if args.out:
        save(args.out, args.record, weights)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f"initial_weights: {error}")
