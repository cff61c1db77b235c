"""Compares two dumps of a training step, or two sets of loss curves. See README.md.

    compare.py tensors OURS OTHER [--exact F] [--grad_bound LABEL=VALUE ...]
    compare.py curves --ours A.jsonl ... --other B.jsonl ... [--ends 10 50 100] [--window 10]

Both exit with 1 if something is out of bounds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

import numpy as np
import torch
from safetensors import safe_open

# Bounds of the relative L2 error of gradients. Two bf16 computations that round at other places
# differ by a few roundings (2^-9 each) per layer that the gradient went through; Q, K and what
# feeds the softmax see the cancellation in it, and sums of few or signed terms (scalars, gates)
# keep more of the noise.
GRAD_BOUNDS = {"scalars": 0.10, "x0_lambdas": 0.10, "embed": 0.05, "value_embed": 0.05,
               "smear_gate": 0.05, "skip_gate": 0.10, "attn_gate": 0.05, "ve_gate": 0.05,
               "attn": 0.05, "qk": 0.05, "vo": 0.05, "mlp": 0.05, "fc": 0.05, "proj": 0.05,
               "lm_head": 0.05}
LOSS_BOUND = 5e-4
BANKS = {"attn_bank": (10, "QKVO"), "qk_bank": (10, "QK"), "vo_bank": (10, "VO"),
         "mlp_bank": (12, ("c_fc", "c_proj"))}  # slots, and what each holds


def label_of(name: str) -> str:
    """The label of a weight, as in the optimizer's table."""
    for part, label in (("attn_gate", "attn_gate"), ("value_embeds", "value_embed"),
                        ("qkvo_w", "attn"), ("fc_w", "fc"), ("proj_w", "proj"),
                        (".mlp.", "mlp"), ("lm_head", "lm_head")):
        if part in name:
            return label
    return name.removesuffix(".weight").removesuffix("_bank")


