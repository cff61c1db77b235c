"""printed_log.py: its lines, its errors, and that it reads what verify_record reads.

    printed_log_test.py VERIFY_RECORD
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest

from printed_log import Diverged, Line, Unfinished, parse_line, progress_of, read_result

VERIFY = os.path.abspath(sys.argv.pop(1))


class Lines(unittest.TestCase):
    def test_forms(self) -> None:
        for text, line in (
                ("step:250/1680 val_loss:4.1234 train_time:14532ms step_avg:58.13ms",
                 Line(250, 1680, 4.1234, 14532)),
                ("step:251/1680 train_time:14590ms step_avg:58.13ms\n",
                 Line(251, 1680, None, 14590)),
                ("step:125/3200 val_loss:4.82555 train_time:99.402s",
                 Line(125, 3200, 4.82555, 99402)),
                ("step:1/9 train_loss:4.5 lr:0.1 train_time:5ms", Line(1, 9, None, 5)),
                ("step:9/9 val_loss:3.2 bpb:1.1 train_time:5ms", Line(9, 9, 3.2, 5)),
                ("  step:1/9 train_time:5ms", None), ("step:{step}/{n} val_loss", None),
                ("40 steps of 2048 tokens", None), ("step:1", None)):
            self.assertEqual(parse_line(text), line, text)
        for text in ("step:1/9 val_loss:x train_time:5ms", "step:1/9", "step:1/9 train_time:5",
                     "step:1/9 val_loss:3 text train_time:5ms", "step:1/9 train_time:xms"):
            with self.assertRaisesRegex(ValueError, "step:1/9", msg=text):
                parse_line(text)


class Logs(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def write(self, name: str, *lines: str) -> str:
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
        return path

    def log(self, name: str, loss: str, steps: int = 3, unit: str = "1000ms") -> str:
        return self.write(name, "nanospeed track1, commit 1, gcc", "some other line",
                          f"step:0/{steps} val_loss:10.8258 train_time:0ms step_avg:0.00ms",
                          f"step:{steps}/{steps} train_time:{unit} step_avg:1.00ms",
                          f"step:{steps}/{steps} val_loss:{loss} train_time:{unit} step_avg:1.00ms",
                          f"token stream: 4e5b over {steps} steps of 8 slots")

    def test_result(self) -> None:
        result = read_result(self.log("a.txt", "3.2774", unit="1.5s"))
        self.assertEqual((result.steps, result.loss, result.train_s, result.tokens, result.digits),
                         (3, 3.2774, 1.5, "4e5b", 4))
        self.assertEqual(result.head, ("nanospeed track1, commit 1, gcc",))
        self.assertEqual(result.validations, ((0, 10.8258), (3, 3.2774)))
        metrics = self.write("a.jsonl", '{"step":3,"loss":3.1}',
                             '{"step":3,"val_loss":3.27741234,"train_ms":1}')
        exact = read_result(os.path.join(self.folder, "a.txt"), metrics)
        self.assertEqual((exact.loss, exact.digits), (3.27741234, 8))
        with self.assertRaisesRegex(Unfinished, "not one run's files"):
            read_result(self.log("b.txt", "3.3"), metrics)

    def test_no_result(self) -> None:
        for lines, error, why in (
                ([], Unfinished, "no line step:N/M val_loss"),
                (["step:0/3 val_loss:9 train_time:0ms"], Unfinished, "after step 0 of 3"),
                (["step:3/3 val_loss:nan train_time:9ms"], Diverged, "step 3 of 3 is nan"),
                (["step:2/3 val_loss:inf train_time:9ms"], Diverged, "step 2 of 3 is inf"),
                (["step:3/3 val_loss:9 train_time:9ms", "step:0/3 val_loss:9 train_time:0ms"],
                 Unfinished, "x.txt:2: the steps go back"),
                (["step:3/3 val_loss:9 train"], Unfinished, "x.txt:1: .*needs the form")):
            with self.assertRaisesRegex(error, why):
                read_result(self.write("x.txt", *lines))

    def test_progress(self) -> None:
        path = self.write("p.txt", *[f"step:{s}/9000 train_time:5ms" for s in range(6000)],
                          "step:6000/9000 val_loss:3.5 train_time:5ms")
        self.assertEqual(progress_of(path), (6000, 9000, 3.5))
        self.assertEqual(progress_of(self.folder + "/none"), (0, 0, None))

    def test_as_verify_record(self) -> None:
        """Mean and deviation of the same logs, by its reader and by this one."""
        paths = [self.log(f"{k}.txt", loss, unit=unit) for k, (loss, unit) in enumerate(
            (("3.2774", "139000ms"), ("3.2779", "141.25s"), ("3.2812", "140000ms")))]
        said = subprocess.run([VERIFY, *paths], capture_output=True, text=True, check=True).stdout
        ours = [read_result(p) for p in paths]
        for what, values in (("losses", [r.loss for r in ours]),
                             ("times", [r.train_s for r in ours])):
            mean = float(re.search(rf"{what} of 3 runs: .*\(mean ([0-9.]+)", said)[1])
            self.assertAlmostEqual(mean, sum(values) / 3, delta=1e-6)
        for name, lines in (("cut", ["step:1/3 val_loss:9 train_time:0ms"]), ("none", ["text"]),
                            ("nan", ["step:3/3 val_loss:nan train_time:9ms"]),
                            ("bad", ["step:3/3 val_loss:3 train_time:9"])):
            path = self.write(name, *lines)
            self.assertEqual(subprocess.run([VERIFY, path, paths[0]], capture_output=True,
                                            check=False).returncode, 1, name)
            with self.assertRaises((Unfinished, Diverged), msg=name):
                read_result(path)


if __name__ == "__main__":
    unittest.main()
