"""The page in a real browser: drawn, readable and without errors, narrow and wide, light and dark.

    browser_test.py REPORT [--shots=FOLDER]

REPORT is the program. Needs Chromium (CHROMIUM names another program than those it looks for) and
Python's standard library; speaks the DevTools protocol over two pipes.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

from browser import Browser, Failure, check, pixels

WIDTHS = (400, 1400)
THEMES = ("light", "dark")
NASTY = "<script>alert(1)</script>"

# What a page says of itself, as JSON. Texts are the parts of drawings and controls that are seen.
PROBE = r"""
(() => {
  const box = (node) => {
    const b = node.getBoundingClientRect();
    return [b.left, b.top + scrollY, b.right, b.bottom + scrollY];
  };
  const charts = [...document.querySelectorAll(".chart")].map((chart) => ({
    id: chart.id,
    frame: box(chart.querySelector(".frame")),
    ticksX: chart.querySelectorAll(".tick-x").length,
    ticksY: chart.querySelectorAll(".tick-y").length,
    axis: chart.querySelector(".axis-title").textContent,
    label: chart.querySelector("svg[role=img]").getAttribute("aria-label"),
    nan: chart.querySelectorAll(".nan").length,
    series: [...chart.querySelectorAll("path.series")].map((path) => ({
      label: path.dataset.label, box: box(path), length: path.getTotalLength(),
      gaps: (path.getAttribute("d").match(/M/g) || []).length - 1,
      stroke: getComputedStyle(path).stroke,
    })),
  }));
  const texts = [...document.querySelectorAll("svg[role=img]")].map((svg) => ({
    svg: box(svg), texts: [...svg.querySelectorAll("text")].map((t) => [t.textContent, ...box(t)]),
  }));
  return JSON.stringify({
    width: innerWidth, scrollWidth: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight,
    background: getComputedStyle(document.body).backgroundColor,
    colour: getComputedStyle(document.body).color,
    title: document.title, heading: document.querySelector("h1").textContent,
    charts, texts,
    outside: [...document.querySelectorAll("main *, header *")].filter((node) =>
      !node.closest(".scroll") && node.getClientRects().length && box(node)[2] > innerWidth + 0.5)
      .map((node) => `${node.tagName} ${node.className.baseVal ?? node.className}`),
    rows: document.querySelectorAll("#runs tbody tr").length,
    names: [...document.querySelectorAll("#runs tbody th")].map((cell) => cell.textContent),
    legend: [...document.querySelectorAll(".legend button")].map((button) => button.textContent),
    bars: [...document.querySelectorAll("#phases .part")].map((bar) => box(bar)),
    collectives: [...document.querySelectorAll(".timeline .collective")].map((bar) => box(bar)),
    ops: [...document.querySelectorAll(".timeline .ops")].map((path) => box(path)),
    alerts: window.alerts || 0,
  });
})()
"""


def luminance(rgb):
  """Relative luminance of WCAG 2, from 0 to 1."""
  linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055)**2.4 for c in
            (v / 255 for v in rgb)]
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
  low, high = sorted((luminance(a), luminance(b)))
  return (high + 0.05) / (low + 0.05)


def rgb(css):
  """Of "rgb(1, 2, 3)"."""
  return tuple(int(float(v)) for v in re.findall(r"[\d.]+", css)[:3])


def inside(inner, outer, slack):
  return (inner[0] >= outer[0] - slack and inner[1] >= outer[1] - slack and
          inner[2] <= outer[2] + slack and inner[3] <= outer[3] + slack)


def overlap(a, b):
  """By more than two pixels each way; boxes of text are higher than their letters."""
  return (min(a[2], b[2]) - max(a[0], b[0]) > 2) and (min(a[3], b[3]) - max(a[1], b[1]) > 4)


def write_runs(folder):
  """Two runs and a cut one with NaN, as --metrics writes them, with one named to do harm."""
  for name, steps, planned, offset in ((NASTY.replace("/", "_"), 3000, 3000, 0.0),
                                       ("base", 400, 400, 0.3), ("cut", 260, 400, 0.6)):
    with open(os.path.join(folder, f"{name}.log"), "w") as log, \
         open(os.path.join(folder, f"{name}.jsonl"), "w") as metrics:
      for step in range(steps + 1):
        if step % 100 == 0:
          loss = 3.2 + offset + 7 * math.exp(-step / 60)
          log.write(f"step:{step}/{planned} val_loss:{loss:.4f} train_time:{60 * step}ms\n")
          metrics.write(json.dumps({"step": step, "val_loss": loss, "train_ms": 60 * step}) + "\n")
        if step == steps:
          break
        bad = name == "cut" and step in (200, 201)
        loss = None if bad else 3.2 + offset + 7 * math.exp(-step / 60) + 0.1 * math.sin(step * 7)
        log.write(f"step:{step + 1}/{planned} train_time:{60 * step + 60}ms step_avg:60.00ms\n")
        metrics.write(json.dumps({
            "step": step + 1, "loss": loss, "lr": min(1, 2 - 2 * step / planned), "momentum": 0.95,
            "window_tokens": 384 + 128 * (step * 4 // planned), "tokens": 4096 * (step + 1),
            "step_ms": 60 + 5 * math.sin(step), "tokens_per_s": 4096 / 0.06}) + "\n")


def write_trace(path):
  """Two steps of two ranks in the form of --trace."""
  events = []
  for rank in range(2):
    for step in range(2):
      start = 1000.0 * step + 10 * rank
      def span(name, begin, length, thread, category=None):
        events.append({"name": name, "ph": "X", "ts": 1e3 * (start + begin), "dur": 1e3 * length,
                       "pid": rank, "tid": thread, **({"cat": category} if category else {})})
      span(f"step {step}", 0, 900, 1)
      span("forward+backward", 0, 600, 1)
      span("optimizer", 600, 300, 1)
      for i in range(30):
        span("MatMul", 20 * i, 12, 2, "gemm")
        span("Attention", 20 * i + 12, 7, 2, "attention")
      span("Update", 700, 180, 2, "optimizer")
      for i, label in enumerate(("mlp", "attn", NASTY)):
        event = {"name": f"reduce_scatter {label}", "cat": "collective", "ph": "b",
                 "id": 10 * step + i, "ts": 1e3 * (start + 500 + 40 * i), "pid": rank, "tid": 2}
        events.append({**event, "args": {"label": label, "bytes": 1e6, "exposed_ms": 20.0,
                                         "hidden_ms": 140.0}})
        events.append({**event, "ph": "e", "ts": 1e3 * (start + 700)})
  with open(path, "w") as file:
    json.dump({"displayTimeUnit": "ms", "traceEvents": events}, file)


def check_texts(page, where):
  for drawing in page["texts"]:
    for text, *box in drawing["texts"]:
      check(text and box[2] > box[0], f"{where}: a text of a drawing is empty")
      check(inside(box, drawing["svg"], 1),
            f"{where}: \"{text}\" sticks out of its drawing: {box}, not in {drawing['svg']}")
      check(box[0] >= 0 and box[2] <= page["width"], f"{where}: \"{text}\" is off the page")
    for i, (text, *box) in enumerate(drawing["texts"]):
      for other, *other_box in drawing["texts"][:i]:
        check(not overlap(box, other_box), f"{where}: \"{text}\" lies on \"{other}\"")


def check_charts(page, where):
  ids = [chart["id"] for chart in page["charts"]]
  want = ["loss", "lr", "window", "batch", "momentum", "step_ms", "rate"]
  check(ids == [f"chart-{name}" for name in want], f"{where}: the charts are {ids}")
  for chart in page["charts"]:
    place = f"{where}, {chart['id']}"
    check(chart["ticksX"] >= 2 and chart["ticksY"] >= 2, f"{place}: too few ticks on an axis")
    check(chart["axis"], f"{place}: the axis has no title")
    check(len(chart["label"]) > 20, f"{place}: no text for screen readers")
    noisy = chart["id"] in ("chart-loss", "chart-step_ms", "chart-rate")
    count = 9 if chart["id"] == "chart-loss" else 6 if noisy else 3
    check(len(chart["series"]) == count, f"{place}: {len(chart['series'])} curves, not {count}")
    check(len({series["stroke"] for series in chart["series"]}) == 3,
          f"{place}: three runs do not have three colours")
    for series in chart["series"]:
      check(series["length"] > 20, f"{place}: the curve {series['label']} has no length")
      check(inside(series["box"], chart["frame"], 1),
            f"{place}: {series['label']} {series['box']} leaves the frame {chart['frame']}")
  loss = page["charts"][0]
  cut = next(series for series in loss["series"] if series["label"] == "cut train")
  check(cut["gaps"] == 1, f"{where}: NaN made {cut['gaps']} gaps, not 1")
  check(loss["nan"] == 1, f"{where}: NaN is not marked")


def check_page(page, where):
  check(page["width"] == where[0], f"{where}: the page is {page['width']} wide")
  check(page["scrollWidth"] <= page["width"], f"{where}: scrolls sideways, {page['scrollWidth']}")
  check(not page["outside"], f"{where}: outside of the page: {page['outside'][:5]}")
  check(page["title"] == page["heading"] == f"Runs {NASTY}", f"{where}: title {page['title']}")
  check(page["alerts"] == 0, f"{where}: a name was run as a script")
  check(page["rows"] == 3 and NASTY.replace("/", "_") in page["names"],
        f"{where}: the table has {page['names']}")
  check(page["legend"] == page["names"], f"{where}: the legend has {page['legend']}")
  check(len(page["bars"]) >= 8 and all(b[2] > b[0] for b in page["bars"]), f"{where}: phase bars")
  check(len(page["collectives"]) == 6 and all(b[2] - b[0] > 5 for b in page["collectives"]),
        f"{where}: {len(page['collectives'])} collectives, not 6 with a length")
  check(len(page["ops"]) == 6, f"{where}: {len(page['ops'])} paths of ops, not 6")
  ratio = contrast(rgb(page["background"]), rgb(page["colour"]))
  check(ratio > 7, f"{where}: contrast of text {ratio:.1f}")
  check_charts(page, where)
  check_texts(page, where)


def check_pixels(browser, page, where):
  """What the picture itself shows: the background, and each curve in its colour."""
  rows = pixels(browser.screenshot(page["charts"][0]["frame"][3] + 60))
  back = rows[3][3]
  check(back == rgb(page["background"]), f"{where}: the background is {back}")
  left, top, right, bottom = (round(v) for v in page["charts"][0]["frame"])
  seen = {pixel for row in rows[top:bottom] for pixel in row[left:right]}
  for stroke in {series["stroke"] for series in page["charts"][0]["series"]}:
    check(rgb(stroke) in seen, f"{where}: no pixel has the colour {stroke} of a curve")
    check(contrast(rgb(stroke), back) > 2.5, f"{where}: {stroke} is too near to the background")
  return luminance(back)


def check_use(browser):
  """Controls do what they say."""
  path = 'document.querySelector("#chart-loss path.series:not(.faint)").getAttribute("d")'
  def press(label):
    browser.evaluate(f"""[...document.querySelectorAll("button")]
        .find((button) => button.textContent.trim() === {json.dumps(label)}).click()""")
    browser.frame()
  before = browser.evaluate(path)
  press("log loss")
  check(browser.evaluate(path) != before, "the linear scale changes nothing")
  press("log loss")
  check(browser.evaluate(path) == before, "pressing twice is not back at the start")
  axis = 'document.querySelector("#chart-loss .axis-title").textContent'
  titles = {"tokens": "tokens trained on", "time": "train time, min", "step": "step"}
  for label, title in titles.items():
    press(label)
    check(browser.evaluate(axis) == title, f"{label}: the axis is {browser.evaluate(axis)}")
  curves = 'document.querySelectorAll("#chart-loss path.series").length'
  press("smooth")
  check(browser.evaluate(curves) == 6, "without smoothing there are other than 6 curves of loss")
  press("smooth")
  press("base")
  check(browser.evaluate(curves) == 6, "a hidden run is still drawn")
  press("base")
  press("last fifth")
  check(browser.evaluate(path) != before, "zoom changes nothing")
  press("whole run")
  browser.evaluate("""document.querySelector("#chart-loss svg[role=img]").dispatchEvent(
      new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }))""")
  shown = 'document.querySelector("#chart-loss .tip:not([hidden])")'
  tip = browser.evaluate(f'{shown}?.innerText ?? ""')
  check("step 3,000" in tip and "3.2" in tip, f"the cursor at the end says {tip!r}")
  browser.evaluate('document.querySelector("#chart-loss details").open = true')
  browser.frame()
  cells = browser.evaluate('document.querySelectorAll("#chart-loss details td").length')
  check(cells > 20, f"the table below the chart has {cells} cells")
  press("dark")
  dark = browser.evaluate("getComputedStyle(document.body).backgroundColor")
  press("light")
  light = browser.evaluate("getComputedStyle(document.body).backgroundColor")
  check(luminance(rgb(light)) > 0.8 > 0.05 > luminance(rgb(dark)), f"themes {light} and {dark}")
  browser.call("Emulation.setDeviceMetricsOverride", width=700, height=900, deviceScaleFactor=1,
               mobile=False)
  browser.frame()
  browser.frame()
  width = browser.evaluate('document.querySelector("#chart-loss svg[role=img]").clientWidth')
  check(600 < width < 700, f"the chart is {width} wide on a page of 700")


def make_page(report, folder):
  write_runs(folder)
  trace = os.path.join(folder, "trace")
  write_trace(trace)
  out = os.path.join(folder, "report.html")
  subprocess.run([report, f"--out={out}", f"--title=Runs {NASTY}", f"--trace={trace}", folder],
                 check=True, stdout=subprocess.DEVNULL)
  return out


def main():
  report = os.path.abspath(sys.argv[1])
  shots = next((a.split("=", 1)[1] for a in sys.argv if a.startswith("--shots=")), None)
  start = time.monotonic()
  with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    os.environ["HOME"] = folder  # where Chromium keeps what is not in its profile
    runs = os.path.join(folder, "runs")
    os.mkdir(runs)
    path = make_page(report, runs)
    browser = Browser(os.path.join(folder, "profile"))
    try:
      for width in WIDTHS:
        brightness = {}
        for theme in THEMES:
          where = (width, theme)
          browser.open(path, width, theme)
          page = json.loads(browser.evaluate(PROBE))
          if shots:
            with open(os.path.join(shots, f"{width}_{theme}.png"), "wb") as file:
              file.write(browser.screenshot(page["height"]))
          check_page(page, where)
          brightness[theme] = check_pixels(browser, page, where)
          check(not browser.faults(), f"{where}: {browser.faults()}")
          print(f"passed at {width} px, {theme}: {len(page['charts'])} charts, "
                f"{sum(len(c['series']) for c in page['charts'])} curves, {page['height']} px high")
        check(brightness["light"] > 0.8 and brightness["dark"] < 0.05,
              f"the backgrounds are as bright as {brightness}")
      check_use(browser)
      check(not browser.faults(), f"in use: {browser.faults()}")
      print(f"passed in use; {time.monotonic() - start:.1f} s")
    except Failure as failure:
      sys.exit(f"FAILED: {failure}")
    finally:
      browser.close()


if __name__ == "__main__":
  main()
