"""When a race may stop: rules that are looked at after every block of runs and keep their error
rate all the same.

    rule = parse_until("equal within 0.003", ["base", "half"])
    verdict = judge(rule, blocks, most=12, spend="obf", over=False)
    verdict.text                       # which test, p, how many looks

A block is one run of each arm, with one seed. Two arms are compared by the differences of the
blocks, so that neither unequal spreads nor a seed's luck nor a card's drift count: one-sided
t-tests of one sample all, whose looks sequential_t.py makes exact. "Equal" takes two of them at one
look, each at the level p (D. J. Schuirmann, 1987): equal if both cross.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re

from bad_input import BadInput
from sequential_t import SequentialT
from students_t import deviation, mean_of

FORMS = ("'mean<3.28,p<0.01', 'equal within 0.003' or 'half<base,p<0.01', with the arms before a "
         "colon where they are not clear: 'half: mean<3.28,p<0.01', 'half,base: equal within "
         "0.003'")
_SPENDING_NAMES = {"obf": "O'Brien and Fleming's", "pocock": "Pocock's"}


@dataclasses.dataclass(frozen=True)
class Rule:
    kind: str  # mean, equal, less
    arms: tuple[str, ...]  # one, or two: less takes the first minus the second, equal the reverse
    bound: float  # nats a token; 0 of less
    alpha: float

    @property
    def text(self) -> str:
        return {"mean": f"mean of {self.arms[0]} below {self.bound:g}",
                "equal": f"{' and '.join(self.arms)} equal within {self.bound:g}",
                "less": f"{' below '.join(self.arms)}"}[self.kind]

    @property
    def test(self) -> str:
        return {"mean": "one-sided t-test of one sample",
                "equal": "two one-sided t-tests of the differences of pairs",
                "less": "one-sided t-test of the differences of pairs"}[self.kind]

    def statistic(self, mean: float, error: float) -> float:
        """t of the test; of the less clear one of two."""
        if self.kind == "equal":
            return min(mean + self.bound, self.bound - mean) / error
        return (self.bound - mean) / error


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one run, as rules see it. `loss`: nats a token; inf of a run that diverged; None of one
    that failed for another reason."""

    seed: int
    loss: float | None


Block = dict[str, Outcome]  # by arm; whole: each of its runs has come to an end


@dataclasses.dataclass(frozen=True)
class Verdict:
    rule: Rule
    state: str  # shown, "not shown", open, impossible
    blocks: int  # that were looked at, those without a value included
    looks: int
    values: int  # runs, or pairs
    left_out: int  # blocks that have no value, as a run of theirs failed
    mean: float
    p: float  # NaN unless the race is at its end: while it is open, t tells how far it is
    why: str

    @property
    def headline(self) -> str:
        said = {"open": "not yet shown",
                "impossible": "cannot be shown"}.get(self.state, self.state)
        return f"{self.rule.text}: {said}" + (f", p {p_text(self.p)}" if self.p == self.p else "")

    @property
    def text(self) -> str:
        return f"{self.headline} ({self.why})"

    @property
    def ends(self) -> bool:
        return self.state != "open"


def _level(text: str | None, comma: str | None, until: str) -> float | None:
    """None if none is given."""
    if comma is None:
        return None
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0 < level < 0.5:
        raise BadInput(f"--until={until}: \"{comma.strip(' ,')}\" must be p<LEVEL with a level "
                       "between 0 and 0.5, such as p<0.01")
    return level


