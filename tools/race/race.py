"""Races arms, programs that train, against each other over many runs. See docs/tools/race.md.

    bazel run //tools/race -- --arm base=track1 --arm half='track1 --matrix_lr_mul=0.5' \\
        --runs=8 --out_dir=race1
    python3 race.py ...                # without Bazel, on the standard library alone
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # before any change of folder
BUILT = os.path.dirname(HERE)  # among runfiles: where track1 and track2 are
sys.path.append(os.path.join(os.path.dirname(HERE), "statistics"))

import arms as arms_of
import machine
from analysis import analyse, finished, verdict_of
from bad_input import BadInput
from child import end_left_behind
from command_line import Answered, Flag, Tool, parse
from folder import Folder, Plan, disk_error, write_atomically
from page import report_html
from planning import Earlier, from_records, plan_text, read_earlier, seen_enough
from progress import Progress
from rules import parse_until
from runner import Ending, Interrupts, Runner
from sequential_t import SPENDINGS
from summary import comparison_text, readme, spread_text, summary_json

NOT_SHOWN, STOPPED, INTERRUPTED = 3, 2, 130
MOST_RUNS = 500
_RUN = "bazel run //tools/race -- "
TOOL = Tool(
    name="race",
    summary="Trains arms, programs with flags, many times with as many seeds, alternating, and "
            "says what the losses show: mean and spread of each, differences of pairs of a seed, "
            "and whether a rule was met that was given before. What was interrupted goes on with "
            "--resume. Ends with 0, with 3 if the rule of --until was not shown, with 1 for bad "
            "input, with 2 if failed runs stopped it, and with 130 if it was interrupted.",
    usage=_RUN + "--arm NAME=COMMAND... --runs=N --out_dir=DIR [flags]",
    version=lambda: f"race of nanospeed, commit {machine.commit(HERE)}, "
                    f"Python {platform.python_version()}",
    examples=(
        ("two arms, 8 runs of each",
         _RUN + "--arm base=track1 --arm half='track1 --matrix_lr_mul=0.5' --runs=8 "
         "--out_dir=race1"),
        ("until a record is shown, or 20 runs are made",
         _RUN + "--arm a='./track1 --preset=full' --runs=20 --until='mean<3.28,p<0.01' "
         "--out_dir=r2"),
        ("the PyTorch original beside ours, which draws its seeds itself",
         _RUN + "--arm ours='./track1 --preset=full' --arm original='torchrun train_gpt.py' "
         "--own_seeds --runs=8 --until='equal within 0.003' --out_dir=r3"),
        ("a sweep on two GPUs",
         _RUN + "--arm base=track1 --grid matrix_lr_mul=0.8,1,1.25 --gpus=0,1 --runs=4 "
         "--out_dir=r4"),
        ("goes on after an interruption", _RUN + "--out_dir=race1 --resume")),
    groups=(
        ("Arms", (
            Flag("arm", [], "NAME=COMMAND, once for each arm; the first is what others are "
                 "compared with. {seed} in the command is the run's seed; track1 and track2 are "
                 "given --seed and --metrics. VAR=VALUE may stand before the program."),
            Flag("grid", [], "FLAG=VALUE,VALUE,...: makes an arm of each value, of several --grid "
                 "of each combination. In place of {FLAG} in the command, else added as a flag."),
            Flag("own_seeds", False, "Arms without {seed} draw their seeds themselves."))),
        ("Runs", (
            Flag("runs", 8, "Of each arm; with --until the most that are made."),
            Flag("first_seed", 0, "Runs have this seed and the next ones, the same in each arm."),
            Flag("gpus", "", "Runs are made side by side, one on each of these, such as 0,1,2,3; "
                 "0+1,2+3 gives each run two. Empty: one after another, on what a run finds."),
            Flag("run_timeout", 0.0, "Seconds after which a run is ended, as failed. 0: none."))),
        ("What is to be shown", (
            Flag("until", "", "Stop once it is shown: 'mean<3.28,p<0.01', 'equal within 0.003' or "
                 "'half<base,p<0.05'; 'half: mean<3.28' says of which arm. Looked at after each "
                 "block of one run an arm, with an error rate of at most p for all looks."),
            Flag("spend", "obf", "How looks share that rate: obf, little early (O'Brien and "
                 "Fleming), or pocock, more evenly."),
            Flag("detect", 0.002, "The plan says how many runs show a difference of so many nats a "
                 "token. 0: nothing."),
            Flag("sd", 0.0, "Of the losses of one arm's runs, for the plan. 0: from --earlier."),
            Flag("earlier", "", "Logs of finished runs of one program, or a race's folder, whose "
                 "sd and time the plan takes."))),
        ("Folder", (
            Flag("out_dir", "", "Where logs, summary.json, README.md and report.html go."),
            Flag("resume", False, "Go on with the race in --out_dir; its arms may be left out."),
            Flag("title", "", "Of README.md and report.html. Empty: made of the arms' names."),
            Flag("report", "", "The program //tools/report, which draws curves.html. Empty: the "
                 "one built with this tool, if there is one."),
            Flag("plan", False, "Say the plan and make no run."))),
    ))


def check_flags(given: dict) -> None:
    """BadInput for values out of range."""
    if not given["out_dir"] and not given["plan"]:
        raise BadInput("--out_dir: missing; give a new folder, such as --out_dir=race1")
    if not 1 <= given["runs"] <= MOST_RUNS:
        raise BadInput(f"--runs={given['runs']}: must be from 1 to {MOST_RUNS}")
    if given["first_seed"] < 0:
        raise BadInput(f"--first_seed={given['first_seed']}: must not be negative")
    for name in ("detect", "sd", "run_timeout"):
        if not 0 <= given[name] < float("inf"):
            raise BadInput(f"--{name}={given[name]:g}: must be 0 or a positive number")
    if given["spend"] not in SPENDINGS:
        raise BadInput(f"--spend={given['spend']}: there are {', '.join(SPENDINGS)}")
    gpus_of(given)


def gpus_of(given: dict) -> list[str]:
    """For CUDA_VISIBLE_DEVICES, a text a lane."""
    if not given["gpus"]:
        return []
    lanes = given["gpus"].split(",")
    each = [gpu for lane in lanes for gpu in lane.split("+")]
    if not all(re.fullmatch(r"[A-Za-z0-9-]+", gpu) for gpu in each) or len(set(each)) < len(each):
        raise BadInput(f"--gpus={given['gpus']}: must be GPUs with commas between them, each once, "
                       "such as 0,1 or, with two for each run, 0+1,2+3")
    return [lane.replace("+", ",") for lane in lanes]


def source_folder() -> str:
    """Of the checkout: where `bazel run` was called for, or this script's."""
    return os.environ.get("BUILD_WORKSPACE_DIRECTORY", HERE)


