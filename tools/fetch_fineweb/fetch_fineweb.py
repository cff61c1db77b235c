#!/usr/bin/env python3
"""Fetches the token shards that the speedrun trains on; docs/tools/fetch_fineweb.md.

curl moves the bytes. This script decides what to ask for, keeps what came as NAME.part, verifies it, and
only then gives it its name. Needs Python 3.9 or newer.
"""

import concurrent.futures
import contextlib
import ipaddress
import os
import re
import shutil
import signal
import sys
import urllib.parse
from typing import NamedTuple

sys.dont_write_bytecode = True  # its folder may be a checkout, or read-only
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(1, HERE)  # of the modules beside it, when Bazel calls it by a link
import curl
import flags as command_line
import transfer
from console import Console, size_text
from curl import Damaged, Failure, Interrupted

SHARDS = "/datasets/kjj0/fineweb10B-gpt2/resolve/main/"
MERGES = "/openai-community/gpt2/resolve/main/merges.txt"
HUB = "https://huggingface.co"
TRAIN_SHARDS = 103  # that the data set has, numbered from 1

HELP = command_line.Help(
    name="fetch_fineweb",
    summary="""Fetches FineWeb-10B as GPT-2 tokens (data set kjj0/fineweb10B-gpt2 of Hugging Face): the
validation shard and the first training shards, 200 MB each. Resumes what was cut, verifies what came, keeps
what is there. A file under its final name is complete. Honours HF_ENDPOINT, HF_TOKEN (or the token that
Hugging Face's login left), the proxies of http_proxy, https_proxy and no_proxy, and the certificates of
SSL_CERT_FILE.""",
    examples=[("what a run of track 1 needs, into data/fineweb10B", ""),
              ("enough for a trial, with the merges for sample and tokenize", "--shards=1 --vocab"),
              ("only the merges", "--vocab --shards=0 --noval"),
              ("whether the files are sound, without network", "--check_only")],
    groups={
        "What": {
            "shards": (9, "training shards to fetch, of 100,000,000 tokens each: the first ones"),
            "val": (True, "fetch the validation shard"),
            "vocab": (False, "also fetch GPT-2's merges, which tokenize and sample need")},
        "Where to": {
            "out_dir": ("", "folder of the shards; empty: data/fineweb10B below $DATA_PATH or the current "
                            "folder, where the tracks look for them"),
            "vocab_file": ("", "path of the merges; empty: data/gpt2/merges.txt below $DATA_PATH or the "
                               "current folder"),
            "overwrite": (False, "fetch files again that are there and do not verify"),
            "check_only": (False, "verify the files that are there, without network; exit code 1 if one is "
                                  "not sound")},
        "Where from": {
            "endpoint": ("", f"address of the hub or a mirror; empty: $HF_ENDPOINT, or {HUB}"),
            "sums": ("committed", "file of SHA-256 sums in the form of sha256sum, in place of those that "
                                  "come with this tool; empty: believe the hub's own"),
            "parallel": (4, "files to fetch at once"),
            "retries": (5, "tries after a failure, in a row without progress of 1 MiB"),
            "retry_delay": ("1s", "pause before the first of them; doubles up to a minute, varies by half"),
            "stall_timeout": ("30s", "a connection with less than 100 bytes/s for so long is given up")}})


# ---- Where from


class Hub(NamedTuple):
    endpoint: str  # scheme, host and perhaps port and path; no slash at its end
    token: str  # empty if there is none, or it must not be sent there
    token_source: str  # HF_TOKEN or a path
    warning: str  # why a token that was found is not sent


def in_the_clear(url):
    """Whether requests cross a network unencrypted. 127.0.0.1.hub.example only begins like this machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return True


def checked_endpoint(text):
    why = ""
    if not re.match(r"https?://", text, re.I):
        why = "must begin with http:// or https://"
    elif "?" in text or "#" in text:
        why = "must not hold ? or #"
    elif "@" in text.split("/")[2]:
        why = "must not hold a user name"
    else:
        address = r"https?://([\w.-]+|\[[\da-f:.]+\])(:\d{1,5})?(/[!#-[\]-~]*)?"
        match = re.fullmatch(address, text, re.I | re.A)
        if not match or int((match[2] or ":443")[1:]) > 65535:
            why = "is no address"
    if why:
        raise Failure(f'endpoint "{text}": {why}; give --endpoint or HF_ENDPOINT as in {HUB}')
    return text.rstrip("/")


def find_token():
    """The token and where it was found, by the conventions of Hugging Face's client; ("", "") if nowhere."""
    environment = os.environ.get
    source, token = "HF_TOKEN", environment("HF_TOKEN", "").strip()
    if not token:
        cache = environment("XDG_CACHE_HOME") or environment("HOME", "") + "/.cache"
        source = environment("HF_TOKEN_PATH") or (environment("HF_HOME") or cache + "/huggingface") + "/token"
        with contextlib.suppress(OSError), open(source, encoding="latin-1") as file:
            token = file.read().strip()
    if not re.fullmatch("[!-~]*", token):
        raise Failure(f"{source}: holds a blank or a character that no token has; write the token again")
    return (token, source) if token else ("", "")


