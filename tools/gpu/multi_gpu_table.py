"""The table at the end of multi_gpu_suite.sh.

    multi_gpu_table.py DIR STEPS WORLD_SIZE...

Exits with 1 if curves differ, or if 8 ranks scale to less than 90 %. DIR holds trainN.jsonl and
sameN.jsonl, which --metrics wrote on N ranks, and tracedN.0 and planN, the output of traced and of
planned runs.
"""

from __future__ import annotations

import json
import statistics
import sys

# Sums of f32 gradients in another order grow into differences of curves; 60 steps in.
CURVE_BOUND = 0.02
LEAST_EFFICIENCY_AT_8 = 0.90


def rows(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def stage_ms(steps: list[dict], stages: int = 3) -> list[float]:
    """Median ms of each stage's steps, without the first three (algorithms, recording)."""
    size = len(steps) // stages
    return [statistics.median(row["step_ms"] for row in steps[k * size + 3:(k + 1) * size])
            for k in range(stages)]


def exposed_ms(path: str) -> float | None:
    """Of the last row of a table of collectives: all, calls, bytes, and ms: total, exposed, late,
    hidden."""
    try:
        with open(path, encoding="utf-8") as lines:
            found = [line.split() for line in lines if line.startswith("all ")]
    except FileNotFoundError:
        return None
    return float(found[-1][-3]) if found else None


def text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def main(folder: str, steps: int, sizes: list[int]) -> int:
    curves = {n: [r for r in rows(f"{folder}/train{n}.jsonl") if "step_ms" in r] for n in sizes}
    same = {n: [r["loss"] for r in rows(f"{folder}/same{n}.jsonl") if "loss" in r] for n in sizes}
    for n, curve in curves.items():
        if len(curve) != steps or len(curve) < 12:
            print(f"{folder}/train{n}.jsonl has {len(curve)} steps; {steps} and at least 12 are "
                  "needed", file=sys.stderr)
            return 1
    good = True
    base = curves[sizes[0]]
    base_ms = stage_ms(base)
    print(f"{'ranks':>5} {'ms a step (stages 1, 2, 3)':>28} {'tokens/s':>10} {'efficiency':>18} "
          f"{'loss diff':>9} {'same bits':>9} {'exposed ms':>10} {'predicted':>9}")
    for n in sizes:
        ms = stage_ms(curves[n])
        efficiency = [a / b / n * sizes[0] for a, b in zip(base_ms, ms)]
        # Not the last row's own rate: the host may read the loss of the step before it late.
        tokens = 1e3 * (curves[n][-1]["tokens"] - curves[n][-2]["tokens"]) / ms[-1]
        difference = max(abs(a["loss"] - b["loss"]) for a, b in zip(base, curves[n]))
        equal = same[n] == same[sizes[0]] and len(same[n]) > 0
        exposed, predicted = (text(exposed_ms(f"{folder}/{name}"), ".2f")
                              for name in (f"traced{n}.0", f"plan{n}"))
        good &= equal and difference <= CURVE_BOUND
        good &= n < 8 or min(efficiency) >= LEAST_EFFICIENCY_AT_8
        print(f"{n:5} {', '.join(f'{x:.1f}' for x in ms):>28} {tokens:10,.0f} "
              f"{', '.join(f'{x:.0%}' for x in efficiency):>18} {difference:9.4f} "
              f"{'yes' if equal else 'NO':>9} {exposed:>10} {predicted:>9}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), [int(n) for n in sys.argv[3:]]))