def new_plan(given: dict) -> Plan:
    arms = arms_of.make_arms(given["arm"], given["grid"])
    fingerprints = tuple(arms_of.fingerprint(a, BUILT) for a in arms)  # of programs that are there
    arms_of.check_seeds(arms, given["own_seeds"])
    names = [a.name for a in arms]
    if given["until"]:
        parse_until(given["until"], names)
        if given["runs"] < 2:
            raise BadInput(f"--until={given['until']}: a t-test takes two runs; give --runs=2 or "
                           "more")
    title = given["title"] or (f"Race of {' and '.join(names)}" if len(names) < 4 else
                               f"Race of {len(names)} arms")
    return Plan(tuple(arms), fingerprints, given["runs"],
                given["first_seed"], max(1, len(gpus_of(given))), given["until"], given["spend"],
                title, machine.utc(), machine.commit(source_folder()),
                "race " + shlex.join(sys.argv[1:]))


def check_same(plan: Plan, given: dict, said: set[str], folder: Folder) -> Plan:
    """The plan of a race that goes on, with more runs if that is asked for. BadInput if what was
    `said` on the command line is of another race, or a program has changed."""
    where = f"--out_dir={folder.path}: its race"
    if given["arm"] or given["grid"]:
        arms = arms_of.make_arms(given["arm"], given["grid"])
        if arms != list(plan.arms):
            other = next((a for a in arms if a not in plan.arms), plan.arms[-1])
            raise BadInput(f"{where} has other arms, {', '.join(a.name for a in plan.arms)}: "
                           f"{other.name}=\"{other.command}\" is not on both sides. Another race "
                           "needs another folder")
    for name in ("first_seed", "until", "spend"):
        if name in said and given[name] != getattr(plan, name):
            raise BadInput(f"{where} has --{name}={getattr(plan, name)}, which cannot be changed; "
                           "another race needs another folder")
    for arm, before in zip(plan.arms, plan.fingerprints):
        if arms_of.fingerprint(arm, BUILT) != before:
            raise BadInput(f"arm {arm.name}: its program, {arms_of.find_program(arm, BUILT)}, is "
                           f"another than when the race began ({before[:16]}): runs of two "
                           "programs are not one arm's. Put it back, or begin another race")
    if "runs" not in said or given["runs"] == plan.runs:
        return plan
    if plan.until:
        raise BadInput(f"{where} has --runs={plan.runs} and --until={plan.until}: its error rate "
                       "holds for so many runs. Another race needs another folder")
    if given["runs"] < plan.runs:
        raise BadInput(f"{where} has --runs={plan.runs}; it can have more, not fewer")
    note = (f"planned with {plan.runs} runs of each arm; {given['runs']} were asked for when "
            f"{len(folder.records())} runs had been seen, which the p values do not allow for")
    return dataclasses.replace(plan, runs=given["runs"], extensions=(*plan.extensions, note))


