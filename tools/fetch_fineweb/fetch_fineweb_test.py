"""fetch_fineweb against a hub of loopback: what comes, what is refused, what it says.

Nothing but loopback is reached. That the real hub behaves as fake_hub.py is not tested here.

  python3 fetch_fineweb_test.py PROGRAM [TEST...]
"""

import email.utils
import os
import pty
import re
import subprocess
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

    def test_a_reader_that_has_left(self):
        self.add(VAL, shard())
        process = self.start_val()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=60), 0, process.stderr.read())
        self.expect_file(VAL, shard())

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
