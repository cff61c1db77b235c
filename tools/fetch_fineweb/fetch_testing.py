"""What the tests of fetch_fineweb share: shards, and runs of the program against fake hubs."""

import array
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import fake_hub

PROGRAM = os.path.abspath(sys.argv.pop(1))
SHARDS = "/datasets/kjj0/fineweb10B-gpt2/resolve/main/"
VAL = "fineweb_val_000000.bin"
TRAIN = "fineweb_train_%06d.bin"
MERGES = "/openai-community/gpt2/resolve/main/merges.txt"
MIB = 1 << 20


def shard(tokens=50_000, seed=0, magic=20240520, version=1, promised=None, change=None):
    """A shard whose bytes differ from place to place; change: {position: token}."""
    rng = random.Random(seed)
    block = [rng.randrange(50256) for _ in range(1021)]
    values = array.array("H", (block * (tokens // len(block) + 1))[:tokens])
    for at in range(0, tokens, len(block)):
        values[at] = at // len(block) % 50256
    values[0] = 50256
    for at, token in (change or {}).items():
        values[at] = token
    header = array.array("i", [magic, version, tokens if promised is None else promised])
    return header.tobytes() + bytes(1024 - 12) + values.tobytes()


def merges(count=50_000):
    """A vocab.bpe of that many merges: pairs of printable bytes, then triples."""
    letters = [chr(c) for c in range(33, 127)] + [chr(c) for c in range(161, 173)]
    letters += [chr(c) for c in range(174, 256)]
    lines = ["%s %s" % (a, b) for a in letters for b in letters]
    lines += ["%s%s %s" % (letters[0], b, c) for b in letters for c in letters]
    return ("#version: 0.2\n" + "\n".join(lines[:count]) + "\n").encode()


class FetchTest(unittest.TestCase):
    def setUp(self):
        self.program = PROGRAM
        self.hub = self.start_hub()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.out = os.path.join(self.folder, "data/fineweb10B")
        self.event = threading.Event()  # for fake_hub.hold
        self.addCleanup(self.event.set)

    def start_hub(self):
        hub = fake_hub.Hub()
        self.addCleanup(hub.close)
        return hub

    def add(self, name, data, large=True):
        file = fake_hub.File(data, large)
        self.hub.files[SHARDS + name] = file
        return file

    def path(self, name):
        return os.path.join(self.out, name)

    def command(self, *flags, endpoint=None):
        endpoint = endpoint or self.hub.address
        # The shards here are not those whose sums are committed; the hub's are believed unless a test gives others.
        return [self.program, "--endpoint=" + endpoint, "--sums=", "--retry_delay=20ms", *flags]

    def sums(self, data):
        """The flag for a file of sums of the data by their names."""
        path = os.path.join(self.folder, "sums")
        with open(path, "w", encoding="utf8") as file:
            file.write("# of this test\n\n")
            file.writelines("%s  %s\n" % (hashlib.sha256(d).hexdigest(), name) for name, d in data.items())
        return "--sums=" + path

    def environment(self, extra):
        return dict({"HOME": self.folder, "PATH": os.environ["PATH"]}, **extra)

    def fetch(self, *flags, code=0, env=None, endpoint=None):
        """Runs it to its end; all it printed is in self.text."""
        result = subprocess.run(
            self.command(*flags, endpoint=endpoint), cwd=self.folder,
            env=self.environment(env or {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, timeout=60, check=False)
        self.text = result.stdout + result.stderr
        self.assertEqual(result.returncode, code, self.text)
        return result

    def fetch_val(self, *flags, **options):
        return self.fetch("--shards=0", *flags, **options)

    def start_val(self, *flags):
        process = subprocess.Popen(
            self.command("--shards=0", *flags), cwd=self.folder, env=self.environment({}),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        return process

    def wait_for_part(self, name, size):
        end = time.time() + 20
        while time.time() < end:
            if os.path.exists(self.path(name + ".part")):
                if os.path.getsize(self.path(name + ".part")) >= size:
                    return
            time.sleep(0.01)
        self.fail("no part file of %d bytes" % size)

    def expect_file(self, name, data):
        with open(self.path(name), "rb") as file:
            self.assertTrue(file.read() == data, name + " has other bytes")
        self.assertFalse(os.path.exists(self.path(name + ".part")), name)

    def expect_nothing(self):
        self.assertEqual(os.listdir(self.out) if os.path.exists(self.out) else [], [])

    def expect_text(self, *texts):
        for text in texts:
            self.assertIn(text, self.text)
