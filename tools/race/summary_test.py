"""analysis.py, summary.py and page.py on made-up records."""

from __future__ import annotations

import json
import math
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "statistics"))

from analysis import analyse, first_blocks, holm, sample_of
from arms import make_arms
from folder import Plan, Record
from page import report_html
from summary import comparison_text, readme, summary_json

# Hours of sleep that two drugs gave ten patients: Student's own example, 1908.
FIRST_DRUG = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND_DRUG = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def plan_of(runs: int, until: str = "", grids: tuple[str, ...] = (),
            arms: tuple[str, ...] = ("a=track1", "b=track1 --x=1")) -> Plan:
    made = tuple(make_arms(list(arms), list(grids)))
    return Plan(made, ("0" * 64,) * len(made), runs, 0, 1, until, "obf", "Title", "2026-12-01",
                "abc", "race --arm ...")


def record(arm: str, seed: int, loss: float | None, **more) -> Record:
    base = {"state": "finished" if loss is not None else "failed", "why": "", "exit_code": 0,
            "wall_s": 2.0, "began": "2026-12-01", "machine": "M", "gpu": "", "steps": 9,
            "train_s": 1.0 + seed % 3, "loss": loss, "words": ("track1",)}
    return Record(arm, seed, **(base | more))


def records_of(**losses: list) -> dict:
    return {(arm, seed): record(arm, seed, loss) for arm, values in losses.items()
            for seed, loss in enumerate(values)}


class Analysis(unittest.TestCase):
    def test_sample(self) -> None:
        s = sample_of([1, 2, 3, 4])
        self.assertAlmostEqual(s.sd, (5 / 3) ** 0.5)
        self.assertAlmostEqual(s.half_width, 3.182446 * s.error, delta=1e-6)
        self.assertEqual((sample_of([]).mean, sample_of([3]).sd), (None, None))

    def test_pairs(self) -> None:
        found = analyse(plan_of(10), records_of(a=SECOND_DRUG, b=FIRST_DRUG), {}, 0.002)
        c = found.comparisons[0]
        self.assertEqual((c.pairs, c.left_out), (10, 0))
        self.assertAlmostEqual(c.mean, -1.58)  # the arm's minus the first's
        self.assertAlmostEqual(c.p, 0.002833, delta=5e-7)
        self.assertAlmostEqual(c.p_welch, 0.07939, delta=5e-6)
        self.assertEqual(c.p_holm, c.p)
        self.assertIsNone(c.runs_to_detect)  # over 2000
        self.assertEqual(analyse(plan_of(10), records_of(a=SECOND_DRUG, b=FIRST_DRUG), {},
                                 1.0).comparisons[0].runs_to_detect, 14)

    def test_pairs_of_a_seed_alone(self) -> None:
        c = analyse(plan_of(4), records_of(a=[1, None, 3, 4], b=[2, 9, None, 6]), {},
                    0).comparisons[0]
        self.assertEqual((c.pairs, c.left_out, c.mean), (2, 2, 1.5))
        few = analyse(plan_of(4), records_of(a=[1], b=[2]), {}, 0).comparisons[0]
        self.assertIn("it takes two", comparison_text(few))
        same = analyse(plan_of(2), records_of(a=[1, 2], b=[1, 2]), {}, 0.1).comparisons[0]
        self.assertIn("equal in every pair of 2: there is no t", comparison_text(same))

    def test_holm(self) -> None:
        for got, expected in zip(holm([0.01, None, 0.04, 0.03, 0.005]),
                                 [0.03, None, 0.06, 0.06, 0.02]):
            self.assertAlmostEqual(got or 0, expected or 0)

    def test_blocks_without_gap(self) -> None:
        records = records_of(a=[1, 2, 3, 4], b=[1, 2, 3, 4])
        del records["b", 2]
        self.assertEqual(len(first_blocks(plan_of(4), records)), 2)
        records["b", 1] = record("b", 1, None, state="diverged")
        self.assertEqual(first_blocks(plan_of(4), records)[1]["b"].loss, math.inf)

    def test_notes(self) -> None:
        records = records_of(a=[1, 2], b=[1, 2.5])
        records["b", 0] = record("b", 0, 1, tokens="t1", machine="N", steps=8)
        records["a", 0] = record("a", 0, 1, tokens="t2")
        records["a", 2] = record("a", 2, None)
        notes = "\n".join(analyse(plan_of(3), records, {}, 0).notes)
        for text in ("did not all see the same tokens: token streams a t2, b t1", "on 2 machines",
                     "differ in length", "1 of 5 runs failed and have no loss: .* a seed 2"):
            self.assertRegex(notes, text)
        self.assertEqual(analyse(plan_of(2), records_of(a=[1, 2], b=[1, 2.5]), {}, 0).notes, ())


class Outputs(unittest.TestCase):
    def test_readme_and_json(self) -> None:
        plan = plan_of(3, "a: mean<3.28,p<0.01")
        records = records_of(a=[3.27, 3.271, 3.272], b=[3.3, None, 3.302])
        records["b", 1] = record("b", 1, None, why="ended with code 7: a | b")
        found = analyse(plan, records, {"b": 2}, 0.002)
        text = readme(plan, records, found, "all were made", 0.002)
        for part in ("# Title", "| b | 2 of 3 | 0 | 1 | 9 | 3.30100 ± 0.00141 |", "a \\| b",
                     "**mean of a below 3.28: shown, p 0.00", "**This race was looked at",
                     "Interrupted runs: 2", "`race --arm ...`", "look 2 of at most 2"):
            self.assertIn(part, text)
        value = json.loads(summary_json(plan, records, found, "x"), parse_constant=self.fail)
        self.assertEqual(value["verdict"]["state"], "shown")
        self.assertEqual([r["seed"] for r in value["runs"]], [0, 0, 1, 1, 2, 2])

    def test_page(self) -> None:
        plan = plan_of(2, grids=("lr=0.1,1,10", "wd=x,y"), arms=("base=track1",))
        records = {(a.name, s): record(a.name, s, 3 + k + s / 10) for k, a in enumerate(plan.arms)
                   for s in range(2)}
        page = report_html(plan, records, analyse(plan, records, {}, 0), "<done>", True)
        self.assertIn("&lt;done&gt;", page)
        self.assertIn("<h2>Loss against lr at wd=y</h2>", page)
        self.assertIn('href="curves.html"', page)
        self.assertEqual(page.count("<svg"), 2 + 3)
        self.assertNotIn("<script", page)
        one = plan_of(1, arms=("a=track1",))  # no spread, no interval; or no run at all
        alone = {("a", 0): record("a", 0, 3.0)}
        drawn = report_html(one, alone, analyse(one, alone, {}, 0), "", False)
        self.assertIn('class="mean"', drawn)
        self.assertNotIn("<svg", report_html(one, {}, analyse(one, {}, {}, 0), "", False))


if __name__ == "__main__":
    unittest.main()