def find_hub(endpoint):
    endpoint = checked_endpoint(endpoint or os.environ.get("HF_ENDPOINT") or HUB)
    token, source = find_token()
    if token and in_the_clear(endpoint):
        return Hub(endpoint, "", source, f"the token of {source} is not sent to {endpoint}, where http would "
                                         "show it to the network")
    return Hub(endpoint, token, source, "")


# ---- The run


class WantedFile:
    """A file, and what is known of it; size and part come with the hub's answer and the download."""

    def __init__(self, url, path, sums):
        self.url, self.path = url, path
        name = url.rsplit("/", 1)[1]
        self.is_shard = name.endswith(".bin")
        self.sha256, self.whose = sums.get(name, ("", ""))  # empty: nobody but the hub says
        self.size, self.part = 0, None


def read_sums(path):
    """SHA-256 and who says so, by file name; from lines as sha256sum writes them. # begins a comment."""
    if not path:
        return {}
    path = os.path.join(HERE, "fineweb10B.sha256") if path == "committed" else path
    sums = {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](\S+)\s*", line)
                if match:
                    sums[os.path.basename(match[2])] = match[1].lower(), f"as in {os.path.basename(path)}"
                elif line.strip() and not line.startswith("#"):
                    raise Failure(f"{path}: line {number} is not a SHA-256, two spaces and a name; write the "
                                  "file with sha256sum")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: cannot read the sums: {error}; give --sums, or believe the hub with "
                      "--sums=") from error
    return sums


def wanted_files(flags, endpoint, sums):
    """The validation shard first, then training shards, then the merges."""
    below = os.environ.get("DATA_PATH", "")
    folder = flags["out_dir"] or os.path.join(below, "data/fineweb10B")
    names = ["fineweb_val_000000.bin"] * flags["val"]
    names += [f"fineweb_train_{i:06d}.bin" for i in range(1, flags["shards"] + 1)]
    files = [WantedFile(endpoint + SHARDS + name, os.path.join(folder, name), sums) for name in names]
    if flags["vocab"]:
        path = flags["vocab_file"] or os.path.join(below, "data/gpt2/merges.txt")
        files.append(WantedFile(endpoint + MERGES, path, sums))
    if not files:
        raise Failure("nothing to fetch: --shards=0 and --noval leave only the merges, which need --vocab")
    return files