def draw_curves(folder: Folder, plan: Plan, records: dict, program: str) -> bool:
    """curves.html by //tools/report. False, with a message if a program was named, if it cannot."""
    built = os.path.join(BUILT, "report", "report")
    path = os.path.abspath(program) if program else built
    if not program and not os.access(path, os.X_OK):
        return False
    inputs = []
    for arm in plan.arms:
        for seed in finished(records, arm.name):
            inputs += [f"{arm.stem}:{arm.stem}.{seed}=logs/{name}" for name in
                       (f"{arm.stem}.{seed}.txt", f"{arm.stem}.{seed}.jsonl")
                       if os.path.exists(folder.of("logs", name))]
    if not inputs:
        return False
    environment = {k: v for k, v in os.environ.items() if k != "BUILD_WORKING_DIRECTORY"}
    try:
        done = subprocess.run([path, "--out=curves.html", "--overwrite", f"--title={plan.title}",
                               *inputs], cwd=folder.path, env=environment, capture_output=True,
                              text=True, check=False)
        if done.returncode == 0:
            return True
        said = done.stderr.strip().rpartition("\n")[2]
    except OSError as error:
        said = str(error)
    print(f"race: no curves.html: {path}: {said}", file=sys.stderr)
    return False


def state_text(ending: Ending) -> str:
    return {"done": "all were made", "shown": f"ended early: {ending.why}",
            "interrupted": "interrupted; --resume goes on",
            "stopped": f"stopped: {ending.why}"}[ending.state]


def write_outputs(folder: Folder, plan: Plan, records: dict, ending: Ending, given: dict) -> None:
    interruptions = {a.name: sum(folder.interruptions(a, s) for s in plan.seeds())
                     for a in plan.arms}
    found = analyse(plan, records, interruptions, given["detect"])
    state = state_text(ending)
    curves = draw_curves(folder, plan, records, given["report"])
    for name, text in (("summary.json", summary_json(plan, records, found, state)),
                       ("README.md", readme(plan, records, found, state, given["detect"])),
                       ("report.html", report_html(plan, records, found, state, curves))):
        write_atomically(folder.of(name), text)
    for arm in found.arms:
        gone = "".join(f", {n} {what}" for n, what in ((arm.diverged, "diverged"),
                                                       (arm.failed, "failed")) if n)
        print(f"{arm.name}: {arm.finished} of {arm.planned} runs{gone}; loss "
              f"{spread_text(arm.loss, 4)}, train time {spread_text(arm.train_s, 2)} s")
    for comparison in found.comparisons:
        print(comparison_text(comparison))
    for note in found.notes:
        print(f"note: {note}")
    if found.verdict:
        print(found.verdict.text)
    print(f"{folder.path}: README.md, report.html, summary.json{', curves.html' * curves}")


