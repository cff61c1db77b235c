"""What the runs of a race say: of each arm, of arms against the first, of the rule."""

from __future__ import annotations

import dataclasses
import math

from folder import Plan, Record
from power import power_of_test, runs_needed
from rules import Block, Outcome, Rule, Verdict, judge, parse_until
from students_t import Difference, deviation, mean_of, paired, quantile, welch

ALPHA = 0.05
Records = dict[tuple[str, int], Record]


@dataclasses.dataclass(frozen=True)
class Sample:
    """Losses in nats a token, times in seconds."""

    n: int
    mean: float | None
    sd: float | None  # None of fewer than two
    error: float | None  # of the mean
    half_width: float | None  # of the interval of the mean with 95 % confidence


def sample_of(values: list[float]) -> Sample:
    if len(values) < 2:
        return Sample(len(values), values[0] if values else None, None, None, None)
    sd = deviation(values)
    error = sd / math.sqrt(len(values))
    return Sample(len(values), mean_of(values), sd, error,
                  error * quantile(ALPHA / 2, len(values) - 1))


@dataclasses.dataclass(frozen=True)
class ArmSummary:
    name: str
    point: dict[str, str]
    command: str
    planned: int
    finished: int
    diverged: int
    failed: int
    interrupted: int  # times; those runs were made again
    steps: int | None
    loss: Sample
    train_s: Sample
    wall_s: Sample


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An arm against the first: differences of pairs of a seed, the arm's value minus the first's.
    p are two-sided, of a fixed number of runs with one look."""

    arm: str
    baseline: str
    pairs: int
    left_out: int  # seeds that only one of them, or none, has a finished run of
    mean: float | None = None
    sd: float | None = None
    error: float | None = None
    half_width: float | None = None  # of the interval with 95 % confidence
    p: float | None = None  # paired
    p_holm: float | None = None  # of the same, for all comparisons of the race together
    p_welch: float | None = None  # of the two means, seeds put aside
    seconds: float | None = None  # mean difference of train times
    seconds_half_width: float | None = None
    seconds_p: float | None = None
    runs_to_detect: int | None = None  # of each arm, for --detect with 80 % power


@dataclasses.dataclass(frozen=True)
class Analysis:
    arms: tuple[ArmSummary, ...]
    comparisons: tuple[Comparison, ...]
    verdict: Verdict | None
    notes: tuple[str, ...]


def finished(records: Records, arm: str) -> dict[int, Record]:
    """By seed, in its order."""
    return {seed: r for (name, seed), r in sorted(records.items(), key=lambda i: i[0][1])
            if name == arm and r.state == "finished"}


def first_blocks(plan: Plan, records: Records) -> list[Block]:
    """The blocks from the first on, up to one that has a run to come: whatever ends first, side by
    side or after an interruption, the looks are the same."""
    blocks: list[Block] = []
    for seed in plan.seeds():
        row = [records.get((arm.name, seed)) for arm in plan.arms]
        if any(r is None for r in row):
            break
        blocks.append({r.arm: Outcome(seed, math.inf if r.state == "diverged" else r.loss)
                       for r in row})
    return blocks


def verdict_of(plan: Plan, records: Records) -> Verdict | None:
    """None without --until."""
    if not plan.until:
        return None
    rule: Rule = parse_until(plan.until, [a.name for a in plan.arms])
    blocks = first_blocks(plan, records)
    return judge(rule, blocks, plan.runs, plan.spend, over=len(blocks) == plan.runs)


def _two_sided(d: Difference) -> tuple[float | None, float | None]:
    """p and the half width of the interval with 95 % confidence; none without a spread."""
    if d.error == 0:
        return None, None
    return d.two_sided(), d.error * quantile(ALPHA / 2, d.degrees)


def compare(plan: Plan, records: Records, arm: str, detect: float) -> Comparison:
    base = plan.arms[0].name
    ours, other = finished(records, arm), finished(records, base)
    both = [s for s in ours if s in other]
    attempted = {s for (name, s) in records if name in (arm, base)}
    if len(both) < 2:
        return Comparison(arm, base, len(both), len(attempted) - len(both))
    losses = [[side[s].loss for s in both] for side in (ours, other)]
    d = paired(*losses)
    sd = d.error * math.sqrt(len(both))
    p, half = _two_sided(d)
    sides = [[r.loss for r in side.values()] for side in (ours, other)]
    p_welch = _two_sided(welch(*sides))[0]
    times = paired(*([side[s].train_s for s in both] for side in (ours, other)))
    seconds_p, seconds_half = _two_sided(times)
    needed = None
    if detect and sd > 0:
        needed = runs_needed(lambda n: power_of_test(n, detect, sd, ALPHA, 2))
    return Comparison(arm, base, len(both), len(attempted) - len(both), d.mean, sd, d.error, half,
                      p, None, p_welch, times.mean, seconds_half, seconds_p, needed)


def holm(ps: list[float | None]) -> list[float | None]:
    """S. Holm's correction (1979), by which no difference among many is called one in error more
    often than each alone would be."""
    order = sorted((p, k) for k, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    most = 0.0
    for rank, (p, k) in enumerate(order):
        most = max(most, min(1.0, (len(order) - rank) * p))
        corrected[k] = most
    return corrected


def notes_of(plan: Plan, records: Records) -> list[str]:
    notes = list(plan.extensions)
    kinds: dict[str, set] = {"steps": set(), "tokens": set(), "machine": set()}
    for arm in plan.arms:
        for r in finished(records, arm.name).values():
            kinds["steps"].add((arm.name, r.steps))
            kinds["tokens"].add((arm.name, r.tokens))
            kinds["machine"].add(r.machine)
    if len({steps for _, steps in kinds["steps"]}) > 1:
        notes.append("the arms differ in length: " +
                     ", ".join(f"{a} {s} steps" for a, s in sorted(kinds["steps"])))
    streams = {t for _, t in kinds["tokens"] if t}
    if len(streams) > 1:
        notes.append("the runs did not all see the same tokens: token streams " +
                     ", ".join(f"{a} {t}" for a, t in sorted(kinds["tokens"]) if t))
    if len(kinds["machine"]) > 1:
        notes.append(f"the runs were made on {len(kinds['machine'])} machines: " +
                     "; ".join(sorted(kinds["machine"])))
    for state, what in (("failed", "failed and have no loss: means, deviations and pairs are of "
                         "the others, which is fair only if the failures have nothing to do with "
                         "the loss"),
                        ("diverged", "diverged: means are of the others, and no rule can claim a "
                         "mean of an arm that has one")):
        gone = [f"{r.arm} seed {r.seed}" for r in records.values() if r.state == state]
        if gone:
            notes.append(f"{len(gone)} of {len(records)} runs {what}: {', '.join(gone)}")
    return notes


def analyse(plan: Plan, records: Records, interruptions: dict[str, int],
            detect: float) -> Analysis:
    """`interruptions`: how often a run was, by arm."""
    arms = []
    for arm in plan.arms:
        mine = [r for r in records.values() if r.arm == arm.name]
        good = list(finished(records, arm.name).values())
        arms.append(ArmSummary(
            arm.name, arm.point, arm.command, plan.runs, len(good),
            sum(r.state == "diverged" for r in mine), sum(r.state == "failed" for r in mine),
            interruptions.get(arm.name, 0), good[0].steps if good else None,
            sample_of([r.loss for r in good]), sample_of([r.train_s for r in good]),
            sample_of([r.wall_s for r in good])))
    compared = [compare(plan, records, arm.name, detect) for arm in plan.arms[1:]]
    corrected = holm([c.p for c in compared])
    compared = [dataclasses.replace(c, p_holm=p) for c, p in zip(compared, corrected)]
    return Analysis(tuple(arms), tuple(compared), verdict_of(plan, records),
                    tuple(notes_of(plan, records)))
