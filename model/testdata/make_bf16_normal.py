#!/usr/bin/env python3
"""Makes bf16_normal.tsv: what torch draws into a bf16 tensor on a CPU by normal_(std=0.005).

    python3 make_bf16_normal.py > bf16_normal.tsv

Needs a torch of before pull request 175988 (2026-02-27), which draws in f32 and rounds: 2.10 and 2.11
are, 2.15 is not. The originals of the records of 2026 ran with these two. It refuses others.

2^25 draws of seed 0; for each value that came out, ascending: its bits and how often. Zeros of
either sign are one value.
"""
import torch

COUNT = 1 << 25


def main():
    torch.manual_seed(0)
    draws = torch.empty(COUNT, dtype=torch.bfloat16).normal_(0, 0.005).float()
    values, counts = torch.unique(draws, return_counts=True)
    if draws.max() > 0.017:
        raise SystemExit(f"torch {torch.__version__} does not draw from uniforms of 8 bits: use 2.11")
    x = draws.double()
    kurtosis = ((x**4).mean() / (x**2).mean() ** 2).item()
    print(f"# torch {torch.__version__} on a CPU, {COUNT} draws of seed 0: standard deviation "
          f"{x.std().item():.6f}, kurtosis {kurtosis:.4f}, largest {x.max().item():.7f}, "
          f"{len(values)} values")
    for value, count in zip(values.bfloat16().view(torch.int16).tolist(), counts.tolist()):
        print(f"{value & 0xFFFF:04x}\t{count}")


if __name__ == "__main__":
    main()
