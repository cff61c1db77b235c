"""curves.py, collect_curves.py and what they are made of, on made-up runs, without torch."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import json
import os
import sys
import tempfile
import types
import unittest

import collect_curves
import curves
from curve_data import BadInput, check_text, read_metrics, read_original

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, EXTENSION = 12, 2

# The trainer's double: writes the flags, and a run's metrics 0.001 above what it is told.
TRAINER = """#!/bin/sh
for flag in "$@"; do
  case "$flag" in
    --metrics=*) metrics="${flag#--metrics=}" ;;
    --init_from=*) cat "${flag#--init_from=}" > /dev/null || exit 1 ;;
    --fail) echo "first line" >&2; echo "no such device" >&2; exit 1 ;;
  esac
done
echo "$@" >> "$(dirname "$0")/flags"
cp "$(dirname "$0")/metrics" "$metrics"
"""


def run_line(**changes: object) -> dict:
    return {"kind": "run", "record": "made_up", "program": "nobody/nothing log.txt",
            "program_sha256": "0" * 64, "date": "2026-11-30", "card": "Card, 1.2, 3 MHz",
            "torch": "2", "cuda": "13", "triton": "3", "python": "3.12",
            "scheduled_steps": STEPS - EXTENSION, "extension_steps": EXTENSION,
            "val_tokens": 64, "text": {"t.bin": hashlib.sha256(b"train").hexdigest(),
                                       "v.bin": hashlib.sha256(b"val").hexdigest()}} | changes


def loss_of(seed: int, step: int) -> float:
    return 10 - 0.1 * step + 0.01 * seed


def seed_lines(seed: int, steps: int = STEPS) -> list[dict]:
    rows: list[dict] = [{"kind": "init", "seed": seed, "sums": {"w": [3, 0.5 + seed]}}]
    rows += [{"kind": "step", "seed": seed, "step": s, "loss": loss_of(seed, s), "ms": 1.0}
             for s in range(1, steps + 1)]
    if steps == STEPS:
        rows.append({"kind": "val", "seed": seed, "step": steps, "val_loss": 3.5 + 0.01 * seed})
    return [*rows, {"kind": "end", "seed": seed, "steps": steps}]


def metrics_lines(seed: int, above: float) -> list[dict]:
    rows: list[dict] = [{"step": s, "loss": loss_of(seed, s) + above}
                        for s in range(1, STEPS + 1)]
    return [{"step": 0, "val_loss": 10.8}, *rows,
            {"step": STEPS, "val_loss": 3.5 + 0.01 * seed + above}]


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def write(self, name: str, rows: list[dict]) -> str:
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return self.path(name)

    def collected(self, *seeds: int) -> str:
        """The path of a data file with these seeds' whole runs."""
        rows = [row for seed in seeds for row in seed_lines(seed)]
        data = collect_curves.collect([self.write("run.jsonl", [run_line(), *rows])], ["None."])
        with open(self.path("made_up.json"), "w", encoding="utf-8") as file:
            file.write(collect_curves.dump(data))
        return self.path("made_up.json")


class Collect(InFolder):
    def refused(self, text: str, *files: list[dict]) -> None:
        paths = [self.write(f"{k}.jsonl", rows) for k, rows in enumerate(files)]
        with self.assertRaisesRegex(BadInput, text):
            collect_curves.collect(paths, [])

    def test_reads_what_it_wrote(self) -> None:
        original = read_original(self.collected(0, 3))
        self.assertEqual((original.record, original.steps, original.extension_steps),
                         ("made_up", STEPS, EXTENSION))
        self.assertEqual(original.machine["driver"], "1.2")
        self.assertEqual(original.changes, ["None."])
        self.assertEqual(original.initial_sums[3], {"w": 3.5})
        self.assertEqual(original.curves[3].loss, {s: round(loss_of(3, s), 6)
                                                   for s in range(1, STEPS + 1)})
        self.assertEqual(original.curves[3].val_loss, {STEPS: 3.53})

    def test_runs_of_several_processes(self) -> None:
        cut = [*seed_lines(5)[:4]]
        first = self.write("1.jsonl", [run_line(), *seed_lines(1), *cut])
        second = self.write("2.jsonl", [run_line(date="2026-12-01"), *seed_lines(0),
                                        *seed_lines(2, 4)])
        with contextlib.redirect_stderr(io.StringIO()) as said:
            data = collect_curves.collect([first, second], [])
        self.assertIn("seed 5 was cut off", said.getvalue())
        self.assertEqual(list(data["seeds"]), ["0", "1", "2"])
        self.assertEqual(data["machine"]["date"], "2026-11-30, 2026-12-01")
        self.assertEqual(len(data["seeds"]["2"]["loss"]), 4)
        self.assertEqual(data["seeds"]["2"]["val_loss"], {})

    def test_bad_input(self) -> None:
        whole = seed_lines(0)
        self.refused("torch is 3 here and 2 in", [run_line(), *whole],
                     [run_line(torch="3"), *seed_lines(1)])
        self.refused("seed 0 was there before", [run_line(), *whole], [run_line(), *whole])
        self.refused("first line is not of the kind run", whole)
        self.refused("its run lacks record", [{"kind": "run"}])
        self.refused("not 1, 2, 3", [run_line(), *whole[:3], *whole[4:]])
        self.refused("0 lines of the kind init", [run_line(), *whole[1:]])
        self.refused("no validation after its last step", [run_line(), *whole[:-2], whole[-1]])
        self.refused("a loss of None",
                     [run_line(), whole[0], whole[1] | {"loss": None}, *whole[2:]])

    def test_cut_line(self) -> None:
        with open(self.path("cut.jsonl"), "w", encoding="utf-8") as file:
            file.write(json.dumps(run_line()) + '\n{"kind": "st')
        with self.assertRaisesRegex(BadInput, r"cut\.jsonl:2: not JSON"):
            collect_curves.collect([self.path("cut.jsonl")], [])


