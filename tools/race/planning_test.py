"""power.py and planning.py against published power and simulated races."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "statistics"))

from arms import parse_arm
from bad_input import BadInput
from folder import Plan, Record
from planning import Earlier, from_records, plan_text, pooled, read_earlier
from power import (largest_sd, power_of_equivalence, power_of_test, runs_needed, simulate)
from rules import Outcome, judge, parse_until
from students_t import quantile


class Power(unittest.TestCase):
    def test_tables(self) -> None:
        # R's power.t.test(type = "one.sample"), one- and two-sided.
        self.assertAlmostEqual(power_of_test(10, 1, 1, 0.05, 1), 0.8975, delta=5e-5)
        self.assertAlmostEqual(power_of_test(10, 1, 1, 0.05, 2), 0.8031, delta=5e-5)
        # An effect of half an sd takes 34 pairs for 80 % (two-sided 0.05).
        self.assertEqual(runs_needed(lambda n: power_of_test(n, 0.5, 1, 0.05, 2)), 34)
        self.assertAlmostEqual(power_of_test(7, 0, 1, 0.05, 2), 0.05, delta=1e-6)
        self.assertEqual(power_of_test(1, 1, 1, 0.05, 2), 0)
        self.assertIsNone(runs_needed(lambda n: power_of_test(n, 1e-4, 1, 0.05, 2)))

    def test_equivalence_simulated(self) -> None:
        draw, shown, n, races = random.Random(2).gauss, 0, 6, 4000
        critical = quantile(0.05, n - 1)
        for _ in range(races):
            x = [draw(0, 1) for _ in range(n)]
            mean = sum(x) / n
            error = (sum((v - mean) ** 2 for v in x) / (n - 1) / n) ** 0.5
            shown += min(1.2 + mean, 1.2 - mean) / error > critical
        self.assertAlmostEqual(power_of_equivalence(n, 1.2, 1, 0.05), shown / races, delta=0.03)

    def test_inverse(self) -> None:
        sd = largest_sd(lambda s: power_of_test(8, 0.002, s, 0.05, 2), 0.002)
        self.assertAlmostEqual(power_of_test(8, 0.002, sd, 0.05, 2), 0.8, delta=1e-6)

    def test_race_with_looks(self) -> None:
        rule, draw = parse_until("a<b", ["a", "b"]), random.Random(5).gauss
        expected = simulate(rule, -0.002, 0.0021, 8, "obf")
        verdicts = [judge(rule, [{"a": Outcome(s, draw(3.279, 0.0021)), "b": Outcome(s, 3.281)}
                                 for s in range(8)], 8, "obf", True) for _ in range(2000)]
        self.assertAlmostEqual(expected.power, sum(v.state == "shown" for v in verdicts) / 2000,
                               delta=0.05)
        self.assertAlmostEqual(expected.runs, sum(v.blocks for v in verdicts) / 2000, delta=0.2)


class Planning(unittest.TestCase):
    def lines(self, until: str, earlier: Earlier, arms: str = "ab", lanes: int = 1,
              runs: int = 8) -> str:
        made = tuple(parse_arm(f"{a}=track1") for a in arms)
        plan = Plan(made, ("",) * len(made), runs, 0, lanes, until, "obf", "", "", "", "")
        rule = parse_until(until, [a.name for a in made]) if until else None
        return "\n".join(plan_text(plan, rule, earlier, 0.002))

    def test_text(self) -> None:
        known = self.lines("equal within 0.003", Earlier(0.0015, "of --sd", 40), lanes=2)
        self.assertIn("2 arms x 8 runs, seeds 0 to 7, 2 side by side: a b, b a, ...", known)
        self.assertRegex(known, r"sd 0.0015 \(of --sd\): a difference of 0.002 .* takes 11 runs of "
                         r"each arm, 7 min; the 8 planned show it in 6\d% of races")
        self.assertRegex(known, r"if the arms are equal, shown in 9\d% of races, after 6\.\d runs")
        self.assertIn("16 runs of 40 s: at most 5 min", known)
        unknown = self.lines("", Earlier(None, ""))
        self.assertRegex(unknown, r"sd not known .* if the sd of an arm is at most 0.0012")
        self.assertIn("time: not known", unknown)
        self.assertRegex(self.lines("mean<3.28,p<0.01", Earlier(0.0015, "", 1), "a"),
                         "if the mean is 3.278, shown in")
        self.assertIn("more than 2000", self.lines("", Earlier(1.0, "")))
        self.assertIn("one run of each arm has no spread", self.lines("", Earlier(None, ""), runs=1))

    def test_pairs_seen(self) -> None:
        """Arms that share their seeds' luck differ by less than two sds: the plan takes what it
        saw."""
        records = [Record(arm, seed, "finished", "", 0, 2.0, "", "", "", loss=3 + luck + shift)
                   for arm, shift in (("a", 0), ("b", 0.001))
                   for seed, luck in enumerate((0.01, -0.02 + shift / 9, 0.03))]
        seen = from_records(records, "seen")
        self.assertAlmostEqual(seen.sd, 0.0252, delta=1e-3)
        self.assertLess(seen.difference_sd, 1e-3)
        self.assertIsNone(from_records(records[:5], "seen").pairs_sd)
        self.assertRegex(self.lines("", seen),
                         r"sd 0.025, of pairs 6.*e-05 \(seen\): .* takes 2 runs")

    def test_earlier(self) -> None:
        self.assertAlmostEqual(pooled([[1, 3], [5, 7], [9]]), 2**0.5)
        self.assertIsNone(pooled([[1.0]]))
        with tempfile.TemporaryDirectory() as folder:
            for k, loss in enumerate((3.1, 3.3)):
                with open(f"{folder}/{k}.txt", "w", encoding="utf-8") as file:
                    file.write(f"step:2/2 val_loss:{loss} train_time:4000ms\n")
            earlier = read_earlier(f"{folder}/*.txt")
            self.assertAlmostEqual(earlier.sd, 0.02**0.5, delta=1e-9)
            self.assertEqual(earlier.run_s, 4)
            with self.assertRaisesRegex(BadInput, "two finished runs with different losses"):
                read_earlier(f"{folder}/0.txt")
            with open(f"{folder}/2.txt", "w", encoding="utf-8") as file:
                file.write("step:1/2 val_loss:3 train_time:4000ms\n")
            with self.assertRaisesRegex(BadInput, "after step 1 of 2; only finished runs"):
                read_earlier(f"{folder}/*.txt")
        with self.assertRaisesRegex(BadInput, "no such file"):
            read_earlier("nowhere*")


if __name__ == "__main__":
    unittest.main()
