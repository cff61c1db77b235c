"""Arms: the programs of a race, each a command with flags. A grid multiplies them."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import re
import shlex
import shutil

from bad_input import BadInput

OURS = ("track1", "track2")  # take --seed and --metrics
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+=,-]{0,79}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclasses.dataclass(frozen=True)
class Arm:
    name: str
    command: str  # as the user wrote it, with the grid's flags; {seed} still in it
    point: dict[str, str] = dataclasses.field(default_factory=dict)  # of a grid: value by flag

    @property
    def stem(self) -> str:
        """Of the names of its runs' files."""
        return re.sub(r"[=,]", "-", self.name)

    def words(self) -> list[str]:
        return shlex.split(self.command)

    def program(self) -> str:
        """Behind variables, as in VAR=1 track1 --steps=3."""
        return next(w for w in self.words() if not _VARIABLE.match(w))

    @property
    def ours(self) -> bool:
        return os.path.basename(self.program()) in OURS


def parse_arm(text: str) -> Arm:
    """From NAME=COMMAND."""
    name, equals, command = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise BadInput(f"--arm={text}: must be NAME=COMMAND, such as base='track1 --steps=100', "
                       "with a name of letters, digits and _ . + -")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"--arm={text}: its quotes do not match: {error}") from error
    if all(_VARIABLE.match(w) for w in words):
        raise BadInput(f"--arm={text}: names no program, such as base='track1 --steps=100'")
    return Arm(name, command)


def parse_grid(text: str) -> tuple[str, list[str]]:
    """From FLAG=VALUE,VALUE,..."""
    flag, _, values = text.lstrip("-").partition("=")
    listed = values.split(",")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", flag) or len(listed) < 2 or not all(listed):
        raise BadInput(f"--grid={text}: must be FLAG=VALUE,VALUE,..., such as "
                       "matrix_lr_mul=0.8,1,1.25")
    for value in listed:
        if not re.fullmatch(r"[A-Za-z0-9_.+-]+", value):
            raise BadInput(f"--grid={text}: a value of \"{value}\"; values have letters, digits "
                           "and _ . + -")
    if len(set(listed)) < len(listed):
        raise BadInput(f"--grid={text}: gives a value twice")
    return flag, listed


def _at(arm: Arm, point: dict[str, str], alone: bool) -> Arm:
    command = arm.command
    for flag, value in point.items():
        if "{" + flag + "}" in command:
            command = command.replace("{" + flag + "}", value)
        elif any(w.lstrip("-").partition("=")[0] == flag for w in arm.words()[1:]):
            raise BadInput(f"--grid={flag}=...: arm {arm.name} has --{flag} in its command; leave "
                           "it out there")
        else:
            command += f" --{flag}={value}"
    name = ",".join(f"{flag}={value}" for flag, value in point.items())
    return Arm(name if alone else f"{arm.name},{name}", command, point)


def make_arms(arms: list[str], grids: list[str]) -> list[Arm]:
    """BadInput for what is no arm or grid, and for two of one name."""
    made = [parse_arm(text) for text in arms]
    axes = [parse_grid(text) for text in grids]
    flags = [flag for flag, _ in axes]
    if len(set(flags)) < len(flags):
        raise BadInput("--grid: a flag twice; give all its values in one --grid")
    if not made:
        raise BadInput("no arm; give at least one, such as --arm base='track1 --steps=100'")
    if axes:
        points = [dict(zip(flags, p)) for p in itertools.product(*(v for _, v in axes))]
        made = [_at(arm, point, len(made) == 1) for arm in made for point in points]
    seen: dict[str, Arm] = {}
    for arm in made:
        if other := seen.get(arm.stem.lower()):
            raise BadInput(f"--arm={arm.name}: there is an arm {other.name}; names must differ, "
                           "and not in capitals alone")
        seen[arm.stem.lower()] = arm
    return made


def find_program(arm: Arm, built_in: str = "") -> str:
    """Its path: as it is written if that has a slash, else ours that were built with this tool, in
    `built_in`, else in this folder, else on PATH. BadInput if there is none, with where it was
    looked for."""
    name = arm.program()
    if os.path.basename(name) != name:
        if os.access(name, os.X_OK) and not os.path.isdir(name):
            return os.path.abspath(name)
        state = "cannot be executed" if os.path.exists(name) else "no such file"
        raise BadInput(f"arm {arm.name}: {name}: {state}")
    built = os.path.join(built_in, name) if built_in and name in OURS else ""
    for path in (built, os.path.abspath(name)):
        if path and os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    if found := shutil.which(name):
        return os.path.abspath(found)
    raise BadInput(f"arm {arm.name}: no program {name} here, on PATH or built with this tool; give "
                   f"its path, such as ./{name}")


def check_seeds(arms: list[Arm], own_seeds: bool) -> None:
    """BadInput for an arm that the seed of a run would not reach."""
    for arm in arms:
        if "{seed}" in arm.command:
            continue
        if arm.ours and not any(re.match(r"--?seed(=|$)", w) for w in arm.words()):
            continue
        if arm.ours:
            raise BadInput(f"arm {arm.name}: has --seed in its command, so that all its runs would "
                           "be one; leave it out: each run is given its own, from --first_seed on")
        if not own_seeds:
            raise BadInput(f"arm {arm.name}: its command has no {{seed}}: write {{seed}} where its "
                           "seed goes, or give --own_seeds if it draws one itself")


def fingerprint(arm: Arm, built_in: str = "") -> str:
    """sha256 of its program and of those of its words that are scripts, such as
    train_gpt.py of "torchrun train_gpt.py"."""
    digest = hashlib.sha256()
    scripts = [w for w in arm.words() if re.search(r"\.(py|sh)$", w) and os.path.isfile(w)]
    for path in [find_program(arm, built_in), *scripts]:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Invocation:
    """One run of an arm, ready to start."""

    words: list[str]
    variables: dict[str, str]


def invocation(arm: Arm, program: str, seed: int, metrics: str) -> Invocation:
    """`metrics`: the file that ours write theirs to, unless the command names one."""
    words = [w.replace("{seed}", str(seed)) for w in arm.words()]
    first = next(i for i, w in enumerate(words) if not _VARIABLE.match(w))
    variables = dict(w.split("=", 1) for w in words[:first])
    words = [program, *words[first + 1:]]
    if arm.ours:
        given = {w.lstrip("-").partition("=")[0] for w in words[1:]}
        if "{seed}" not in arm.command:
            words.append(f"--seed={seed}")
        if "metrics" not in given:
            words.append(f"--metrics={metrics}")
        if "overwrite" not in given:
            words.append("--overwrite")  # of what an interrupted run left
    return Invocation(words, variables)