class Compare(InFolder):
    def run_curves(self, *flags: str) -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = curves.main(["--record=made_up", *flags])
        return code, said.getvalue()

    def compared(self, *differences: float) -> tuple[int, str]:
        """Runs of seeds 0, 1, ... that lie so far above the original's."""
        data = self.collected(*range(len(differences)))
        for seed, above in enumerate(differences):
            self.write(f"ours.{seed}.jsonl", metrics_lines(seed, above))
        return self.run_curves(f"--data={data}", f"--metrics={self.path('ours.*.jsonl')}")

    def test_equal(self) -> None:
        code, said = self.compared(0.0010, 0.0012, 0.0008, 0.0010, 0.0011)
        self.assertEqual(code, 0)
        self.assertIn("equal within 0.003: shown", said)
        self.assertRegex(said, r"pairs of a seed: difference \+0\.00102")
        self.assertRegex(said, r"step 10 +9\.02102 +9\.02000 +\+0\.00102")
        self.assertRegex(said, r"\n +1-10 .*\n +11-12 ")
        self.assertNotIn("step 20", said)

    def test_different(self) -> None:
        code, said = self.compared(0.0040, 0.0042, 0.0038, 0.0040, 0.0041)
        self.assertEqual(code, curves.NOT_SHOWN)
        self.assertIn("equal within 0.003: not shown", said)

    def test_too_noisy_to_say(self) -> None:
        self.assertEqual(self.compared(0.01, -0.01, 0.005, -0.006, 0.001)[0], curves.NOT_SHOWN)

    def refused(self, text: str, *flags: str) -> None:
        with self.assertRaisesRegex(BadInput, text):
            self.run_curves(*flags)

    def test_bad_input(self) -> None:
        data = f"--data={self.collected(0, 1)}"
        self.refused("made_up.json; there is .*unified_optimizers")
        self.refused("--train_files and --val_files", data)
        self.refused("no such file", data, "--metrics=nowhere*")
        self.write("ours.7.jsonl", metrics_lines(7, 0))
        self.refused("two must be the same", data, f"--metrics={self.path('ours.*')}")
        self.write("more.ours.7.jsonl", metrics_lines(7, 0))
        self.refused("both are of seed 7", data, f"--metrics={self.path('*ours.*')}")
        text = ["--train_files=t", "--val_files=v"]
        self.refused("has whole runs of", data, "--seeds=0,2", *text)
        self.refused("gives a seed twice", data, "--seeds=0,0", *text)
        for seeds in ("-1", "two", "0,", ""):
            self.refused("must be how many, such as 5", data, f"--seeds={seeds}", *text)
        self.refused("at least two", data, "--seeds=1", *text)
        self.refused("--bound=0: must be positive", data, "--bound=0")
        self.refused("at most the 2 of", data, "--seeds=3", *text)
        self.refused("t: no such file", data, "--seeds=2", *text)
        os.rename(self.path("made_up.json"), self.path("other.json"))
        with self.assertRaisesRegex(BadInput, "is of made_up, not other"):
            curves.main(["--record=other", f"--data={self.path('other.json')}", "--metrics=x"])

    def test_metrics_of_other_runs(self) -> None:
        original = read_original(self.collected(0))
        whole = metrics_lines(0, 0)
        for text, rows in (("last 11; the original's schedule has 12", whole[:-2]),
                           ("no validation after the last step, 12", whole[:-1]),
                           ("step 3 is there twice", [*whole[:4], *whole[3:]]),
                           ("step 1 has no loss", [{"step": 1, "loss": None}]),
                           ("no line of --metrics", [{"loss": 3}])):
            with self.assertRaisesRegex(BadInput, text):
                read_metrics(self.write("m.jsonl", rows), original)

    def test_original_that_is_none(self) -> None:
        for text, value in (("not losses of the original", {}), ("not losses of the original", [])):
            with self.assertRaisesRegex(BadInput, text):
                read_original(self.write("other.json", [value]))


