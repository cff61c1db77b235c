"""A hub of loopback, for tests: serves files as Hugging Face does, and fails as it is told.

Each file has a list of faults, one for each GET, and one for each HEAD; when the list is
used up the file is served without fault. Every request is kept in `requests`.
"""

import hashlib
import http.server
import random
import threading
import time


class File:
    """A file of the hub, and what goes wrong with it."""

    def __init__(self, data, large=True):
        self.data = data
        self.large = large  # has X-Linked-Size and X-Linked-ETag, as files in LFS have
        self.etag = '"%s"' % hashlib.md5(data).hexdigest()
        self.get_faults = []
        self.head_faults = []
        self.ranges = True
        self.redirect = None  # where GET leads to, as an address

    def sha256(self):
        return hashlib.sha256(self.data).hexdigest()


class Request:
    def __init__(self, handler):
        self.method = handler.command
        self.path = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}


class Hub:
    """Serves until close(). Faults are functions of the handler, below."""

    def __init__(self):
        self.files = {}
        self.requests = []
        self.lock = threading.Lock()
        self.active = 0
        self.most_active = 0  # GETs at once
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self):
                try:
                    super().handle()
                except ConnectionResetError:
                    pass  # the client has gone

            def do_HEAD(self):
                hub.answer(self)

            def do_GET(self):
                with hub.lock:
                    hub.active += 1
                    hub.most_active = max(hub.most_active, hub.active)
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client has gone
                finally:
                    with hub.lock:
                        hub.active -= 1

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def gets(self, name):
        """The headers of the GET requests whose path ends with `name`."""
        with self.lock:
            return [r.headers for r in self.requests if r.method == "GET" and r.path.endswith(name)]

    def answer(self, handler):
        with self.lock:
            self.requests.append(Request(handler))
            file = self.files.get(handler.path)
            fault = None
            if file is not None:
                faults = file.head_faults if handler.command == "HEAD" else file.get_faults
                fault = faults.pop(0) if faults else None
        if file is None:
            send_status(handler, 404)
        elif fault is not None:
            fault(handler, file)
        else:
            serve(handler, file)


def send_status(handler, status, headers=None, body=b"no\n"):
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def head_headers(file):
    if not file.large:
        return {}
    return {"X-Linked-Size": str(len(file.data)), "X-Linked-ETag": '"%s"' % file.sha256()}


def serve(handler, file, send=None):
    """Without fault, or with `send` in place of sending the body."""
    if file.redirect is not None:
        send_status(handler, 302, dict(head_headers(file), Location=file.redirect))
        return
    first = 0
    asked = handler.headers.get("Range")
    same = handler.headers.get("If-Range") in (None, file.etag)
    if asked and file.ranges and same:
        first = int(asked[len("bytes="):].split("-")[0])
        if first >= len(file.data):
            send_status(handler, 416, {"Content-Range": "bytes */%d" % len(file.data)})
            return
        handler.send_response(206)
        handler.send_header(
            "Content-Range", "bytes %d-%d/%d" % (first, len(file.data) - 1, len(file.data)))
    else:
        handler.send_response(200)
    for name, value in head_headers(file).items():
        handler.send_header(name, value)
    if file.etag:
        handler.send_header("ETag", file.etag)
    handler.send_header("Content-Length", str(len(file.data) - first))
    handler.end_headers()
    if handler.command == "HEAD":
        return
    if send is None:
        handler.wfile.write(file.data[first:])
    else:
        send(handler, file.data[first:])


def status(code, headers=None):
    return lambda handler, file: send_status(handler, code, headers)


def cut(bytes_sent):
    """The connection ends after so many bytes of the body; random if it is a pair."""

    def send(handler, body):
        n = random.randint(*bytes_sent) if isinstance(bytes_sent, tuple) else bytes_sent
        handler.wfile.write(body[:n])
        handler.close_connection = True

    return lambda handler, file: serve(handler, file, send)


def hold(bytes_sent, event):
    """The rest of the body comes when the event is set."""

    def send(handler, body):
        handler.wfile.write(body[:bytes_sent])
        handler.wfile.flush()
        if event.wait(30):
            handler.wfile.write(body[bytes_sent:])

    return lambda handler, file: serve(handler, file, send)


def slowly(chunk, seconds):
    """`chunk` bytes, a pause, and so on."""

    def send(handler, body):
        for at in range(0, len(body), chunk):
            handler.wfile.write(body[at:at + chunk])
            handler.wfile.flush()
            time.sleep(seconds)

    return lambda handler, file: serve(handler, file, send)


def other_range(handler, file):
    """206, but for other bytes than those that were asked for."""
    body = file.data[1:]
    send_status(handler, 206, {
        "Content-Range": "bytes 1-%d/%d" % (len(file.data) - 1, len(file.data)),
        "ETag": file.etag,
    }, body)
