#!/usr/bin/env python3
"""Fails when a test names a fact that docs/facts.md does not list.

    tools/ci/check_facts.py

Tests carry the codes of facts in their names (TEST(Adam, T1_50_Golden), UO_36, X5) and in comments
("case N7", "T2-30"). docs/facts.md has a row for each. Prints the codes without a row, with the first
file that names each, and rows that stand twice; exits with 1 if there are any.
"""

import pathlib
import re
import subprocess
import sys

PAGE = "docs/facts.md"

NUMBERED = r"(?:T1|T2|UO|AN|R92|K2)"  # families whose facts have numbers of two or three digits
LETTERS = r"(?:[CDO][1-9]\d?|[FGNSX][1-9])"  # a letter and a number

TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)")
NUMBERED_IN_NAME = re.compile(rf"(?<![A-Z0-9])({NUMBERED})_(\d{{2,3}})(?!\d)")
LETTERS_IN_NAME = re.compile(rf"(?<![^_])({LETTERS})(?![^_])")
NUMBERED_IN_TEXT = re.compile(rf"(?<![\w-])({NUMBERED})-(\d{{2,3}})(?!\d)")
LETTERS_IN_TEXT = re.compile(rf"\b[Cc]ases? ({LETTERS}(?:(?:, | and ){LETTERS})*)\b")
ROW = re.compile(rf"^\| ({NUMBERED}-\d+|{LETTERS}) \|", re.M)


def codes_in(text):
  """Yields the codes that a file names, T1-50 for T1_50."""
  for name in TEST.findall(text):
    yield from (f"{family}-{number}" for family, number in NUMBERED_IN_NAME.findall(name))
    yield from LETTERS_IN_NAME.findall(name)
  yield from (f"{family}-{number}" for family, number in NUMBERED_IN_TEXT.findall(text))
  for cases in LETTERS_IN_TEXT.findall(text):
    yield from re.findall(LETTERS, cases)


def main():
  root = pathlib.Path(__file__).resolve().parents[2]
  names = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True)
  first = {}  # code: the first file that names it
  for name in sorted(names.stdout.decode().split("\0")):
    path = root / name
    if not name or name in (PAGE, "tools/ci/check_facts.py") or "/testdata/" in name or not path.is_file():
      continue
    try:
      text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
      continue
    for code in codes_in(text):
      first.setdefault(code, name)

  page = (root / PAGE).read_text(encoding="utf-8")
  rows = ROW.findall(page)
  missing = sorted(set(first) - set(rows))
  twice = sorted({row for row in rows if rows.count(row) > 1})
  for code in missing:
    print(f"{first[code]}: names {code}, which {PAGE} does not list; add a row for it")
  for code in twice:
    print(f"{PAGE}: {code} has more than one row; keep one")
  if not first:
    print("no test names a fact: this script no longer finds what it looks for")
  print(f"{PAGE}: {len(rows)} rows, {len(first)} codes named, {len(missing)} missing")
  return 1 if missing or twice or not first else 0


if __name__ == "__main__":
  sys.exit(main())
