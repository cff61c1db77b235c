"""How often rules are shown where they are false: races of made-up losses, through the same code
that decides real ones.

    bazel run //tools/race:error_rates             # a table, 10,000 races a row
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(HERE), "statistics"))

from rules import Block, Outcome, Rule, judge, parse_until
from students_t import quantile

RACES = 10_000


@dataclasses.dataclass(frozen=True)
class Case:
    """Losses of arms a and b are normal. The means are where the rule is just false."""

    name: str
    until: str
    runs: int
    spend: str
    means: tuple[float, float]
    sds: tuple[float, float]
    failing: float = 0.0  # the share of runs that fail

    @property
    def rule(self) -> Rule:
        return parse_until(self.until, ["a", "b"])


CASES = (
    Case("mean, 20 runs", "a: mean<3.28,p<0.01", 20, "obf", (3.28, 3.28), (0.0015, 0.0015)),
    Case("mean, 20 runs, Pocock", "a: mean<3.28,p<0.05", 20, "pocock", (3.28, 3.28),
         (0.0015, 0.0015)),
    Case("mean, 8 runs, a fifth fails", "a: mean<3.28,p<0.05", 8, "obf", (3.28, 3.28),
         (0.0015, 0.0015), 0.2),
    Case("equal, 12 pairs", "equal within 0.003", 12, "obf", (3.28, 3.283), (0.0004, 0.0004)),
    Case("equal, sds 1 to 8", "equal within 0.003", 12, "obf", (3.28, 3.277), (0.0001, 0.0008)),
    Case("equal, sds 1 to 8, a fifth fails", "equal within 0.003", 12, "obf", (3.28, 3.283),
         (0.0001, 0.0008), 0.2),
    Case("equal, sd as the bound", "equal within 0.003", 12, "obf", (3.28, 3.283),
         (0.003, 0.003)),
    Case("less, sds 8 to 1, Pocock", "a<b,p<0.05", 12, "pocock", (3.28, 3.28), (0.002, 0.00025)),
)


def blocks_of(case: Case, draw: random.Random) -> list[Block]:
    def outcome(seed: int, arm: int) -> Outcome:
        loss = draw.gauss(case.means[arm], case.sds[arm])
        return Outcome(seed, None if draw.random() < case.failing else loss)

    return [{"a": outcome(seed, 0), "b": outcome(seed, 1)} for seed in range(case.runs)]


def rate(case: Case, races: int = RACES) -> float:
    """The share of races in which the rule is shown, looked at after every block."""
    draw, rule = random.Random(case.name), case.rule
    return sum(judge(rule, blocks_of(case, draw), case.runs, case.spend, True).state == "shown"
               for _ in range(races)) / races


def naive_rate(case: Case, races: int = RACES) -> float:
    """Likewise, if each look took the level of a t-test that is the only one."""
    draw, rule = random.Random(case.name), case.rule
    critical = [math.inf, math.inf] + [quantile(rule.alpha, n - 1) for n in range(2, case.runs + 1)]
    shown = 0
    for _ in range(races):
        n = total = squares = 0
        for block in blocks_of(case, draw):
            losses = [block[arm].loss for arm in rule.arms]
            if None in losses:
                continue
            x = losses[0] - 3.28 if rule.kind == "mean" else losses[0] - losses[-1]
            n, total, squares = n + 1, total + x, squares + x * x
            if n < 2:
                continue
            error = math.sqrt(max(1e-300, (squares - total * total / n) / (n - 1) / n))
            mean = total / n + (3.28 if rule.kind == "mean" else 0)
            if rule.statistic(mean, error) > critical[n]:
                shown += 1
                break
    return shown / races


def tolerance(level: float, races: int = RACES) -> float:
    """Four standard deviations of the share of so many races."""
    return 4 * math.sqrt(level * (1 - level) / races)


def main() -> None:
    print(f"{'false rule, ' + format(RACES, ',') + ' races':34} {'promised':>8} {'seen':>8} "
          f"{'sd':>7} {'uncorrected':>11}")
    for case in CASES:
        level = case.rule.alpha
        print(f"{case.name:34} {level:8.3f} {rate(case):8.4f} "
              f"{tolerance(level) / 4:7.4f} {naive_rate(case):11.4f}", flush=True)


if __name__ == "__main__":
    main()
