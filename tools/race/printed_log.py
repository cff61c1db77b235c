"""Reads what a run printed: the lines of our trainers, of the PyTorch original of any track, and of
any program that prints such ones. The grammar is that of tools/run_logs/log_line.h.

    step:250/1680 val_loss:4.1234 train_time:14532ms step_avg:58.13ms
    step:251/1680 train_time:14590ms step_avg:58.13ms
    step:125/3200 val_loss:4.82555 train_time:99.402s step_avg:795.22ms
"""

from __future__ import annotations

import dataclasses
import json
import math
import re

_BEGINNING = re.compile(r"step:(\d+)/(\d+)(?= |$)")
_LINE = re.compile(r"step:(\d+)/(\d+)(?: (?P<kind>val|train)_loss:(?P<loss>\S+))?"
                   r"(?: (?!train_time:)[^\s:]+:\S*)* train_time:(?P<time>\S*?)(?P<unit>ms|s)"
                   r"(?: |$)")
_VERSIONS = re.compile(r"nanospeed |record |\d+ steps of |Running Py|\S+ torch|NVIDIA-SMI|"
                       r".*PyTorch ")
_STREAM = re.compile(r"token stream: (\S+) ")


class Unfinished(Exception):
    """The log of a run without result; says why."""


class Diverged(Exception):
    """The run's loss became infinite or not a number; says where."""


@dataclasses.dataclass(frozen=True)
class Result:
    steps: int
    loss: float  # nats a token, of the validation after the last step
    train_s: float  # spent in training, validations excluded
    validations: tuple[tuple[int, float], ...]  # all of them: step, loss
    digits: int  # of the losses, after the point
    head: tuple[str, ...]  # what the program says of itself, its machine and its versions
    tokens: str  # our programs' hash of all tokens trained on; empty if the log has none


@dataclasses.dataclass(frozen=True)
class Line:
    step: int
    total: int
    val_loss: float | None
    train_ms: float


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_line(text: str) -> Line | None:
    """None for a line of another kind. ValueError for one that begins with step:N/M and does not go
    on as such lines do."""
    text = text.rstrip()
    if not _BEGINNING.match(text):
        return None
    match = _LINE.match(text)
    time = _number(match["time"]) if match else math.nan
    if not match or not math.isfinite(time):
        raise ValueError(f"\"{text}\": needs the form step:N/M val_loss:X train_time:Yms")
    loss = None
    if match["kind"] == "val":
        try:
            loss = float(match["loss"])
        except ValueError as error:
            raise ValueError(f"\"{text}\": val_loss is no number") from error
    return Line(int(match[1]), int(match[2]), loss, time * (1 if match["unit"] == "ms" else 1000))


def read_lines(path: str) -> tuple[list[Line], list[str], str]:
    """The lines of steps, those of its head, and the hash of its tokens. Unfinished for a
    validation that is broken or a second run."""
    lines: list[Line] = []
    head: list[str] = []
    tokens = ""
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            try:
                line = parse_line(text)
            except ValueError as error:
                if " val_loss:" in text:
                    raise Unfinished(f"{path}:{number}: {error}") from error
                continue
            if line is None:
                if _VERSIONS.match(text) and len(head) < 8:
                    head.append(text.strip()[:400])
                if match := _STREAM.match(text):
                    tokens = match[1]
                continue
            if lines and line.step < lines[-1].step:
                raise Unfinished(f"{path}:{number}: the steps go back, from {lines[-1].step} to "
                                 f"{line.step}; a run of a race prints one run")
            lines.append(line)
    return lines, head, tokens


def _metrics_loss(path: str, step: int) -> float | None:
    """The loss of the validation after this step, with more digits than a log has. None if there is
    no such file or row."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if '"val_loss"' in line]
    except (OSError, ValueError):
        return None
    losses = [r["val_loss"] for r in rows if r.get("step") == step]
    return losses[-1] if losses and isinstance(losses[-1], (int, float)) else None


def read_result(log: str, metrics: str = "") -> Result:
    """Of a finished run. Unfinished for all others; Diverged if the last validation is not finite,
    or the log's and the metrics' losses are."""
    lines, head, tokens = read_lines(log)
    validations = [line for line in lines if line.val_loss is not None]
    if not validations:
        raise Unfinished(f"{log}: no line step:N/M val_loss:X train_time:Yms in it")
    last = validations[-1]
    if not math.isfinite(last.val_loss):
        raise Diverged(f"the validation after step {last.step} of {last.total} is {last.val_loss}")
    if last.step != last.total or lines[-1].step > last.step:
        raise Unfinished(f"{log}: the last validation is after step {last.step} of {last.total}")
    loss, digits = last.val_loss, 4
    exact = _metrics_loss(metrics, last.step) if metrics else None
    if exact is not None:
        if abs(exact - loss) > 6e-5 * max(1.0, abs(loss)):
            raise Unfinished(f"{metrics}: a final loss of {exact}, but {log} has {loss}: not one "
                             "run's files")
        loss, digits = exact, 8
    return Result(last.step, loss, last.train_ms / 1000,
                  tuple((v.step, v.val_loss) for v in validations), digits, tuple(head), tokens)


def progress_of(log: str) -> tuple[int, int, float | None]:
    """Of a run that goes on: step, of how many, the latest validation loss. (0, 0, None) before its
    first step."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 65536))
            text = file.read().decode(errors="replace")
    except OSError:
        return 0, 0, None
    step, total, loss = 0, 0, None
    for row in text.split("\n")[:-1]:
        try:
            line = parse_line(row)
        except ValueError:
            continue
        if line:
            step, total = line.step, line.total
            loss = line.val_loss if line.val_loss is not None else loss
    return step, total, loss
