"""Ten thousand synthetic races a case: rules that are false are shown as often as was promised."""

from __future__ import annotations

import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "statistics"))

from error_rates import CASES, RACES, naive_rate, rate, tolerance

LOOSE = ("equal, sd as the bound",)  # both tests must cross, which is rarer than one


class ErrorRates(unittest.TestCase):
    def test_each_case(self) -> None:
        self.assertGreaterEqual(RACES, 10_000)
        for case in CASES:
            with self.subTest(case=case.name):
                seen, level = rate(case), case.rule.alpha
                self.assertLess(seen, level + tolerance(level))
                if case.name not in LOOSE:  # exact, not just safe
                    self.assertGreater(seen, level - tolerance(level))

    def test_that_uncorrected_looks_would_be_seen(self) -> None:
        for case in CASES[:2]:
            self.assertGreater(naive_rate(case, 3000), 2 * case.rule.alpha, case.name)


if __name__ == "__main__":
    unittest.main()
