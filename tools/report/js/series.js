"use strict";
// What the charts show: shared choices, and the curves of each chart.

const data = JSON.parse(document.getElementById("data").textContent);

const state = {
  x: "step",      // or "tokens", "time"
  log: true,      // the loss axis
  smooth: true,   // what differs from step to step
  zoom: null,     // [low, high] on the x axis, or all
  cursor: null,   // a place on the x axis
  hidden: new Set(),
};

const COLOURS = 8;
const DASHES = [null, "6 4", "2 4", "9 3 2 3"];

// Runs of one group share colour and name in the legend.
function keyOf(run) {
  return run.group ? "group " + run.group : "run " + run.name;
}

const styles = new Map();
for (const run of data.runs) {
  const key = keyOf(run);
  if (styles.has(key)) {
    ++styles.get(key).runs;
    continue;
  }
  const n = styles.size;
  styles.set(key, {
    label: run.group || run.name,
    isGroup: Boolean(run.group),
    colour: `var(--c${n % COLOURS})`,
    dash: DASHES[Math.floor(n / COLOURS) % DASHES.length],
    runs: 1,
  });
}

// A short line as the curves have it.
function keySample(style) {
  return shape("svg", { class: "key", viewBox: "0 0 22 10", "aria-hidden": "true" },
    shape("line", { x1: 1, y1: 5, x2: 21, y2: 5, "stroke-width": 3, "stroke-dasharray": style.dash,
      style: `stroke: ${style.colour}` }));
}

// Finite numbers; null where nothing is known, NaN for what is not finite.
function plain(values) {
  return values ? values.map((value) => (value === "nan" ? NaN : value)) : null;
}
for (const run of data.runs) {
  for (const part of [run.train, run.val]) {
    for (const name of Object.keys(part)) part[name] = plain(part[name]);
  }
}

// The run's curve of `part` ("train" or "val") and column; null if the files do not have it.
function curve(run, part, column, kind) {
  const x = run[part][state.x];
  const y = run[part][column];
  if (!x || !y) return null;
  const style = styles.get(keyOf(run));
  const known = x.map((value, i) => i).filter((i) => x[i] !== null && y[i] !== null);
  if (known.length === 0) return null;
  return {
    key: keyOf(run), run: run.name, kind, colour: style.colour, dash: style.dash,
    x: known.map((i) => x[i]), y: known.map((i) => y[i]), label: run.name,
  };
}

function visibleRuns() {
  return data.runs.filter((run) => !state.hidden.has(keyOf(run)));
}

function curvesOf(column, kind) {
  return visibleRuns().map((run) => curve(run, "train", column, kind)).filter(Boolean);
}

// With smoothing, single steps stay visible behind.
function noisyCurves(column, what) {
  const curves = [];
  for (const run of visibleRuns()) {
    const raw = curve(run, "train", column, state.smooth ? "faint" : "thin");
    if (raw) curves.push({ ...raw, label: `${run.name}${what}`, quiet: state.smooth });
    const smooth = state.smooth ? curve(run, "train", `smooth_${column}`, "thin") : null;
    if (smooth) curves.push({ ...smooth, label: `${run.name}${what}, smoothed`, smoothed: true });
  }
  return curves;
}

function noisyHint(column) {
  const runs = data.runs.filter((run) => run.train[column]);
  if (runs.length === 0) return "";
  const means = [...new Set(runs.map((run) => 2 * run.reach + 1))].join(", ").replace(/, (\d+)$/, " or $1");
  return state.smooth ? `thin: mean of ${means} steps; faint: each step` : "each step";
}

// Training below validation.
function lossCurves() {
  const curves = noisyCurves("loss", " train");
  for (const run of visibleRuns()) {
    const val = curve(run, "val", "loss", "bold");
    if (val) curves.push({ ...val, label: `${run.name} val`, points: true });
  }
  return curves;
}

function lossHint() {
  const training = noisyHint("loss");
  return [data.runs.some((run) => run.val.loss) ? "bold with dots: validation" : "",
    training ? `training: ${training}` : ""].filter(Boolean).join("; ");
}

const CHARTS = [
  { id: "loss", title: "Loss", unit: "nats a token", curves: lossCurves, hint: lossHint, big: true,
    log: () => state.log, target: data.target },
  { id: "lr", title: "Learning rate", unit: "multiplier", curves: () => curvesOf("lr", "line"), zero: true },
  { id: "window", title: "Attention window", unit: "tokens", curves: () => curvesOf("window", "line"),
    steps: true, zero: true },
  { id: "batch", title: "Batch", unit: "tokens a step", curves: () => curvesOf("batch", "line"),
    steps: true, zero: true },
  { id: "momentum", title: "Momentum", unit: "", curves: () => curvesOf("momentum", "line") },
  { id: "step_ms", title: "Step time", unit: "ms", curves: () => noisyCurves("step_ms", ""),
    hint: () => noisyHint("step_ms"), zero: true, robust: true },
  { id: "rate", title: "Throughput", unit: "tokens a second", curves: () => noisyCurves("rate", ""),
    hint: () => noisyHint("rate"), zero: true, robust: true },
];

// The unit in which times are read, from the longest.
function timeUnit(seconds) {
  return seconds < 180 ? ["s", 1] : seconds < 3 * 3600 ? ["min", 60] : ["h", 3600];
}

function axisTitle(high) {
  if (state.x === "time") return `train time, ${timeUnit(high)[0]}`;
  return state.x === "tokens" ? "tokens trained on" : "step";
}