def find_inspect_shard():
    """Beside this program where Bazel put it, or of the PATH; None if it was not built."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "../inspect_shard/inspect_shard")
    built = os.path.join(HERE, "../../bazel-bin/tools/inspect_shard/inspect_shard")
    return next(filter(None, map(shutil.which, (beside, built, "inspect_shard"))), None)


def check_room(files):
    """Refuses what cannot end well. The disk may still fill up while files come."""
    disks = {}  # by device: a folder of it, bytes needed
    for file in files:
        folder = os.path.dirname(os.path.abspath(file.path))
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        there = os.path.getsize(file.path + ".part") if os.path.isfile(file.path + ".part") else 0
        device = os.stat(folder).st_dev
        disks[device] = (folder, disks.get(device, ("", 0))[1] + file.size - there)
    for folder, needed in disks.values():
        disk = os.statvfs(folder)
        room = disk.f_bavail * disk.f_frsize
        # Some file systems do not count their room; there, writing will tell.
        if disk.f_blocks and needed > room:
            raise Failure(f"{folder}: needs {size_text(needed)} and has room for {size_text(room)}; make "
                          "room, choose another --out_dir, or fetch less with --shards")


class Run:
    """All files: verify what is there, ask the hub about the rest, check the room, fetch."""

    def __init__(self, flags):
        self.flags, self.console = flags, Console(HELP.name)
        hub = find_hub(flags["endpoint"])
        if hub.warning:
            self.console.note(hub.warning)
        self.files = wanted_files(flags, hub.endpoint, read_sums(flags["sums"]))
        self.inspect_shard = find_inspect_shard()
        self.requests = curl.Curl(hub.token, flags["stall_timeout"])
        self.downloader = transfer.Downloader(hub, self.requests, self.console, self.inspect_shard,
                                              flags["retries"], flags["retry_delay"])

    def all(self):
        # Nothing is fetched before all questions are answered.
        missing = [file for file, found in zip(self.files, self.each(self.find, self.files)) if not found]
        if missing and not shutil.which("curl"):
            raise Failure("curl is not there, which fetches the files; install the package curl")
        self.each(self.downloader.probe, missing)
        check_room(missing)
        self.each(self.downloader.download, missing, bar=True)

    def each(self, work, files, bar=False):
        """What work(file) returns for each, several at once.

        A file that fails does not stop the others, unless they would fail alike. The error names all of them.
        """

        def guarded(file):
            if self.requests.stopped.is_set():
                raise Interrupted
            try:
                return work(file)
            except Failure as failure:
                if failure.stop:
                    self.requests.stop()
                raise

        with concurrent.futures.ThreadPoolExecutor(self.flags["parallel"]) as pool:
            try:
                futures = [pool.submit(guarded, file) for file in files]
                while concurrent.futures.wait(futures, 0.2).not_done:
                    if bar:
                        done = sum(file.part.size for file in files if file.part)
                        self.console.draw(done, sum(file.size for file in files))
            except KeyboardInterrupt:
                self.requests.stop()
        self.console.clear()
        errors = [future.exception() for future in futures if future.exception()]
        failures = [error for error in errors if not isinstance(error, Interrupted)]
        for error in failures:
            if not isinstance(error, Failure):
                raise error
        if failures:
            raise Failure("\n".join(map(str, failures)), failures[0].code)
        if errors or self.requests.stopped.is_set():
            raise Interrupted
        return [future.result() for future in futures]

    def find(self, file):
        """Whether the file is there, verified; says so if it is sound."""
        if os.path.isdir(file.path):
            raise Failure(f"{file.path}: is a directory; move it away")
        if not os.path.lexists(file.path):
            if self.flags["check_only"]:
                raise Failure(f"{file.path}: cannot open: no such file; fetched by the same command without "
                              "--check_only")
            return False
        try:
            found = transfer.verify(file.path, file, self.inspect_shard)
            self.console.result(f"{file.path}: is there, {found}")
            return True
        except Damaged as damaged:
            if self.flags["overwrite"] and not self.flags["check_only"]:
                self.console.note(f"{damaged}; replaces it")
                return False
            raise Failure(f"{damaged}; move it away, or fetch it again in its place with "
                          "--overwrite") from damaged


def checked(flags):
    """The flags, with durations in seconds."""
    for name, least, most, hint in (("shards", 0, TRAIN_SHARDS, ", the training shards that there are"),
                                    ("parallel", 1, 16, ""), ("retries", 0, 1000, "")):
        if not least <= flags[name] <= most:
            raise Failure(f"--{name}={flags[name]}: must be from {least} to {most}{hint}")
    for name, least, most in (("retry_delay", 0.001, transfer.MAX_DELAY), ("stall_timeout", 1, 3600)):
        value = command_line.seconds(flags[name])
        if value is None or not least <= value <= most:
            raise Failure(f"--{name}={flags[name]}: must be a duration from {least:g}s to {most:g}s, such as "
                          "500ms or 5s")
        flags[name] = value
    return flags


def stop(_signal, _frame):
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, stop)
    try:
        flags = checked(command_line.read(HELP, sys.argv[1:]))
        os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # from where `bazel run` was called
        Run(flags).all()
    except (Failure, command_line.FlagError) as failure:
        print(f"{HELP.name}: {failure}", file=sys.stderr)
        return getattr(failure, "code", 1)
    except OSError as error:
        print(f"{HELP.name}: {error}", file=sys.stderr)
        return 1
    except (Interrupted, KeyboardInterrupt):
        print(f"{HELP.name}: interrupted; what has come is kept as NAME.part, and the same command goes on "
              "from there", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
