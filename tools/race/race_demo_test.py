"""A race of real trainings of the demo: killed, interrupted, resumed, and compared with one that
was not. On one kind of machine a run's losses are the same bits each time.

    race_demo_test.py RACE VERIFY_RECORD
"""

from __future__ import annotations

import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

VERIFY, RACE = (os.path.abspath(sys.argv.pop()) for _ in range(2))
SMALL = ("track1 --preset=demo --steps=2 --slots=2 --batch_tokens=64 --val_tokens=64 "
         "--sample_lines=0 --threads=1 --device=cpu")


class Demo(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def start(self, *flags: str) -> subprocess.Popen:
        return subprocess.Popen([RACE, *flags], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def finished(self, process: subprocess.Popen, code: int) -> str:
        out, err = process.communicate(timeout=800)
        self.assertEqual(process.returncode, code, out + err)
        return out

    def runs(self, out_dir: str) -> dict[tuple[str, int], dict]:
        with open(os.path.join(self.folder, out_dir, "summary.json"), encoding="utf-8") as file:
            return {(r["arm"], r["seed"]): r for r in json.load(file)["runs"]}

    def wait_for_lines(self, run: str) -> None:
        """Until this run has begun to train."""
        path, deadline = os.path.join(self.folder, "killed", "running", f"{run}.txt"), 400
        for _ in range(deadline * 20):
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    if "step:0/2 val_loss" in file.read():
                        return
            time.sleep(0.05)
        self.fail(f"{path}: no line of a step in {deadline} s")

    def test_killed_and_resumed(self) -> None:
        flags = ["--arm", f"base={SMALL}", "--arm", f"half={SMALL} --matrix_lr_mul=0.5",
                 "--runs=2"]
        out = self.finished(self.start(*flags, "--out_dir=whole"), 0)
        self.assertRegex(out, r"half - base: loss .* \(95 % of 2 pairs\), p ")

        process = self.start(*flags, "--out_dir=killed")
        self.wait_for_lines("half.0")
        process.kill()
        process.communicate()
        process = self.start("--out_dir=killed", "--resume")
        self.wait_for_lines("base.1")
        process.send_signal(signal.SIGINT)
        self.finished(process, 130)
        self.finished(self.start("--out_dir=killed", "--resume"), 0)

        whole, killed = self.runs("whole"), self.runs("killed")
        self.assertEqual(list(whole), [("base", 0), ("half", 0), ("half", 1), ("base", 1)])
        self.assertEqual(list(killed), list(whole))
        for run, r in whole.items():
            self.assertEqual((killed[run]["state"], killed[run]["loss"], killed[run]["tokens"]),
                             ("finished", r["loss"], r["tokens"]), run)
            self.assertEqual(r["digits"], 8)  # of --metrics
        self.assertEqual(len({r["loss"] for r in whole.values()}), 4)  # seeds and flags matter
        kept = sorted(os.path.basename(p) for p in
                      glob.glob(os.path.join(self.folder, "killed", "interrupted", "*.1.txt")))
        self.assertEqual(kept, ["base.1.1.txt", "half.0.1.txt"])
        self.assertTrue(os.path.getsize(os.path.join(self.folder, "whole", "curves.html")))

        # The folder's logs are a record's: verify_record reads them as they are.
        said = subprocess.run([VERIFY, os.path.join(self.folder, "killed", "logs", "half.*")],
                              capture_output=True, text=True, check=True).stdout
        mean = float(re.search(r"losses of 2 runs: .*\(mean ([0-9.]+)", said)[1])
        losses = [r["loss"] for (arm, _), r in whole.items() if arm == "half"]
        self.assertAlmostEqual(mean, sum(losses) / 2, delta=6e-5)


if __name__ == "__main__":
    unittest.main()
