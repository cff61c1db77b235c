"""How many runs it takes to see a difference, and what a planned race would see.

Fixed number of runs: t = (Z + d) / sqrt(V / v) with Z normal, V chi-squared with v = n - 1 degrees
of freedom and d = difference / (sd / sqrt(n)): the noncentral t distribution, integrated over
sqrt(V / v). Races with looks: simulated, with a fixed seed.
"""

from __future__ import annotations

import dataclasses
import math
import random

from rules import Rule, looks_of
from sequential_t import normal_survival
from students_t import quantile

GOAL = 0.8  # of power, that plans are made for
_MOST = 2000  # runs an arm, beyond which nobody races
_RACES = 2000  # simulated


def _over_spreads(degrees: int, function) -> float:
    """The mean of function(s) over s = sqrt(V / degrees), by Simpson's rule."""
    low = max(0.0, 1 - 9 / math.sqrt(2 * degrees))
    high = 1 + 9 / math.sqrt(2 * degrees)
    log_scale = (math.log(2) + degrees / 2 * math.log(degrees / 2) - math.lgamma(degrees / 2))
    count, total, mass = 400, 0.0, 0.0
    for k in range(count + 1):
        s = low + (high - low) * k / count
        weight = 1 if k in (0, count) else 4 if k % 2 else 2
        if s <= 0:
            density = math.exp(log_scale) if degrees == 1 else 0.0
        else:
            density = math.exp(log_scale + (degrees - 1) * math.log(s) - degrees * s * s / 2)
        total += weight * density * function(s)
        mass += weight * density
    return total / mass


def power_of_test(n: int, difference: float, sd: float, alpha: float, sides: int) -> float:
    """Of the t-test of a sample of n with this sd whose mean is `difference` away."""
    if n < 2:
        return 0.0
    critical = quantile(alpha / sides, n - 1)
    d = abs(difference) / (sd / math.sqrt(n))
    return _over_spreads(n - 1, lambda s: normal_survival(critical * s - d) +
                         (normal_survival(critical * s + d) if sides == 2 else 0.0))


def power_of_equivalence(n: int, bound: float, sd: float, alpha: float) -> float:
    """Of two one-sided t-tests of a sample of n whose mean is 0."""
    if n < 2:
        return 0.0
    critical = quantile(alpha, n - 1)
    d = bound / (sd / math.sqrt(n))
    return _over_spreads(n - 1, lambda s: max(0.0, 1 - 2 * normal_survival(d - critical * s)))


def runs_needed(power, goal: float = GOAL) -> int | None:
    """The least n with power(n) of at least `goal`; None above _MOST."""
    low, high = 1, 2
    while power(high) < goal:
        low, high = high, 2 * high
        if low >= _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= goal else (middle, high)
    return high


def largest_sd(power, guess: float) -> float:
    """The sd up to which power(sd) is at least GOAL."""
    low, high = 0.0, guess
    while power(high) >= GOAL:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle) >= GOAL else (low, middle)
    return low


@dataclasses.dataclass(frozen=True)
class Expected:
    """Of a race with looks."""

    power: float
    runs: float  # of each arm, on average


def simulate(rule: Rule, true_mean: float, sd: float, most: int, spend: str) -> Expected:
    """Of `rule` when its sample (losses, or differences of pairs) has this mean and sd."""
    looks = looks_of(rule.alpha, most, spend)
    critical = [math.inf, math.inf] + [looks.critical(n) for n in range(2, most + 1)]
    draw = random.Random(0).gauss
    shown = blocks = 0
    for _ in range(_RACES):
        total = squares = 0.0
        for n in range(1, most + 1):
            x = draw(0.0, sd)  # of the distance to the mean: no digits are lost
            total += x
            squares += x * x
            if n > 1 and math.isfinite(critical[n]):
                error = math.sqrt((squares - total * total / n) / (n - 1) / n)
                if rule.statistic(true_mean + total / n, error) > critical[n]:
                    shown += 1
                    break
        blocks += n
    return Expected(shown / _RACES, blocks / _RACES)

