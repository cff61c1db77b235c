"""What fetch_fineweb takes for sound: sums, faults of shards, files that are there.

Nothing but loopback is reached; see fetch_fineweb_test.py.
"""

import os
import shutil
import sys
import unittest

import fake_hub
from fetch_testing import MERGES, TRAIN, VAL, FetchTest, merges, shard


class Verification(FetchTest):
    def refused(self, data, *texts):
        self.add(VAL, data)
        self.fetch_val(code=1)
        self.expect_text(*texts)
        self.expect_text("was removed")
        self.expect_nothing()

    def test_wrong_shards(self):
        self.refused(shard(magic=20240521), "magic number is 20240521, not 20240520")
        self.refused(shard(version=2), "shard version is 2, not 1")
        self.refused(shard(promised=50_001),
                     "promises 50001 tokens (100002 bytes), file holds 100000")
        self.refused(shard(promised=49_999), "promises 49999 tokens")
        self.refused(shard(change={49_999: 50257}), "the first 50257 at position 49999")
        self.refused(shard(change={0: 5}), "none of the 50000 tokens is BOS (50256)")
        self.refused(b"<html>sign in here</html>", "holds 25 bytes, less than the 1024")

    def test_last_id_and_a_document_cut_by_the_shards_start_are_fine(self):
        data = shard(change={0: 5, 49_999: 50256})
        self.add(VAL, data)
        self.fetch_val()
        self.expect_file(VAL, data)

    def test_bytes_that_are_not_those_of_the_sum(self):
        self.add(VAL, shard(seed=1)).sha256 = lambda: "0" * 64
        self.fetch_val(code=1)
        self.expect_text("not " + "0" * 64 + " as the hub says")
        self.expect_nothing()

    def test_other_size_than_the_hub_says(self):
        cdn = self.start_hub()
        self.add(VAL, shard()).redirect = cdn.address + "/x"
        for page in (b"<html>sign in here</html>", shard(tokens=60_000)):
            cdn.files["/x"] = fake_hub.File(page)
            self.fetch_val(code=1)
            self.expect_text("sends %d bytes where the hub promised 101024" % len(page))
            self.assertFalse(os.path.exists(self.path(VAL)))

    def test_sums_that_come_with_the_program(self):
        """Those of the real files, whatever the hub of this test says and sends."""
        committed = {}
        with open(os.path.join(os.path.dirname(__file__), "fineweb10B.sha256"), encoding="utf8") as file:
            for line in file:
                if not line.startswith("#"):
                    self.assertRegex(line, r"^[0-9a-f]{64}  \S+\n$")
                    committed[line.split()[1]] = line.split()[0]
        names = [VAL] + [TRAIN % i for i in range(1, 104)] + ["merges.txt"]
        self.assertEqual(list(committed), names)
        self.assertEqual(len(set(committed.values())), len(names))
        self.add(VAL, shard())
        self.fetch_val("--sums=committed", code=1)
        self.expect_text("the hub says its SHA-256 is ", "not %s as in fineweb10B.sha256" % committed[VAL], "--sums=")
        self.assertEqual(self.hub.gets(VAL), [])
        self.hub.files[MERGES] = fake_hub.File(merges(), large=False)
        self.fetch_val("--noval", "--vocab", "--vocab_file=m.txt", "--sums=committed", code=1)
        self.expect_text("m.txt.part: its SHA-256 is ", "was removed")
        self.assertEqual(os.listdir(self.folder), [])

    def test_the_committed_sum_of_the_merges_is_that_of_gpt2(self):
        with open("data/bpe/testdata/vocab.bpe", "rb") as file:
            data = file.read()
        self.hub.files[MERGES] = fake_hub.File(data, large=False)
        self.fetch_val("--noval", "--vocab", "--vocab_file=m.txt", "--sums=committed")
        self.expect_text("m.txt: fetched, SHA-256 as in fineweb10B.sha256, 456.3 kB")
        with open(os.path.join(self.folder, "m.txt"), "rb") as file:
            self.assertEqual(file.read(), data)

    def test_no_sum(self):
        """Bytes that nobody vouches for are not fetched, nor kept."""
        self.add(VAL, shard(), large=False)
        self.fetch_val(code=1)
        self.expect_text("the hub gives no SHA-256", "--sums")
        self.assertEqual(self.hub.gets(VAL), [])
        self.expect_nothing()
        with open(os.path.join(self.folder, "m.txt"), "wb") as file:
            file.write(merges())
        self.fetch_val("--noval", "--vocab", "--vocab_file=m.txt", code=1)
        self.expect_text("m.txt: cannot be verified")

    def test_wrong_sums_file(self):
        for text, said in (("abc  x.bin\n", "line 1 is not a SHA-256"), ("# y\n" + "0" * 64 + "\n", "line 2 is ")):
            with open(os.path.join(self.folder, "sums"), "w", encoding="utf8") as file:
                file.write(text)
            self.fetch_val("--sums=sums", code=1)
            self.expect_text(said)
        self.fetch_val("--sums=none", code=1)
        self.expect_text("none: cannot read the sums")

    def test_without_inspect_shard(self):
        """The script alone, where nothing was built: the SHA-256 must do."""
        alone = os.path.join(self.folder, "alone")
        os.mkdir(alone)
        for name in ("fetch_fineweb.py", "console.py", "curl.py", "flags.py", "transfer.py"):
            shutil.copy(os.path.join(os.path.dirname(__file__), name), alone)
        data = shard(magic=20240521)  # that only inspect_shard would find wrong
        self.add(VAL, data)
        self.program = os.path.join(alone, "fetch_fineweb.py")
        self.fetch_val()
        self.expect_text("fetched, SHA-256 as the hub says, 101.0 kB")
        self.fetch_val(code=1)
        self.expect_text(VAL + ": cannot be verified", "bazel build //tools/inspect_shard")

    def test_without_curl(self):
        programs = os.path.join(self.folder, "programs")
        os.mkdir(programs)
        os.symlink(os.path.realpath(sys.executable), os.path.join(programs, "python3"))
        self.add(VAL, shard())
        self.fetch_val(code=1, env={"PATH": programs})
        self.expect_text("fetch_fineweb: curl is not there", "install the package curl")

    def test_wrong_merges(self):
        self.hub.files[MERGES] = fake_hub.File(merges(49_999), large=False)
        sums = self.sums({"merges.txt": merges()})
        self.fetch_val("--noval", "--vocab", "--vocab_file=m.txt", sums, code=1)
        self.expect_text("m.txt.part: its SHA-256 is ")
        self.assertEqual(os.listdir(self.folder), ["sums"])

    def write(self, data):
        os.makedirs(self.out, exist_ok=True)
        with open(self.path(VAL), "wb") as file:
            file.write(data)

    def test_bad_file_that_is_there(self):
        self.write(shard()[:-2])
        self.add(VAL, shard())
        self.fetch_val(code=1)
        self.expect_text("header promises 50000 tokens", "--overwrite")
        self.assertEqual(self.hub.requests, [])
        self.expect_file(VAL, shard()[:-2])
        self.fetch_val("--overwrite")
        self.expect_text("; replaces it")
        self.expect_file(VAL, shard())

    def test_other_bytes_than_the_sum_says(self):
        """A shard without a fault that is not the data set's."""
        self.write(shard(seed=7))
        self.add(VAL, shard())
        sums = self.sums({VAL: shard()})
        self.fetch_val(sums, "--check_only", code=1)
        self.expect_text(VAL + ": its SHA-256 is ", "as in sums; move it away")
        self.fetch_val(sums, "--overwrite")
        self.expect_file(VAL, shard())

    def test_overwrite_keeps_good_files(self):
        self.write(shard(seed=7))
        self.add(VAL, shard(seed=8))
        self.fetch_val("--overwrite")
        self.expect_file(VAL, shard(seed=7))

    def test_check_only(self):
        self.write(shard())
        self.fetch_val("--check_only")
        self.expect_text("is there, 50,000 tokens")
        self.fetch("--shards=1", "--check_only", code=1)
        self.expect_text(TRAIN % 1 + ": cannot open", "without --check_only")
        self.write(shard(magic=1))
        self.fetch_val("--check_only", "--overwrite", code=1)
        self.expect_text("magic number is 1")
        self.assertEqual(self.hub.requests, [])


if __name__ == "__main__":
    unittest.main()
