"""command_line.py: flags and their errors."""

from __future__ import annotations

import unittest

from bad_input import BadInput
from command_line import Answered, Flag, Tool, parse

TOOL = Tool("tool", "does something.", "tool [flags]", lambda: "tool, version 1",
            (("an example", "tool"),),
            (("Group", (Flag("arm", [], "Repeats."), Flag("runs", 8, "A number."),
                        Flag("sd", 0.5, "Another."), Flag("plan", False, "Or not."),
                        Flag("color", True, "Or not."), Flag("out", "", "A text."))),))


class CommandLine(unittest.TestCase):
    def test_values(self) -> None:
        self.assertEqual(parse(TOOL, []), {"arm": []})
        self.assertEqual(
            parse(TOOL, ["--arm=a=b c", "--arm", "d", "-runs=3", "--sd", "1e-3", "--plan",
                         "--nocolor", "--out="]),
            {"arm": ["a=b c", "d"], "runs": 3, "sd": 0.001, "plan": True, "color": False,
             "out": ""})
        self.assertEqual(parse(TOOL, ["--plan=false"])["plan"], False)

    def test_refused(self) -> None:
        for argv, why in ((["x"], '"x": not a flag'), (["--rums=3"], "did you mean --runs?"),
                          (["--xyzzy"], "--help lists them"), (["--norun"], "no such flag"),
                          (["--runs=x"], "must be a whole number"),
                          (["--sd=x"], "must be a number"),
                          (["--runs=1", "--runs=2"], "given twice"),
                          (["--runs"], "value is missing"),
                          (["--plan=maybe"], "true or false"), (["--help=maybe"], "true or false"),
                          (["--completion=zsh"], "for bash alone"), (["--"], "not a flag")):
            with self.assertRaises(BadInput, msg=argv) as refused:
                parse(TOOL, argv)
            self.assertIn(why, str(refused.exception))

    def test_answers(self) -> None:
        for argv, texts in ((["--help"], ("tool: does", "Group (defaults are shown)", "--nocolor")),
                            (["-h"], ("Usage: tool [flags]",)), (["--version"], ("version 1",)),
                            (["--completion=bash"], ("--runs=", "--plan "))):
            with self.assertRaises(Answered) as answer:
                parse(TOOL, argv)
            for text in texts:
                self.assertIn(text, str(answer.exception))
        self.assertEqual(parse(TOOL, ["--help=false"]), {"arm": []})


if __name__ == "__main__":
    unittest.main()
