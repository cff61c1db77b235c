"""sequential_t.py against closed forms, published boundaries and simulated t."""

from __future__ import annotations

import math
import os
import random
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "statistics"))

from sequential_t import SequentialT, normal_quantile, normal_survival, spent
from students_t import quantile, survival


def crossings(test: SequentialT, races: int, seed: int, critical=None) -> list[int]:
    """How many simulated races cross at each number of values, if the mean is 0."""
    found, draw = [0] * (test.most + 1), random.Random(seed).gauss
    bounds = critical or [math.inf] * 2 + [test.critical(n) for n in range(2, test.most + 1)]
    for _ in range(races):
        total = squares = 0.0
        for n in range(1, test.most + 1):
            x = draw(0, 1)
            total, squares = total + x, squares + x * x
            if n >= test.first:
                mean = total / n
                if mean > bounds[n] * math.sqrt((squares - n * mean * mean) / (n - 1) / n):
                    found[n] += 1
                    break
    return found


class Spending(unittest.TestCase):
    def test_normal(self) -> None:
        self.assertAlmostEqual(normal_survival(1.959964), 0.025, delta=1e-8)
        for p in (1e-200, 1e-9, 0.025, 0.5, 0.9):
            self.assertAlmostEqual(normal_survival(normal_quantile(p)) / p, 1, delta=1e-9)

    def test_functions(self) -> None:
        for spend in ("obf", "pocock"):
            values = [spent(0.025, k / 10, spend) for k in range(11)]
            self.assertEqual((values[0], values[-1]), (0, 0.025))
            self.assertEqual(values, sorted(values))
        # Half the information, one-sided 0.025: as tabulated for these two functions.
        self.assertAlmostEqual(spent(0.025, 0.5, "obf"), 0.00153, delta=5e-6)
        self.assertAlmostEqual(spent(0.025, 0.5, "pocock"), 0.01550, delta=5e-6)
        with self.assertRaisesRegex(ValueError, "there are obf, pocock"):
            spent(0.025, 0.5, "even")


class Boundaries(unittest.TestCase):
    def test_one_look_is_the_t_test(self) -> None:
        for n in (2, 3, 9, 40):
            test = SequentialT(0.05, most=n, first=n)
            self.assertAlmostEqual(test.critical(n) / quantile(0.05, n - 1), 1, delta=1e-5)
            for t in (-1.0, 0.5, 3.0):
                self.assertAlmostEqual(test.p_value(n, t), survival(t, n - 1), delta=1e-6)

    def test_first_look(self) -> None:
        test = SequentialT(0.05, most=4, spend="pocock")
        first = quantile(spent(0.05, 0.5, "pocock"), 1)  # Cauchy's distribution
        self.assertAlmostEqual(test.critical(2) / first, 1, delta=1e-5)

    def test_two_looks_by_another_way(self) -> None:
        """Looks after 2 and 3 values, by an integral over the sphere: the direction of three values
        is even on it, and the first look crosses in a wedge of longitudes about x = y."""
        test = SequentialT(0.1, most=3, spend="pocock")
        wedge = math.pi * spent(0.1, 2 / 3, "pocock")  # half of it
        critical, rows, beyond = test.critical(3), 400, 0
        for k in range(rows):
            turn = math.pi / 4 + wedge + 2 * (math.pi - wedge) * (k + 0.5) / rows
            for i in range(rows):
                z = (2 * i + 1) / rows - 1
                r = math.sqrt(1 - z * z)
                mean = (r * math.cos(turn) + r * math.sin(turn) + z) / 3
                beyond += mean > critical * math.sqrt((1 - 3 * mean * mean) / 2 / 3)
        share = beyond / rows**2 * (1 - wedge / math.pi)
        self.assertAlmostEqual(wedge / math.pi + share, 0.1, delta=1e-4)

    def test_simulated(self) -> None:
        for alpha, most, spend in ((0.05, 8, "obf"), (0.2, 12, "pocock"), (0.3, 5, "obf")):
            test, races = SequentialT(alpha, most, spend), 20_000
            found = crossings(test, races, seed=7)
            for n in range(2, most + 1):
                p = spent(alpha, n / most, spend) - (spent(alpha, (n - 1) / most, spend) if n > 2
                                                     else 0)
                self.assertAlmostEqual(found[n] / races, p,
                                       delta=4.5 * math.sqrt(p / races) + 1e-4, msg=f"{most} {n}")

    def test_normal_boundaries_promise_too_much(self) -> None:
        """What this class is for: boundaries of the normal distribution, here the limits of long
        races, with a handful of runs."""
        few, long = SequentialT(0.05, 5, "obf"), SequentialT(0.05, 200, "obf")
        normal = [math.inf] * 2 + [long.critical(40 * n) for n in range(2, 6)]
        self.assertGreater(sum(crossings(few, 10_000, 3, normal)) / 10_000, 0.065)

    def test_long_races(self) -> None:
        """The spending of O'Brien and Fleming's type is that of a Brownian motion that is looked at
        always, with the bound z(alpha / 2) / sqrt(fraction)."""
        test = SequentialT(0.05, 200, "obf")
        for n in (100, 150, 200):
            self.assertAlmostEqual(test.critical(n), 1.959964 * math.sqrt(200 / n), delta=0.03)

    def test_ends_early(self) -> None:
        """Runs failed, and the race ends with fewer values: the last look spends the rest."""
        test = SequentialT(0.05, 8)
        self.assertLess(test.critical(6, final=True), test.critical(6))
        for n in (3, 6, 8):
            t = test.critical(n, final=True)
            self.assertAlmostEqual(test.p_value(n, t), 0.05, delta=1e-6)
            self.assertLess(test.p_value(n, t + 0.01), 0.05)
        self.assertAlmostEqual(test.p_value(5, math.inf), test.p_value(4, test.critical(4)),
                               delta=1e-6)

    def test_nothing_to_spend_yet(self) -> None:
        self.assertEqual(SequentialT(0.01, 60).critical(2), math.inf)

    def test_bad_input(self) -> None:
        for alpha, most, first in ((0, 5, 2), (0.5, 5, 2), (0.05, 1, 2), (0.05, 5, 1)):
            with self.assertRaises(ValueError):
                SequentialT(alpha, most, first=first)
        with self.assertRaisesRegex(ValueError, "from 2 to 5"):
            SequentialT(0.05, 5).critical(6)


if __name__ == "__main__":
    unittest.main()