class Train(InFolder):
    """Runs of a trainer's double from weights of a double of initial_weights."""

    def setUp(self) -> None:
        super().setUp()
        self.data = self.collected(0, 1)
        files = {"t.bin": b"train", "v.bin": b"val", "trainer": TRAINER.encode()}
        for name, content in files.items():
            with open(self.path(name), "wb") as file:
                file.write(content)
        os.chmod(self.path("trainer"), 0o755)
        self.write("metrics", metrics_lines(0, 0))
        weights = types.ModuleType("initial_weights")
        weights.draw = lambda record, seed: {"w": 0.5 + seed}
        weights.check_sums = lambda found, noted, who: self.assertEqual(found, noted)
        weights.save = self.save
        sys.modules["initial_weights"] = weights
        self.addCleanup(sys.modules.pop, "initial_weights")

    def save(self, path: str, record: str, weights: dict) -> None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump([record, weights], file)

    def run_curves(self, *flags: str) -> int:
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            try:
                return curves.main(["--record=made_up", f"--data={self.data}", "--seeds=2",
                                    f"--binary={self.path('trainer')}",
                                    f"--train_files={self.path('t*.bin')}",
                                    f"--val_files={self.path('v.bin')}", *flags])
            finally:
                self.said = said.getvalue()

    def test_flags(self) -> None:
        self.run_curves("--", "--device=1")
        with open(self.path("flags"), encoding="utf-8") as file:
            first, second = file.read().splitlines()
        for flag in ("--record=made_up", "--preset=full", f"--steps={STEPS}", "--device=1",
                     f"--extension_steps={EXTENSION}", "--momentum_steps=recipe",
                     "--val_tokens=64", f"--train_files={self.path('t*.bin')}"):
            self.assertIn(flag, first.split())
        self.assertRegex(first, r"--metrics=\S+made_up\.0\.jsonl")
        self.assertRegex(second, r"--metrics=\S+made_up\.1\.jsonl")

    def test_trainer_fails(self) -> None:
        with self.assertRaises(SystemExit) as ended:
            self.run_curves("--", "--fail")
        self.assertEqual(ended.exception.code, curves.RUN_FAILED)
        self.assertRegex(self.said, "seed 0: .* ended with 1: no such device")

    def test_no_trainer(self) -> None:
        with self.assertRaisesRegex(BadInput, "no program; build //tools:track1"):
            self.run_curves("--binary=nowhere")

    def test_other_text(self) -> None:
        with open(self.path("v.bin"), "wb") as file:
            file.write(b"other")
        with self.assertRaisesRegex(BadInput, r"v\.bin: sha256 .*; the original saw"):
            self.run_curves()
        with self.assertRaisesRegex(BadInput, "the original's text is t.bin, v.bin"):
            check_text(self.path("v.bin"), self.path("v.bin"), {"t.bin": "", "v.bin": ""})


class CommittedData(unittest.TestCase):
    def test_each_file(self) -> None:
        paths = sorted(glob.glob(os.path.join(HERE, "data", "*.json")))
        self.assertGreaterEqual(len(paths), 2)
        for path in paths:
            original = read_original(path)
            with self.subTest(record=original.record):
                self.assertEqual(os.path.basename(path), f"{original.record}.json")
                self.assertGreaterEqual(len(original.whole()), 4)
                sums = list(original.initial_sums.values())
                self.assertTrue(all(s.keys() == sums[0].keys() for s in sums))
                self.assertNotEqual(sums[0], sums[1])
                self.assertEqual([len(h) for h in original.text.values()], [64] * 5)
                for seed, curve in original.curves.items():
                    self.assertEqual(len(curve.loss), original.steps, seed)
                    self.assertTrue(3 < curve.val_loss[original.steps] < 4, seed)


if __name__ == "__main__":
    unittest.main()
