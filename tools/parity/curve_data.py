"""The original's losses as they are stored in data/RECORD.json, the metrics of our runs, and the
text that both must have seen."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import math
import os


class BadInput(ValueError):
    """Says what is wrong, where, and what to do."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """One run. Losses by the number of updates done, the step's own included; nats a target."""

    loss: dict[int, float]
    val_loss: dict[int, float]  # by the number of updates done before it


@dataclasses.dataclass(frozen=True)
class Original:
    path: str
    record: str
    program: str  # repository and path of the log that holds it
    machine: dict[str, str]  # card, date, versions
    changes: list[str]  # to the program, but for the length of its schedule
    steps: int  # the extension's included
    extension_steps: int
    val_tokens: int
    text: dict[str, str]  # name of a shard to its sha256
    curves: dict[int, Curve]  # by seed
    initial_sums: dict[int, dict[str, float]]  # by seed and weight, of squares

    def whole(self) -> list[int]:
        """The seeds whose run came to the end."""
        return [s for s, curve in self.curves.items() if self.steps in curve.val_loss]


def _curve(who: str, seed: dict, steps: int) -> Curve:
    losses = seed["loss"]
    if not 0 < len(losses) <= steps or not all(math.isfinite(v) for v in losses):
        raise BadInput(f"{who}: {len(losses)} losses, of which each must be a number and which "
                       f"must be from 1 to {steps}")
    return Curve({k + 1: v for k, v in enumerate(losses)},
                 {int(k): v for k, v in seed.get("val_loss", {}).items()})


def read_original(path: str) -> Original:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        seeds = {int(s): seed for s, seed in data["seeds"].items()}
        schedule = data["schedule"]
        return Original(
            path, data["record"], data["program"], data["machine"], data["changes"],
            schedule["steps"], schedule["extension_steps"], data["val_tokens"], data["text"],
            {s: _curve(f"{path}: seed {s}", seed, schedule["steps"]) for s, seed in seeds.items()},
            {s: seed["initial_sums"] for s, seed in seeds.items()})
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: not JSON: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: not losses of the original: {error!r}; "
                       "collect_curves.py writes such files") from error


def read_metrics(path: str, original: Original) -> Curve:
    """A whole run of ours, of the original's length. BadInput for one that is cut off, left out
    steps or is of another schedule."""
    loss: dict[int, float] = {}
    val_loss: dict[int, float] = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                step = row["step"]
                for key, into in (("loss", loss), ("val_loss", val_loss)):
                    if key not in row:
                        continue
                    if row[key] is None or not math.isfinite(row[key]):
                        raise BadInput(f"{path}:{number}: step {step} has no {key}; "
                                       "only a run that left no step out can be compared")
                    if step in into:
                        raise BadInput(f"{path}:{number}: step {step} is there twice; "
                                       "give the metrics of one run")
                    into[step] = row[key]
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise BadInput(f"{path}:{number}: no line of --metrics: {error!r}") from error
    if sorted(loss) != list(range(1, original.steps + 1)):
        last = max(loss, default=0)
        raise BadInput(f"{path}: training losses of {len(loss)} steps, the last {last}; the "
                       f"original's schedule has {original.steps}")
    if original.steps not in val_loss:
        raise BadInput(f"{path}: no validation after the last step, {original.steps}")
    return Curve(loss, val_loss)


def sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_text(train_files: str, val_files: str, text: dict[str, str]) -> None:
    """BadInput unless the globs, which may be several with commas between, give the shards that
    the original saw, by name and sum. The order of a run is that of the names."""
    found = {}
    for pattern in f"{train_files},{val_files}".split(","):
        files = glob.glob(pattern)
        if not files:
            raise BadInput(f"{pattern}: no such file; the original's text is {', '.join(text)}")
        found |= {os.path.basename(f): f for f in files}
    if found.keys() != text.keys():
        raise BadInput(f"{train_files} and {val_files}: {', '.join(sorted(found))}; the original's "
                       f"text is {', '.join(sorted(text))}")
    for name, path in sorted(found.items()):
        if (got := sha256(path)) != text[name]:
            raise BadInput(f"{path}: sha256 {got}; the original saw {text[name]}: give that text")
