"""Parts of fetch_fineweb that need neither a hub nor curl: text, retries, headers, the hub's address, parts."""

import email.utils
import os
import random
import tempfile
import time
import unittest
import unittest.mock

import console
import curl
import fetch_fineweb
import flags
import transfer
from curl import Busy, Damaged, Failure


class Texts(unittest.TestCase):
    def test_sizes(self):
        for count, text in ((0, "0 B"), (999, "999 B"), (456_318, "456.3 kB"), (200_001_024, "200.0 MB"),
                            (2_000_010_240, "2.00 GB"), (3_000_000_000_000, "3.00 TB")):
            self.assertEqual(console.size_text(count), text)

    def test_bar_sizes_rate_and_time(self):
        text = console.progress_text
        self.assertEqual(text(500_000_000, 2_000_000_000, 50e6),
                         "[=======>                      ] 0.50/2.00 GB  50.0 MB/s  0:30 left")
        self.assertEqual(text(200_000_000, 200_000_000, 1e6),
                         "[==============================] 200.0/200.0 MB  verifies")

    def test_bar_of_strange_numbers(self):
        text = console.progress_text
        self.assertEqual(text(0, 1000, 0), "[>                             ] 0.0/1.0 kB  0.0 MB/s  --:-- left")
        self.assertEqual(text(0, 7_322_000_000, 1e6),
                         "[>                             ] 0.00/7.32 GB  1.0 MB/s  2:02:02 left")

    def test_rate_of_the_last_ten_seconds(self):
        meter = console.RateMeter()
        self.assertEqual([meter.update(*sample) for sample in ((100, 0), (101, 1000), (110, 1000))], [0, 1000, 100])
        # Nothing has come since second 101, which is ten seconds ago.
        self.assertEqual(meter.update(111, 1000), 0)
        self.assertEqual(meter.update(121, 21_000), 2000)

    def test_rate_of_two_samples_at_once(self):
        meter = console.RateMeter()
        self.assertEqual([meter.update(1, 0), meter.update(1, 1000)], [0, 0])

    def test_durations(self):
        for text, seconds in (("20ms", 0.02), ("1s", 1), ("1.5s", 1.5), ("1m30s", 90), ("1h", 3600), ("0s", 0)):
            self.assertAlmostEqual(flags.seconds(text), seconds)
        for text in ("", "1", "s", "1.s", "1 s", "-1s", "1s2", "1d"):
            self.assertIsNone(flags.seconds(text), text)


class Retries(unittest.TestCase):
    CUT = Busy("cut")

    def retries(self):
        return transfer.Retries(3, 2.0)

    def test_delay_doubles_to_its_maximum_and_spreads(self):
        for failures, chance, delay in ((0, 0, 1), (0, 0.5, 1.5), (1, 0.5, 3), (5, 0.5, 45), (1000, 0, 30)):
            retries = transfer.Retries(1001, 2.0)
            retries.failures = failures
            self.assertEqual(retries.next_delay(self.CUT, 0, chance), delay)

    def test_gives_up_after_its_retries(self):
        retries = self.retries()
        for _ in range(3):
            retries.next_delay(self.CUT, 0, 0)
        with self.assertRaisesRegex(Failure, "cut; given up after 4 tries") as caught:
            retries.next_delay(self.CUT, 0, 0)
        self.assertEqual(caught.exception.code, 2)

    def test_counts_anew_after_progress(self):
        retries = self.retries()
        for i in range(1, 101):
            self.assertEqual(retries.next_delay(self.CUT, i * transfer.PROGRESS_BYTES, 0), 1)

    def test_little_is_no_progress_nor_is_the_same_again(self):
        # The second is a server that cannot resume and is always cut at the same place.
        for counts in ((0, 1, 2, 3), (2 * transfer.PROGRESS_BYTES,) * 4):
            retries = self.retries()
            for count in counts[:3]:
                retries.next_delay(self.CUT, count, 0)
            self.assertRaises(Failure, retries.next_delay, self.CUT, counts[3], 0)

    def test_waits_as_long_as_the_server_asks_within_a_bound(self):
        retries = self.retries()
        self.assertEqual(retries.next_delay(Busy("cut", 300), 0, 0), 300)
        self.assertEqual(retries.next_delay(Busy("cut", 0.001), 0, 0), 2)
        with self.assertRaisesRegex(Failure, "wait for 301s, more than the 300s"):
            retries.next_delay(Busy("cut", 301), 0, 0)

    def test_which_failures_are_final(self):
        hub = fetch_fineweb.Hub("https://hub.example", "", "", "")
        for status in (408, 425, 429, 500, 502, 503, 504):
            answer = curl.Answer(b"HTTP/2 %d\r\n\r\n" % status, 22, "")
            self.assertIsInstance(curl.problem(answer, "u", hub), Busy, status)
        for status in (302, 400, 401, 403, 404, 410, 416, 501, 505):
            answer = curl.Answer(b"HTTP/2 %d\r\n\r\n" % status, 22, "")
            self.assertIsInstance(curl.problem(answer, "u", hub), Failure, status)
        for status in (200, 206):
            self.assertIsNone(curl.problem(curl.Answer(b"HTTP/2 %d\r\n\r\n" % status, 0, ""), "u", hub))
        for exit_code, kind in ((1, Failure), (3, Failure), (47, Failure), (60, Failure), (77, Failure), (7, Busy),
                                (18, Busy), (28, Busy), (56, Busy)):
            answer = curl.Answer(b"HTTP/2 200\r\n\r\n", exit_code, "curl: (9) words\nmore")
            self.assertIsInstance(curl.problem(answer, "u", hub), kind, exit_code)
            self.assertIn("u: words", str(curl.problem(answer, "u", hub)))


