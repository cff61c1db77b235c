"""The line that tells how far a race is, and when it will end."""

from __future__ import annotations

import sys
import time

from folder import Folder, Plan, Record
from printed_log import progress_of
from runner import Lane
from students_t import deviation, mean_of

REFRESH_S = 0.5


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    if seconds < 100:
        return f"{seconds} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def spread(losses: list[float]) -> str:
    if not losses:
        return "none"
    if len(losses) == 1:
        return f"{losses[0]:.4f} (1)"
    return f"{mean_of(losses):.4f} +- {deviation(losses):.4f} ({len(losses)})"


class Progress:
    """`live`: rewrites its line, as a terminal can; else it says a line for each run."""

    def __init__(self, plan: Plan, folder: Folder, records: dict[tuple[str, int], Record],
                 run_s: float | None) -> None:
        self.plan, self.folder, self.records, self.run_s = plan, folder, records, run_s
        self.live = sys.stderr.isatty()
        self.refreshed = 0.0
        self.width = 0

    def seconds_left(self, lanes: list[Lane]) -> float | None:
        """Until all runs are made; None before a run has told how long one takes."""
        known = {a.name: [r.wall_s for r in self.records.values() if r.arm == a.name and
                          r.state == "finished"] for a in self.plan.arms}
        every = [s for times in known.values() for s in times]
        if not every and self.run_s is None:
            return None
        fallback = mean_of(every) if every else self.run_s
        total = 0.0
        for arm in self.plan.arms:
            each = mean_of(known[arm.name]) if known[arm.name] else fallback
            missing = sum((arm.name, s) not in self.records for s in self.plan.seeds())
            going = [lane.child.seconds() for lane in lanes if lane.child and lane.arm == arm]
            total += missing * each - sum(min(each, s) for s in going)
        return total / max(1, len(lanes))

    def head(self, lanes: list[Lane]) -> str:
        total = len(self.plan.arms) * self.plan.runs
        left = self.seconds_left(lanes)
        most = "at most " if self.plan.until else ""
        time_left = "" if left is None or len(self.records) == total else \
            f", {most}{duration(left)} left"
        return f"{len(self.records)} of {total} runs{time_left}"

    def means(self) -> str:
        def losses(name: str) -> list[float]:
            return [r.loss for r in self.records.values() if r.arm == name and r.loss is not None]
        shown = [f"{a.name} {spread(losses(a.name))}" for a in self.plan.arms if losses(a.name)]
        return "; ".join(shown if len(shown) <= 4 else [*shown[:3], "..."])

    def tick(self, lanes: list[Lane]) -> None:
        if not self.live or time.monotonic() - self.refreshed < REFRESH_S:
            return
        self.refreshed = time.monotonic()
        now = []
        for lane in lanes:
            if lane.child:
                step, of, loss = progress_of(self.folder.running(lane.arm, lane.seed, ".txt"))
                if step and not self.records:  # the first run tells before it has ended
                    self.run_s = lane.child.seconds() * of / step
                now.append(f"{lane.arm.name} seed {lane.seed}" +
                           (f" step {step}/{of}" if of else "") + (f" {loss:.4f}" if loss else ""))
        line = f"race: {self.head(lanes)} | {', '.join(now)} | {self.means()}"[:150]
        sys.stderr.write("\r" + line.ljust(self.width))
        sys.stderr.flush()
        self.width = len(line)

    def say(self, text: str) -> None:
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            self.width = 0
        print(text, file=sys.stderr, flush=True)

    def tell(self, record: Record, lanes: list[Lane]) -> None:
        what = (f"{record.loss:.4f} in {record.train_s:.1f} s" if record.state == "finished" else
                f"{record.state.upper()}: {record.why}")
        gpu = f" on GPU {record.gpu}" if record.gpu else ""
        self.say(f"race: {record.arm} seed {record.seed}{gpu}: {what} ({self.head(lanes)})")
