"""Makes the runs of a race: lanes side by side, a run at a time in each, in blocks of one run of
each arm with one seed."""

from __future__ import annotations

import dataclasses
import re
import signal
import time
from collections.abc import Callable

import machine
from arms import Arm, invocation
from child import Child, end_all
from folder import Folder, Plan, Record
from printed_log import Diverged, Result, Unfinished, read_result

MOST_IN_A_ROW = 3  # failures of an arm, after which the race stops
_REPEATED = "has the losses of seed "
POLL_S = 0.1
_NOT_FINITE = re.compile(r"\b(nan|inf|not finite)\b", re.IGNORECASE)


@dataclasses.dataclass
class Lane:
    gpu: str  # for CUDA_VISIBLE_DEVICES; empty: not set
    todo: list[tuple[Arm, int]] = dataclasses.field(default_factory=list)  # of its block
    arm: Arm | None = None
    seed: int = 0
    child: Child | None = None
    began: str = ""
    words: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Ending:
    """Why no more runs are made."""

    state: str  # done, shown, stopped, interrupted
    why: str = ""


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP ask the race to end; a second one ends the runs at once. Under
    nohup SIGHUP is left ignored."""

    def __init__(self) -> None:
        self.asked = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked += 1
        if self.asked > 1:
            raise KeyboardInterrupt


def last_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        return ""
    return lines[-1][:500] if lines else ""


def repeats(result: Result, others: list[Record]) -> Record | None:
    """Another run of the arm with the same losses: the same sample again, not a second one. Of
    losses with few digits it takes four validations to say so."""
    after = [v for v in result.validations if v[0] > 0]
    if result.digits < 8 and len(after) < 4:
        return None
    for other in others:
        if other.loss == result.loss and [v for v in other.validations if v[0] > 0] == after:
            return other
    return None


class Runner:
    """`judge` is asked after each run whether the race is decided; `tell` hears of each record,
    `tick` is called while nothing happens."""

    def __init__(self, folder: Folder, plan: Plan, programs: dict[str, str], gpus: list[str],
                 timeout_s: float, judge: Callable[[], str], tell: Callable[[Record], None],
                 tick: Callable[[list[Lane]], None]) -> None:
        self.folder, self.plan, self.programs, self.timeout_s = folder, plan, programs, timeout_s
        self.judge, self.tell, self.tick = judge, tell, tick
        self.records = folder.records()
        self.machine = machine.describe()
        self.lanes = [Lane(gpu) for gpu in gpus or [""]]
        self.in_a_row = {arm.name: 0 for arm in plan.arms}
        self.blocks = [b for s in plan.seeds() if (b := [(a, s) for a in plan.order(s) if
                                                         (a.name, s) not in self.records])]
        # Blocks that were begun before come first.
        self.blocks.sort(key=lambda b: len(b) == len(plan.arms))

    def run(self, interrupts: Interrupts) -> Ending:
        """OSError, BadInput: the disk. Whatever is raised, no process is left."""
        ending: Ending | None = None
        if decided := self.judge():
            return Ending("shown", decided)
        try:
            while ending is None or any(lane.child for lane in self.lanes):
                for lane in self.lanes:
                    if lane.child is None and ending is None:
                        self._start_next(lane)
                if not any(lane.child for lane in self.lanes):
                    break
                time.sleep(POLL_S)
                for lane in self.lanes:
                    ending = self._look_after(lane) or ending
                if interrupts.asked:
                    return Ending("interrupted")
                self.tick(self.lanes)
            return ending or Ending("done")
        finally:
            left = [lane.child for lane in self.lanes if lane.child]
            try:
                end_all(left)
            except KeyboardInterrupt:
                for child in left:
                    child.signal(signal.SIGKILL)
                    child.process.wait()
            for lane in self.lanes:
                if lane.child:
                    self.folder.set_aside(lane.arm, lane.seed)
                    lane.child = None

    def _start_next(self, lane: Lane) -> None:
        if not lane.todo:
            if not self.blocks:
                return
            lane.todo = self.blocks.pop(0)
        self.folder.check_space()
        lane.arm, lane.seed = lane.todo.pop(0)
        self.folder.set_aside(lane.arm, lane.seed)  # what a killed race has left
        what = invocation(lane.arm, self.programs[lane.arm.name], lane.seed,
                          self.folder.running(lane.arm, lane.seed, ".jsonl"))
        lane.words = (*(f"{k}={v}" for k, v in what.variables.items()), lane.arm.program(),
                      *what.words[1:])
        lane.began = machine.utc()
        lane.child = Child(what, lane.gpu, self.folder.running(lane.arm, lane.seed, ".txt"),
                           self.folder.running(lane.arm, lane.seed, ".stderr.txt"))

    def _look_after(self, lane: Lane) -> Ending | None:
        """Records the lane's run if it has come to its end; an ending if the race has."""
        if lane.child is None:
            return None
        code, timed_out = lane.child.ended(), False
        if code is None:
            if not self.timeout_s or lane.child.seconds() < self.timeout_s:
                return None
            timed_out = True
            end_all([lane.child])
            code = lane.child.ended()
        lane.child.signal(signal.SIGKILL)  # what the run's leader has left
        record = self._record(lane, code, timed_out)
        if record.state == "failed":
            self.folder.check_space()  # a full disk is no failure of the arm's
        self.folder.save(record)
        self.records[record.arm, record.seed] = record
        lane.child = None
        self.tell(record)
        return self._ending_after(record)

    def _ending_after(self, record: Record) -> Ending | None:
        if record.state == "failed":
            self.in_a_row[record.arm] += 1
            last = f"arm {record.arm}, seed {record.seed}: {record.why}"
            if record.why.startswith(_REPEATED):
                return Ending("stopped", f"{last}. Begin again in another folder, with {{seed}} "
                              "where the command takes it")
            if not any(r.arm == record.arm and r.state != "failed" for r in self.records.values()):
                return Ending("stopped", f"{last}: no run of this arm has come to its end yet. If "
                              "its command is wrong, begin again in another folder; if the machine "
                              "was, --resume goes on")
            if self.in_a_row[record.arm] >= MOST_IN_A_ROW:
                return Ending("stopped", f"{MOST_IN_A_ROW} runs of an arm in a row failed, the "
                              f"last: {last}. --resume goes on with the next")
            return None
        self.in_a_row[record.arm] = 0
        decided = self.judge()
        return Ending("shown", decided) if decided else None

    def _record(self, lane: Lane, code: int, timed_out: bool) -> Record:
        arm, seed = lane.arm, lane.seed
        log, stderr = (self.folder.running(arm, seed, e) for e in (".txt", ".stderr.txt"))
        mine = [r for (name, _), r in self.records.items() if name == arm.name and
                r.state == "finished"]
        found: Result | None = None
        state, why = "failed", ""
        if timed_out:
            why = f"did not end within --run_timeout={self.timeout_s:g} s"
        else:
            try:
                found = read_result(log, self.folder.running(arm, seed, ".jsonl"))
            except Diverged as error:
                state, why = "diverged", str(error)
            except (Unfinished, OSError) as error:
                why = str(error)
            if code != 0:
                found = None
                said = last_line(stderr) or last_line(log)
                ended = f"signal {-code}" if code < 0 else f"code {code}"
                if state != "diverged":
                    bad_input = arm.ours and code == 1
                    state = "diverged" if (code > 0 and not bad_input and
                                           _NOT_FINITE.search(said)) else "failed"
                why = f"ended with {ended}: {said}"
        if found and mine and mine[0].steps != found.steps:
            why = f"has {found.steps} steps, the arm's earlier runs {mine[0].steps}"
            found = None
        elif found and (other := repeats(found, mine)):
            why = (f"{_REPEATED}{other.seed} at every validation: its seed does not "
                   "reach the program, or it is a copy")
            found = None
        more = {} if found is None else {
            "steps": found.steps, "loss": found.loss, "train_s": found.train_s,
            "validations": found.validations, "digits": found.digits, "head": found.head,
            "tokens": found.tokens}
        return Record(arm.name, seed, "finished" if found else state, why, code,
                      round(lane.child.seconds(), 2), lane.began, self.machine, lane.gpu,
                      card=machine.card_now(lane.gpu), words=lane.words, **more)
