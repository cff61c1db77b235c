"""students_t.py against tables, closed forms and published data."""

from __future__ import annotations

import unittest

from students_t import (Difference, deviation, equivalence, paired, quantile, survival, welch)

# Hours of sleep that two drugs gave ten patients: A. R. Cushny and A. R. Peebles, 1905, as W. S.
# Gosset ("Student") took them in 1908.
FIRST_DRUG = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND_DRUG = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


class StudentsT(unittest.TestCase):
    def test_tables(self) -> None:
        for t, degrees, p in ((6.313752, 1, 0.05), (2.919986, 2, 0.05), (2.776445, 4, 0.025),
                              (4.604095, 4, 0.005), (1.812461, 10, 0.05), (1.697261, 30, 0.05),
                              (1.644854, 1e7, 0.05), (0.0, 3, 0.5)):
            self.assertAlmostEqual(survival(t, degrees), p, delta=3e-7)
            self.assertAlmostEqual(survival(-t, degrees), 1 - p, delta=3e-7)

    def test_closed_forms(self) -> None:
        for t in (0.01, 0.3, 1.0, 5.0, 40.0):
            self.assertAlmostEqual(survival(t, 2), 0.5 - t / 2 / (2 + t * t) ** 0.5, delta=1e-13)
        self.assertAlmostEqual(survival(1, 1), 0.25, delta=1e-13)
        self.assertTrue(survival(1.5, 4) > survival(1.5, 4.5) > survival(1.5, 5))
        self.assertEqual((survival(float("inf"), 3), survival(float("-inf"), 3)), (0, 1))

    def test_no_distribution(self) -> None:
        for t, degrees in ((1.0, 0), (1.0, -1), (float("nan"), 3)):
            with self.assertRaises(ValueError):
                survival(t, degrees)

    def test_paired(self) -> None:
        d = paired(FIRST_DRUG, SECOND_DRUG)
        self.assertAlmostEqual(d.mean, -1.58)
        self.assertAlmostEqual(d.mean / d.error, -4.0621, delta=5e-5)
        self.assertEqual(d.degrees, 9)
        self.assertAlmostEqual(d.two_sided(), 0.002833, delta=5e-7)
        with self.assertRaises(ValueError):
            paired([1.0, 2.0], [1.0])

    def test_welch(self) -> None:
        d = welch(FIRST_DRUG, SECOND_DRUG)
        self.assertAlmostEqual(d.mean / d.error, -1.8608, delta=5e-5)
        self.assertAlmostEqual(d.degrees, 17.776, delta=5e-4)
        self.assertAlmostEqual(d.two_sided(), 0.07939, delta=5e-6)

    def test_equivalence(self) -> None:
        # At the edges of the interval with 90 % confidence, p is 0.05.
        edge = equivalence(Difference(0.001, 0.001, 4), 0.001 + 0.001 * 2.131847)
        self.assertAlmostEqual(edge.below, 0.05, delta=1e-6)
        self.assertEqual(edge.p, edge.below)
        mirrored = equivalence(Difference(-0.001, 0.001, 4), 0.001 + 0.001 * 2.131847)
        self.assertEqual((mirrored.above, mirrored.below), (edge.below, edge.above))
        self.assertAlmostEqual(equivalence(Difference(0.003, 0.001, 4), 0.003).p, 0.5)
        self.assertGreater(equivalence(Difference(0.004, 0.001, 4), 0.003).p, 0.5)
        self.assertEqual(equivalence(Difference(0.001, 0.0, 4), 0.003).p, 0)
        self.assertEqual(equivalence(Difference(0.003, 0.0, 4), 0.003).p, 1)
        with self.assertRaises(ValueError):
            equivalence(Difference(0.0, 0.001, 4), 0)

    def test_spread_of_one(self) -> None:
        self.assertAlmostEqual(deviation([1, 2, 3, 4]), (5 / 3) ** 0.5)
        with self.assertRaisesRegex(ValueError, "at least two"):
            deviation([1.0])

    def test_quantile(self) -> None:
        for p, degrees, t in ((0.05, 1, 6.313752), (0.025, 4, 2.776445), (0.005, 4, 4.604095),
                              (0.05, 10, 1.812461), (0.5, 3, 0.0)):
            self.assertAlmostEqual(quantile(p, degrees), t, delta=1e-6)
            self.assertAlmostEqual(quantile(1 - p, degrees), -t, delta=1e-6)
        for p in (1e-12, 0.3, 0.99):
            self.assertAlmostEqual(survival(quantile(p, 2.5), 2.5) / p, 1, delta=1e-9)
        for p in (0, 1, -0.1, float("nan")):
            with self.assertRaises(ValueError):
                quantile(p, 4)


if __name__ == "__main__":
    unittest.main()
