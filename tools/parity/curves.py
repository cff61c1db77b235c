"""Trains a record from the weights that its PyTorch original began with, on the same tokens with
the same schedule, and says whether it reaches the same losses. See README.md.

    bazel run --config=cuda //tools/parity:curves -- --record=unified_optimizers --seeds=5 \\
        --train_files='text/train_*.bin' --val_files='text/val_*.bin'
    python3 curves.py --binary=./track1 ...                    # without Bazel
    python3 curves.py --metrics='ours.*.jsonl' ...    # runs made before; the last number: seed

Exits with 0 if the final losses are equal within --bound with p < 0.05, with 3 if that is not
shown, with 1 for bad input and with 2 if a run failed. Training needs torch and numpy, for the
initial weights; --metrics needs neither.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))  # before any change of folder
sys.path.append(os.path.join(os.path.dirname(HERE), "statistics"))

from curve_data import BadInput, Curve, Original, check_text, read_metrics, read_original
from students_t import Difference, deviation, equivalence, mean_of, paired, welch

STEPS = (2, 3, 4, 5, 10, 20, 40)
ALPHA = 0.05
NOT_SHOWN, RUN_FAILED = 3, 2
TRACK2 = ("record7",)
Pairs = dict[int, tuple[Curve, Curve]]  # by seed: ours, the original's


def schedule_flags(original: Original) -> list[str]:
    return [f"--record={original.record}", "--preset=full", f"--steps={original.steps}",
            f"--extension_steps={original.extension_steps}", "--momentum_steps=recipe",
            f"--val_tokens={original.val_tokens}", f"--val_every={original.steps}"]


def train(args: argparse.Namespace, original: Original, seed: int, folder: str) -> str:
    """Runs one seed and returns the path of its metrics."""
    import initial_weights  # needs torch

    weights = initial_weights.draw(original.record, seed)
    initial_weights.check_sums(weights, original.initial_sums[seed], f"seed {seed}")
    path = os.path.join(folder, "weights.safetensors")
    initial_weights.save(path, original.record, weights)
    del weights
    metrics = os.path.join(args.out_dir or folder, f"{original.record}.{seed}.jsonl")
    command = [args.binary, *schedule_flags(original), f"--init_from={path}",
               f"--train_files={args.train_files}", f"--val_files={args.val_files}",
               f"--metrics={metrics}", *args.flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    os.remove(path)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        print(f"curves: seed {seed}: {' '.join(command)} ended with {done.returncode}: {last}",
              file=sys.stderr)
        sys.exit(RUN_FAILED)
    return metrics


def find_metrics(pattern: str) -> dict[int, str]:
    """Files by seed, the last number in their names."""
    found: dict[int, str] = {}
    for path in sorted(glob.glob(pattern)):
        numbers = re.findall(r"\d+", os.path.basename(path))
        if not numbers:
            raise BadInput(f"{path}: no number in its name, so no seed")
        if (seed := int(numbers[-1])) in found:
            raise BadInput(f"{path} and {found[seed]}: both are of seed {seed}")
        found[seed] = path
    if not found:
        raise BadInput(f"--metrics={pattern}: no such file")
    return found


def choose_seeds(text: str, original: Original) -> list[int]:
    """A number of seeds, or their list with commas."""
    whole = original.whole()
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise BadInput(f"--seeds={text}: must be how many, such as 5, or a list, such as 0,1,2")
    seeds = [int(s) for s in text.split(",")] if "," in text else whole[: int(text)]
    if missing := [s for s in seeds if s not in whole]:
        raise BadInput(f"--seeds={text}: {original.path} has whole runs of {whole}, not {missing}")
    if len(set(seeds)) < len(seeds):
        raise BadInput(f"--seeds={text}: gives a seed twice")
    if len(seeds) < 2 or ("," not in text and len(seeds) < int(text)):
        raise BadInput(f"--seeds={text}: at least two, at most the {len(whole)} of {original.path}")
    return seeds


def losses_at(pairs: Pairs, steps: range) -> tuple[list[float], list[float]]:
    """The mean training losses of these steps, ours and the original's, a number a seed."""
    ours, other = ([mean_of([c.loss[s] for s in steps]) for c in side]
                   for side in zip(*pairs.values()))
    return ours, other


def row(name: str, ours: list[float], other: list[float]) -> str:
    d = paired(ours, other)
    return (f"{name:>9} {mean_of(ours):10.5f} {mean_of(other):10.5f} {d.mean:+10.5f} "
            f"{d.error:9.5f} {deviation(ours):9.5f} {deviation(other):9.5f}")


HEADER = (f"{'':>9} {'ours':>10} {'original':>10} {'diff':>10} {'error':>9} {'sd ours':>9} "
          f"{'sd orig':>9}")


def training_table(pairs: Pairs, steps: int) -> list[str]:
    lines = ["training loss, nats a target; error: of the mean difference of pairs", HEADER]
    lines += [row(f"step {s}", *losses_at(pairs, range(s, s + 1)))
              for s in (*STEPS, steps) if s <= steps]
    for first in range(1, steps + 1, 10):
        last = min(first + 9, steps)
        lines.append(row(f"{first}-{last}", *losses_at(pairs, range(first, last + 1))))
    return lines


