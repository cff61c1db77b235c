"""Chromium over the DevTools protocol, with Python's standard library alone."""

import base64
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import zlib


class Failure(Exception):
  pass


def check(condition, message):
  if not condition:
    raise Failure(message)


def find_chromium():
  for name in filter(None, (os.environ.get("CHROMIUM"), "chromium", "chromium-browser",
                            "google-chrome")):
    found = shutil.which(name)
    if found:
      return found
  sys.exit("browser_test: no Chromium; install Debian's package chromium, or name one in CHROMIUM")


class Browser:
  """Chromium, spoken to over the file descriptors 3 and 4: JSON messages that end with a zero."""

  def __init__(self, profile):
    to_browser, self.output = os.pipe()
    self.input, from_browser = os.pipe()

    def place_pipes():
      # First away from 3 and 4, where either may already be.
      reading, writing = os.dup(to_browser), os.dup(from_browser)
      high = [os.dup(fd) for fd in (reading, writing)]
      os.dup2(high[0], 3)
      os.dup2(high[1], 4)

    self.process = subprocess.Popen(
        [find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--hide-scrollbars", "--no-first-run", "--disable-extensions",
         f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
        preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    os.close(to_browser)
    os.close(from_browser)
    self.buffer, self.sent, self.events = b"", 0, []
    target = self.call("Target.createTarget", url="about:blank")["targetId"]
    self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
      self.call(f"{domain}.enable")

  session = None

  def read(self):
    while b"\0" not in self.buffer:
      ready, _, _ = select.select([self.input], [], [], 60)
      data = os.read(self.input, 1 << 16) if ready else b""
      if not data:
        raise Failure("Chromium said nothing for a minute, or ended")
      self.buffer += data
    message, self.buffer = self.buffer.split(b"\0", 1)
    return json.loads(message)

  def call(self, method, **params):
    self.sent += 1
    message = {"id": self.sent, "method": method, "params": params}
    if self.session:
      message["sessionId"] = self.session
    os.write(self.output, json.dumps(message).encode() + b"\0")
    while True:
      answer = self.read()
      if answer.get("id") == self.sent:
        if "error" in answer:
          raise Failure(f"{method}: {answer['error']}")
        return answer["result"]
      self.events.append(answer)

  def evaluate(self, script):
    result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
    if "exceptionDetails" in result:
      raise Failure(f"{script[:60]}: {result['exceptionDetails']}")
    return result["result"].get("value")

  def frame(self):
    self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

  def open(self, path, width, theme):
    self.events = []
    self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
              mobile=False)
    self.call("Emulation.setEmulatedMedia",
              features=[{"name": "prefers-color-scheme", "value": theme}])
    self.call("Page.addScriptToEvaluateOnNewDocument",
              source="window.alert = () => { window.alerts = (window.alerts || 0) + 1; }")
    self.call("Page.navigate", url=f"file://{path}")
    while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
      self.events.append(self.read())
    self.frame()

  def faults(self):
    """Errors and warnings of the console, and requests for anything but the file."""
    faults = []
    for event in self.events:
      method, params = event.get("method"), event.get("params", {})
      if method == "Runtime.exceptionThrown":
        faults.append(params["exceptionDetails"].get("exception", {}).get("description", "?"))
      elif method == "Log.entryAdded":
        faults.append(params["entry"]["text"])
      elif method == "Runtime.consoleAPICalled":
        faults.append(f"console.{params['type']}")
      elif method == "Network.requestWillBeSent":
        url = params["request"]["url"]
        if not url.startswith(("file:", "data:", "about:")):
          faults.append(f"asks for {url}")
    return faults

  def screenshot(self, height):
    width = self.evaluate("innerWidth")
    return base64.b64decode(self.call(
        "Page.captureScreenshot", format="png", captureBeyondViewport=True,
        clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})["data"])

  def close(self):
    self.call("Browser.close")
    self.process.wait(timeout=30)


def pixels(png):
  """Rows of RGB triples: 8 bits a channel, with or without alpha, not interlaced."""
  at, data = 8, b""
  while at < len(png):
    size, kind = struct.unpack(">I4s", png[at:at + 8])
    chunk = png[at + 8:at + 8 + size]
    if kind == b"IHDR":
      width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunk)
    elif kind == b"IDAT":
      data += chunk
    at += 12 + size
  check(depth == 8 and colour in (2, 6) and not interlaced, "the screenshot is another kind of PNG")
  channels = 3 if colour == 2 else 4
  raw, stride, above, rows = zlib.decompress(data), width * channels, None, []
  for y in range(height):
    kind = raw[y * (stride + 1)]
    line = bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
    above = above or bytearray(stride)
    for i in range(stride if kind else 0):
      left = line[i - channels] if i >= channels else 0
      corner = above[i - channels] if i >= channels else 0
      if kind == 1:
        line[i] = (line[i] + left) & 255
      elif kind == 2:
        line[i] = (line[i] + above[i]) & 255
      elif kind == 3:
        line[i] = (line[i] + (left + above[i]) // 2) & 255
      else:
        guess = left + above[i] - corner
        best = min((left, above[i], corner), key=lambda v: abs(guess - v))
        line[i] = (line[i] + best) & 255
    rows.append([tuple(line[x:x + 3]) for x in range(0, stride, channels)])
    above = line
  return rows