class Headers(unittest.TestCase):
    def answer(self, *lines):
        return curl.Answer("\r\n".join([*lines, "", ""]).encode("latin-1"), 0, "")

    def test_what_the_downloader_needs(self):
        answer = self.answer("HTTP/1.1 206 Partial Content", "content-length: 900", "X-Linked-Size:200001024",
                             "X-LINKED-ETAG: \"ab\"", "Other: thing", "Retry-After: 120")
        self.assertEqual(answer.status, 206)
        self.assertEqual(answer.number("Content-Length"), 900)
        self.assertEqual(answer.number("x-linked-size"), 200_001_024)
        self.assertEqual(answer.header("x-linked-etag"), '"ab"')
        self.assertEqual(answer.retry_after(), 120)

    def test_the_last_response_counts(self):
        """A redirect's headers are not those of the file."""
        answer = self.answer("HTTP/2 302", "content-length: 5", "", "HTTP/2 200")
        self.assertEqual((answer.status, answer.number("content-length")), (200, -1))

    def test_what_cannot_be_read_was_not_sent(self):
        for value in ("-1", "12x", "99999999999999999999", "", "\xff"):
            self.assertEqual(self.answer("HTTP/2 200", "Content-Length: " + value).number("content-length"), -1)
        for value in ("-5", "soon", "", "Sun, 99 Nov 2026", "\xb2"):
            self.assertEqual(self.answer("HTTP/2 429", "Retry-After: " + value).retry_after(), 0)
        for heads in (b"", b"HTTP/1.1\r\n\r\n", b"\xff\xfe", b"HTTP/1.1 2x0\r\n", b"\r\n\r\n\r\n", b":\r\n\r\n:"):
            self.assertEqual(curl.Answer(heads, 0, "").status, 0)

    def test_any_bytes(self):
        chance = random.Random(1)
        seed = (b"HTTP/1.1 429 Too Many\r\nRetry-After: Sun, 29 Nov 2026 10:00:00 GMT\r\nContent-Length: 5\r\n\r\n"
                b"HTTP/2 302\r\nX-Linked-Size: 200001024\r\nX-Linked-ETag: \"0123\"\r\nLocation: https://x/\r\n\r\n")
        for _ in range(3000):
            heads = bytearray(seed[chance.randrange(len(seed)):] + seed[:chance.randrange(len(seed))])
            for _ in range(chance.randrange(9)):
                heads[chance.randrange(len(heads))] = chance.choice((chance.randrange(256), 10, 13, 58, 32))
            answer = curl.Answer(bytes(heads), 0, "")
            self.assertTrue(0 <= answer.status <= 999 and answer.number("content-length") >= -1, heads)
            self.assertGreaterEqual(answer.retry_after(), 0, heads)

    def test_retry_after_as_a_date(self):
        date = email.utils.formatdate(time.time() + 100, usegmt=True)
        self.assertAlmostEqual(self.answer("HTTP/2 429", "Retry-After: " + date).retry_after(), 100, delta=2)
        self.assertEqual(self.answer("HTTP/2 429", "Retry-After: Sun, 01 Jan 2017 10:00:00 GMT").retry_after(), 0)


