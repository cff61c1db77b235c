"""One file from the hub to the disk: fetched by curl as NAME.part, verified, and only then given its name."""

import contextlib
import errno
import fcntl
import hashlib
import os
import random
import re
import subprocess
import time

import curl
from curl import Busy, Damaged, Failure, Interrupted, problem

PROGRESS_BYTES = 1 << 20  # this many more bytes of a file than ever before renew its retries
MAX_DELAY, MAX_RETRY_AFTER = 60, 300  # seconds: where doubling ends; the longest that a server may ask for


@contextlib.contextmanager
def doing(what, path):
    """Turns an error of the file system into one that names the file and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = ("make room and run the same command again, it goes on from here" if full else
                "choose a folder where files can be written with --out_dir")
        raise Failure(f"{path}: cannot {what}: {error.strerror}; {hint}", stop=full) from error


# ---- Verification


def verify_sum(path, want, whose):
    """Damaged if the file's SHA-256 is not `want`."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != want:
        raise Damaged(f"{path}: its SHA-256 is {digest.hexdigest()}, not {want} {whose}")


def verify_shard(path, inspect_shard):
    """Damaged if `inspect_shard --check` finds a fault: in magic, version, size, ids; or no end-of-text."""
    folder, name = os.path.split(path)
    # It runs in the shard's folder, so that the path is no pattern and no other file is read; and in a session of
    # its own, so that Ctrl-C does not end it and a sound file does not count as damaged.
    environment = {k: v for k, v in os.environ.items() if k not in ("BUILD_WORKING_DIRECTORY", "DATA_PATH")}
    checked = subprocess.run([os.path.abspath(inspect_shard), "--check", name], cwd=folder or ".",
                             env=environment, capture_output=True, text=True, check=False,
                             start_new_session=True)
    fault = (checked.stderr.splitlines() or [f"{name}: it says nothing"])[0].replace("inspect_shard: ", "", 1)
    if checked.returncode not in (0, 1):
        raise Failure(f"{path}: {inspect_shard} ended with code {checked.returncode}: {fault}; run it by hand to see "
                      "why")
    if checked.returncode == 1:
        raise Damaged(os.path.join(folder, fault))


def verify(path, file, inspect_shard):
    """What the bytes at `path` were found to be; Damaged if they are not what `file` should be."""
    found = []
    with doing("read", path):
        if file.sha256:  # first, since it tells damage from a file that is wrong at its source
            verify_sum(path, file.sha256, file.whose)
            found.append(f"SHA-256 {file.whose}")
        if file.is_shard and inspect_shard:
            verify_shard(path, inspect_shard)
            found.append(f"{(os.path.getsize(path) - 1024) // 2:,} tokens")
    if not found:
        raise Failure(f"{path}: cannot be verified: there is neither a SHA-256 of it (--sums) nor "
                      "inspect_shard (bazel build //tools/inspect_shard)")
    return ", ".join(found)


# ---- The part of a file that has come


