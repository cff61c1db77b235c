"use strict";
// Puts the page together.

const charts = CHARTS.filter((spec) => spec.curves().length > 0)
  .map((spec) => new Chart(spec, (change) => apply(change)));
const others = [];  // drawings that do not share the charts' axis

// Where the x axis begins and ends if nothing is zoomed: at all runs, hidden or not.
function extentOfAll() {
  let low = Infinity;
  let high = -Infinity;
  for (const run of data.runs) {
    for (const values of [run.train[state.x], run.val[state.x]]) {
      for (const value of values || []) {
        if (value === null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
  }
  return low <= high ? [low, high] : [0, 1];
}

function drawCharts() {
  charts.forEach((chart) => chart.draw());
  showControls();
}

// A change of the cursor alone draws only that.
function apply(change) {
  const { from, ...changed } = change;
  Object.assign(state, changed);
  if (Object.keys(changed).every((name) => name === "cursor")) {
    charts.forEach((chart) => chart.drawCursor(chart === from));
  } else {
    drawCharts();
  }
}

const unzoom = element("button", { type: "button" }, "whole run");
unzoom.addEventListener("click", () => apply({ zoom: null }));
const lastFifth = element("button", { type: "button" }, "last fifth");
lastFifth.addEventListener("click", () => {
  const [low, high] = extentOfAll();
  apply({ zoom: [high - (high - low) / 5, high] });
});
const lacking = element("p", { class: "hint" });

function showControls() {
  unzoom.disabled = state.zoom === null;
  const names = data.runs.filter((run) => !run.train[state.x] && !run.val[state.x]).map((run) => run.name);
  const what = state.x === "tokens" ? "tokens" : "times";
  lacking.textContent = names.length ? `The files do not say the ${what} of: ${names.join(", ")}.` : "";
  lacking.hidden = names.length === 0;
}

function legend() {
  const row = element("div", { class: "legend", role: "group", "aria-label": "runs shown" });
  const buttons = new Map();
  const show = () => buttons.forEach((button, key) => button.setAttribute("aria-pressed", !state.hidden.has(key)));
  for (const [key, style] of styles) {
    const label = style.isGroup ? `${style.label} (${style.runs})` : style.label;
    const button = element("button", { type: "button", "aria-pressed": true,
      title: `${label}: click to hide or show, with shift to show alone` },
      keySample(style), element("span", { class: "label" }, label));
    button.addEventListener("click", (event) => {
      if (event.shiftKey) {
        state.hidden = new Set([...styles.keys()].filter((other) => other !== key));
      } else if (!state.hidden.delete(key)) {
        state.hidden.add(key);
      }
      show();
      drawCharts();
    });
    buttons.set(key, button);
    row.append(button);
  }
  return row;
}

function controls() {
  const has = (column) => data.runs.some((run) => run.train[column] || run.val[column]);
  const pressed = (label, name) => {
    const button = toggle(label, state[name], () => {
      button.setAttribute("aria-pressed", !state[name]);
      apply({ [name]: !state[name] });
    });
    return button;
  };
  const view = element("div", { class: "choice", role: "group", "aria-label": "view" },
    element("span", {}, "view"), pressed("log loss", "log"));
  if (has("smooth_loss") || has("smooth_step_ms")) view.append(pressed("smooth", "smooth"));
  return element("div", { class: "controls" },
    choice("against", [["step", "step"], ["tokens", "tokens", !has("tokens")], ["time", "time", !has("time")]],
      state.x, (x) => apply({ x, zoom: null, cursor: null })),
    view,
    element("div", { class: "choice", role: "group", "aria-label": "zoom" },
      element("span", {}, "zoom"), unzoom, lastFifth),
    legend());
}

function themeChoice() {
  document.getElementById("theme").append(choice("theme",
    [["", "auto"], ["light", "light"], ["dark", "dark"]], "", (theme) => {
      if (theme) document.documentElement.dataset.theme = theme;
      else delete document.documentElement.dataset.theme;
    }));
}

// The keys of the curves, in the table of runs.
function markTable() {
  document.querySelectorAll("#runs tbody th").forEach((head, i) => {
    const name = element("span", { class: "name", title: head.textContent }, ...head.childNodes);
    head.append(element("span", { class: "named" }, keySample(styles.get(keyOf(data.runs[i]))), name));
  });
}

themeChoice();
const chartsHost = document.getElementById("charts");
if (chartsHost) {
  markTable();
  chartsHost.append(controls(), lacking,
    ...charts.filter((chart) => chart.spec.big).map((chart) => chart.host),
    element("div", { class: "grid" }, ...charts.filter((chart) => !chart.spec.big).map((chart) => chart.host)));
  drawCharts();
}
const phases = document.getElementById("phases");
if (phases) others.push(new PhaseBars(phases));
document.querySelectorAll(".timeline").forEach((host) => {
  others.push(new Timeline(host, data.traces[Number(host.dataset.trace)]));
});
others.forEach((one) => one.draw());

let drawnWidth = document.documentElement.clientWidth;
new ResizeObserver(() => {
  const width = document.documentElement.clientWidth;
  if (width === drawnWidth) return;
  drawnWidth = width;
  drawCharts();
  others.forEach((one) => one.draw());
}).observe(document.documentElement);
