"""fetch_fineweb's cut, stalled and interrupted downloads, and files that change meanwhile.

Nothing but loopback is reached; see fetch_fineweb_test.py.
"""

import os
import signal
import time
import unittest

import fake_hub
from fetch_testing import MIB, SHARDS, VAL, FetchTest, shard


class Cuts(FetchTest):
    def expect_resumed(self, name, tries):
        gets = self.hub.gets(name)
        self.assertEqual(len(gets), tries)
        self.assertNotIn("range", gets[0])
        for headers in gets[1:]:
            self.assertRegex(headers.get("range", ""), r"^bytes=[1-9][0-9]*-$")

    def test_cut_at_random_places(self):
        for large in (True, False):
            data = shard(tokens=MIB, seed=5)
            file = self.add(VAL, data, large)
            file.get_faults = [fake_hub.cut((1, 300_000)) for _ in range(6)]
            self.hub.requests.clear()
            self.fetch_val("--retries=6", self.sums({VAL: data}))
            self.expect_file(VAL, data)
            self.expect_resumed(VAL, 7)
            self.expect_text("bytes are there; tries again in ")
            os.remove(self.path(VAL))

    def test_progress_renews_the_retries(self):
        data = shard(tokens=3 * MIB)
        self.add(VAL, data).get_faults = [fake_hub.cut(MIB + 1000) for _ in range(5)]
        self.fetch_val("--retries=1")
        self.expect_file(VAL, data)
        self.expect_resumed(VAL, 6)

    def test_given_up_and_resumed_by_the_next_run(self):
        data = shard()
        file = self.add(VAL, data)
        file.get_faults = [fake_hub.cut(1000) for _ in range(3)]
        self.fetch_val("--retries=2", code=2)
        self.expect_text("given up after 3 tries", "same command")
        self.assertFalse(os.path.exists(self.path(VAL)))
        self.assertEqual(os.path.getsize(self.path(VAL + ".part")), 3000)
        self.fetch_val()
        self.expect_text("resumes at 3,000 of 101,024 bytes")
        self.assertEqual(self.hub.gets(VAL)[-1]["range"], "bytes=3000-")
        self.expect_file(VAL, data)

    def test_cut_before_the_first_byte_and_in_the_header(self):
        data = shard()
        self.add(VAL, data).get_faults = [fake_hub.cut(0), fake_hub.cut(1), fake_hub.cut(1023)]
        self.fetch_val()
        self.expect_file(VAL, data)

    def test_server_that_cannot_resume(self):
        data = shard()
        file = self.add(VAL, data)
        file.ranges = False
        file.get_faults = [fake_hub.cut(50_000), fake_hub.cut(70_000)]
        self.fetch_val()
        self.expect_text("asked for bytes 50000- of 101024, the server answered 200; starts over")
        self.expect_file(VAL, data)

    def test_other_range_than_asked_for(self):
        data = shard()
        self.add(VAL, data).get_faults = [fake_hub.cut(50_000), fake_hub.other_range]
        self.fetch_val()
        self.expect_text("asked for bytes 50000- of 101024, the server answered 206 bytes 1-101023/101024; starts over")
        self.expect_file(VAL, data)

    def test_416(self):
        data = shard()
        self.add(VAL, data).get_faults = [fake_hub.cut(50_000), fake_hub.status(416)]
        self.fetch_val()
        self.expect_text("the server answered 416; starts over")
        self.assertNotIn("range", self.hub.gets(VAL)[2])
        self.expect_file(VAL, data)

    def test_stall(self):
        data = shard()
        self.add(VAL, data).get_faults = [fake_hub.hold(40_000, self.event)]
        start = time.time()
        self.fetch_val("--stall_timeout=1s")
        self.assertLess(time.time() - start, 25)
        self.expect_text("too slow")
        self.expect_file(VAL, data)
        self.expect_resumed(VAL, 2)

    def test_interrupted_and_resumed(self):
        data = shard(tokens=MIB)
        self.add(VAL, data).get_faults = [fake_hub.hold(300_000, self.event)]
        process = self.start_val()
        self.wait_for_part(VAL, 300_000)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=10), 130)
        self.assertIn("interrupted; what has come is kept", process.stderr.read())
        self.assertFalse(os.path.exists(self.path(VAL)))
        kept = os.path.getsize(self.path(VAL + ".part"))
        self.fetch_val()
        self.assertEqual(self.hub.gets(VAL)[-1]["range"], "bytes=%d-" % kept)
        self.expect_file(VAL, data)

    def test_killed_and_resumed(self):
        data = shard(tokens=MIB)
        self.add(VAL, data).get_faults = [fake_hub.hold(300_000, self.event)]
        process = self.start_val()
        self.wait_for_part(VAL, 300_000)
        process.kill()
        process.wait()
        self.fetch_val()
        self.assertIn("range", self.hub.gets(VAL)[-1])
        self.expect_file(VAL, data)

    def test_interrupted_while_it_waits(self):
        self.add(VAL, shard()).get_faults = [fake_hub.status(503, {"Retry-After": "60"})]
        process = self.start_val()
        while not self.hub.gets(VAL):
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=5), 130)