class Hub(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.home = temporary.name
        environment = unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.home + "/none"}, clear=True)
        environment.start()
        self.addCleanup(environment.stop)

    def write_token(self, name, token):
        with open(os.path.join(self.home, name), "w", encoding="utf8") as file:
            file.write(token)
        return os.path.join(self.home, name)

    def test_flag_then_environment_then_default(self):
        self.assertEqual(fetch_fineweb.find_hub("").endpoint, "https://huggingface.co")
        os.environ["HF_ENDPOINT"] = "https://mirror.example/hf/"
        self.assertEqual(fetch_fineweb.find_hub("").endpoint, "https://mirror.example/hf")
        self.assertEqual(fetch_fineweb.find_hub("http://127.0.0.1:8000//").endpoint, "http://127.0.0.1:8000")

    def test_tokens_places(self):
        self.assertEqual(fetch_fineweb.find_hub("").token, "")
        os.environ["HF_HOME"] = self.home
        path = self.write_token("token", "hf_home\n")
        self.assertEqual(fetch_fineweb.find_hub("")[1:3], ("hf_home", path))
        os.environ["HF_TOKEN_PATH"] = self.write_token("other", " hf_path ")
        self.assertEqual(fetch_fineweb.find_hub("").token, "hf_path")
        os.environ["HF_TOKEN"] = "hf_environment"
        self.assertEqual(fetch_fineweb.find_hub("")[1:3], ("hf_environment", "HF_TOKEN"))
        os.environ["HF_TOKEN"] = "hf_a hf_b"
        with self.assertRaises(Failure) as caught:
            fetch_fineweb.find_hub("")
        self.assertNotIn("hf_a", str(caught.exception))  # the message is no place for the token

    def test_no_token_in_the_clear_to_another_machine(self):
        os.environ["HF_TOKEN"] = "hf_x"
        for endpoint in ("https://hub.example", "http://localhost:1", "http://127.0.0.1:80", "http://127.1.2.3",
                         "http://[::1]:8000", "HTTPS://hub.example"):
            self.assertEqual(fetch_fineweb.find_hub(endpoint)[1::2], ("hf_x", ""), endpoint)
        for endpoint in ("http://hub.example", "http://10.0.0.1:80", "http://[::2]", "http://127.0.0.1.hub.example",
                         "http://localhost.hub.example", "HTTP://hub.example"):
            hub = fetch_fineweb.find_hub(endpoint)
            self.assertEqual(hub.token, "", endpoint)
            self.assertIn("not sent", hub.warning)

    def test_refuses_what_is_no_endpoint(self):
        for endpoint in ("hub.example", "ftp://hub.example", "https://", "https://a b", "https://me@hub.example",
                         "https://hub.example?q=1", "https://hub.example/#x", "https://hub.example:99999",
                         'https://hub.example/"', "https://hub.example/\nurl=x", "https://hub.example\\x", "https://[::1"):
            self.assertRaises(Failure, fetch_fineweb.find_hub, endpoint)