class Part:
    """NAME.part, held by one process at a time. Which version its bytes are of, the SHA-256 tells."""

    def __init__(self, path, size):
        self.path, self.part = path, path + ".part"
        folder = os.path.dirname(path) or "."
        with doing("create this folder", folder):
            os.makedirs(folder, exist_ok=True)
        with doing("create", self.part):
            self.file = open(self.part, "ab", buffering=0)
        self.lock()
        self.size = os.fstat(self.file.fileno()).st_size
        if self.size > size:  # of another version
            self.truncate(0)

    def lock(self):
        """Keeps out a second process, which would ruin the file, where the file system has locks."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except OSError as error:
            held = error.errno != errno.EWOULDBLOCK
        # The other may have renamed it since it was opened here.
        with contextlib.suppress(FileNotFoundError):
            if held and os.path.samestat(os.fstat(self.file.fileno()), os.stat(self.part)):
                return
        self.file.close()
        raise Failure(f"{self.part}: another process is fetching this file; let it finish, then run this "
                      "again")

    def truncate(self, size):
        if self.size > size:
            with doing("empty", self.part):
                self.file.truncate(size)
            self.size = size

    def append(self, data):
        with doing("write", self.part):
            while data:
                written = self.file.write(data)
                self.size += written
                data = data[written:]

    def publish(self):
        """Flushed to disk and renamed to NAME, in place of any file of that name."""
        with doing("write", self.part):
            os.fsync(self.file.fileno())
        with doing("create", self.path):
            os.replace(self.part, self.path)
            folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # some file systems cannot flush a folder, and need not
                os.fsync(folder)
            os.close(folder)

    def discard(self):
        with doing("remove", self.part):
            os.unlink(self.part)


# ---- One file


class Retries:
    """Counts the failures of one file, in a row without progress. Pure: nothing waits here."""

    def __init__(self, retries, first_delay):
        self.retries, self.first_delay = retries, first_delay
        self.failures, self.best = 0, 0  # best: the most bytes that counted as progress

    def next_delay(self, busy, count, chance):
        """Seconds before the next try, when the file had reached `count` bytes; Failure if there is none.

        first_delay * 2^failures, at most MAX_DELAY, times 1/2 to 1 as chance is 0 to 1, so that parallel
        tries spread; or the server's Retry-After, if that is longer.
        """
        if count >= self.best + PROGRESS_BYTES:
            self.failures, self.best = 0, count
        if busy.retry_after > MAX_RETRY_AFTER:
            raise Failure(f"{busy}; the server asks to wait for {busy.retry_after:.0f}s, more than the "
                          f"{MAX_RETRY_AFTER}s that are waited for: run the same command again later", code=2)
        if self.failures >= self.retries:
            raise Failure(f"{busy}; given up after {self.failures + 1} tries without progress: the same "
                          "command goes on from here, and --retries sets how often it tries", code=2)
        delay = min(self.first_delay * 2 ** min(self.failures, 30), MAX_DELAY) * (0.5 + 0.5 * chance)
        self.failures += 1
        return max(delay, busy.retry_after)


class Downloader:
    """Fetches files, with a note for each try that failed. May be used by several threads at once."""

    def __init__(self, hub, requests, console, inspect_shard, retries, retry_delay):
        self.hub, self.requests, self.console, self.inspect_shard = hub, requests, console, inspect_shard
        self.retries, self.retry_delay = retries, retry_delay

    def until_done(self, attempt, count):
        retries = Retries(self.retries, self.retry_delay)
        while True:
            try:
                return attempt()
            except Busy as busy:
                if self.requests.stopped.is_set():  # curl was killed
                    raise Interrupted from busy
                delay = retries.next_delay(busy, count(), random.random())
                self.console.note(f"{busy}; {count():,} bytes are there; tries again in {delay:.3g}s")
            if self.requests.stopped.wait(delay):
                raise Interrupted

    def probe(self, file):
        """Asks the hub for the file's size, and for its SHA-256."""
        self.until_done(lambda: self.try_head(file), lambda: 0)
        if not file.sha256:
            raise Failure(f"{file.url}: the hub gives no SHA-256 of it to verify it by; give one in --sums")

    def try_head(self, file):
        # Asked of the hub alone where it knows, since the host that keeps large files need not answer HEAD.
        options = ["--head", "--output", os.devnull]
        answer = self.requests.run(file.url, options)
        linked = answer.number("x-linked-size")
        if linked < 0 and 300 <= answer.status <= 399 and answer.exit_code == 0:
            answer = self.requests.run(file.url, [*options, "--location"])
        error = problem(answer, file.url, self.hub)
        if error and linked < 0:
            raise error
        file.size = linked if linked >= 0 else answer.number("content-length")
        if file.size <= 0:
            raise Failure(f"{file.url}: the server does not say how large the file is (X-Linked-Size or "
                          "Content-Length): it is no hub; look at --endpoint")
        # The linked ETag of a large file is its SHA-256.
        etag = re.fullmatch('"?([0-9a-fA-F]{64})"?', answer.header("x-linked-etag"))
        of_hub = etag[1].lower() if etag else ""
        if not file.sha256:
            file.sha256, file.whose = of_hub, "as the hub says"
        elif of_hub not in ("", file.sha256):
            raise Failure(f"{file.url}: the hub says its SHA-256 is {of_hub}, not {file.sha256} "
                          f"{file.whose}: it is another version; look at --endpoint, or believe the hub with "
                          "--sums=")

    def download(self, file):
        """Fetches the file, or the rest of it, verifies it and gives it its name.

        One that does not verify is removed; if its start was of an earlier run it is first fetched once more.
        """
        start = time.monotonic()
        part = file.part = Part(file.path, file.size)
        try:
            found = part.size
            if found:
                self.console.note(f"{file.path}: resumes at {found:,} of {file.size:,} bytes")
            while True:
                self.until_done(lambda: self.try_rest(file, part), lambda: part.size)
                try:
                    what = verify(part.part, file, self.inspect_shard)
                    break
                except Damaged as damaged:
                    if not found:
                        part.discard()
                        raise Damaged(f"{damaged}; what came from {file.url} was removed") from damaged
                    self.console.note(f"{damaged}; its start is of an earlier run: starts over")
                found = 0
                part.truncate(0)
            part.publish()
        finally:
            part.file.close()  # and unlocks
        self.console.fetched(file, what, time.monotonic() - start)

    def try_rest(self, file, part):
        """One request for the bytes that are missing; a second one if the server sends others."""
        start = part.size
        if start == file.size:
            return

        def other_size(sent):
            return Failure(f"{file.url}: the server sends {sent} where the hub promised {file.size}: the "
                           "file has just changed, or something between answers in its place; run the same "
                           "command again")

        def sink(data):
            if part.size + len(data) > file.size:
                raise other_size("more bytes")
            part.append(data)

        options = ["--fail", "--location", "--max-filesize", str(file.size - start)]
        if start:
            options += ["--continue-at", str(start)]
        answer = self.requests.run(file.url, options, sink)
        length = answer.number("content-length")
        if answer.status == 200 and length not in (-1, file.size):
            part.truncate(start)
            raise other_size(f"{length} bytes")
        if start and (answer.status in (200, 416) or answer.exit_code in curl.OTHER_BYTES):
            said = f"{answer.status} {answer.header('content-range')}".strip()
            self.console.note(f"{file.url}: asked for bytes {start}- of {file.size}, the server answered "
                              f"{said}; starts over")
            part.truncate(0)
            self.try_rest(file, part)
            return
        if answer.status not in (200, 206):
            part.truncate(start)  # nothing of an error's text
        error = problem(answer, file.url, self.hub)
        if not error and part.size < file.size:
            error = Busy(f"{file.url}: the answer ended after {part.size} of {file.size} bytes")
        if error:
            raise error
