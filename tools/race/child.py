"""A run as a process: started, watched, ended with all that it started."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time

from arms import Invocation

MARK = "NANOSPEED_RACE_RUN"  # in the environment of a run's processes: its file of printed lines
GRACE_S = 20.0  # between asking a run to end and making it
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """In the child: a race that is killed takes its runs with it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """One process in a session of its own, so that a terminal's Ctrl-C reaches the race alone."""

    def __init__(self, what: Invocation, gpu: str, out: str, err: str) -> None:
        # A Python program's lines arrive as they are printed, for the progress and for what is kept
        # of an interrupted run.
        environment = {"PYTHONUNBUFFERED": "1", **os.environ, **what.variables,
                       MARK: os.path.abspath(out)}
        if gpu:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            self.process = subprocess.Popen(what.words, stdin=subprocess.DEVNULL, stdout=stdout,
                                            stderr=stderr, env=environment, start_new_session=True,
                                            preexec_fn=_end_with_parent)
        self.began = time.monotonic()

    def ended(self) -> int | None:
        """The exit code, negative of a signal; None while it goes on."""
        return self.process.poll()

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


def end_all(children: list[Child]) -> None:
    """Asks all to end, and makes those that have not after GRACE_S, or at a KeyboardInterrupt."""
    for child in children:
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while any(c.ended() is None for c in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    for child in children:  # those that a dead leader has left behind, too
        child.signal(signal.SIGKILL)
        child.process.wait()


def left_behind(folder: str) -> list[int]:
    """Processes of runs of this race folder that outlived it, as those of a launcher that was
    killed do. Their environment tells."""
    mark = f"{MARK}={os.path.abspath(folder)}{os.sep}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if any(v.startswith(mark) for v in variables):
            found.append(int(name))
    return found


def end_left_behind(folder: str) -> int:
    """Ends them; returns how many there were."""
    found = left_behind(folder)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left_behind(folder):
            try:
                os.kill(pid, number)
            except OSError:
                pass
        deadline = time.monotonic() + (GRACE_S if number == signal.SIGTERM else 2)
        while left_behind(folder) and time.monotonic() < deadline:
            time.sleep(0.05)
    return len(found)
