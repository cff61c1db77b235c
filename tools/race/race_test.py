"""race.py as a program, on a double of a trainer: order, failures, kills, resumption, errors."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "statistics"))

import folder as folder_of
from bad_input import BadInput
from folder import Folder, disk_error

# trainer.py SEED --NAME=VALUE...: prints a run's log of a loss that the seed and --salt draw.
TRAINER = '''#!/usr/bin/env python3
import os, random, sys, time
seed, given = int(sys.argv[1]), dict(a.lstrip("-").split("=") for a in sys.argv[2:])
with open("calls", "a") as calls:
    calls.write(f"{given.get('salt', '')}{seed} {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n")
def listed(name):
    return str(seed) in given.get(name, "").split(",")
if listed("explode"):
    sys.exit("assertion: the loss is nan")
if listed("fail"):
    print("out of luck", file=sys.stderr)
    sys.exit(7)
if "needs" in given and not os.path.exists(given["needs"]):
    sys.exit("no " + given["needs"])
draw = random.Random(f"{seed} {given.get('salt')}").gauss
loss = float(given.get("mean", 3.28)) + draw(0, float(given.get("sd", 0.001)))
if "hang" in given:
    os.system("sleep 300")
for step in range(4):
    now = "nan" if step == 3 and listed("diverge") else f"{loss + 3 - step:.4f}"
    print(f"step:{step}/3 val_loss:{now} train_time:{100 * step}ms step_avg:1.00ms", flush=True)
    time.sleep(float(given.get("sleep", 0)) / 4)
'''
T = "./trainer.py {seed}"


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        with open(self.path("trainer.py"), "w", encoding="utf-8") as file:
            file.write(TRAINER)
        os.chmod(self.path("trainer.py"), 0o755)

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def start(self, *flags: str) -> subprocess.Popen:
        environment = {k: v for k, v in os.environ.items() if k != "BUILD_WORKING_DIRECTORY"}
        return subprocess.Popen([sys.executable, os.path.join(HERE, "race.py"), *flags],
                                cwd=self.folder, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def race(self, *flags: str) -> tuple[int, str, str]:
        process = self.start(*flags)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def good(self, *flags: str, code: int = 0) -> str:
        got, out, err = self.race(*flags)
        self.assertEqual(got, code, out + err)
        return out + err

    def refused(self, text: str, *flags: str) -> None:
        code, out, err = self.race(*flags)
        self.assertEqual((code, out), (1, ""), err)
        self.assertRegex(err, text)
        self.assertEqual(err.count("\nTraceback"), 0)

    def calls(self) -> list[str]:
        with open(self.path("calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def summary(self, out_dir: str = "r") -> dict:
        with open(self.path(out_dir, "summary.json"), encoding="utf-8") as file:
            return json.load(file)

    def losses(self, out_dir: str = "r") -> list[tuple]:
        return [(r["arm"], r["seed"], r["state"], r["loss"]) for r in self.summary(out_dir)["runs"]]

    def two(self, a: str = "", b: str = "") -> list[str]:
        return ["--arm", f"a={T} --salt=a {a}", "--arm", f"b={T} --salt=b {b}", "--out_dir=r"]


class Whole(InFolder):
    def test_order_and_outputs(self) -> None:
        said = self.good(*self.two(), "--runs=4", "--title=A <b> race")
        self.assertEqual([c.split()[0] for c in self.calls()],
                         ["a0", "b0", "b1", "a1", "a2", "b2", "b3", "a3"])
        self.assertRegex(said, r"race: 2 arms x 4 runs, seeds 0 to 3, one after another: a b, b a")
        self.assertRegex(said, r"a seed 2: 3\.2\d+ in 0\.3 s \(5 of 8 runs, [0-9.]+ s left\)")
        self.assertRegex(said, r"b - a: loss [+-]0\.0\d+ ± 0\.0\d+ \(95 % of 4 pairs\), p 0?\.?\d")
        with open(self.path("r", "README.md"), encoding="utf-8") as file:
            readme = file.read()
        for text in ("# A <b> race", "| a | 4 of 4 | 0 | 0 | 3 | 3.2", "## Runs",
                     "| a | 0 | finished |",
                     "`./trainer.py {seed} --salt=b `", "sha256", "machine: ",
                     "commit of the checkout",
                     "./trainer.py 3 --salt=a"):
            self.assertIn(text, readme)
        with open(self.path("r", "report.html"), encoding="utf-8") as file:
            page = file.read()
        self.assertIn("A &lt;b&gt; race", page)
        self.assertEqual(page.count('class="run"'), 8)
        self.assertEqual(page.count('class="bar"'), 2)
        summary = self.summary()
        self.assertEqual([a["loss"]["n"] for a in summary["arms"]], [4, 4])
        mean = sum(r["loss"] for r in summary["runs"] if r["arm"] == "a") / 4
        self.assertAlmostEqual(summary["arms"][0]["loss"]["mean"], mean)
        self.assertEqual(sorted(os.listdir(self.path("r", "logs"))),
                         [f"{arm}.{s}.txt" for arm in "ab" for s in range(4)])

    def test_grid(self) -> None:
        self.good("--arm", f"base={T}", "--grid=mean=3,3.1,3.3", "--grid=sd=0.1,0.2", "--runs=2",
                  "--out_dir=r")
        with open(self.path("r", "report.html"), encoding="utf-8") as file:
            page = file.read()
        for title in ("Loss against mean at sd=0.1", "Loss against mean at sd=0.2",
                      "Loss against sd at mean=3", "Loss against sd at mean=3.3"):
            self.assertIn(f"<h2>{title}</h2>", page)
        self.assertEqual(page.count("<polyline"), 5)
        holm = [c["p_holm"] / c["p"] for c in self.summary()["comparisons"] if c["p"]]
        self.assertTrue(all(h >= 1 for h in holm) and max(holm) > 2)

    def test_side_by_side(self) -> None:
        self.good(*self.two("--sleep=0.3", "--sleep=0.3"), "--runs=4", "--gpus=0+1,3")
        calls = dict(c.split() for c in self.calls())
        self.assertEqual(sorted(calls), [f"{arm}{s}" for arm in "ab" for s in range(4)])
        self.assertEqual(set(calls.values()), {"0,1", "3"})
        for seed in range(4):  # a pair has one card
            self.assertEqual(calls[f"a{seed}"], calls[f"b{seed}"])

    def test_rules(self) -> None:
        shown = self.good(*self.two(), "--runs=8", "--until=equal within 0.01")
        self.assertRegex(shown, r"a and b equal within 0.01: shown, p 0\.0\d+ \(two one-sided")
        self.assertLess(len(self.calls()), 16)
        before = self.losses()
        self.good("--out_dir=r", "--resume")  # nothing is left to do
        self.assertEqual(self.losses(), before)
        other = self.good("--arm", f"x={T}", "--runs=3", "--until=mean<3.2", "--out_dir=r2", code=3)
        self.assertIn("mean of x below 3.2: not shown, p ", other)


class Failures(InFolder):
    def test_kept_and_counted(self) -> None:
        said = self.good(*self.two("--fail=2", "--diverge=3"), "--runs=5")
        self.assertIn("a seed 2: FAILED: ended with code 7: out of luck", said)
        self.assertIn("b seed 3: DIVERGED: the validation after step 3 of 3 is nan", said)
        self.assertRegex(said, r"a: 4 of 5 runs, 1 failed; .*\nb: 4 of 5 runs, 1 diverged;")
        self.assertIn("note: 1 of 10 runs failed and have no loss", said)
        self.assertEqual([(a, s) for a, s, state, _ in self.losses() if state != "finished"],
                         [("a", 2), ("b", 3)])
        self.assertEqual(self.summary()["comparisons"][0]["pairs"], 3)
        self.assertTrue(os.path.exists(self.path("r", "failed", "a.2.stderr.txt")))
        self.assertTrue(os.path.exists(self.path("r", "failed", "b.3.txt")))

    def test_an_error_that_tells_of_nan(self) -> None:
        said = self.good(*self.two("", "--explode=1"), "--runs=2")
        self.assertIn("b seed 1: DIVERGED: ended with code 1: assertion: the loss is nan", said)

    def test_report_that_is_none(self) -> None:
        said = self.good(*self.two(), "--runs=2", "--report=./nowhere")
        self.assertRegex(said, "race: no curves.html: .*nowhere")
        self.assertTrue(os.path.exists(self.path("r", "report.html")))

    def test_a_diverged_run_ends_its_rule(self) -> None:
        said = self.good(*self.two("", "--diverge=1"), "--runs=6", "--until=b: mean<3.5", code=3)
        self.assertIn("mean of b below 3.5: cannot be shown", said)
        self.assertIn("the run of b with seed 1 diverged", said)

    def test_first_run_fails(self) -> None:
        said = self.good(*self.two("", "--needs=card"), "--runs=4", code=2)
        self.assertIn("no run of this arm has come to its end yet", said)
        self.assertIn("ended with code 1: no card", said)
        self.assertEqual(len(self.calls()), 2)
        open(self.path("card"), "w", encoding="utf-8").close()
        self.good("--out_dir=r", "--resume")
        self.assertEqual([row[:3] for row in self.losses()][:3],
                         [("a", 0, "finished"), ("b", 0, "failed"), ("b", 1, "finished")])

    def test_three_in_a_row(self) -> None:
        said = self.good(*self.two("", "--fail=1,2,3"), "--runs=6", code=2)
        self.assertIn("3 runs of an arm in a row failed", said)
        self.good("--out_dir=r", "--resume")
        self.assertEqual(len(self.calls()), 12)

    def test_seed_that_is_lost(self) -> None:
        # Losses with four digits take four validations to prove a copy.
        with open(self.path("trainer.py"), encoding="utf-8") as file:
            text = file.read().replace("range(4)", "range(6)").replace("/3 val", "/5 val")
        with open(self.path("trainer.py"), "w", encoding="utf-8") as file:
            file.write(text)
        said = self.good("--arm", "a=./trainer.py 3", "--own_seeds", "--runs=3", "--out_dir=r",
                         code=2)
        self.assertIn("has the losses of seed 0 at every validation", said)

    def test_timeout(self) -> None:
        said = self.good(*self.two("", "--hang=1"), "--runs=2", "--run_timeout=1", code=2)
        self.assertIn("b seed 0: FAILED: did not end within --run_timeout=1 s", said)

    def test_what_a_run_left_behind_is_ended(self) -> None:
        """A launcher that was killed with the race leaves its workers: --resume ends them."""
        process = self.start(*self.two("--hang=1"), "--runs=2")
        self.wait_for(lambda: os.path.exists(self.path("calls")))
        self.wait_for(lambda: self.sleeping())
        process.kill()
        process.communicate()
        left = self.sleeping()
        self.assertTrue(left)
        again = self.start("--out_dir=r", "--resume")
        self.wait_for(lambda: not left & self.sleeping())
        again.send_signal(signal.SIGINT)
        out, err = again.communicate(timeout=60)
        self.assertEqual(again.returncode, 130, err)
        self.assertRegex(err, "ended [0-9]+ processes that the interrupted race had left")
        self.assertEqual(self.sleeping(), set())

    def sleeping(self) -> set[str]:
        mark = f"NANOSPEED_RACE_RUN={os.path.realpath(self.path('r'))}".encode()
        found = set()
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file, open(path.replace("environ", "comm"), "rb") as name:
                    if mark in file.read() and name.read().strip() == b"sleep":
                        found.add(path)
            except OSError:
                continue
        return found

    def wait_for(self, condition) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "waited for a minute")
            time.sleep(0.05)


class Interrupted(InFolder):
    def interrupted(self, number: int) -> None:
        """A race that is stopped twice has the runs of one that is not."""
        flags = [*self.two("--sleep=0.2", "--sleep=0.2"), "--runs=3"]
        self.good(*flags)
        whole = self.losses()
        os.rename(self.path("r"), self.path("whole"))
        process = self.start(*flags)
        for runs in (1, 3):
            deadline = time.monotonic() + 60
            while len(glob.glob(self.path("r", "runs", "*.json"))) < runs:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            time.sleep(0.1)
            process.send_signal(number)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, -9 if number == signal.SIGKILL else 130)
            process = self.start("--resume", *flags)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(self.losses(), whole)
        self.assertGreaterEqual(sum(a["interrupted"] for a in self.summary()["arms"]), 1)
        kept = glob.glob(self.path("r", "interrupted", "*.txt"))
        self.assertTrue(kept)
        self.assertEqual(os.listdir(self.path("r", "running")), ["lock"])

    def test_sigint(self) -> None:
        self.interrupted(signal.SIGINT)

    def test_sigterm(self) -> None:
        self.interrupted(signal.SIGTERM)

    def test_sigkill(self) -> None:
        self.interrupted(signal.SIGKILL)

    def test_two_at_once(self) -> None:
        process = self.start(*self.two("--sleep=5"), "--runs=2")
        while not os.path.exists(self.path("calls")):
            time.sleep(0.02)
        self.refused("another process races there", "--out_dir=r", "--resume")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    def test_killed_between_record_and_move(self) -> None:
        self.good(*self.two(), "--runs=2")
        os.rename(self.path("r", "logs", "a.1.txt"), self.path("r", "running", "a.1.txt"))
        self.good("--out_dir=r", "--resume")
        self.assertTrue(os.path.exists(self.path("r", "logs", "a.1.txt")))
        self.assertEqual(len(self.calls()), 4)


class BadInputs(InFolder):
    def test_flags(self) -> None:
        two = self.two()
        self.refused("no arm; give at least one", "--out_dir=r")
        self.refused("--out_dir: missing", *two[:-1])
        self.refused("no program nope here", "--arm=a=nope {seed}", "--out_dir=r")
        self.refused("must be from 1 to 500", *two, "--runs=0")
        self.refused("each once", *two, "--gpus=0,0")
        self.refused("there are obf, pocock", *two, "--spend=x")
        self.refused("no such rule", *two, "--until=x")
        self.refused("takes two runs", *two, "--until=a<b", "--runs=1")
        self.refused("did you mean --runs?", *two, "--rums=1")
        self.refused("must be 0 or a positive number", *two, "--sd=nan")
        self.refused("no race to go on with", "--out_dir=r", "--resume")
        self.assertFalse(os.path.exists(self.path("r")))

    def test_folder_of_another(self) -> None:
        os.mkdir(self.path("other"))
        open(self.path("other", "x"), "w", encoding="utf-8").close()
        self.refused("has files that are no race's", "--arm", f"a={T}", "--out_dir=other")
        self.refused("Not a directory", "--arm", f"a={T}", "--out_dir=trainer.py/x")
        self.good(*self.two(), "--runs=2")
        self.refused("a race was begun there; --resume goes on", *self.two(), "--runs=2")
        self.refused("has other arms", "--arm", f"a={T}", "--out_dir=r", "--resume")
        self.refused("--first_seed=0, which cannot be changed", "--out_dir=r", "--resume",
                     "--first_seed=1")
        self.refused("--until=, which cannot be changed", "--out_dir=r", "--resume", "--until=a<b")
        self.refused("it can have more, not fewer", "--out_dir=r", "--resume", "--runs=1")
        self.good("--out_dir=r", "--resume", "--runs=3")
        self.assertEqual(len(self.losses()), 6)
        self.assertIn("3 were asked for when 4 runs had been seen", self.summary()["notes"][0])
        with open(self.path("trainer.py"), "a", encoding="utf-8") as file:
            file.write("# changed\n")
        self.refused("arm a: its program, .*trainer.py, is another than when the race began",
                     "--out_dir=r", "--resume")
        with open(self.path("r", "race.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        self.refused("race.json: not the plan of a race", "--out_dir=r", "--resume")

    def test_more_runs_with_a_rule(self) -> None:
        self.good(*self.two(), "--runs=2", "--until=a<b,p<0.001", code=3)
        self.refused("its error rate holds for so many runs", "--out_dir=r", "--resume", "--runs=4")

    def test_log_without_result(self) -> None:
        said = self.good("--arm", "a=echo {seed}", "--out_dir=r", code=2)
        self.assertIn("no line step:N/M val_loss:X train_time:Yms in it", said)

    def test_arms_that_differ_in_length(self) -> None:
        with open(self.path("longer.py"), "w", encoding="utf-8") as file:
            file.write(TRAINER.replace("range(4)", "range(5)").replace("/3 val", "/4 val"))
        os.chmod(self.path("longer.py"), 0o755)
        said = self.good("--arm", f"a={T}", "--arm", "b=./longer.py {seed}", "--runs=2",
                         "--out_dir=r")
        self.assertIn("note: the arms differ in length: a 3 steps, b 4 steps", said)


class Disk(unittest.TestCase):
    def test_full(self) -> None:
        with tempfile.TemporaryDirectory() as path:
            folder = Folder(path)
            with mock.patch.object(folder_of, "LEAST_FREE", 1 << 62):
                with self.assertRaisesRegex(BadInput, "MiB free on its disk.*then --resume"):
                    folder.check_space()
            folder.check_space()
            with self.assertRaises(OSError) as full:
                with open("/dev/full", "w", encoding="utf-8") as file:
                    file.write("x")
                    file.flush()
            self.assertRegex(str(disk_error(full.exception)), "No space left on device; free some")
            target = os.path.join(path, "x")
            folder_of.write_atomically(target, "before")
            with mock.patch.object(os, "fsync", side_effect=OSError(28, "No space")):
                with self.assertRaises(OSError):
                    folder_of.write_atomically(target, "after")
            with open(target, encoding="utf-8") as file:
                self.assertEqual(file.read(), "before")
            self.assertEqual(os.listdir(path), ["x"])


if __name__ == "__main__":
    unittest.main()
