"""What the user sees of a run: lines, and a bar on a terminal."""

import os
import sys
import threading
import time


def unit_of(count):
    """Of a number of bytes: the unit's size, name and digits; powers of 1000, as sizes on the hub are."""
    for size, name, digits in ((1, "B", 0), (1e3, "kB", 1), (1e6, "MB", 1), (1e9, "GB", 2)):
        if count < size * 1000:
            return size, name, digits
    return 1e12, "TB", 2


def size_text(count):
    size, name, digits = unit_of(count)
    return f"{count / size:.{digits}f} {name}"


def progress_text(done, total, rate):
    """[=====>     ] 0.52/2.00 GB  64.5 MB/s  0:23 left; a rate of 0 leaves the time open."""
    size, name, digits = unit_of(total)
    filled = int(30 * min(max(done / total, 0), 1)) if total else 30
    text = f"[{('=' * filled + '>')[:30]:30}] {done / size:.{digits}f}/{total / size:.{digits}f} {name}"
    if done >= total:
        return f"{text}  verifies"
    left = "--:--"
    if rate > 0:
        minutes, second = divmod(round((total - done) / rate), 60)
        left = f"{minutes // 60}:{minutes % 60:02}:{second:02}" if minutes >= 60 else f"{minutes}:{second:02}"
    return f"{text}  {rate / 1e6:.1f} MB/s  {left} left"


class RateMeter:
    """Bytes per second over the last ten seconds."""

    def __init__(self):
        self.samples = []

    def update(self, now, count):
        """So many bytes in all have come by the time `now`, in seconds; returns the rate."""
        self.samples.append((now, count))
        while len(self.samples) > 2 and self.samples[1][0] <= now - 10:
            self.samples.pop(0)
        then, before = self.samples[0]
        return max(count - before, 0) / (now - then) if now > then else 0.0


class Console:
    """Results on standard output, notes and the bar on standard error; used by several threads."""

    def __init__(self, program):
        self.program = program
        self.lock = threading.Lock()
        self.meter = RateMeter()
        self.drawn = False

    def show(self, stream, text):
        with self.lock:
            try:
                self.clear()
                print(text, file=stream, flush=True)
            except BrokenPipeError:  # a reader that has left, as of | head, does not end the run
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

    def result(self, text):
        self.show(sys.stdout, text)

    def note(self, text):
        self.show(sys.stderr, f"{self.program}: {text}")

    def fetched(self, file, what, duration):
        self.result(f"{file.path}: fetched, {what}, {size_text(file.size)} in {duration:.1f} s")

    def draw(self, done, total):
        """The bar, on a terminal alone."""
        if sys.stderr.isatty():
            with self.lock:
                rate = self.meter.update(time.monotonic(), done)
                print(f"\r\x1b[K{progress_text(done, total, rate)}", end="", file=sys.stderr, flush=True)
                self.drawn = True

    def clear(self):
        if self.drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self.drawn = False
