"""rules.py: what rules mean, and when a race ends by one."""

from __future__ import annotations

import math
import os
import random
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "statistics"))

from bad_input import BadInput
from rules import Outcome, Rule, judge, parse_until

ARMS = ["base", "half"]


def blocks(count: int, base: float = 3.28, half: float = 3.28, sd: float = 0.001, seed: int = 3):
    draw = random.Random(seed).gauss
    return [{"base": Outcome(s, draw(base, sd)), "half": Outcome(s, draw(half, sd))}
            for s in range(count)]


class Parse(unittest.TestCase):
    def test_forms(self) -> None:
        for text, rule in (
                ("half: mean<3.28,p<0.01", Rule("mean", ("half",), 3.28, 0.01)),
                ("half:mean < 3.28 , p<0.02", Rule("mean", ("half",), 3.28, 0.02)),
                ("equal within 0.003", Rule("equal", ("base", "half"), 0.003, 0.05)),
                ("half,base: equal within 0.003,p<0.1",
                 Rule("equal", ("half", "base"), 0.003, 0.1)),
                ("half<base,p<0.01", Rule("less", ("half", "base"), 0.0, 0.01)),
                ("half < base", Rule("less", ("half", "base"), 0.0, 0.05))):
            self.assertEqual(parse_until(text, ARMS), rule, text)
        self.assertEqual(parse_until("mean<3.28", ["a"]).arms, ("a",))
        grid = ["lr=0.8,wd=1", "lr=1,wd=1"]
        both = parse_until("lr=1,wd=1,lr=0.8,wd=1: equal within 1", grid)
        self.assertEqual(both.arms, (grid[1], grid[0]))
        self.assertEqual(parse_until("lr=1,wd=1<lr=0.8,wd=1", grid).arms, (grid[1], grid[0]))

    def test_refused(self) -> None:
        for text, why in (("mean<3.28", "is of one arm, and there is base, half; say of which"),
                          ("mean<3.28,p<2", "between 0 and 0.5"),
                          ("half: mean<3.28,p<x", "between 0 and 0.5"),
                          ("half: mean<0", "must be a positive number"),
                          ("half: mean<x", "must be a positive number"),
                          ("third: mean<3", "no arm third; there is base, half"),
                          ("third<base", "no arm third"), ("base<base", "is of two arms"),
                          ("equal within -1", "must be a positive number"),
                          ("equal", "no such rule"), ("", "no such rule")):
            with self.assertRaisesRegex(BadInput, why, msg=text):
                parse_until(text, ARMS)
        with self.assertRaisesRegex(BadInput, "is of two arms"):
            parse_until("equal within 1", ["a", "b", "c"])


class Judge(unittest.TestCase):
    def test_mean(self) -> None:
        rule = parse_until("half: mean<3.28,p<0.01", ARMS)
        verdict = judge(rule, blocks(8, half=3.276), 8, "obf", True)
        self.assertEqual(verdict.state, "shown")
        self.assertLess(verdict.p, 0.01)
        self.assertLess(verdict.blocks, 8)
        self.assertRegex(verdict.text, r"mean of half below 3.28: shown, p 0.00\d+ \(one-sided "
                         r"t-test of one sample, level 0.01; look \d of at most 7, alpha spent by "
                         "O'Brien and Fleming's type, p ordered by looks; . runs, mean 3.27")
        self.assertEqual(judge(rule, blocks(8, half=3.284), 8, "obf", True).state, "not shown")

    def test_open_until_over(self) -> None:
        rule, rows = parse_until("half<base", ARMS), blocks(8)
        for count in range(8):
            verdict = judge(rule, rows[:count], 8, "obf", False)
            self.assertEqual(verdict.state, "open")
            self.assertTrue(math.isnan(verdict.p))  # a p of a race that goes on would mislead
        verdict = judge(rule, rows, 8, "obf", True)
        self.assertEqual((verdict.state, verdict.looks), ("not shown", 7))
        self.assertGreater(verdict.p, 0.05)

    def test_signs(self) -> None:
        better = blocks(10, half=3.270)
        self.assertEqual(judge(parse_until("half<base", ARMS), better, 10, "obf",
                               True).state, "shown")
        self.assertEqual(judge(parse_until("base<half", ARMS), better, 10, "obf", True).state,
                         "not shown")
        equal = judge(parse_until("equal within 0.02", ARMS), better, 10, "obf", True)
        self.assertAlmostEqual(equal.mean, -0.010, delta=0.002)  # the second's minus the first's
        self.assertEqual(equal.state, "shown")
        for far in (3.2585, 3.3015):
            self.assertEqual(judge(parse_until("equal within 0.02", ARMS), blocks(10, half=far), 10,
                                   "obf", True).state, "not shown")

    def test_what_was_shown_stays_shown(self) -> None:
        """Later blocks, as those that ran side by side, change nothing."""
        rule, rows = parse_until("equal within 0.005", ARMS), blocks(8)
        whole = judge(rule, rows, 8, "obf", True)
        self.assertEqual(whole.state, "shown")
        self.assertEqual(judge(rule, rows[:whole.blocks], 8, "obf", False), whole)
        self.assertEqual(judge(rule, rows[:whole.blocks - 1], 8, "obf", False).state, "open")

    def test_failed_and_diverged(self) -> None:
        rule, rows = parse_until("equal within 0.005", ARMS), blocks(8)
        rows[1]["half"] = Outcome(1, None)
        verdict = judge(rule, rows, 8, "obf", True)
        self.assertEqual((verdict.state, verdict.left_out), ("shown", 1))
        self.assertIn("(1 left out, as a run of theirs failed)", verdict.text)
        rows[2]["half"] = Outcome(2, math.inf)
        verdict = judge(rule, rows, 8, "obf", True)
        self.assertEqual((verdict.state, verdict.ends), ("impossible", True))
        self.assertIn("the run of half with seed 2 diverged", verdict.text)
        # Another arm's does not matter.
        self.assertEqual(judge(parse_until("base: mean<3.3", ARMS), rows, 8, "obf",
                               True).state, "shown")

    def test_last_block_failed(self) -> None:
        """The last look has no new value, but all that is left to spend."""
        rule = parse_until("half: mean<3.28,p<0.05", ARMS)
        for seed in range(200):
            rows = blocks(4, half=3.279, seed=seed)
            rows[3]["half"] = Outcome(3, None)
            if (judge(rule, rows[:3], 4, "obf", False).state == "open" and
                    judge(rule, rows, 4, "obf", True).state == "shown"):
                return
        self.fail("no race was decided by its end")

    def test_without_spread(self) -> None:
        rows = [{"base": Outcome(s, 3.0 + s), "half": Outcome(s, 3.0 + s)} for s in range(4)]
        verdict = judge(parse_until("equal within 0.1", ARMS), rows, 4, "obf", True)
        self.assertEqual(verdict.state, "not shown")
        self.assertIn("all values are equal: there is no t", verdict.text)
        few = judge(parse_until("equal within 0.1", ARMS), rows[:1], 4, "obf", False)
        self.assertIn("fewer than two pairs are finished", few.text)


if __name__ == "__main__":
    unittest.main()