def race(folder: Folder, plan: Plan, given: dict, earlier: Earlier, interrupts: Interrupts) -> int:
    programs = {a.name: arms_of.find_program(a, BUILT) for a in plan.arms}
    told = seen_enough(plan, folder.records())
    rule = parse_until(plan.until, [a.name for a in plan.arms]) if plan.until else None

    def decided() -> str:
        verdict = verdict_of(plan, runner.records)
        return verdict.headline if verdict and verdict.state in ("shown", "impossible") else ""

    def tell(record) -> None:
        nonlocal told
        progress.tell(record, runner.lanes)
        if not told and seen_enough(plan, runner.records):
            told = True
            seen = from_records(list(runner.records.values()), "of the runs so far")
            for line in plan_text(plan, rule, seen, given["detect"], len(runner.records))[1:]:
                if seen.sd:
                    progress.say(f"race: {line}")

    runner = Runner(folder, plan, programs, gpus_of(given), given["run_timeout"], decided, tell,
                    lambda lanes: progress.tick(lanes))
    progress = Progress(plan, folder, runner.records, earlier.run_s)
    try:
        ending = runner.run(interrupts)
    except KeyboardInterrupt:
        ending = Ending("interrupted")
    progress.say(f"race: {state_text(ending)}")
    write_outputs(folder, plan, runner.records, ending, given)
    if ending.state in ("stopped", "interrupted"):
        return STOPPED if ending.state == "stopped" else INTERRUPTED
    verdict = verdict_of(plan, runner.records)
    return NOT_SHOWN if verdict and verdict.state != "shown" else 0


def main(argv: list[str]) -> int:
    if sys.version_info < (3, 10):
        raise BadInput(f"Python {platform.python_version()}: it takes 3.10 or newer")
    said = parse(TOOL, argv)
    if "BUILD_WORKING_DIRECTORY" in os.environ:  # of "bazel run": files are where the user is
        os.chdir(os.environ["BUILD_WORKING_DIRECTORY"])
    given = {f.name: f.default for f in TOOL.flags().values()} | said
    check_flags(given)
    folder = Folder(given["out_dir"].rstrip("/") or "/")
    if given["resume"]:
        before = folder.read_plan() if given["plan"] else folder.resume()
        plan = check_same(before, given, set(said), folder)
    else:
        plan = new_plan(given)
    records = folder.records() if given["resume"] else {}
    earlier = Earlier(given["sd"] or None, "of --sd")
    if given["earlier"]:
        known = read_earlier(given["earlier"])
        earlier = dataclasses.replace(known, sd=earlier.sd or known.sd)
    elif records and not given["sd"]:
        earlier = from_records(list(records.values()), "of the runs so far")
    rule = parse_until(plan.until, [a.name for a in plan.arms]) if plan.until else None
    if not given["plan"] and not given["resume"]:
        folder.begin(plan)
    for line in plan_text(plan, rule, earlier, given["detect"], len(records)):
        print(f"race: {line}", file=sys.stderr)
    if given["plan"]:
        return 0
    interrupts = Interrupts()
    if given["resume"]:
        if ended := end_left_behind(folder.of("running")):
            print(f"race: ended {ended} processes that the interrupted race had left",
                  file=sys.stderr)
        if plan != before:
            folder.save_plan(plan)
    return race(folder, plan, given, earlier, interrupts)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Answered as answer:
        print(answer)
    except KeyboardInterrupt:
        print("race: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        print(f"race: {disk_error(error)}", file=sys.stderr)
        sys.exit(1)
    except ValueError as error:
        print(f"race: {error}", file=sys.stderr)
        sys.exit(1)
