"""Makes testdata/safetensors_cases.jsonl: damaged safetensors files, and which of them the
reference library refuses.

    pip install safetensors==0.8.0 numpy
    python3 make_safetensors_cases.py --out=testdata/safetensors_cases.jsonl
    python3 make_safetensors_cases.py --check=testdata/safetensors_cases.jsonl

--check makes the same files again, asks the library again and counts different files and
verdicts; exit code 1 if there are any. Each line is a JSON object: "case", "accepted", the library's "error", and "file",
the file's bytes in base64.
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
import pathlib
import random
import string
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator

import safetensors

VERSION = "0.8.0"
RANDOM_CASES = 160

# A header is a list of pairs, so that a key can come twice; so are the objects in it.
Pairs = list[tuple[str, object]]


class Raw(str):
    """JSON text that goes into a header as it is."""


def to_json(value: object) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return "{" + ",".join(f"{json.dumps(k)}:{to_json(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(to_json(item) for item in value) + "]"
    return json.dumps(value)


def tensor(dtype: str, shape: list, begin: object, end: object) -> Pairs:
    return [("dtype", dtype), ("shape", shape), ("data_offsets", [begin, end])]


def example() -> Pairs:
    """Three tensors and an empty one, of 24, 10, 0 and 16 bytes."""
    return [("__metadata__", [("format", "pt"), ("step", "7")]),
            ("a.weight", tensor("F32", [2, 3], 0, 24)),
            ("b", tensor("BF16", [5], 24, 34)),
            ("empty", tensor("F32", [0, 4], 34, 34)),
            ("last", tensor("I64", [2], 34, 50))]


DATA_BYTES = 50


def file_of(header: Pairs | str | bytes, data_bytes: int = DATA_BYTES,
            length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else (
        header if isinstance(header, str) else to_json(header)).encode()
    data = bytes(i % 251 for i in range(data_bytes))
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def with_field(name: str, field: str, value: object) -> Pairs:
    """The example with one field of one tensor changed."""
    return [(key, [(f, value if (key, f) == (name, field) else v) for f, v in entry])
            for key, entry in example()]


def without_field(name: str, field: str) -> Pairs:
    return [(key, [(f, v) for f, v in entry if (key, f) != (name, field)])
            for key, entry in example()]


def field_of(name: str, field: str) -> object:
    return dict(dict(example())[name])[field]


def offsets_cases() -> Iterator[tuple[str, bytes]]:
    names = ["a.weight", "b", "empty", "last"]
    for name in names:
        begin, end = field_of(name, "data_offsets")
        for d_begin, d_end in [(-1, 0), (1, 0), (0, -1), (0, 1), (4, 4), (-4, -4), (8, 0), (0, 8),
                               (-2, 2), (16, 16), (1000, 1000)]:
            yield (f"{name}: offsets moved by {d_begin}, {d_end}",
                   file_of(with_field(name, "data_offsets", [begin + d_begin, end + d_end])))
        yield f"{name}: offsets backwards", file_of(with_field(name, "data_offsets", [end, begin]))
        for other in names:
            if other != name:
                yield (f"{name}: offsets of {other}",
                       file_of(with_field(name, "data_offsets", field_of(other, "data_offsets"))))
    for value in [[24], [24, 34, 34], [], 24, "24", None, {}, ["24", "34"], [24.0, 34.0],
                  Raw("[24,3.4e1]"), Raw("[24,34.5]"), [None, 34], [True, 34], Raw("[-0,34]"),
                  Raw("[024,34]"), Raw("[24,18446744073709551616]"),
                  Raw("[24,18446744073709551615]"), Raw("[18446744073709551615,34]"),
                  Raw("[24,,34]"), Raw("[24,34,]"), Raw("[+24,34]")]:
        yield f"b: offsets {to_json(value)}", file_of(with_field("b", "data_offsets", value))


def cover_cases() -> Iterator[tuple[str, bytes]]:
    four = lambda begin: tensor("F32", [1], begin, begin + 4)
    yield "two names on the same bytes", file_of([("x", four(0)), ("y", four(0))], 4)
    yield "two names on the same bytes, then one", file_of(
        [("x", four(0)), ("y", four(0)), ("z", four(4))], 8)
    yield "overlapping by half", file_of([("x", four(0)), ("y", four(2))], 6)
    yield "one inside another", file_of([("x", tensor("U8", [12], 0, 12)), ("y", four(4))], 12)
    yield "a hole in the middle", file_of([("x", four(0)), ("y", four(8))], 12)
    yield "a hole at the beginning", file_of([("x", four(4))], 8)
    yield "a rest behind the last", file_of([("x", four(0))], 8)
    yield "the order of names is not that of bytes", file_of([("x", four(4)), ("y", four(0))], 8)
    yield "an empty tensor at the beginning", file_of(
        [("x", tensor("F32", [0], 0, 0)), ("y", four(0))], 4)
    yield "two empty tensors", file_of(
        [("x", tensor("F32", [0], 4, 4)), ("y", four(0)), ("z", tensor("F32", [3, 0], 4, 4))], 4)
    yield "an empty tensor inside another", file_of(
        [("x", tensor("F32", [0], 2, 2)), ("y", four(0))], 4)
    yield "an empty tensor behind the data", file_of(
        [("x", tensor("F32", [0], 8, 8)), ("y", four(0))], 4)
    yield "a scalar", file_of([("x", tensor("F32", [], 0, 4))], 4)
    yield "no tensor", file_of(Raw("{}"), 0)
    yield "no tensor, but data", file_of(Raw("{}"), 4)
    yield "metadata alone", file_of([("__metadata__", [("format", "pt")])], 0)
    for extra in [-50, -17, -16, -1, 1, 16]:
        yield f"{extra} bytes of data", file_of(example(), DATA_BYTES + extra)


def shape_cases() -> Iterator[tuple[str, bytes]]:
    for value in [[], [6], [3, 2], [2, 3, 1], [2, 4], [2, 2], [0], [2, -3], [-2, -3], [2.0, 3],
                  ["2", 3], "2x3", None, [None], [[2, 3]], Raw("[2,3e0]"), Raw("[-0]"),
                  [2**32, 2**32], [2**63, 2], [2**64 - 1], Raw("[18446744073709551616]"),
                  [2**62], [2**61, 8], [0, 2**64 - 1], [2**33, 2**33, 0], [0, 2**33, 2**33],
                  [2**49, 0]]:
        yield f"a.weight: shape {to_json(value)}", file_of(with_field("a.weight", "shape", value))
    for value in [[0], [4, 0], [0, 2**40], [2**49, 0], [2**64 - 1, 0], [0, 2**63],
                  [2**33, 2**33, 0], [0, 2**33, 2**33], [1, 0, 1], [1]]:
        yield f"empty: shape {to_json(value)}", file_of(with_field("empty", "shape", value))


def dtype_cases() -> Iterator[tuple[str, bytes]]:
    bits = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8,
            "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16,
            "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64,
            "I64": 64, "U64": 64, "C128": 128, "I4": 4, "U4": 4, "F8": 8, "f32": 32, "F32 ": 32,
            "float32": 32, "": 8, "F8_E4M3FN": 8}
    for dtype, width in bits.items():
        yield f"dtype {dtype!r}", file_of([("x", tensor(dtype, [4], 0, width // 2))], width // 2)
    for dtype in ["F4", "F6_E2M3", "F6_E3M2"]:
        yield f"{dtype}: not whole bytes", file_of([("x", tensor(dtype, [3], 0, 2))], 2)
        yield f"{dtype}: one element", file_of([("x", tensor(dtype, [1], 0, 1))], 1)
    for value in [None, 32, True, ["F32"], [], Raw('"F\\u00332"'), Raw('"F\\ud80032"')]:
        yield f"b: dtype {to_json(value)}", file_of(with_field("b", "dtype", value))
    for dtype in ["F32", "I64", "U16", "F16"]:
        yield f"b: dtype is {dtype}", file_of(with_field("b", "dtype", dtype))


def key_cases() -> Iterator[tuple[str, bytes]]:
    four = lambda begin, shape=(1,): tensor("F32", list(shape), begin, begin + 4)
    yield "a key twice, the same bytes", file_of([("x", four(0)), ("x", four(0))], 4)
    yield "a key twice, other bytes after", file_of([("x", four(0)), ("x", four(4))], 8)
    yield "a key twice, other bytes before", file_of([("x", four(4)), ("x", four(0))], 8)
    yield "a key twice, the last covers all", file_of(
        [("x", four(0)), ("x", tensor("F32", [2], 0, 8))], 8)
    yield "a key twice, the first covers all", file_of(
        [("x", tensor("F32", [2], 0, 8)), ("x", four(0))], 8)
    yield "a key twice, another between", file_of(
        [("x", four(0)), ("y", four(4)), ("x", four(8))], 12)
    yield "a key twice, another dtype", file_of(
        [("x", tensor("I32", [1], 0, 4)), ("x", four(0))], 4)
    yield "a key twice, the first is none", file_of([("x", Raw("5")), ("x", four(0))], 4)
    yield "a key twice, once escaped", file_of(
        Raw('{"x":%s,"\\u0078":%s}' % (to_json(four(0)), to_json(four(4)))), 8)
    for field in ["dtype", "shape", "data_offsets"]:
        yield f"b: no {field}", file_of(without_field("b", field))
        twice = example()
        entry = dict(twice)["b"]
        entry.append((field, field_of("b", field)))
        yield f"b: {field} twice, the same", file_of(twice)
        other = example()
        dict(other)["b"].insert(0, (field, field_of("last", field)))
        yield f"b: {field} twice, another first", file_of(other)
    for value in [5, None, "note", [1, 2], Raw("1e400"), Raw("NaN"), Raw("1.5"), Raw("tru"),
                  Raw('{"a":1,"a":2}')]:
        more = example()
        dict(more)["b"].append(("note", value))
        yield f"b: one more field, {to_json(value)}", file_of(more)
    for entry in [5, None, "b", [], Raw("{}"), True, ["BF16", [5]]]:
        yield f"b is {to_json(entry)}", file_of([(k, entry if k == "b" else v)
                                                 for k, v in example()])
    for name in ["", " ", "__metadata", "a.weight\n", "\u00e9", "\U0001f600", "x" * 300]:
        yield f"a tensor named {name[:20]!r}", file_of([(name, four(0))], 4)
    for text in ['"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\ud83d\\u0061"', '"\\x41"',
                 '"\\u12"', '"\t"', "'x'", "x"]:
        yield f"a tensor's name written {text!r}", file_of(Raw("{%s:%s}" % (text, to_json(four(0)))),
                                                           4)
    for byte in [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00",
                 b"\x7f", b"\x1f"]:
        text = b'{"x' + byte + b'":' + to_json(four(0)).encode() + b"}"
        yield f"a tensor's name with bytes {byte.hex()}", file_of(text, 4)


def metadata_cases() -> Iterator[tuple[str, bytes]]:
    x = to_json(tensor("F32", [1], 0, 4))
    for value in ["null", "{}", '{"a":"b"}', '{"a":1}', '{"a":null}', '{"a":"b","a":"c"}', "[]",
                  '"text"', "5", '{"a":{"b":"c"}}', '{"a":["b"]}', '{"":""}', "true"]:
        yield f"metadata {value}", file_of(Raw('{"__metadata__":%s,"x":%s}' % (value, x)), 4)
    yield "metadata behind", file_of(Raw('{"x":%s,"__metadata__":{"a":"b"}}' % x), 4)
    yield "metadata twice", file_of(
        Raw('{"__metadata__":{"a":"b"},"x":%s,"__metadata__":{"a":"b"}}' % x), 4)
    yield "metadata with a tensor's fields", file_of(Raw('{"__metadata__":%s}' % x), 4)


def text_cases() -> Iterator[tuple[str, bytes]]:
    text = to_json(example()).encode()
    for name, changed in [
            ("spaces behind", text + b"   "), ("a line end behind", text + b"\r\n\t "),
            ("a zero byte behind", text + b"\x00"), ("zero bytes behind", text + b"\x00" * 8),
            ("a form feed behind", text + b"\x0c"), ("a letter behind", text + b"x"),
            ("another object behind", text + b"{}"), ("a comma behind", text + b","),
            ("a space before", b" " + text), ("a line end before", b"\n" + text),
            ("a byte order mark before", b"\xef\xbb\xbf" + text), ("a zero byte before", b"\0" + text),
            ("a comment behind", text + b"//"), ("a comment within", text[:1] + b"/**/" + text[1:]),
            ("a comma too many", text[:-1] + b",}"), ("spaces within", text.replace(b":", b" : ")),
            ("line ends within", text.replace(b",", b",\n")),
            ("no closing brace", text[:-1]), ("no opening brace", text[1:]), ("cut", text[:100]),
            ("an array", b"[" + text + b"]"), ("a string", b'"x"'), ("a number", b"5"),
            ("null", b"null"), ("nothing", b""), ("a space", b" "), ("UTF-16", text.decode().encode("utf-16-le"))]:
        yield f"header: {name}", file_of(changed)
    for depth in [2, 60, 120, 124, 125, 126, 127, 128, 129, 130, 200]:
        nested = example()
        dict(nested)["b"].append(("note", Raw("[" * depth + "]" * depth)))
        yield f"header: {depth} brackets in one more field", file_of(nested)
    size = len(text)
    for length in [0, 1, 2, size - 1, size + 1, size + DATA_BYTES, size + DATA_BYTES + 1, 100_000_000,
                   100_000_001, 2**31, 2**32 + size, 2**63, 2**64 - 8, 2**64 - 1]:
        yield f"a header's length of {length}", file_of(example(), length=length)
    yield "a big-endian length", file_of(
        example(), length=struct.unpack("<Q", struct.pack(">Q", size))[0])
    whole = file_of(example())
    for keep in [0, 1, 7, 8, 9, 100, len(whole) - 1]:
        yield f"the first {keep} bytes", whole[:keep]
    yield "whole", whole
    yield "padded to 8", file_of(text + b" " * (-len(text) % 8))


def change_number(header: Pairs, rng: random.Random) -> None:
    entry = dict(rng.choice(header[1:])[1])
    field = rng.choice(["shape", "data_offsets"])
    numbers = entry[field]
    if numbers:
        at = rng.randrange(len(numbers))
        numbers[at] = max(0, numbers[at] + rng.choice([-24, -8, -2, -1, 1, 2, 8, 24]))


def swap_fields(header: Pairs, rng: random.Random) -> None:
    first, second = rng.sample(range(1, len(header)), 2)
    field = rng.choice(["dtype", "shape", "data_offsets"])
    (name_1, one), (name_2, two) = header[first], header[second]
    replaced = [[(f, dict(other)[f] if f == field else v) for f, v in entry]
                for entry, other in ((one, two), (two, one))]
    header[first], header[second] = (name_1, replaced[0]), (name_2, replaced[1])


def repeat_tensor(header: Pairs, rng: random.Random) -> None:
    name, entry = copy.deepcopy(rng.choice(header[1:]))
    header.insert(rng.randrange(len(header) + 1),
                  (rng.choice([name, name + "2"]), entry))


def drop_tensor(header: Pairs, rng: random.Random) -> None:
    del header[rng.randrange(len(header))]


def shuffle(header: Pairs, rng: random.Random) -> None:
    rng.shuffle(header)
    header.sort(key=lambda pair: pair[0] != "__metadata__")


def random_cases(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    changes: list[Callable[[Pairs, random.Random], None]] = [
        change_number, swap_fields, repeat_tensor, drop_tensor, shuffle]
    for number in range(RANDOM_CASES // 2):
        header, done = copy.deepcopy(example()), []
        for change in rng.choices(changes, k=rng.randint(1, 3)):
            if len(header) < 3 or header[0][0] != "__metadata__":
                break
            change(header, rng)
            done.append(change.__name__)
        yield f"random {number}: {', '.join(done)}", file_of(header)
    for number in range(RANDOM_CASES // 2):
        text = bytearray(to_json(example()).encode())
        for _ in range(rng.randint(1, 3)):
            text[rng.randrange(len(text))] = ord(rng.choice(string.digits + '{}[]",:. ab-'))
        yield f"random bytes {number}", file_of(bytes(text))


def all_cases() -> Iterator[tuple[str, bytes]]:
    for cases in (offsets_cases, cover_cases, shape_cases, dtype_cases, key_cases, metadata_cases,
                  text_cases):
        yield from cases()
    yield from random_cases(random.Random(7))


def verdict(content: bytes, folder: str) -> str:
    """The library's error; empty if it accepts. What reads bytes and what opens a file agree."""
    def error_of(read: Callable[[], object]) -> str:
        try:
            read()
        except safetensors.SafetensorError as error:
            return str(error)
        return ""

    path = pathlib.Path(folder) / "case.safetensors"
    path.write_bytes(content)

    def open_file() -> None:
        with safetensors.safe_open(path, framework="numpy") as file:
            file.keys()

    of_bytes, of_file = error_of(lambda: safetensors.deserialize(content)), error_of(open_file)
    if bool(of_bytes) != bool(of_file):
        raise AssertionError(f"deserialize: {of_bytes!r}, safe_open: {of_file!r}")
    return of_bytes


def make() -> list[dict]:
    cases, seen = [], set()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in all_cases():
            if content in seen:
                continue
            seen.add(content)
            error = verdict(content, folder)
            cases.append({"case": name, "accepted": not error, "error": error,
                          "file": base64.b64encode(content).decode()})
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--check")
    args = parser.parse_args()
    if safetensors.__version__ != VERSION:
        print(f"safetensors is {safetensors.__version__}, the verdicts are of {VERSION}",
              file=sys.stderr)
        return 1
    cases = make()
    accepted = sum(case["accepted"] for case in cases)
    print(f"{len(cases)} files: {accepted} accepted, {len(cases) - accepted} refused")
    if args.out:
        lines = [json.dumps(case) + "\n" for case in cases]
        pathlib.Path(args.out).write_text("".join(lines), encoding="utf-8")
    if not args.check:
        return 0
    lines = pathlib.Path(args.check).read_text(encoding="utf-8").splitlines()
    committed = [json.loads(line) for line in lines]
    for case in cases + committed:
        del case["error"]  # of several reasons, which is named depends on the order of a hash map
    differences = sum(a != b for a, b in zip(cases, committed)) + abs(len(cases) - len(committed))
    print(f"{differences} differences to {args.check}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