def parts_of(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The matrices of a weight that holds several, since their gradients differ in size. Those of
    a bank are numbered by slot. A state's name ends in that of its weight."""
    bank = name.rpartition("/")[2]
    if name.endswith("qkvo_w"):
        return {f"{name}[{m}]": part for m, part in zip("QKVO", tensor.reshape(4, -1))}
    if bank not in BANKS:
        return {name: tensor}
    slots, names = BANKS[bank]
    return {f"{name}[{slot}.{m}]": part
            for slot, matrices in enumerate(tensor.reshape(slots, len(names), -1))
            for m, part in zip(names, matrices)}


def errors(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float, float]:
    """|a - b| / |b|, largest |a - b| over the rms of b, and the cosine."""
    a, b = a.double().flatten(), b.double().flatten()
    size, difference = b.norm().item(), (a - b)
    if size == 0 or a.norm().item() == 0:
        same = size == a.norm().item()
        return (0.0, 0.0, 1.0) if same else (math.inf, math.inf, 0.0)
    cosine = (a @ b).item() / (a.norm().item() * size)
    largest = difference.abs().max().item() / (size / math.sqrt(b.numel()))
    return difference.norm().item() / size, largest, cosine


def compare_losses(ours, other, bound: float) -> bool:
    """Per slot, relative."""
    good = True
    for key in sorted(k for k in other.keys() if k.startswith("loss.")):
        a, b = ours.get_tensor(key).double(), other.get_tensor(key).double()
        slots = ((a - b) / b).abs().max().item()
        total = abs((a.sum() / b.sum()).item() - 1)
        good &= total <= bound
        print(f"{key}: sum {a.sum():.6f} against {b.sum():.6f}, relative {total:.2e} "
              f"(bound {bound:.1e}), worst slot {slots:.2e}")
    return good


def compare_gradients(ours, other, exact, bounds: dict[str, float]) -> bool:
    rows = []
    for key in (k for k in other.keys() if k.startswith("grad.")):
        _, batch, name = key.split(".", 2)
        a, b = parts_of(name, ours.get_tensor(key)), parts_of(name, other.get_tensor(key))
        e = parts_of(name, exact.get_tensor(key)) if exact else {}
        for part in b:
            row = errors(a[part], b[part])
            against = ((errors(a[part], e[part])[0], errors(b[part], e[part])[0])
                       if exact else ())
            rows.append((row[0] / bounds[label_of(name)], f"{batch} {part}", row, against,
                         bounds[label_of(name)]))
    rows.sort(key=lambda r: -r[0])
    print(f"{'batch, gradient':40} {'rel L2':>9} {'max/rms':>9} {'1-cos':>9} {'bound':>6}"
          + ("  ours-exact other-exact" if exact else ""))
    for share, name, (l2, largest, cosine), against, bound in rows:
        extra = f"  {against[0]:10.2e} {against[1]:11.2e}" if against else ""
        print(f"{name:40} {l2:9.2e} {largest:9.2e} {1 - cosine:9.1e} {bound:6.3f}{extra}"
              + ("  OUT OF BOUND" if not share <= 1 else ""))
    return all(share <= 1 for share, *_ in rows)


def compare_weights(ours, other, exact, before, bound: float, prefix: str = "after.") -> bool:
    """The updates, if the weights before are given; else the weights themselves, or what else has
    the prefix. Where `exact` has them too, a difference beyond the bound is rounding if ours is no
    further from it than the other."""
    rows = []
    for key in (k for k in other.keys() if k.startswith(prefix)):
        name = key.removeprefix(prefix)
        dtypes = [f.get_tensor(key).dtype for f in (ours, other)]
        if dtypes[0] != dtypes[1]:  # what is left would be the rounding of the weight
            raise ValueError(f"{key} is {dtypes[0]} in ours and {dtypes[1]} in the other")
        sides = [parts_of(name, f.get_tensor(key).double()
                          - (before.get_tensor(name).double() if before else 0))
                 for f in (ours, other, exact) if f]
        for p in sides[0]:
            a, b = sides[0][p], sides[1][p]
            unequal = (a != b).double().mean().item()
            against = tuple(errors(side[p], sides[2][p])[0] for side in sides[:2]) if exact else ()
            rows.append((*errors(a, b), p, unequal, against))
    rows.sort(reverse=True)
    if rows:
        what = "update of weight" if before else f"{prefix}*"
        print(f"{what:40} {'rel L2':>9} {'max/rms':>9} {'1-cos':>9} {'unequal':>8}"
              + ("  ours-exact other-exact" if exact else ""))
    good = True
    for l2, largest, cosine, name, unequal, against in rows:
        within = l2 <= bound or (len(against) == 2 and against[0] <= against[1])
        good &= within
        extra = f"  {against[0]:10.2e} {against[1]:11.2e}" if against else ""
        print(f"{name:40} {l2:9.2e} {largest:9.2e} {1 - cosine:9.1e} {unequal:8.2%}{extra}"
              + ("" if within else "  OUT OF BOUND"))
    return good


def run_tensors(args: argparse.Namespace) -> bool:
    bounds = dict(GRAD_BOUNDS)
    for item in args.grad_bound:
        label, value = item.split("=")
        if label not in bounds:
            raise ValueError(f"--grad_bound {label}: labels are {', '.join(bounds)}")
        bounds[label] = float(value)
    ours, other = safe_open(args.ours, "pt"), safe_open(args.other, "pt")
    exact = safe_open(args.exact, "pt") if args.exact else None
    before = safe_open(args.before, "pt") if args.before else None
    good = compare_losses(ours, other, args.loss_bound)
    if any(k.startswith("grad.") for k in other.keys()):
        good &= compare_gradients(ours, other, exact, bounds)
    good &= compare_weights(ours, other, exact, before, args.update_bound)
    return good & compare_weights(ours, other, exact, None, args.update_bound, "state.")


def read_curve(path: str) -> dict[int, float]:
    """Step (updates done, the step itself included) to training loss."""
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def t_probability(t: float, degrees: float) -> float:
    """Two-sided, of Student's t: 2 * integral from |t| on, with x = tan(angle) sqrt(degrees)."""
    start = math.atan(abs(t) / math.sqrt(degrees))
    angle = np.linspace(start, math.pi / 2, 20001)
    density = np.clip(np.cos(angle), 0, None) ** (degrees - 1)
    area = float(np.sum((density[1:] + density[:-1]) / 2) * (angle[1] - angle[0]))
    norm = math.gamma((degrees + 1) / 2) / (math.sqrt(math.pi) * math.gamma(degrees / 2))
    return min(1.0, 2 * norm * area)


def welch(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """t and the two-sided probability of a difference of means."""
    va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    if va + vb == 0:
        return (0.0, 1.0) if a.mean() == b.mean() else (math.inf, 0.0)
    t = (a.mean() - b.mean()) / math.sqrt(va + vb)
    degrees = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return t, t_probability(t, degrees)


def run_curves(args: argparse.Namespace) -> bool:
    """Means over the last `window` steps before each end, one number a seed."""
    ours, other = [read_curve(p) for p in args.ours], [read_curve(p) for p in args.other]
    if min(len(ours), len(other)) < 2:
        raise ValueError("a spread needs at least two seeds on each side")
    last = min(max(c) for c in ours + other)
    good = True
    print(f"{'steps':>11} {'ours':>9} {'other':>9} {'diff':>9} {'sd ours':>8} {'sd other':>8} "
          f"{'diff/sd':>8} {'Welch t':>8} {'p':>6}")
    for end in args.ends or sorted({max(1, last * k // 5) for k in range(1, 6)}):
        steps = range(max(1, end - args.window + 1), end + 1)
        a, b = (np.array([np.mean([c[s] for s in steps]) for c in side])
                for side in (ours, other))
        t, p = welch(a, b)
        difference, sd = a.mean() - b.mean(), b.std(ddof=1)
        share = abs(difference) / sd if sd > 0 else math.inf
        good &= p >= args.least_p or abs(difference) <= args.equal_within
        print(f"{f'{steps[0]}-{end}':>11} {a.mean():9.4f} {b.mean():9.4f} {difference:+9.4f} "
              f"{a.std(ddof=1):8.4f} {sd:8.4f} {share:8.2f} {t:+8.2f} {p:6.3f}")
    return good


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    tensors = commands.add_parser("tensors")
    tensors.set_defaults(run=run_tensors)
    tensors.add_argument("ours")
    tensors.add_argument("other")
    tensors.add_argument("--exact", help="gradients with --precision f32, or weights after "
                         "updates with --newton_schulz f64, to compare both with")
    tensors.add_argument("--before", help="weights before the update")
    tensors.add_argument("--loss_bound", type=float, default=LOSS_BOUND)
    tensors.add_argument("--grad_bound", nargs="*", default=[], metavar="LABEL=VALUE")
    tensors.add_argument("--update_bound", type=float, default=0.02)
    curves = commands.add_parser("curves")
    curves.set_defaults(run=run_curves)
    curves.add_argument("--ours", nargs="+", required=True)
    curves.add_argument("--other", nargs="+", required=True)
    curves.add_argument("--ends", nargs="*", type=int)
    curves.add_argument("--window", type=int, default=10)
    curves.add_argument("--least_p", type=float, default=0.01)
    curves.add_argument("--equal_within", type=float, default=1e-4)
    return parser.parse_args(argv)


if __name__ == "__main__":
    arguments = parse(sys.argv[1:])
    sys.exit(0 if arguments.run(arguments) else 1)
