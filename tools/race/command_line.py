"""Flags, --help in groups, --completion=bash and nearest names, as the project's C++ programs have
them (tools/command_line.h)."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable

from bad_input import BadInput

OF_EVERY_TOOL = ("help", "version", "completion")
_TRUE, _FALSE = ("true", "1", "yes", "t", "y"), ("false", "0", "no", "f", "n")


@dataclasses.dataclass(frozen=True)
class Flag:
    """`default` says the type: str, bool, int, float, or list of str for a flag that repeats."""

    name: str
    default: str | bool | int | float | list
    help: str


@dataclasses.dataclass(frozen=True)
class Tool:
    name: str
    summary: str
    usage: str
    version: Callable[[], str]
    examples: tuple[tuple[str, str], ...]  # purpose, command
    groups: tuple[tuple[str, tuple[Flag, ...]], ...]

    def flags(self) -> dict[str, Flag]:
        return {flag.name: flag for _, group in self.groups for flag in group}


class Answered(Exception):
    """What --help, --version or --completion asked for, to be printed."""


def _distance(a: str, b: str) -> int:
    """Levenshtein's."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(diagonal + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def nearest(name: str, names: list[str]) -> str:
    """The name most like this one; empty if none is near."""
    best = min(sorted(names), key=lambda other: _distance(name, other), default="")
    return best if best and _distance(name, best) <= max(2, len(name) // 3) else ""


def _shown(flag: Flag) -> str:
    if isinstance(flag.default, bool):
        return f"  --{'no' if flag.default else ''}{flag.name}"
    if isinstance(flag.default, list) or flag.default == "":
        return f"  --{flag.name}=..."
    return f"  --{flag.name}={flag.default}"


def help_text(tool: Tool) -> str:
    lines = textwrap.wrap(f"{tool.name}: {tool.summary}", 92)
    lines += ["", f"Usage: {tool.usage}", "", "Examples:"]
    for purpose, command in tool.examples:
        lines += [f"  # {purpose}", f"  {command}"]
    for title, group in tool.groups:
        lines += ["", f"{title} (defaults are shown)"]
        for flag in group:
            lines.append(_shown(flag))
            lines += textwrap.wrap(flag.help, 92, initial_indent=" " * 6,
                                   subsequent_indent=" " * 6, break_on_hyphens=False)
    return "\n".join([*lines, "", "Of every tool", "  --help, --version", "  --completion=bash",
                      "      Prints what teaches bash the flags: "
                      f"source <({tool.name} --completion=bash)"])


def completion_text(tool: Tool) -> str:
    words = ["--help", "--version"]
    words += [f"--{f.name}{'' if isinstance(f.default, bool) else '='}"
              for f in tool.flags().values()]
    return f"complete -o nospace -o bashdefault -o default -W '{' '.join(words)}' {tool.name}"


def _truth(name: str, value: str) -> bool:
    if value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    raise BadInput(f"--{name}={value}: --{name} takes no value but true or false")


def _answer(tool: Tool, name: str, value: str | None) -> None:
    """Raises Answered if the argument asks for one of OF_EVERY_TOOL."""
    if name == "completion":
        if value != "bash":
            raise BadInput("--completion: for bash alone; give --completion=bash")
        raise Answered(completion_text(tool))
    if name in ("help", "h", "version") and (value is None or _truth(name, value)):
        raise Answered(tool.version() if name == "version" else help_text(tool))


def _convert(flag: Flag, value: str) -> str | int | float:
    if isinstance(flag.default, (str, list)):
        return value
    kind = type(flag.default)
    try:
        return kind(value)
    except ValueError as error:
        raise BadInput(f"--{flag.name}={value}: must be a "
                       f"{'whole number' if kind is int else 'number'}") from error


def parse(tool: Tool, argv: list[str]) -> dict:
    """Values by flag; only those that were given, but for lists, which are there in any case.
    BadInput for an unknown flag, a bad value, a flag given twice and what is no flag. Answered."""
    flags = tool.flags()
    given: dict = {f.name: [] for f in flags.values() if isinstance(f.default, list)}
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith("-") or argument.strip("-") == "":
            raise BadInput(f'"{argument}": not a flag; all arguments are flags, such as '
                           "--name=value")
        name, equals, value = argument.lstrip("-").partition("=")
        if name in (*OF_EVERY_TOOL, "h"):
            _answer(tool, name, value if equals else None)
            continue
        negated = name.startswith("no") and name not in flags
        flag = flags.get(name.removeprefix("no") if negated else name)
        if flag is None or (negated and not isinstance(flag.default, bool)):
            near = nearest(name, [*flags, *OF_EVERY_TOOL])
            raise BadInput(f"--{name}: no such flag; " +
                           (f"did you mean --{near}?" if near else "--help lists them"))
        if isinstance(flag.default, list):
            given[flag.name].append(value if equals else _next(name, arguments))
        elif flag.name in given:
            raise BadInput(f"--{name}: given twice")
        elif isinstance(flag.default, bool):
            given[flag.name] = (_truth(name, value) if equals else True) != negated
        else:
            given[flag.name] = _convert(flag, value if equals else _next(name, arguments))
    return given


def _next(name: str, arguments) -> str:
    value = next(arguments, None)
    if value is None:
        raise BadInput(f"--{name}: its value is missing; give --{name}=...")
    return value
