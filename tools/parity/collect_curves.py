"""Makes data/RECORD.json out of what runs of a record's PyTorch original wrote.

    python3 collect_curves.py run1.jsonl run2.jsonl --changes=changes.txt --out=data/RECORD.json

Each input is JSON, an object a line, of one process:

    {"kind": "run", "record": ..., "program": ..., "program_sha256": ..., "date": ..., "card":
     "NAME, DRIVER, CLOCK", "torch": ..., "cuda": ..., "triton": ..., "python": ...,
     "scheduled_steps": ..., "extension_steps": ..., "val_tokens": ..., "text": {SHARD: sha256}}
    {"kind": "init", "seed": 0, "sums": {WEIGHT: [how many numbers, their sum of squares]}}
    {"kind": "step", "seed": 0, "step": 1, "loss": ...}      # of that update, nats a target
    {"kind": "val", "seed": 0, "step": 120, "val_loss": ...} # after so many updates, nats a token
    {"kind": "end", "seed": 0, "steps": 120}

A seed without its "end" was cut off and is left out, with a message. Further keys are left alone.
--changes has what was changed in the program, a line each. Needs the standard library alone.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

from curve_data import BadInput

# What all runs of a data file share.
SAME = ("record", "program", "program_sha256", "card", "torch", "cuda", "triton", "python",
        "scheduled_steps", "extension_steps", "val_tokens", "text")
LOSS_DIGITS = 6  # after the point


def read_lines(path: str) -> list[dict]:
    """BadInput unless each line is an object with a kind, and the first is a run."""
    rows = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise BadInput(f"{path}:{number}: not JSON: {error}; delete a line that was cut "
                               "off") from error
            if not isinstance(row, dict) or "kind" not in row:
                raise BadInput(f"{path}:{number}: no object with a kind")
            rows.append(row)
    if not rows or rows[0]["kind"] != "run":
        raise BadInput(f"{path}: its first line is not of the kind run")
    return rows


def loss(who: str, value: object) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadInput(f"{who}: a loss of {value!r}; only a run with all its losses is comparable")
    return round(value, LOSS_DIGITS)


def collect_seed(path: str, seed: int, rows: list[dict], total: int) -> dict:
    """The entry of one finished seed. BadInput if it left out a step or its sums are missing."""
    who = f"{path}: seed {seed}"
    of_kind = {kind: [r for r in rows if r["kind"] == kind] for kind in ("init", "step", "val")}
    steps = [r["step"] for r in of_kind["step"]]
    if steps != list(range(1, len(steps) + 1)) or not 0 < len(steps) <= total:
        raise BadInput(f"{who}: its steps are not 1, 2, 3, ... to at most {total}")
    if len(of_kind["init"]) != 1:
        raise BadInput(f"{who}: {len(of_kind['init'])} lines of the kind init in place of one")
    if len(steps) == total and total not in [r["step"] for r in of_kind["val"]]:
        raise BadInput(f"{who}: no validation after its last step, {total}")
    return {"initial_sums": {n: float(f"{s:.10g}")
                             for n, (_, s) in of_kind["init"][0]["sums"].items()},
            "val_loss": {str(r["step"]): loss(who, r["val_loss"]) for r in of_kind["val"]},
            "loss": [loss(who, r["loss"]) for r in of_kind["step"]]}


def collect(paths: list[str], changes: list[str]) -> dict:
    """The data file. BadInput if the runs are not of one program, machine, schedule and text."""
    first: dict = {}
    dates: set[str] = set()
    seeds: dict[int, dict] = {}
    for path in paths:
        run, *rows = read_lines(path)
        if missing := [k for k in (*SAME, "date") if k not in run]:
            raise BadInput(f"{path}: its run lacks {', '.join(missing)}")
        first = first or run
        if other := [k for k in SAME if run[k] != first[k]]:
            raise BadInput(f"{path}: {other[0]} is {run[other[0]]} here and {first[other[0]]} in "
                           f"{paths[0]}; a data file has one")
        dates.add(run["date"])
        total = run["scheduled_steps"] + run["extension_steps"]
        ended = {r["seed"] for r in rows if r["kind"] == "end"}
        for seed in dict.fromkeys(r["seed"] for r in rows if "seed" in r):
            if seed not in ended:
                print(f"{path}: seed {seed} was cut off; left out", file=sys.stderr)
                continue
            if seed in seeds:
                raise BadInput(f"{path}: seed {seed} was there before; give each seed once")
            seeds[seed] = collect_seed(path, seed, [r for r in rows if r.get("seed") == seed],
                                       total)
    card, driver, *_ = (*map(str.strip, first["card"].split(",")), "unknown")
    return {"record": first["record"], "program": first["program"],
            "program_sha256": first["program_sha256"], "changes": changes,
            "machine": {"card": card, "driver": driver, "date": ", ".join(sorted(dates)),
                        **{k: str(first[k]) for k in ("torch", "cuda", "triton", "python")}},
            "schedule": {"steps": total, "extension_steps": first["extension_steps"],
                         "momentum": "its warm-up and cooldown have the record's numbers of steps"},
            "val_tokens": first["val_tokens"], "text": first["text"],
            "seeds": {str(s): seeds[s] for s in sorted(seeds)}}


def dump(value: object, indent: int = 0) -> str:
    """JSON whose lists of numbers take lines of 100 columns, for readable differences."""
    pad = " " * (indent + 1)
    if isinstance(value, dict) and value:
        inner = ",\n".join(f"{pad}{json.dumps(k)}: {dump(v, indent + 1)}" for k, v in value.items())
        return f"{{\n{inner}\n{' ' * indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], float):
        lines = [""]
        for k, number in enumerate(value):
            text = json.dumps(number) + ("," if k + 1 < len(value) else "")
            if len(pad) + len(lines[-1]) + len(text) > 98:
                lines.append("")
            lines[-1] += f" {text}" if lines[-1] else text
        return "[\n" + "\n".join(pad + line for line in lines) + "]"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(pad + dump(v, indent + 1) for v in value) + "]"
    return json.dumps(value)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN.jsonl")
    parser.add_argument("--changes", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args(argv)
    with open(args.changes, encoding="utf-8") as file:
        changes = [line.strip() for line in file if line.strip()]
    data = collect(args.runs, changes)
    if not data["seeds"]:
        raise BadInput(f"{', '.join(args.runs)}: no seed came to its end")
    with open(args.out, "w", encoding="utf-8") as file:
        file.write(dump(data) + "\n")
    print(f"{args.out}: {data['record']}, seeds {', '.join(data['seeds'])}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as error:
        sys.exit(f"collect_curves: {error}")
