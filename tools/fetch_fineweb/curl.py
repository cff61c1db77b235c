"""Requests by the program curl, and what may come of one."""

import contextlib
import email
import email.utils
import re
import subprocess
import tempfile
import threading
import time

TRANSIENT = (408, 425, 429, 500, 502, 503, 504)  # answers that another try may change
WONT_WORK = (1, 3, 47)  # exit codes: no such protocol, no address, redirects without end
CERTIFICATES = (60, 77)
OTHER_BYTES = (33, 63)  # not the range that was asked for, or more than --max-filesize


class Failure(Exception):
    """Ends a file, and with it the run: code 1 if the user can act on it, 2 if the network gave up."""

    def __init__(self, text, code=1, stop=False):
        super().__init__(text)
        self.code = code
        self.stop = stop  # other files would fail alike


class Damaged(Failure):
    """The bytes are not those of the file."""


class Busy(Exception):
    """Another try may go well; not before retry_after seconds, if the server said so."""

    def __init__(self, text, retry_after=0):
        super().__init__(text)
        self.retry_after = retry_after


class Interrupted(Exception):
    """The user stopped the run, or a failure did that others would meet alike."""


class Answer:
    """What a run of curl brought: the last response's status (0: there was none) and headers; curl's error."""

    def __init__(self, heads, exit_code, error):
        last = heads.decode("latin-1").replace("\r\n", "\n").strip("\n").split("\n\n")[-1]
        status_line, _, lines = last.partition("\n")
        match = re.match(r"HTTP/[0-9.]+ ([0-9]{3})\b", status_line)
        self.status = int(match[1]) if match else 0
        self.headers = email.message_from_string(lines)
        self.exit_code = exit_code
        first_line = error.strip().split("\n")[0]
        self.error = re.sub(r"^curl: \(\d+\) ", "", first_line) or f"curl ended with code {exit_code}"

    def header(self, name):
        return self.headers.get(name, "").strip()

    def number(self, name):
        """-1 for a header that was not sent or is no number."""
        return int(self.header(name)) if re.fullmatch("[0-9]{1,18}", self.header(name)) else -1

    def retry_after(self):
        """Seconds; the header holds them or a date."""
        if self.number("retry-after") >= 0:
            return self.number("retry-after")
        try:
            date = email.utils.parsedate_to_datetime(self.header("retry-after"))
            return max(date.timestamp() - time.time(), 0)
        except (TypeError, ValueError, OverflowError, IndexError):
            return 0


class Curl:
    """Runs curl; stop() ends all runs, and those to come."""

    def __init__(self, token, stall_timeout):
        self.token = token  # sent to the host of the URL, and not to where it redirects
        whole = str(max(1, round(stall_timeout + 0.499)))
        # --disable leaves ~/.curlrc unread; with identity, sizes and ranges are those of the file itself.
        self.command = ["curl", "--disable", "--silent", "--show-error", "--no-buffer", "--globoff",
                        "--max-redirs", "10", "--header", "Accept-Encoding: identity",
                        "--user-agent", "nanospeed-fetch_fineweb", "--connect-timeout", whole,
                        "--speed-limit", "100", "--speed-time", whole, "--config", "-"]
        self.lock = threading.Lock()
        self.running = set()
        self.stopped = threading.Event()

    def stop(self):
        with self.lock:
            self.stopped.set()
            for process in self.running:
                process.kill()

    def run(self, url, options, sink=lambda data: None):
        """One request; sink takes the body. Interrupted after stop()."""
        # A server must not lead to files, mail and the like, nor away from encryption.
        protocols = "=https" if url.lower().startswith("https:") else "=http,https"
        options = [*options, "--proto", protocols, "--proto-redir", protocols]
        # curl reads these from its input, since other users can see a program's arguments.
        config = f'url = "{url}"\n' + (f'oauth2-bearer = "{quoted(self.token)}"\n' if self.token else "")
        with tempfile.NamedTemporaryFile() as heads:
            with self.lock:
                if self.stopped.is_set():
                    raise Interrupted
                # It has a session of its own, so that Ctrl-C reaches this script alone.
                process = subprocess.Popen([*self.command, "--dump-header", heads.name, *options],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, bufsize=0, start_new_session=True)
                self.running.add(process)
            try:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(config.encode())
                    process.stdin.close()
                while data := process.stdout.read(1 << 18):
                    sink(data)
                error = process.stderr.read().decode("utf-8", "replace")
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait()
                with self.lock:
                    self.running.discard(process)
                for pipe in (process.stdin, process.stdout, process.stderr):
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            return Answer(heads.read(), process.returncode, error)


def quoted(text):
    """As a value of curl's configuration, between double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def problem(answer, url, hub):
    """What to raise for an answer that is not what was asked for; None for a 2xx that came whole."""
    if answer.exit_code not in (0, 22):  # 22: --fail, for a status of 400 or more
        text = f"{url}: {answer.error}"
        if answer.exit_code in CERTIFICATES:
            return Failure(f"{text}; install the package ca-certificates, or name your proxy's certificates "
                           "in SSL_CERT_FILE")
        if answer.exit_code in WONT_WORK:
            return Failure(text)
        return Busy(text, answer.retry_after())
    if 200 <= answer.status <= 299:
        return None
    text = f"{url}: the server answered {answer.status}"
    if answer.status in TRANSIENT:
        return Busy(text, answer.retry_after())
    if answer.status == 401:
        hint = "this needs a token; set HF_TOKEN to one of yours"
        if hub.token:
            hint = f"the token of {hub.token_source} was refused; set HF_TOKEN to a valid one, or to none"
        return Failure(f"{text} (unauthorized): {hint}. The hub answers so too where there is no such "
                       "repository", stop=True)
    if answer.status == 403:
        hint = "set HF_TOKEN to a token that may read it"
        if hub.token:
            hint = (f"the token of {hub.token_source} may not read it; accept the data set's terms on its "
                    "page, or set HF_TOKEN to another")
        return Failure(f"{text} (forbidden): {hint}", stop=True)
    if answer.status == 404:
        return Failure(f"{text} (not found): the hub has no such file; look at --endpoint")
    return Failure(f"{text}, which is unexpected of a hub; look at --endpoint")
