"""Student's one-sided t-test of one sample that is looked at after every new value, with exact
error rate: alpha is spent over the looks, and the boundaries are those of t, not of the normal
distribution, which would promise too much for a handful of runs.

    test = SequentialT(alpha=0.01, most=20, spend="obf")
    test.critical(5)                   # t that a fifth value must exceed; inf: nothing to spend yet
    test.critical(9, final=True)       # the race ends with nine: all that is left is spent
    test.p_value(5, t)                 # of a race that ended there: ordered by stages

How much: Lan and DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70 (1983)
659-663; their two spending functions, of the types of O'Brien and Fleming and of Pocock. That t's
joint distribution over looks can be had exactly: Jennison and Turnbull, Exact calculations for
sequential t, chi-squared and F tests, Biometrika 78 (1991) 133-141. p by stages: Jennison and
Turnbull, Group Sequential Methods with Applications to Clinical Trials (2000), section 8.4.

How: let X1, X2, ... be normal with mean 0 and any spread, and w_n the cosine of the angle between
(X1, ..., Xn) and (1, ..., 1). t of n values is w sqrt(n - 1) / sqrt(1 - w^2), a function of w
alone. The direction of (X1, ..., Xn) is uniform on the sphere and independent of its length, so
that w_2, w_3, ... is a Markov chain: w_(n+1) depends on w_n and on X(n+1) / length. Backwards, too:
given w_(n+1), the last coordinate of a uniform direction is u = w_(n+1) / sqrt(n + 1) + sqrt(1 -
w_(n+1)^2) sqrt(n / (n + 1)) z, with z a coordinate of a uniform direction in n dimensions. The
class keeps q_n(w), the probability that no look before n crossed given w_n = w: q_(n+1) is an
integral of q_n over z, and a look crosses with the integral of q_n times w_n's density over the
tail.
"""

from __future__ import annotations

import math

SPENDINGS = ("obf", "pocock")
_LEAST = 1e-10  # an increment of alpha below it is left to later looks
_REACH = 9.0  # standard deviations that integrals go to
_NODES = 240  # of the grid of q, minus one


def normal_survival(z: float) -> float:
    """P(Z > z)."""
    return math.erfc(z / math.sqrt(2)) / 2


def normal_quantile(p: float) -> float:
    """z with P(Z > z) = p, for p from 1e-300 to 1."""
    low, high = -40.0, 40.0
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if normal_survival(middle) > p else (low, middle)
    return (low + high) / 2


def spent(alpha: float, fraction: float, spend: str) -> float:
    """What may be spent of `alpha`, one-sided, when this fraction of the runs is in: of the type of
    O'Brien and Fleming, 2 P(Z > z / sqrt(fraction)) with P(Z > z) = alpha / 2; of Pocock's,
    alpha ln(1 + (e - 1) fraction)."""
    if spend not in SPENDINGS:
        raise ValueError(f"a spending of {spend}: there are {', '.join(SPENDINGS)}")
    if fraction >= 1:
        return alpha
    if fraction <= 0:
        return 0.0
    if spend == "pocock":
        return alpha * math.log1p((math.e - 1) * fraction)
    return 2 * normal_survival(normal_quantile(alpha / 2) / math.sqrt(fraction))


def _legendre(count: int) -> list[tuple[float, float]]:
    """Nodes and weights of Gauss and Legendre on [-1, 1]."""
    rule = []
    for k in range(count):
        x = math.cos(math.pi * (k + 0.75) / (count + 0.5))
        for _ in range(100):
            before, value = 1.0, x
            for n in range(2, count + 1):
                before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
            slope = count * (x * value - before) / (x * x - 1)
            x -= value / slope
            if abs(value / slope) < 1e-15:
                break
        rule.append((x, 2 / ((1 - x * x) * slope * slope)))
    return rule


_RULE = _legendre(40)


def _log_scale(n: int) -> float:
    """Logarithm of the factor that makes cos^(n - 2) a density on (-pi / 2, pi / 2)."""
    return math.lgamma(n / 2) - math.lgamma((n - 1) / 2) - math.log(math.pi) / 2


class _Chance:
    """q_n as a function of the angle asin(w_n), by cubic interpolation on an even grid."""

    def __init__(self, n: int, values: list[float] | None = None) -> None:
        self.reach = min(math.pi / 2, _REACH / math.sqrt(n))
        self.step = 2 * self.reach / _NODES
        self.values = values

    def angles(self) -> list[float]:
        return [k * self.step - self.reach for k in range(_NODES + 1)]

    def __call__(self, angle: float) -> float:
        if self.values is None:
            return 1.0
        x = (angle + self.reach) / self.step
        k = min(max(int(x), 1), _NODES - 2)
        v = self.values
        x = min(max(x, 0.0), float(_NODES)) - k
        a, b, c, d = v[k - 1], v[k], v[k + 1], v[k + 2]
        return (b + x * ((c - a / 3 - b / 2 - d / 6) +
                         x * ((a + c) / 2 - b + x * ((b - c) / 2 + (d - a) / 6))))


