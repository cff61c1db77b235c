"""fetch_fineweb against a hub of loopback: what comes, what is refused, what it says.

Nothing but loopback is reached. That the real hub behaves as fake_hub.py is not tested here.

  python3 fetch_fineweb_test.py PROGRAM [TEST...]
"""

import email.utils
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest

import fake_hub
from fetch_testing import MERGES, MIB, PROGRAM, TRAIN, VAL, FetchTest, merges, shard


class Whole(FetchTest):
    def test_shards_and_merges_to_their_places(self):
        data = {VAL: shard(seed=1), TRAIN % 1: shard(seed=2), TRAIN % 2: shard(seed=3)}
        for name, content in data.items():
            self.add(name, content)
        self.hub.files[MERGES] = fake_hub.File(merges(), large=False)
        flags = ("--shards=2", "--vocab", self.sums(dict(data, **{"merges.txt": merges()})))
        result = self.fetch(*flags)
        for name, content in data.items():
            self.expect_file(name, content)
        with open(os.path.join(self.folder, "data/gpt2/merges.txt"), "rb") as file:
            self.assertEqual(file.read(), merges())
        self.assertEqual(len(result.stdout.splitlines()), 4, self.text)
        self.assertEqual(result.stderr, "")
        self.expect_text("SHA-256 as in sums, 50,000 tokens, 101.0 kB", "merges.txt: fetched, SHA-256 as in sums, ")

        # Again: nothing is asked, nothing is touched.
        asked = len(self.hub.requests)
        before = {name: os.stat(self.path(name)).st_mtime_ns for name in data}
        self.fetch(*flags)
        self.assertEqual(len(self.hub.requests), asked)
        self.assertEqual({name: os.stat(self.path(name)).st_mtime_ns for name in data}, before)
        self.expect_text(TRAIN % 2 + ": is there, SHA-256 as in sums, 50,000 tokens",
                         "merges.txt: is there, SHA-256 as in sums")

    def test_nine_training_shards_by_default(self):
        for name in [VAL] + [TRAIN % i for i in range(1, 12)]:
            self.add(name, shard(tokens=10))
        self.fetch()
        self.assertEqual(sorted(os.listdir(self.out)),
                         sorted([VAL] + [TRAIN % i for i in range(1, 10)]))

    def test_data_path(self):
        self.add(VAL, shard())
        self.fetch_val(env={"DATA_PATH": os.path.join(self.folder, "elsewhere")})
        self.out = os.path.join(self.folder, "elsewhere/data/fineweb10B")
        self.expect_file(VAL, shard())

    def test_endpoint_from_the_environment(self):
        self.add(VAL, shard())
        result = subprocess.run(
            [PROGRAM, "--shards=0", "--sums="], cwd=self.folder, check=False, timeout=60,
            env=self.environment({"HF_ENDPOINT": self.hub.address + "/"}))
        self.assertEqual(result.returncode, 0)
        self.expect_file(VAL, shard())

    def test_so_many_at_once(self):
        names = [TRAIN % i for i in range(1, 8)]
        for name in names:
            self.add(name, shard()).get_faults = [fake_hub.hold(1000, self.event)]
        watcher = threading.Thread(target=self.set_event_when_active, args=(3,))
        watcher.start()
        self.fetch("--noval", "--shards=7", "--parallel=3")
        watcher.join()
        self.assertEqual(self.hub.most_active, 3)
        for name in names:
            self.expect_file(name, shard())

    def set_event_when_active(self, gets):
        end = time.time() + 20
        while self.hub.active < gets and time.time() < end:
            time.sleep(0.01)
        time.sleep(0.3)  # for any more
        self.event.set()

    def test_progress_bar_on_a_terminal(self):
        self.add(VAL, shard(tokens=MIB)).get_faults = [fake_hub.slowly(200_000, 0.15)]
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            self.command("--shards=0"), cwd=self.folder, env=self.environment({}), stderr=follower,
            stdout=subprocess.DEVNULL)
        os.close(follower)
        text = b""
        try:
            while chunk := os.read(leader, 4096):
                text += chunk
        except OSError:  # the terminal's end when its last user has gone
            pass
        os.close(leader)
        self.assertEqual(process.wait(), 0, text)
        bars = re.findall(rb"\[=*>? *\] ([0-9.]+)/2\.1 MB  [0-9.]+ MB/s  [0-9:-]+ left", text)
        self.assertGreater(len(bars), 3, text)
        self.assertEqual([float(b) for b in bars], sorted(float(b) for b in bars))
        self.assertTrue(text.endswith(b"\r\x1b[K"), text)  # removed