class Versions(FetchTest):
    def changes_to(self, data):
        """A fault: half of the file, and from then on it is another."""

        def fault(handler, file):
            fake_hub.cut(len(file.data) // 2)(handler, file)
            file.data = data
            file.etag = '"changed"'

        return fault

    def test_changed_between_tries(self):
        self.add(VAL, shard(seed=1)).get_faults = [self.changes_to(shard(seed=2))]
        self.fetch_val(code=1)
        self.expect_text("its SHA-256 is ")
        self.expect_nothing()
        self.fetch_val()
        self.expect_file(VAL, shard(seed=2))

    def test_changed_size_between_tries(self):
        new = shard(tokens=60_000)
        self.add(VAL, shard()).get_faults = [self.changes_to(new)]
        self.fetch_val(code=1)
        self.expect_text("asked for bytes 50512- of 101024, the server answered 206", "sends 121024 bytes where the hub "
                         "promised 101024")
        self.fetch_val()
        self.expect_file(VAL, new)

    def leave_part(self, data):
        """What a run leaves that was given up in the middle."""
        self.add(VAL, data).get_faults = [fake_hub.cut(len(data) // 2)]
        self.fetch_val("--retries=0", code=2)
        self.assertTrue(os.path.exists(self.path(VAL + ".part")))

    def test_changed_between_runs(self):
        self.leave_part(shard(seed=1))
        self.add(VAL, shard(seed=2))
        self.fetch_val()
        self.expect_text("its SHA-256 is ", "its start is of an earlier run: starts over")
        self.expect_file(VAL, shard(seed=2))

    def test_shorter_than_the_part(self):
        self.leave_part(shard())
        new = shard(tokens=10_000)
        self.add(VAL, new)
        self.fetch_val()
        self.assertNotIn("range", self.hub.gets(VAL)[-1])
        self.expect_file(VAL, new)

    def test_part_of_anything(self):
        """Whatever lies under the name of a part, no byte of it comes through."""
        for junk in (b"x", b"<html>", shard()[1:], bytes(101_024), shard() + b"x"):
            os.makedirs(self.out, exist_ok=True)
            with open(self.path(VAL + ".part"), "wb") as file:
                file.write(junk)
            self.add(VAL, shard())
            self.fetch_val()
            self.expect_file(VAL, shard())
            os.remove(self.path(VAL))

    def test_damaged_twice(self):
        """Its start was replaced once; what came in this run alone is the hub's fault."""
        self.leave_part(shard())
        self.hub.files[SHARDS + VAL].sha256 = lambda: "0" * 64
        self.fetch_val(code=1)
        self.expect_text("starts over", "was removed")
        self.expect_nothing()

    def test_damaged_part_is_fetched_again(self):
        self.leave_part(shard())
        with open(self.path(VAL + ".part"), "r+b") as file:
            file.seek(2000)
            file.write(b"\0\0\0\0")
        self.fetch_val()
        self.expect_text("its SHA-256 is ", "its start is of an earlier run: starts over")
        self.expect_file(VAL, shard())

    def test_complete_part_needs_no_get(self):
        self.leave_part(shard())
        with open(self.path(VAL + ".part"), "wb") as file:
            file.write(shard())
        self.hub.requests.clear()
        self.fetch_val()
        self.assertEqual(self.hub.gets(VAL), [])
        self.expect_file(VAL, shard())

    def test_two_processes(self):
        self.add(VAL, shard()).get_faults = [fake_hub.hold(20_000, self.event)]
        process = self.start_val()
        self.wait_for_part(VAL, 20_000)
        self.fetch_val(code=1)
        self.expect_text("another process is fetching this file")
        self.event.set()
        self.assertEqual(process.wait(timeout=20), 0)
        self.expect_file(VAL, shard())


if __name__ == "__main__":
    unittest.main()
