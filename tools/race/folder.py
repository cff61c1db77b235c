"""The folder of a race: what was planned, what each run came to, and its files.

    race.json                the plan
    runs/ARM.SEED.json       what a run came to; written when it has ended, and then it counts
    logs/ARM.SEED.txt        what a finished run printed; .jsonl beside it: its metrics
    failed/                  likewise, of runs that failed or diverged; .stderr.txt in both
    interrupted/ARM.SEED.N.* what runs had printed when they were interrupted; they begin anew
    running/                 files of runs that go on
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import glob
import json
import os

from arms import Arm
from bad_input import BadInput

LEAST_FREE = 16 << 20  # bytes, below which no run begins
ENDINGS = (".txt", ".jsonl", ".stderr.txt")


@dataclasses.dataclass(frozen=True)
class Plan:
    arms: tuple[Arm, ...]
    fingerprints: tuple[str, ...]  # of the arms' programs
    runs: int  # of each arm, at most
    first_seed: int
    lanes: int  # runs side by side, by which the order alternates
    until: str
    spend: str
    title: str
    began: str  # UTC
    commit: str
    command: str  # of the race, that began it
    extensions: tuple[str, ...] = ()  # what was changed after runs were seen

    def seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.runs)

    def order(self, seed: int) -> list[Arm]:
        """Forth and back, lane by lane: A B, then B A."""
        back = (seed - self.first_seed) // self.lanes % 2
        return list(reversed(self.arms)) if back else list(self.arms)


@dataclasses.dataclass(frozen=True)
class Record:
    """What a run came to."""

    arm: str
    seed: int
    state: str  # finished, diverged, failed
    why: str  # empty of a finished one
    exit_code: int  # negative: of a signal
    wall_s: float
    began: str  # UTC
    machine: str
    gpu: str  # as --gpus says; empty: not chosen
    steps: int = 0
    loss: float | None = None  # nats a token, of a finished run
    train_s: float | None = None
    validations: tuple[tuple[int, float], ...] = ()
    digits: int = 4
    head: tuple[str, ...] = ()
    tokens: str = ""
    card: str = ""  # clock and temperature as the run ended
    words: tuple[str, ...] = ()  # the command


def write_atomically(path: str, text: str) -> None:
    """OSError if it cannot be written; then what was there before is there still."""
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        if os.path.exists(part):
            os.remove(part)
        raise


def disk_error(error: OSError) -> BadInput:
    what = os.strerror(error.errno) if error.errno else str(error)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "; free some space, then --resume" if full else ""
    return BadInput(f"{error.filename or 'the race folder'}: {what}{advice}")


class Folder:
    """BadInput where the folder is another's, in use, or not as it should be."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = None

    def of(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    @property
    def plan_path(self) -> str:
        return self.of("race.json")

    def begin(self, plan: Plan) -> None:
        if os.path.exists(self.plan_path):
            raise BadInput(f"--out_dir={self.path}: a race was begun there; --resume goes on with "
                           "it, another needs another folder")
        if os.path.isdir(self.path) and os.listdir(self.path):
            raise BadInput(f"--out_dir={self.path}: has files that are no race's; give a new "
                           "folder")
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError as error:
            raise BadInput(f"--out_dir={self.path}: {error.strerror}") from error
        self._enter()
        self.save_plan(plan)

    def resume(self) -> Plan:
        if not os.path.exists(self.plan_path):
            raise BadInput(f"--out_dir={self.path}: no race to go on with there; without --resume "
                           "one begins")
        self._enter()
        for record in self.records().values():
            self._settle(record)  # a kill between the record and the move of its files
        return self.read_plan()

    def _enter(self) -> None:
        """Takes the folder for this process, until it ends."""
        for name in ("runs", "logs", "failed", "interrupted", "running"):
            os.makedirs(self.of(name), exist_ok=True)
        self._lock = open(self.of("running", "lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(f"--out_dir={self.path}: another process races there; wait for it, or "
                           "end it") from error

    def save_plan(self, plan: Plan) -> None:
        write_atomically(self.plan_path, json.dumps({"race": 1, **dataclasses.asdict(plan)},
                                                    indent=1) + "\n")

    def read_plan(self) -> Plan:
        try:
            with open(self.plan_path, encoding="utf-8") as file:
                data = json.load(file)
            if data.pop("race") != 1:
                raise BadInput(f"{self.plan_path}: of another version of this tool")
            data["arms"] = tuple(Arm(**arm) for arm in data["arms"])
            data["fingerprints"] = tuple(data["fingerprints"])
            data["extensions"] = tuple(data["extensions"])
            return Plan(**data)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise BadInput(f"{self.plan_path}: not the plan of a race: {error!r}") from error

    def running(self, arm: Arm, seed: int, ending: str) -> str:
        return self.of("running", f"{arm.stem}.{seed}{ending}")

    def records(self) -> dict[tuple[str, int], Record]:
        """By arm and seed."""
        found = {}
        for path in sorted(glob.glob(glob.escape(self.of("runs")) + "/*.json")):
            try:
                with open(path, encoding="utf-8") as file:
                    data = json.load(file)
                for key in ("validations", "head", "words"):
                    data[key] = tuple(tuple(v) if isinstance(v, list) else v for v in data[key])
                record = Record(**data)
            except (KeyError, TypeError, json.JSONDecodeError) as error:
                raise BadInput(f"{path}: not what a run came to: {error!r}; delete it, and the run "
                               "is made again") from error
            found[record.arm, record.seed] = record
        return found

    def save(self, record: Record) -> None:
        """From here on the run counts."""
        stem = Arm(record.arm, "").stem
        write_atomically(self.of("runs", f"{stem}.{record.seed}.json"),
                         json.dumps(dataclasses.asdict(record), indent=1) + "\n")
        self._settle(record)

    def _settle(self, record: Record) -> None:
        arm = Arm(record.arm, "")
        where = "logs" if record.state == "finished" else "failed"
        for ending in ENDINGS:
            path = self.running(arm, record.seed, ending)
            if not os.path.exists(path):
                continue
            if ending == ".stderr.txt":
                if os.path.getsize(path) == 0:
                    os.remove(path)
                    continue
                target = "runs" if record.state == "finished" else "failed"
                os.replace(path, self.of(target, os.path.basename(path)))
            else:
                os.replace(path, self.of(where, os.path.basename(path)))

    def set_aside(self, arm: Arm, seed: int) -> None:
        """The files of a run that was interrupted."""
        found = [e for e in ENDINGS if os.path.exists(self.running(arm, seed, e))]
        number = self.interruptions(arm, seed) + 1
        for ending in found:
            os.replace(self.running(arm, seed, ending),
                       self.of("interrupted", f"{arm.stem}.{seed}.{number}{ending}"))

    def interruptions(self, arm: Arm, seed: int) -> int:
        stem = glob.escape(self.of("interrupted", f"{arm.stem}.{seed}"))
        return len([p for p in glob.glob(f"{stem}.*.txt") if not p.endswith(".stderr.txt")])

    def check_space(self) -> None:
        found = os.statvfs(self.path)
        free = found.f_bavail * found.f_frsize
        if free < LEAST_FREE:
            raise BadInput(f"{self.path}: {free >> 20} MiB free on its disk, and a run needs "
                           f"{LEAST_FREE >> 20} for its log; free some, then --resume")