class Answers(FetchTest):
    def refused(self, status, *texts, env=None):
        self.hub.requests.clear()
        self.add(VAL, shard()).head_faults = [fake_hub.status(status)] * 9
        self.fetch_val(code=1, env=env)
        self.expect_text("the server answered %d" % status, *texts)
        self.assertEqual(len(self.hub.requests), 1)  # not tried again
        self.expect_nothing()

    def test_refusals_are_final(self):
        self.refused(401, "needs a token; set HF_TOKEN")
        self.refused(401, "the token of HF_TOKEN was refused", env={"HF_TOKEN": "hf_x"})
        self.refused(403, "set HF_TOKEN to a token that may read it")
        self.refused(403, "the token of HF_TOKEN may not read it", env={"HF_TOKEN": "hf_x"})
        self.refused(400, "unexpected of a hub")

    def test_404_names_all_files_before_any_is_fetched(self):
        self.add(VAL, shard())
        self.fetch("--shards=2", code=1)
        self.expect_text(TRAIN % 1 + ": the server answered 404", TRAIN % 2 + ": the server ")
        self.assertEqual(self.hub.gets(VAL), [])
        self.expect_nothing()

    def test_refused_after_head(self):
        self.add(VAL, shard()).get_faults = [fake_hub.status(403)]
        self.fetch_val(code=1)
        self.assertEqual(len(self.hub.gets(VAL)), 1)
        self.assertFalse(os.path.exists(self.path(VAL)))

    def test_one_failure_does_not_stop_other_files(self):
        self.add(TRAIN % 1, shard()).get_faults = [fake_hub.status(404)]
        self.add(TRAIN % 2, shard())
        self.fetch("--noval", "--shards=2", "--parallel=1", code=1)
        self.expect_text(TRAIN % 1 + ": the server answered 404")
        self.expect_file(TRAIN % 2, shard())

    def test_transient_answers(self):
        file = self.add(VAL, shard())
        file.head_faults = [fake_hub.status(502)]
        file.get_faults = [fake_hub.status(500), fake_hub.status(503), fake_hub.status(429)]
        self.fetch_val()
        self.expect_text("answered 502", "answered 500", "answered 503", "answered 429")
        self.expect_file(VAL, shard())

    def test_given_up(self):
        self.add(VAL, shard()).get_faults = [fake_hub.status(503)] * 9
        self.fetch_val("--retries=2", code=2)
        self.assertEqual(len(self.hub.gets(VAL)), 3)
        self.expect_text("given up after 3 tries without progress", "--retries")

    def test_retry_after_in_seconds(self):
        file = self.add(VAL, shard())
        file.get_faults = [fake_hub.status(429, {"Retry-After": "2"})]
        start = time.time()
        self.fetch_val()
        self.assertGreaterEqual(time.time() - start, 2)
        self.expect_text("answered 429; 0 bytes are there; tries again in 2s")
        self.expect_file(VAL, shard())

    def test_retry_after_as_a_date(self):
        file = self.add(VAL, shard())
        when = int(time.time()) + 3
        file.head_faults = [
            fake_hub.status(503, {"Retry-After": email.utils.formatdate(when, usegmt=True)})]
        self.fetch_val()
        self.assertGreaterEqual(time.time(), when)
        self.expect_file(VAL, shard())

    def test_retry_after_for_too_long(self):
        file = self.add(VAL, shard())
        file.get_faults = [fake_hub.status(429, {"Retry-After": "3600"})]
        self.fetch_val(code=2)
        self.expect_text("the server asks to wait for 3600s, more than the 300s")

    def test_nobody_there(self):
        self.fetch_val("--retries=1", code=2, endpoint="http://127.0.0.1:1")
        self.expect_text("127.0.0.1 port 1", "given up after 2 tries")


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


class Disk(FetchTest):
    def test_too_little_room(self):
        self.add(VAL, shard()).head_faults = [
            fake_hub.status(200, {"X-Linked-Size": "100000000000000000", "X-Linked-ETag": '"%s"' % ("0" * 64)})]
        self.fetch_val(code=1)
        self.expect_text("needs 100000.00 TB and has room for", "--out_dir")
        self.assertEqual(self.hub.gets(VAL), [])
        self.expect_nothing()

    def test_full_while_writing(self):
        os.makedirs(self.out)
        os.symlink("/dev/full", self.path(VAL + ".part"))
        self.add(VAL, shard())
        self.add(TRAIN % 1, shard())
        self.fetch("--shards=1", "--parallel=1", code=1)
        self.expect_text(VAL + ".part: cannot write: No space left on device; make room")
        self.assertEqual(len(self.hub.gets(VAL)), 1)
        self.assertEqual(self.hub.gets(TRAIN % 1), [])  # it would fail alike
        self.assertFalse(os.path.exists(self.path(VAL)))

    def test_folders_that_cannot_be(self):
        self.add(VAL, shard())
        with open(os.path.join(self.folder, "file"), "wb"):
            pass
        self.fetch_val("--out_dir=file/below", code=1)
        self.expect_text("file/below", "Not a directory")
        self.fetch_val("--out_dir=/proc/below", code=1)
        self.expect_text("/proc/below: cannot create this folder")
        os.makedirs(self.path(VAL))
        self.fetch_val(code=1)
        self.expect_text(VAL + ": is a directory")


class Flags(FetchTest):
    def test_refused(self):
        for flags, text in (
                (["--shards=104"], "--shards=104: must be from 0 to 103"),
                (["--shards=-1"], "--shards=-1: must be from 0"),
                (["--shards=0", "--noval"], "nothing to fetch"),
                (["--parallel=0"], "--parallel=0: must be from 1 to 16"),
                (["--retries=-1"], "--retries=-1: must be from 0"),
                (["--retry_delay=0s"], "--retry_delay=0s: must be a duration"),
                (["--stall_timeout=500ms"], "--stall_timeout=500ms: must be a duration from 1s"),
                (["--stall_timeout=5"], "--stall_timeout=5: must be a duration"),
                (["--shards=x"], "--shards=x: must be a whole number"),
                (["--shards"], "--shards: lacks a value"),
                (["--val=maybe"], "--val: must be true or false"),
                (["--shard=3"], "--shards"),
                (["fineweb"], "fineweb"),
                (["--endpoint=hub.example"], "must begin with http"),
                (["--endpoint=ftp://hub.example"], "must begin with http"),
                (["--endpoint=http://me:pw@hub.example"], "user name"),
                (["--endpoint=https://hub.example/?a=b"], "must not hold"),
        ):
            self.fetch(*flags, code=1)
            self.expect_text(text)
        self.fetch(code=1, env={"HF_TOKEN": "hf_a\nX-Evil: 1"})
        self.expect_text("HF_TOKEN: holds a blank")
        self.assertEqual(self.hub.requests, [])


if __name__ == "__main__":
    unittest.main()
