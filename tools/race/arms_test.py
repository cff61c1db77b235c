"""arms.py and the calls of programs that it makes."""

from __future__ import annotations

import os
import tempfile
import unittest

from arms import (check_seeds, find_program, fingerprint, invocation, make_arms, parse_arm)
from bad_input import BadInput


class Arms(unittest.TestCase):
    def refused(self, text: str, *arms: str, grids: tuple[str, ...] = ()) -> None:
        with self.assertRaisesRegex(BadInput, text):
            make_arms(list(arms), list(grids))

    def test_refused(self) -> None:
        self.refused("no arm; give at least one")
        self.refused("must be NAME=COMMAND", "track1")
        self.refused("must be NAME=COMMAND", "a/b=track1")
        self.refused("names no program", "base=A=1")
        self.refused("quotes do not match", "base=track1 --x='")
        self.refused("there is an arm Base", "Base=track1", "base=track1")
        self.refused("FLAG=VALUE,VALUE", "base=track1", grids=("lr=1",))
        self.refused("a value twice", "base=track1", grids=("lr=1,1",))
        self.refused("a flag twice", "base=track1", grids=("lr=1,2", "lr=3,4"))
        self.refused("letters, digits", "base=track1", grids=("lr=1,2/3",))
        self.refused("has --lr in its command", "base=track1 --lr=3", grids=("lr=1,2",))

    def test_grid(self) -> None:
        arms = make_arms(["base=track1 --steps=3"], ["lr=0.8,1", "wd=0,1"])
        self.assertEqual([a.name for a in arms],
                         ["lr=0.8,wd=0", "lr=0.8,wd=1", "lr=1,wd=0", "lr=1,wd=1"])
        self.assertEqual(arms[1].command, "track1 --steps=3 --lr=0.8 --wd=1")
        self.assertEqual((arms[1].point, arms[1].stem), ({"lr": "0.8", "wd": "1"}, "lr-0.8-wd-1"))
        two = make_arms(["a=track1", "b=LR={lr} python3 t.py {seed}"], ["lr=0.8,1"])
        self.assertEqual([(a.name, a.command) for a in two[1:3]],
                         [("a,lr=1", "track1 --lr=1"), ("b,lr=0.8", "LR=0.8 python3 t.py {seed}")])

    def test_seeds(self) -> None:
        check_seeds([parse_arm("a=./track1 --steps=3"), parse_arm("b=python3 t.py {seed}")], False)
        original = [parse_arm("original=torchrun train_gpt.py")]
        check_seeds(original, True)
        with self.assertRaisesRegex(BadInput, "has no {seed}: .*--own_seeds"):
            check_seeds(original, False)
        with self.assertRaisesRegex(BadInput, "has --seed in its command"):
            check_seeds([parse_arm("a=track1 --seed=3")], False)

    def test_invocation(self) -> None:
        ours = invocation(parse_arm("a=A=1 track1 --steps=3"), "/bin/track1", 5, "m.jsonl")
        self.assertEqual(ours.words, ["/bin/track1", "--steps=3", "--seed=5", "--metrics=m.jsonl",
                                      "--overwrite"])
        self.assertEqual(ours.variables, {"A": "1"})
        own = invocation(parse_arm("a=track1 --metrics=x --seed={seed} --overwrite"), "t", 5, "m")
        self.assertEqual(own.words, ["t", "--metrics=x", "--seed=5", "--overwrite"])
        other = invocation(parse_arm("a=SEED={seed} python3 'a b.py' --s={seed}"), "p", 7, "m")
        self.assertEqual((other.words, other.variables), (["p", "a b.py", "--s=7"], {"SEED": "7"}))


class Programs(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)

    def test_find(self) -> None:
        for name in ("trainer", "other.py"):
            with open(name, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n")
        with self.assertRaisesRegex(BadInput, r"\./trainer: cannot be executed"):
            find_program(parse_arm("a=./trainer {seed}"))
        os.chmod("trainer", 0o755)
        for command in ("trainer", "./trainer"):
            self.assertEqual(find_program(parse_arm(f"a={command}")), os.path.abspath("trainer"))
        self.assertTrue(os.path.isabs(find_program(parse_arm("a=sh -c x"))))
        for command, why in (("nowhere", "no program nowhere here"), ("./nowhere", "no such file")):
            with self.assertRaisesRegex(BadInput, f"arm a: .*{why}"):
                find_program(parse_arm(f"a={command}"))
        # A script that an interpreter runs is part of the program.
        arm = parse_arm("a=sh other.py")
        before = fingerprint(arm)
        with open("other.py", "a", encoding="utf-8") as file:
            file.write("exit 1\n")
        self.assertNotEqual(fingerprint(arm), before)


if __name__ == "__main__":
    unittest.main()
