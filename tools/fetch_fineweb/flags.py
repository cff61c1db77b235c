"""A command line in the form of tools/command_line.h, for a tool that is a Python script.

A tool is described by Help; read() gives the value of each flag. --help, --version and --completion=bash end
the program. There are no arguments besides flags.
"""

import difflib
import os
import re
import subprocess
import sys
import textwrap
from typing import NamedTuple

WIDTH = 92  # columns of the help


class FlagError(Exception):
    """A flag that does not exist, or a value that it does not take: what, where, what to do."""


class Help(NamedTuple):
    name: str  # the program's
    summary: str  # what it does, in whole sentences
    examples: list  # of (purpose, flags)
    groups: dict  # title: {flag: (default, help)}; the type of a flag is that of its default

    def defaults(self):
        return {flag: row[0] for group in self.groups.values() for flag, row in group.items()}


def truth(text):
    """A truth value as Abseil's flags take them; None for another text."""
    words = dict.fromkeys(("1", "t", "true", "y", "yes"), True)
    words.update(dict.fromkeys(("0", "f", "false", "n", "no"), False))
    return words.get(text.lower())


def seconds(text):
    """Of a duration such as 500ms, 1.5s or 1m30s; None for another text."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return sum(float(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit] for number, unit in parts)


def help_text(tool):
    def wrapped(indent, text):
        return textwrap.fill(" ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)

    lines = [wrapped("", f"{tool.name}: {tool.summary}"), "",
             f"Usage: bazel run //tools/{tool.name} -- [flags]", "", "Examples:"]
    for purpose, flags in tool.examples:
        lines += [f"  # {purpose}", f"  bazel run //tools/{tool.name}{' -- ' if flags else ''}{flags}"]
    for title, group in tool.groups.items():
        lines += ["", f"{title} (defaults are shown)"]
        for flag, (default, text) in group.items():
            if isinstance(default, bool):
                lines.append(f"  --{'no' if default else ''}{flag}")
            else:
                lines.append(f"  --{flag}={'...' if default == '' else default}")
            lines.append(wrapped("      ", text))
    return "\n".join(lines + ["", "Of every tool", "  --help, --version", "  --completion=bash",
                              "      Prints what teaches bash the flags: source <"
                              f"({tool.name} --completion=bash)"])


def version_text(tool):
    """Names the commit of the checkout in which this file lies."""
    root = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../..")
    stamp = os.path.join(root, "tools/build/workspace_status.sh")
    commit = "unknown: not in a checkout"
    if os.path.exists(stamp):
        said = subprocess.run([os.path.realpath(stamp)], cwd=os.path.realpath(root), stdout=subprocess.PIPE,
                              text=True, check=False)
        commit = said.stdout.strip().replace("STABLE_COMMIT ", "")
    return f"nanospeed {tool.name}, commit {commit}, Python {sys.version.split()[0]}"


def completion_text(tool):
    words = ["--help", "--version"]
    for flag, default in tool.defaults().items():
        words.append(f"--{flag}{'' if isinstance(default, bool) else '='}")
    # Bash cuts words at "=", so that what follows it is completed as a file.
    return f"complete -o nospace -o bashdefault -o default -W '{' '.join(words)}' {tool.name}"


def answer(tool, name, value):
    """Ends the program if the flag asks for help, the version or a completion; whether it is one of these."""
    if name == "completion":
        if value != "bash":
            raise FlagError("--completion: for bash alone; give --completion=bash")
        text = completion_text(tool)
    elif name in ("help", "h", "version"):
        asked = True if value is None else truth(value)
        if asked is None:
            raise FlagError(f"--{name}={value}: --{name} takes no value but true or false")
        if not asked:
            return True
        text = version_text(tool) if name == "version" else help_text(tool)
    else:
        return False
    print(text)
    sys.exit(0)


def parsed(name, value, default):
    """The value of a flag from its text, of the default's type."""
    if isinstance(default, bool):
        value = True if value is None else truth(value)
        if value is None:
            raise FlagError(f"--{name}: must be true or false")
    elif isinstance(default, int):
        if not re.fullmatch(r"-?[0-9]{1,9}", value):
            raise FlagError(f"--{name}={value}: must be a whole number")
        value = int(value)
    return value


def read(tool, arguments):
    """The value of each flag, by name: --name=value, --name value, --name and --noname."""
    defaults = tool.defaults()
    values, left = dict(defaults), list(arguments)
    while left:
        argument = left.pop(0)
        dashes, name, equals, value = re.fullmatch(r"(-{0,2})([^=]*)(=?)(.*)", argument, re.S).groups()
        if not dashes or not name:
            raise FlagError(f'"{argument}": not a flag; all arguments are flags, such as --name=value')
        value = value if equals else None
        if answer(tool, name, value):
            continue
        if name[:2] == "no" and isinstance(defaults.get(name[2:]), bool) and value is None:
            values[name[2:]] = False
            continue
        if name not in defaults:
            near = difflib.get_close_matches(name, [*defaults, "help", "version", "completion"], 1)
            hint = f"did you mean --{near[0]}?" if near else "--help lists them"
            raise FlagError(f"--{name}: no such flag; {hint}")
        if value is None and not isinstance(defaults[name], bool):
            if not left:
                raise FlagError(f"--{name}: lacks a value; give --{name}=...")
            value = left.pop(0)
        values[name] = parsed(name, value, defaults[name])
    return values
