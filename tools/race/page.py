"""report.html of a race: one file, without scripts, that loads nothing."""

from __future__ import annotations

import html
import math

from analysis import Analysis, ArmSummary, Records, finished
from folder import Plan
from summary import by_seed, comparison_text, optional, spread_text

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 300, 76, 48, 16, 20
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#667;--line:#d5d9de;--mark:#0b62c4;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--dim:#9aa4af;--line:#3a4048;--mark:#6fb2ff;
--paper:#15181c}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;
color:var(--ink);background:var(--paper)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
th,td{text-align:left;padding:.2rem .7rem .2rem 0;border-bottom:1px solid var(--line);
white-space:nowrap}
.verdict{font-size:1.15rem;font-weight:600}.bad{font-weight:600}
svg{max-width:100%;height:auto}svg text{font-size:12px;fill:var(--ink)}
.axis{stroke:var(--line)}.run{fill:var(--mark);fill-opacity:.35}.bar{stroke:var(--mark);
stroke-width:2}.mean{fill:var(--mark)}.path{stroke:var(--mark);fill:none;stroke-opacity:.5}
"""


def _e(text: object) -> str:
    return html.escape(str(text))


def _nice_step(span: float, count: int) -> float:
    raw = span / count
    power = 10 ** math.floor(math.log10(raw))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= raw * 0.999)


class _Scale:
    """From losses to rows of a drawing."""

    def __init__(self, values: list[float]) -> None:
        low, high = min(values), max(values)
        margin = (high - low or abs(high) or 1) * 0.08
        self.low, self.high = low - margin, high + margin

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)

    def ticks(self) -> list[tuple[float, str]]:
        step = _nice_step(self.high - self.low, 5)
        digits = max(0, -math.floor(math.log10(step)))
        first = math.ceil(self.low / step)
        return [(k * step, f"{k * step:.{digits}f}")
                for k in range(first, math.floor(self.high / step) + 1)]


def _drawing(title: str, label: str, points: list[tuple[float, str, ArmSummary]], records: Records,
             joined: bool) -> str:
    """Runs as dots, means with intervals of 95 % confidence. `points`: x in pixels, its name."""
    values = [r.loss for _, _, a in points for r in finished(records, a.name).values()]
    values += [a.loss.mean + s * a.loss.half_width for _, _, a in points if a.loss.half_width
               for s in (-1, 1)]
    if not values:
        return ""
    scale = _Scale(values)
    out = [f'<h2>{_e(title)}</h2><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
           f'aria-label="{_e(title)}">']
    for value, text in scale.ticks():
        y = scale.y(value)
        out.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" '
                   f'y2="{y:.1f}"/><text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
                   f'{text}</text>')
    if joined:
        path = " ".join(f"{x:.1f},{scale.y(a.loss.mean):.1f}" for x, _, a in points
                        if a.loss.mean is not None)
        out.append(f'<polyline class="path" points="{path}"/>')
    for x, name, arm in points:
        out.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">'
                   f'{_e(name)}</text>')
        for k, r in enumerate(finished(records, arm.name).values()):
            out.append(f'<circle class="run" cx="{x + 9 + 3 * (k % 3):.1f}" '
                       f'cy="{scale.y(r.loss):.1f}" r="3"><title>{_e(arm.name)} seed {r.seed}: '
                       f'{r.loss}</title></circle>')
        if arm.loss.half_width:
            top, end = (scale.y(arm.loss.mean + s * arm.loss.half_width) for s in (1, -1))
            out.append(f'<path class="bar" d="M{x:.1f} {top:.1f}V{end:.1f}M{x - 5:.1f} {top:.1f}h10'
                       f'M{x - 5:.1f} {end:.1f}h10"/>')
        if arm.loss.mean is not None:
            out.append(f'<circle class="mean" cx="{x:.1f}" cy="{scale.y(arm.loss.mean):.1f}" '
                       f'r="4"/>')
    out.append(f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
               f'{_e(label)}</text></svg>')
    return "".join(out)


def _places(values: list[str]) -> list[float]:
    """x of each value: to scale where they are numbers, on a logarithmic one if they are positive
    and reach over a factor of 4."""
    try:
        numbers = [float(v) for v in values]
    except ValueError:
        numbers = [float(k) for k in range(len(values))]
    if not all(map(math.isfinite, numbers)):
        numbers = [float(k) for k in range(len(values))]
    if min(numbers) > 0 and max(numbers) / min(numbers) > 4:
        numbers = [math.log(v) for v in numbers]
    low, span = min(numbers), (max(numbers) - min(numbers)) or 1
    left, right = _LEFT + 40, _WIDTH - _RIGHT - 40
    return [left + (v - low) / span * (right - left) if len(numbers) > 1 else (left + right) / 2
            for v in numbers]


def _sweeps(analysis: Analysis, records: Records) -> list[str]:
    """Loss against the value of each flag of the grid, a drawing for each setting of the others
    and for each arm that the grid multiplied."""
    drawings = []
    flags = list(analysis.arms[0].point)
    for flag in flags:
        families: dict[tuple, list[ArmSummary]] = {}
        for a in analysis.arms:
            others = tuple((f, v) for f, v in a.point.items() if f != flag)
            arm = a.name.removesuffix(",".join(f"{f}={v}" for f, v in a.point.items())).rstrip(",")
            families.setdefault((arm, others), []).append(a)
        for (arm, others), members in families.items():
            values = [a.point[flag] for a in members]
            at = ", ".join([*([arm] if arm else []), *(f"{f}={v}" for f, v in others)])
            drawings.append(_drawing(f"Loss against {flag}" + (f" at {at}" if at else ""), flag,
                                     list(zip(_places(values), values, members)), records, True))
    return drawings


def _table(header: list[str], rows: list[list[object]]) -> str:
    head = "".join(f"<th>{_e(c)}</th>" for c in header)
    body = "".join("<tr>" + "".join(f"<td>{_e(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def report_html(plan: Plan, records: Records, analysis: Analysis, state: str, curves: bool) -> str:
    """`curves`: curves.html lies beside it."""
    out = [f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv='
           f'"Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">'
           f'<title>{_e(plan.title)}</title><style>{_STYLE}</style><h1>{_e(plan.title)}</h1>',
           f"<p>{len(records)} of {len(plan.arms) * plan.runs} planned runs; {_e(state)}.</p>"]
    if analysis.verdict:
        out.append(f'<p class="verdict">{_e(analysis.verdict.headline)}</p>'
                   f"<p>{_e(analysis.verdict.why)}.</p>")
    if any(a.point for a in analysis.arms):
        out += _sweeps(analysis, records)
    else:
        names = [a.name for a in analysis.arms]
        at = _places([f"arm {k}" for k in range(len(names))])
        out.append(_drawing("Loss of each arm", "arm", list(zip(at, names, analysis.arms)), records,
                            False))
    out.append("<p>Dots are runs, bars the means with their intervals of 95 % confidence; losses "
               "in nats a token.</p>")
    out.append(_table(["arm", "finished", "diverged", "failed", "loss (mean ± sd)",
                       "± of the mean (95 %)", "train s (mean ± sd)"],
                      [[a.name, f"{a.finished} of {a.planned}", a.diverged, a.failed,
                        spread_text(a.loss, 5), optional(a.loss.half_width),
                        spread_text(a.train_s, 2)] for a in analysis.arms]))
    out += [f"<p>{_e(comparison_text(c))}</p>" for c in analysis.comparisons]
    if plan.until and analysis.comparisons:
        out.append("<p>The comparisons' p are of one look; the rule's p allows for all looks.</p>")
    out += [f'<p class="bad">{_e(note)}</p>' for note in analysis.notes]
    if curves:
        out.append('<p><a href="curves.html">Curves, schedules and speeds of all runs</a></p>')
    out.append("<h2>Runs</h2>" + _table(
        ["arm", "seed", "state", "loss", "train s", "began (UTC)", "why"],
        [[r.arm, r.seed, r.state, optional(r.loss), optional(r.train_s, "{:.2f}"), r.began, r.why]
         for r in by_seed(plan, records)]))
    return "".join(out) + "</html>\n"