def verdict(name: str, difference: Difference, bound: float) -> str:
    test = equivalence(difference, bound)
    return (f"{name}: difference {difference.mean:+.5f}, error {difference.error:.5f}, p of no "
            f"difference {difference.two_sided():.3f}; within {bound:g}: p {test.p:.4f} "
            f"(above -{bound:g}: {test.above:.4f}, below: {test.below:.4f})")


def final_table(pairs: Pairs, steps: int, bound: float) -> tuple[list[str], bool]:
    """Lines, and whether the paired test shows equivalence."""
    ours, other = ([c.val_loss[steps] for c in side] for side in zip(*pairs.values()))
    lines = [f"validation loss after {steps} steps", f"{'seed':>9} {'ours':>10} {'original':>10} "
             f"{'diff':>10}"]
    lines += [f"{seed:>9} {a:10.5f} {b:10.5f} {a - b:+10.5f}"
              for seed, a, b in zip(pairs, ours, other)]
    lines += [HEADER, row("mean", ours, other)]
    difference = paired(ours, other)
    lines.append(verdict("pairs of a seed", difference, bound))
    lines.append(verdict("independent samples (Welch)", welch(ours, other), bound))
    shown = equivalence(difference, bound).p < ALPHA
    lines.append(f"equal within {bound:g}: {'shown' if shown else 'not shown'} "
                 f"(pairs, p < {ALPHA:g}, {len(pairs)} seeds)")
    return lines, shown


def report(original: Original, pairs: Pairs, bound: float) -> tuple[str, bool]:
    machine = ", ".join(f"{k} {v}" for k, v in original.machine.items())
    lines = [f"{original.record}: {original.steps} steps, {original.extension_steps} of them "
             f"extension, momentum's warm-up as recorded; seeds {', '.join(map(str, pairs))}",
             f"original: {original.program}; {machine}"]
    final, shown = final_table(pairs, original.steps, bound)
    return "\n".join([*lines, "", *training_table(pairs, original.steps), "", *final]), shown


def default_binary(record: str) -> str:
    """Beside this script, in Bazel's runfiles."""
    return os.path.join(HERE, "..", "track2" if record in TRACK2 else "track1")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", required=True)
    parser.add_argument("--seeds", default="5", help="how many, or a list with commas")
    parser.add_argument("--train_files", help="globs of the shards that the original trained on")
    parser.add_argument("--val_files")
    parser.add_argument("--bound", type=float, default=0.003, help="nats a token")
    parser.add_argument("--binary", help="track1 or track2, built with CUDA")
    parser.add_argument("--metrics", help="glob of runs made before, in place of training")
    parser.add_argument("--out_dir", help="where the runs' metrics stay")
    parser.add_argument("--data", help="the original's losses; default: data/RECORD.json")
    parser.add_argument("flags", nargs="*", help="after --: further flags of the binary")
    args = parser.parse_args(argv)
    if not args.bound > 0:
        raise BadInput(f"--bound={args.bound:g}: must be positive")
    args.data = args.data or os.path.join(HERE, "data", f"{args.record}.json")
    args.binary = args.binary or default_binary(args.record)
    if not os.path.exists(args.data):
        files = glob.glob(os.path.join(os.path.dirname(args.data), "*.json"))
        known = sorted(os.path.basename(f).removesuffix(".json") for f in files)
        raise BadInput(f"--record={args.record}: no {args.data}; "
                       f"there is {', '.join(known) or 'none'}")
    if not args.metrics and not (args.train_files and args.val_files):
        raise BadInput("--train_files and --val_files: give the text that the original saw, or "
                       "--metrics of runs made before")
    return args


def runs_made_before(pattern: str, original: Original) -> Pairs:
    files = find_metrics(pattern)
    seeds = [s for s in original.whole() if s in files]
    if len(seeds) < 2:
        raise BadInput(f"--metrics={pattern}: has the seeds {sorted(files)}, {original.path} whole "
                       f"runs of {original.whole()}; two must be the same")
    return {s: (read_metrics(files[s], original), original.curves[s]) for s in seeds}


def runs_made_now(args: argparse.Namespace, original: Original) -> Pairs:
    seeds = choose_seeds(args.seeds, original)
    check_text(args.train_files, args.val_files, original.text)
    if not os.access(args.binary, os.X_OK):
        raise BadInput(f"--binary={args.binary}: no program; build //tools:track1 (Record 7: "
                       "track2) with --config=cuda")
    pairs = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            metrics = train(args, original, seed, folder)
            pairs[seed] = (read_metrics(metrics, original), original.curves[seed])
            print(f"seed {seed}: {pairs[seed][0].val_loss[original.steps]:.5f}", file=sys.stderr)
    return pairs


def main(argv: list[str]) -> int:
    if "BUILD_WORKING_DIRECTORY" in os.environ:  # of "bazel run": files are where the user is
        os.chdir(os.environ["BUILD_WORKING_DIRECTORY"])
    args = parse(argv)
    original = read_original(args.data)
    if original.record != args.record:
        raise BadInput(f"{args.data}: is of {original.record}, not {args.record}")
    pairs = (runs_made_before(args.metrics, original) if args.metrics else
             runs_made_now(args, original))
    text, shown = report(original, pairs, args.bound)
    print(text)
    return 0 if shown else NOT_SHOWN


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, ValueError, ImportError) as error:
        print(f"curves: {error}", file=sys.stderr)
        sys.exit(1)