def _positive(text: str, until: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadInput(f"--until={until}: \"{text}\" must be a positive number of nats a token")
    return value


def _named(names: str, arms: list[str], count: int, until: str) -> tuple[str, ...]:
    # Names of a grid's arms have commas themselves.
    pairs = [[a, b] for a in arms for b in arms
             if re.fullmatch(rf"{re.escape(a)}(, *| vs ){re.escape(b)}", names)]
    listed = (list(arms) if not names else [names] if names in arms else pairs[0] if pairs else
              [n.strip() for n in re.split(r",| vs ", names)])
    if unknown := [n for n in listed if n not in arms]:
        raise BadInput(f"--until={until}: no arm {unknown[0]}; there is {', '.join(arms)}")
    if len(listed) != count or len(set(listed)) != count:
        what = "of one arm" if count == 1 else "of two arms"
        raise BadInput(f"--until={until}: the rule is {what}, and there is {', '.join(listed)}; "
                       f"say of which: {FORMS}")
    return tuple(listed)


def parse_until(until: str, arms: list[str]) -> Rule:
    """BadInput for what is no rule or whose arms are not clear."""
    names, colon, body = until.rpartition(":")
    body = body if colon else until
    rule, comma, level = re.match(r"(.*?)(,\s*p\s*<(.*))?$", body.strip(), re.DOTALL).groups()
    rule, level = rule.strip(), _level(level, comma, until)
    if match := re.fullmatch(r"mean *< *(\S+)", rule):
        return Rule("mean", _named(names.strip(), arms, 1, until), _positive(match[1], until),
                    level or 0.01)
    if match := re.fullmatch(r"equal within (\S+)", rule):
        return Rule("equal", _named(names.strip(), arms, 2, until), _positive(match[1], until),
                    level or 0.05)
    if (match := re.fullmatch(r"(\S+) *< *(\S+)", rule)) and not names:
        pair = _named(f"{match[1]} vs {match[2]}", arms, 2, until)
        return Rule("less", pair, 0.0, level or 0.05)
    raise BadInput(f"--until={until}: no such rule; give {FORMS}")


@functools.lru_cache(maxsize=64)
def looks_of(alpha: float, most: int, spend: str) -> SequentialT:
    return SequentialT(alpha, most, spend)


def value_of(rule: Rule, block: Block) -> float | None:
    """What the block adds to the sample: None if a run of it failed, inf if one diverged."""
    losses = [block[arm].loss for arm in rule.arms]
    if any(loss is not None and math.isinf(loss) for loss in losses):
        return math.inf
    if any(loss is None for loss in losses):
        return None
    return {"mean": losses[0], "less": losses[0] - losses[-1],
            "equal": losses[-1] - losses[0]}[rule.kind]


def judge(rule: Rule, blocks: list[Block], most: int, spend: str, over: bool) -> Verdict:
    """Looks after each of `blocks`, the first of the race without a gap, as they would have been
    looked at one by one. `over`: no more will come, so that the last look spends all that is left.
    `most`: of blocks, planned."""
    looks = looks_of(rule.alpha, most, spend)
    sample: list[float] = []
    left_out = count = 0
    mean = squares = 0.0  # the latter of distances to the mean; B. P. Welford's recurrence (1962)
    for number, block in enumerate(blocks, 1):
        value = value_of(rule, block)
        last = over and number == len(blocks)
        if value is not None and math.isinf(value):
            who = next(a for a in rule.arms if block[a].loss == math.inf)
            return _verdict(rule, "impossible", number, count, sample, left_out, math.nan,
                            f"the run of {who} with seed {block[who].seed} diverged, so that its "
                            "mean loss is no number and the rule cannot be met")
        left_out += value is None
        if value is not None:
            sample.append(value)
            step = value - mean
            mean += step / len(sample)
            squares += step * (value - mean)
        if len(sample) < 2 or (value is None and not last):
            continue
        count += value is not None
        critical = looks.critical(len(sample), last)
        if math.isinf(critical):
            continue
        error = math.sqrt(squares / (len(sample) - 1) / len(sample))
        if error > 0 and rule.statistic(mean, error) > critical:
            return _look(rule, "shown", number, count, sample, left_out, looks, critical, spend)
    if len(sample) < 2 or deviation(sample) == 0:
        why = ("fewer than two " + ("runs" if rule.kind == "mean" else "pairs") + " are finished"
               if len(sample) < 2 else "all values are equal: there is no t, and no p")
        return _verdict(rule, "not shown" if over else "open", len(blocks), count, sample, left_out,
                        math.nan, why)
    return _look(rule, "not shown" if over else "open", len(blocks), count, sample, left_out, looks,
                 looks.critical(len(sample), over), spend)


def _verdict(rule: Rule, state: str, blocks: int, looks: int, sample: list[float], left_out: int,
             p: float, why: str) -> Verdict:
    return Verdict(rule, state, blocks, looks, len(sample), left_out,
                   mean_of(sample) if sample else math.nan, p, why)


def p_text(p: float) -> str:
    """Two digits, as many as it takes to tell small ones from 0."""
    return f"{p:.2g}" if p >= 1e-12 else "< 1e-12"


def _interval(rule: Rule, mean: float, error: float, critical: float) -> str:
    """The repeated confidence interval: it holds at all looks at once."""
    if math.isinf(critical):
        return ""
    sides, sign = (2 if rule.kind == "equal" else 1), ("" if rule.kind == "mean" else "+")
    begin = f"from {mean - critical * error:+.5f} " if rule.kind == "equal" else ""
    return (f"; repeated interval with {100 * (1 - sides * rule.alpha):g} % confidence: {begin}to "
            f"{mean + critical * error:{sign}.5f}")


def _look(rule: Rule, state: str, blocks: int, count: int, sample: list[float], left_out: int,
          looks: SequentialT, critical: float, spend: str) -> Verdict:
    n, mean = len(sample), mean_of(sample)
    error = deviation(sample) / math.sqrt(n)
    t = rule.statistic(mean, error)
    what, of, sign = (("runs", "mean", "") if rule.kind == "mean" else
                      ("pairs", "mean difference", "+"))
    gone = f" ({left_out} left out, as a run of theirs failed)" if left_out else ""
    why = (f"{rule.test}, level {rule.alpha:g}; look {count} of at most {looks.most - 1}, alpha "
           f"spent by {_SPENDING_NAMES[spend]} type, p ordered by looks; {n} {what}{gone}, {of} "
           f"{mean:{sign}.5f}, error {error:.5f}, t {t:.3f}, needed {critical:.3f}"
           f"{_interval(rule, mean, error, critical)}")
    p = math.nan if state == "open" else looks.p_value(n, t)
    return _verdict(rule, state, blocks, count, sample, left_out, p, why)
