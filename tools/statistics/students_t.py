"""Student's t distribution and the tests made of it, on the standard library alone.

    paired([3.61, 3.60, 3.62], [3.60, 3.60, 3.61])       # a Difference: mean, error, degrees
    equivalence(difference, bound=0.003).p               # below 0.05: within the bound
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence


def _continued_fraction(a: float, b: float, x: float) -> float:
    """The fraction of the regularised incomplete beta function I_x(a, b), by Lentz's method."""
    tiny, c, d = 1e-300, 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            value *= d * c
        if abs(d * c - 1) < 1e-15:
            return value
    raise ArithmeticError(f"incomplete beta of {a}, {b}, {x} does not converge")


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), for x from 0 to 1."""
    if x in (0, 1):
        return x
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) +
                     b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, 1 - x) / b


def survival(t: float, degrees: float) -> float:
    """P(T > t), of `degrees` > 0 degrees of freedom, not necessarily whole; `t` may be infinite."""
    if degrees <= 0 or math.isnan(t):
        raise ValueError(f"no Student's t with {degrees} degrees of freedom at {t}")
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    tail = _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return tail if t > 0 else 1 - tail


def quantile(p: float, degrees: float) -> float:
    """t with P(T > t) = p, for p in (0, 1); within 1e-12 of its size or the least p that doubles
    tell apart."""
    if not 0 < p < 1:
        raise ValueError(f"no quantile of {p}: must be between 0 and 1")
    if p > 0.5:
        return -quantile(1 - p, degrees)
    low, high = 0.0, 1.0
    while survival(high, degrees) > p:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if survival(middle, degrees) > p else (low, middle)
    return (low + high) / 2


@dataclasses.dataclass(frozen=True)
class Difference:
    """Of two means: ours minus the other's."""

    mean: float
    error: float  # its standard error
    degrees: float  # of freedom

    def two_sided(self) -> float:
        """The probability of a difference as far from 0 if there were none."""
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return 2 * survival(abs(self.mean) / self.error, self.degrees)


def mean_of(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """Of the sample: the sum of squares is divided by n - 1."""
    if len(values) < 2:
        raise ValueError("a spread needs at least two values")
    mean = mean_of(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def paired(ours: Sequence[float], other: Sequence[float]) -> Difference:
    """Of pairs that had the same start."""
    differences = [a - b for a, b in zip(ours, other, strict=True)]
    return Difference(mean_of(differences), deviation(differences) / math.sqrt(len(differences)),
                      len(differences) - 1)


def welch(ours: Sequence[float], other: Sequence[float]) -> Difference:
    """Of two independent samples, each with a variance of its own."""
    va, vb = (deviation(side) ** 2 / len(side) for side in (ours, other))
    mean = mean_of(ours) - mean_of(other)
    if va + vb == 0:
        return Difference(mean, 0.0, len(ours) + len(other) - 2)
    degrees = (va + vb) ** 2 / (va**2 / (len(ours) - 1) + vb**2 / (len(other) - 1))
    return Difference(mean, math.sqrt(va + vb), degrees)


@dataclasses.dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests: is the difference above -bound, and is it below bound?"""

    above: float  # p of the first
    below: float  # p of the second

    @property
    def p(self) -> float:
        return max(self.above, self.below)


def equivalence(difference: Difference, bound: float) -> Equivalence:
    if not bound > 0:
        raise ValueError(f"a bound of {bound}: must be positive")
    if difference.error == 0:
        return Equivalence(float(difference.mean <= -bound), float(difference.mean >= bound))
    return Equivalence(survival((difference.mean + bound) / difference.error, difference.degrees),
                       survival((bound - difference.mean) / difference.error, difference.degrees))
