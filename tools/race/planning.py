"""What is said before the first run: what the race can show, and how long it takes."""

from __future__ import annotations

import dataclasses
import glob
import math
import os

from bad_input import BadInput
from folder import Folder, Plan, Record
from power import (GOAL, largest_sd, power_of_equivalence, power_of_test, runs_needed, simulate)
from printed_log import Diverged, Unfinished, read_result
from progress import duration
from rules import Rule
from students_t import deviation, mean_of

ALPHA = 0.05
_ENOUGH = 3  # finished runs of an arm, whose sd tells something


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What is known before a race. sd: of the losses of one arm's runs, in nats a token."""

    sd: float | None
    source: str
    run_s: float | None = None  # that a run takes
    pairs_sd: float | None = None  # of differences of pairs, where those were seen

    @property
    def difference_sd(self) -> float:
        """Of pairs whose seeds have nothing in common unless it is known."""
        return self.pairs_sd or math.sqrt(2) * self.sd


def pooled(groups: list[list[float]]) -> float | None:
    """The sd within groups, from those of two or more."""
    told = [g for g in groups if len(g) > 1]
    degrees = sum(len(g) - 1 for g in told)
    if not degrees:
        return None
    return math.sqrt(sum(deviation(g) ** 2 * (len(g) - 1) for g in told) / degrees)


def from_records(records: list[Record], source: str) -> Earlier:
    groups: dict[str, list[Record]] = {}
    for r in records:
        if r.state == "finished":
            groups.setdefault(r.arm, []).append(r)
    sd = pooled([[r.loss for r in g] for g in groups.values()])
    times = [r.wall_s for g in groups.values() for r in g]
    base, *others = [{r.seed: r.loss for r in g} for g in groups.values()] or [{}]
    pairs = [[o[s] - base[s] for s in o if s in base] for o in others]
    return Earlier(sd, source, mean_of(times) if times else None,
                   pooled(pairs) if min(map(len, pairs), default=0) >= _ENOUGH else None)


def read_earlier(pattern: str) -> Earlier:
    """From the folder of a race, or from the logs of one program's finished runs: a glob, or
    several with commas between. BadInput for what is neither."""
    if os.path.exists(os.path.join(pattern, "race.json")):
        earlier = from_records(list(Folder(pattern).records().values()), pattern)
    else:
        paths = sorted({p for part in pattern.split(",") for p in glob.glob(part)})
        if not paths:
            raise BadInput(f"--earlier={pattern}: no such file; give logs of finished runs of one "
                           "program, or the folder of a race")
        try:
            results = [read_result(p) for p in paths]
        except (Unfinished, Diverged) as error:
            raise BadInput(f"--earlier={pattern}: {error}; only finished runs tell") from error
        if len({r.steps for r in results}) > 1:
            raise BadInput(f"--earlier={pattern}: runs of different lengths; give one program's")
        earlier = Earlier(pooled([[r.loss for r in results]]), f"{len(paths)} runs of {pattern}",
                          mean_of([r.train_s for r in results]))
    if not earlier.sd:
        raise BadInput(f"--earlier={pattern}: it takes two finished runs with different losses")
    return earlier


def seen_enough(plan: Plan, records: dict) -> bool:
    return all(sum(r.arm == a.name and r.state == "finished" for r in records.values()) >= _ENOUGH
               for a in plan.arms)


def _detect_line(plan: Plan, earlier: Earlier, detect: float) -> str:
    """The power of the comparison of two arms with one look at the end."""
    def power(n: int, sd_of_pairs: float) -> float:
        return power_of_test(n, detect, sd_of_pairs, ALPHA, 2)

    if plan.runs < 2:
        return "one run of each arm has no spread: no difference can be tested"
    what = f"a difference of {detect:g} (pairs, two-sided p < {ALPHA:g}, power {GOAL:.0%})"
    if earlier.sd is None:
        sd = largest_sd(lambda s: power(plan.runs, math.sqrt(2) * s), detect)
        return (f"sd not known (--sd, or --earlier=LOGS): {plan.runs} runs of each arm show {what} "
                f"if the sd of an arm is at most {sd:.2g}")
    needed = runs_needed(lambda n: power(n, earlier.difference_sd))
    takes = f"{needed} runs of each arm" if needed else "more than 2000 runs of each arm"
    if needed and earlier.run_s:
        takes += f", {duration(needed * len(plan.arms) * earlier.run_s / plan.lanes)}"
    of_pairs = f", of pairs {earlier.pairs_sd:.2g}" if earlier.pairs_sd else ""
    return (f"sd {earlier.sd:.2g}{of_pairs} ({earlier.source}): {what} takes {takes}; the "
            f"{plan.runs} planned show it in {power(plan.runs, earlier.difference_sd):.0%} of "
            "races")


def _rule_line(plan: Plan, rule: Rule, earlier: Earlier, detect: float) -> str:
    if earlier.sd is None:
        return f"rule: {rule.text}, p < {rule.alpha:g}, looked at after every block"
    sd = earlier.sd if rule.kind == "mean" else earlier.difference_sd
    if rule.kind == "equal":
        truth, mean = "the arms are equal", 0.0
        needed = runs_needed(lambda n: power_of_equivalence(n, rule.bound, sd, rule.alpha))
    else:
        truth = (f"the mean is {rule.bound - detect:g}" if rule.kind == "mean" else
                 f"{rule.arms[0]} is {detect:g} below")
        mean = rule.bound - detect
        needed = runs_needed(lambda n: power_of_test(n, detect, sd, rule.alpha, 1))
    expected = simulate(rule, mean, sd, plan.runs, plan.spend)
    return (f"rule: {rule.text}, p < {rule.alpha:g}: if {truth}, shown in {expected.power:.0%} of "
            f"races, after {expected.runs:.1f} runs of each arm on average; {GOAL:.0%} take "
            f"{f'about {needed}' if needed else 'more than 2000'}")


def plan_text(plan: Plan, rule: Rule | None, earlier: Earlier, detect: float,
              made: int = 0) -> list[str]:
    total = len(plan.arms) * plan.runs
    names = " ".join(a.name for a in plan.arms)
    back = " ".join(a.name for a in reversed(plan.arms))
    side = "one after another" if plan.lanes == 1 else f"{plan.lanes} side by side"
    lines = [f"{len(plan.arms)} arm{'s' * (len(plan.arms) > 1)} x {plan.runs} runs, seeds "
             f"{plan.seeds().start} to {plan.seeds().stop - 1}, {side}" +
             (f": {names}, {back}, ..." if 1 < len(plan.arms) < 5 else "")]
    if len(plan.arms) > 1 and detect:
        lines.append(_detect_line(plan, earlier, detect))
    if rule:
        lines.append(_rule_line(plan, rule, earlier, detect))
    if made == total:
        return lines
    if earlier.run_s is None:
        lines.append("time: not known before the first run has ended")
    else:
        rounds = math.ceil((total - made) / plan.lanes)
        most = "at most " if rule else ""
        lines.append(f"time: {total - made} runs of {duration(earlier.run_s)}: {most}"
                     f"{duration(rounds * earlier.run_s)}")
    return lines