class WantedFiles(unittest.TestCase):
    def wanted(self, **values):
        return fetch_fineweb.wanted_files({**fetch_fineweb.HELP.defaults(), **values}, "https://hub.example",
                                          {"fineweb_train_000103.bin": ("ab", "as in x")})

    def test_names_addresses_and_places(self):
        files = self.wanted(shards=103, vocab=True, out_dir="a/b", vocab_file="c/m.txt")
        self.assertEqual(len(files), 105)
        self.assertEqual(files[0].path, "a/b/fineweb_val_000000.bin")
        self.assertEqual(files[1].path, "a/b/fineweb_train_000001.bin")
        self.assertEqual(files[103].url, "https://hub.example/datasets/kjj0/fineweb10B-gpt2/resolve/main/"
                                         "fineweb_train_000103.bin")
        self.assertEqual((files[102].sha256, files[103].sha256), ("", "ab"))
        self.assertEqual(files[104].url, "https://hub.example/openai-community/gpt2/resolve/main/merges.txt")
        self.assertEqual((files[104].path, files[104].is_shard), ("c/m.txt", False))

    def test_only_what_is_asked_for(self):
        self.assertEqual(len(self.wanted()), 10)
        self.assertEqual(len(self.wanted(shards=0)), 1)
        self.assertEqual(len(self.wanted(shards=0, val=False, vocab=True)), 1)
        self.assertRaises(Failure, self.wanted, shards=0, val=False)


class Files(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = os.path.join(temporary.name, "new/file")

    def part(self, size=9):
        part = transfer.Part(self.path, size)
        self.addCleanup(part.file.close)
        return part

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def test_published_in_one_step_in_place_of_what_is_there(self):
        os.mkdir(os.path.dirname(self.path))
        with open(self.path, "wb") as file:
            file.write(b"old")
        part = self.part()
        part.append(b"ab")
        part.append(b"cd")
        self.assertEqual(self.read(self.path), b"old")
        part.publish()
        self.assertEqual(self.read(self.path), b"abcd")
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["file"])

    def test_goes_on_where_it_was_left(self):
        part = self.part()
        part.append(b"abcd")
        part.file.close()
        part = self.part()
        self.assertEqual(part.size, 4)
        part.append(b"e")
        self.assertEqual(self.read(part.part), b"abcde")

    def test_emptied_if_longer_than_the_file(self):
        part = self.part()
        part.append(b"abcd")
        part.file.close()
        self.assertEqual(self.part(size=3).size, 0)
        self.assertEqual(self.read(part.part), b"")

    def test_truncated(self):
        part = self.part()
        part.append(b"abcd")
        part.truncate(2)
        part.append(b"x")
        self.assertEqual((part.size, self.read(part.part)), (3, b"abx"))

    def test_held_by_one_at_a_time(self):
        part = self.part()
        with self.assertRaisesRegex(Failure, "another process"):
            self.part()
        part.file.close()
        self.part()

    def test_discarded(self):
        self.part().discard()
        self.assertEqual(os.listdir(os.path.dirname(self.path)), [])

    def test_a_full_disk(self):
        os.mkdir(os.path.dirname(self.path))
        os.symlink("/dev/full", self.path + ".part")
        part = self.part()
        with self.assertRaisesRegex(Failure, "file.part: cannot write: No space") as caught:
            part.append(b"x")
        self.assertTrue(caught.exception.stop)

    def test_only_faults_that_inspect_shard_finds_are_damage(self):
        """One that was killed, or cannot run, says nothing of the shard."""
        os.mkdir(os.path.dirname(self.path))
        program = os.path.join(os.path.dirname(self.path), "inspect_shard")
        for line, kind in (("exit 0", None), ("echo inspect_shard: file: bad >&2; exit 1", Damaged),
                           ("kill -INT $$", Failure), ("exit 3", Failure)):
            with open(program, "w", encoding="utf8") as file:
                file.write("#!/bin/sh\n" + line + "\n")
            os.chmod(program, 0o755)
            if kind is None:
                transfer.verify_shard(self.path, program)
                continue
            with self.assertRaisesRegex(kind, self.path + ": ") as caught:
                transfer.verify_shard(self.path, program)
            self.assertEqual(type(caught.exception), kind, line)

    def test_published_sums(self):
        """FIPS 180-2, appendix B.1 and B.3."""
        os.mkdir(os.path.dirname(self.path))
        for data, want in ((b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
                           (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0")):
            with open(self.path, "wb") as file:
                file.write(data)
            transfer.verify_sum(self.path, want, "as in x")
            with self.assertRaisesRegex(Damaged, f"{self.path}: its SHA-256 is {want}, not 00 as in x"):
                transfer.verify_sum(self.path, "00", "as in x")


if __name__ == "__main__":
    unittest.main()