class SequentialT:
    """Looks after `first` values, after each further one, and at the end; `most` values at most.

    alpha: the probability, in (0, 0.5), that any look crosses if the mean is 0; if the mean is
    below 0 it is smaller.
    """

    def __init__(self, alpha: float, most: int, spend: str = "obf", first: int = 2) -> None:
        if not 0 < alpha < 0.5:
            raise ValueError(f"alpha of {alpha}: must be between 0 and 0.5")
        if most < first or first < 2:
            raise ValueError(f"looks from {first} to {most} values: t needs two")
        self.alpha, self.most, self.spend, self.first = alpha, most, spend, first
        self._chances = {first: _Chance(first)}
        self._critical: dict[tuple[int, bool], float] = {}
        self._spent = {first: 0.0}  # before the look at n

    def critical(self, n: int, final: bool = False) -> float:
        """t above which the look after n values crosses. `final`: it is the last, and spends all
        that is left."""
        if not self.first <= n <= self.most:
            raise ValueError(f"a look after {n} values: they are from {self.first} to {self.most}")
        final = final or n == self.most
        if (n, final) not in self._critical:
            to_spend = self._to_spend(n, final)
            self._critical[n, final] = (self._t_of(n, self._angle_with_tail(n, to_spend))
                                        if to_spend > _LEAST else math.inf)
        return self._critical[n, final]

    def p_value(self, n: int, t: float) -> float:
        """The probability, if the mean is 0, that a look before this one crosses, or this one has
        t or more. Of the last look that there was: n values crossed, or are all that there
        will be. Then it is below alpha if and only if t crossed."""
        before = self._spent_before(n)
        return min(1.0, before + self._tail(n, math.atan2(t, math.sqrt(n - 1))))

    @staticmethod
    def _t_of(n: int, angle: float) -> float:
        return math.tan(angle) * math.sqrt(n - 1)

    def _to_spend(self, n: int, final: bool) -> float:
        fraction = 1.0 if final else n / self.most
        return spent(self.alpha, fraction, self.spend) - self._spent_before(n)

    def _spent_before(self, n: int) -> float:
        for k in range(max(self._spent), n):
            increment = self._to_spend(k, False)
            self._spent[k + 1] = self._spent[k] + (increment if increment > _LEAST else 0.0)
        return self._spent[n]

    def _chance(self, n: int) -> _Chance:
        for k in range(max(self._chances), n):
            chance = _Chance(k + 1)
            chance.values = [self._back(k, angle) for angle in chance.angles()]
            self._chances[k + 1] = chance
        return self._chances[n]

    def _tail(self, n: int, angle: float) -> float:
        """The probability that no look before n crossed and that asin(w_n) is above `angle`."""
        chance, scale = self._chance(n), math.exp(_log_scale(n))
        if angle >= math.pi / 2:
            return 0.0
        reach = min(math.pi / 2, _REACH / math.sqrt(n))
        low = max(angle, -reach)
        # Pieces no wider than a standard deviation or two, since q may bend sharply.
        high = min(math.pi / 2, max(reach, low + 6 / math.sqrt(n)))
        pieces = max(1, math.ceil((high - low) * math.sqrt(n) / 2))
        half = (high - low) / pieces / 2
        total = 0.0
        for k in range(pieces):
            middle = low + (2 * k + 1) * half
            for x, weight in _RULE:
                at = middle + half * x
                total += weight * chance(at) * math.cos(at) ** (n - 2)
        return total * half * scale

    def _angle_with_tail(self, n: int, tail: float) -> float:
        low, high = -math.pi / 2, math.pi / 2
        for _ in range(48):
            middle = (low + high) / 2
            low, high = (middle, high) if self._tail(n, middle) > tail else (low, middle)
        return (low + high) / 2

    def _back(self, n: int, angle: float) -> float:
        """q_(n + 1) at this angle, from q_n and the look at n."""
        w, rest = math.sin(angle), math.cos(angle)
        shift, spread = w / math.sqrt(n + 1), rest * math.sqrt(n / (n + 1))
        low, high = self._uncrossed(n, math.sqrt(n + 1) * w)
        reach = min(math.pi / 2, _REACH / math.sqrt(n))
        if spread <= 0:
            return 1.0 if low <= shift < high else 0.0
        begin = max(-reach, math.asin(min(1.0, max(-1.0, (low - shift) / spread))))
        end = min(reach, math.asin(min(1.0, max(-1.0, (high - shift) / spread))))
        if begin >= end:
            return 0.0
        chance, half, total = self._chances[n], (end - begin) / 2, 0.0
        for x, weight in _RULE:
            z = (begin + end) / 2 + half * x
            u = shift + spread * math.sin(z)
            of_last = (math.sqrt(n + 1) * w - u) / math.sqrt(n * max(1e-300, 1 - u * u))
            total += (weight * chance(math.asin(min(1.0, max(-1.0, of_last)))) *
                      math.cos(z) ** (n - 2))
        return total * half * math.exp(_log_scale(n))

    def _uncrossed(self, n: int, a: float) -> tuple[float, float]:
        """The interval of the last coordinate u in which w_n = (a - u) / sqrt(n (1 - u^2)) is below
        the boundary of the look at n."""
        t = self.critical(n)
        if math.isinf(t):
            return -1.0, 1.0
        c = math.sqrt(n) * t / math.hypot(t, math.sqrt(n - 1))  # of sin x + c cos x > a, u = sin x
        length, shift = math.hypot(1, c), math.atan2(c, 1)
        if a >= length:
            return 1.0, 1.0
        x = math.asin(max(-1.0, a / length))
        begin, end = x - shift, math.pi - x - shift
        return (math.sin(max(begin, -math.pi / 2)) if begin < math.pi / 2 else 1.0,
                math.sin(min(end, math.pi / 2)) if end > -math.pi / 2 else -1.0)
