"""summary.json and README.md of a race's folder."""

from __future__ import annotations

import dataclasses
import json
import math

from analysis import Analysis, Comparison, Records, Sample
from folder import Plan
from rules import p_text


def _plain(value: object) -> object:
    """JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def summary_json(plan: Plan, records: Records, analysis: Analysis, state: str) -> str:
    verdict = analysis.verdict
    value = {
        "state": state,
        "plan": dataclasses.asdict(plan),
        "arms": [dataclasses.asdict(a) for a in analysis.arms],
        "comparisons": [dataclasses.asdict(c) for c in analysis.comparisons],
        "verdict": verdict and {**dataclasses.asdict(verdict), "text": verdict.text},
        "notes": list(analysis.notes),
        "runs": [dataclasses.asdict(r) for r in by_seed(plan, records)],
    }
    return json.dumps(_plain(value), indent=1) + "\n"


def by_seed(plan: Plan, records: Records) -> list:
    """Records in the order of the plan."""
    return [records[arm.name, seed] for seed in plan.seeds() for arm in plan.order(seed)
            if (arm.name, seed) in records]


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(header: list[str], rows: list[list[object]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(_cell(c) for c in line) + " |" for line in lines]


def spread_text(s: Sample, digits: int) -> str:
    if s.mean is None:
        return "none"
    if s.sd is None:
        return f"{s.mean:.{digits}f}"
    return f"{s.mean:.{digits}f} ± {s.sd:.{digits}f}"


def optional(value: float | None, form: str = "{:.5f}") -> str:
    return "-" if value is None else form.format(value)


def p_cell(p: float | None) -> str:
    return "-" if p is None else p_text(p)


def comparison_text(c: Comparison) -> str:
    """A sentence for a reader in a hurry."""
    if c.mean is None:
        return f"{c.arm} and {c.baseline}: pairs of finished runs: {c.pairs}; it takes two"
    if c.p is None:
        same = "equal in every pair" if c.mean == 0 else f"{c.mean:+.5f} apart in every pair"
        return f"{c.arm} and {c.baseline}: losses {same} of {c.pairs}: there is no t, and no p"
    faster = "" if c.seconds is None else (
        f"; train time {c.seconds:+.2f} s" +
        (f" ± {c.seconds_half_width:.2f}" if c.seconds_half_width is not None else ""))
    holm = "" if c.p_holm in (None, c.p) else f" ({p_text(c.p_holm)} by Holm)"
    return (f"{c.arm} - {c.baseline}: loss {c.mean:+.5f} ± {c.half_width:.5f} (95 % of {c.pairs} "
            f"pairs), p {p_text(c.p)}{holm}{faster}")


def _runs_table(plan: Plan, records: Records) -> list[str]:
    cards = any(r.card for r in records.values())
    rows = []
    for r in by_seed(plan, records):
        good = r.state == "finished"
        rows.append([r.arm, r.seed, r.state, f"{r.loss:.{min(r.digits, 6)}f}" if good else "-",
                     f"{r.train_s:.2f}" if good else "-", f"{r.wall_s:.1f}", r.began, r.gpu or "-",
                     *([r.card] if cards else []), r.why])
    return table(["arm", "seed", "state", "loss", "train s", "wall s", "began (UTC)", "GPU",
                  *(["clock, temperature"] if cards else []), "why"], rows)


def _comparison_table(analysis: Analysis, detect: float) -> list[str]:
    rows = []
    for c in analysis.comparisons:
        rows.append([f"{c.arm} - {c.baseline}", c.pairs, optional(c.mean, "{:+.5f}"),
                     optional(c.sd), optional(c.half_width), p_cell(c.p), p_cell(c.p_holm),
                     p_cell(c.p_welch), optional(c.seconds, "{:+.2f}"),
                     optional(c.seconds_half_width, "{:.2f}"),
                     *([c.runs_to_detect or "-"] if detect else [])])
    return table(["arms", "pairs", "difference", "sd of pairs", "± (95 %)", "p", "p, Holm",
                  "p, Welch", "train s", "± (95 %)",
                  *([f"runs for {detect:g}"] if detect else [])], rows)


def _versions(records: Records) -> list[str]:
    lines = []
    for r in records.values():
        for line in r.head[:1] + tuple(h for h in r.head[1:] if "Running Py" in h or "torch" in h):
            if line not in lines:
                lines.append(line)
    return lines[:12]


def readme(plan: Plan, records: Records, analysis: Analysis, state: str,
           detect: float) -> str:
    out = [f"# {plan.title}", "", f"{len(records)} of {len(plan.arms) * plan.runs} planned runs; "
           f"{state}.", ""]
    out += table(["arm", "finished", "diverged", "failed", "steps", "loss (mean ± sd)",
                  "± of the mean (95 %)", "train s (mean ± sd)"],
                 [[a.name, f"{a.finished} of {a.planned}", a.diverged, a.failed, a.steps or "-",
                   spread_text(a.loss, 5), optional(a.loss.half_width), spread_text(a.train_s, 2)]
                  for a in analysis.arms])
    if analysis.verdict:
        out += ["", f"**{analysis.verdict.headline}.**", "",
                f"{analysis.verdict.why[0].upper()}{analysis.verdict.why[1:]}."]
    if analysis.comparisons:
        out += ["", *_comparison_table(analysis, detect), "",
                "Differences are of pairs of a seed; p are two-sided, of t-tests of these with one "
                "look at a fixed number of runs; Holm's are corrected for the number of "
                "comparisons; Welch's put the seeds aside." +
                (" **This race was looked at after every block: the rule's p above allows for "
                 "that, these do not.**" if plan.until else "") +
                (f" Runs for {detect:g}: of each arm, to see such a difference in 80 % of races "
                 "with p < 0.05, if the sd of pairs is the one seen." if detect else "")]
    out += ["", *(f"- {note}" for note in analysis.notes)] if analysis.notes else []
    out += ["", "## Runs", "", "Losses in nats a token, after the last step. Logs are in `logs/`, "
            "those of failed and diverged runs in `failed/`.", "", *_runs_table(plan, records)]
    interrupted = sum(a.interrupted for a in analysis.arms)
    out += ["", f"Interrupted runs: {interrupted}" +
            (", whose first lines are in `interrupted/`; each was made again from its beginning, "
             "with its seed." if interrupted else ".")]
    out += ["", "## How", "", f"- began {plan.began} UTC; seeds {plan.seeds().start} to "
            f"{plan.seeds().stop - 1}, one block of a run of each arm a seed; the order of arms "
            f"turns round from block to block, {plan.lanes} at a time",
            *(f"- `{a.name}`: `{a.command}` (program sha256 {f[:16]})" for a, f in
              zip(plan.arms, plan.fingerprints)),
            f"- the race: `{plan.command}`", f"- commit of the checkout: {plan.commit}",
            *(f"- program: {line}" for line in _versions(records)),
            *(f"- machine: {m}" for m in dict.fromkeys(r.machine for r in records.values()))]
    if records:
        last = by_seed(plan, records)[-1]
        out += ["", "The words of one run, as it was started:", "", f"    {' '.join(last.words)}"]
    return "\n".join(out) + "\n"
