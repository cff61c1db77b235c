"use strict";
// Elements, numbers as text, and the places of ticks.

// Text from files becomes text nodes and attributes only, never markup.
function element(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function shape(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

// A button that shows whether it is pressed.
function toggle(label, pressed, onClick) {
  const button = element("button", { type: "button", "aria-pressed": pressed }, label);
  button.addEventListener("click", onClick);
  return button;
}

// A row of buttons of which one is pressed.
function choice(title, options, current, onChoose) {
  const row = element("div", { class: "choice", role: "group", "aria-label": title },
    element("span", {}, title));
  const buttons = options.map(([value, label, disabled]) => {
    const button = toggle(label, value === current, () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", other === button));
      onChoose(value);
    });
    button.disabled = Boolean(disabled);
    return button;
  });
  row.append(...buttons);
  return row;
}

// "12,345", "0.0012", "4.56": about `digits` significant ones.
function numberText(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size < -5 || size > 14) return value.toExponential(digits - 1);
  const decimals = Math.max(0, digits - 1 - size);
  return value.toLocaleString("en-US", { maximumFractionDigits: Math.min(decimals, 12) });
}

// "1.5 M": for axes and large counts.
function shortText(value) {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size * 10 || (size > 1e3 && Math.abs(value) >= size)) {
      return numberText(value / size) + " " + unit;
    }
  }
  return numberText(value);
}

// Round values in [low, high], about `count` of them, two at least.
function linearTicks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [0.5, 1, 2, 5, 10].map((factor) => factor * power);
  const at = steps.findIndex((step) => step >= rough * 0.999);
  const ticks = multiples(steps[at], low, high);
  return ticks.length >= 2 ? ticks : multiples(steps[Math.max(at - 1, 0)], low, high);
}

function multiples(step, low, high) {
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

// 1, 2 and 5 times powers of ten; round values where the range has not even a decade.
function logTicks(low, high, count) {
  if (high / low < 1.5) return linearTicks(low, high, count);
  if (high / low < 10) return spread(linearTicks(low, high, count * 2), low, high, count);
  const ticks = [];
  const factors = Math.log10(high / low) > count ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; ++power) {
    for (const factor of factors) {
      const tick = Number((factor * 10 ** power).toPrecision(6));
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  }
  return ticks;
}

// Of ticks that crowd at the upper end of a logarithmic axis those that have room.
function spread(ticks, low, high, count) {
  const room = Math.log(high / low) / (count * 1.6);
  let last = -Infinity;
  return ticks.filter((tick) => {
    const keep = tick > 0 && Math.log(tick) - last >= room;
    if (keep) last = Math.log(tick);
    return keep;
  });
}

// The index of the value of an ascending list that is nearest to x.
function nearest(values, x) {
  let low = 0;
  let high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
}

// A table that scrolls by itself.
function dataTable(caption, heads, rows) {
  const cells = (tag, list) => list.map((text, i) =>
    element(i === 0 ? "th" : tag, { scope: tag === "th" ? "col" : i === 0 ? "row" : null }, text));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...cells("th", heads))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row))))));
}

// What stands under a chart for those who cannot see it; made when it is opened.
function tableAlternative(make) {
  const details = element("details", {}, element("summary", {}, "as a table"));
  details.addEventListener("toggle", () => {
    const old = details.querySelector(".scroll");
    if (old) old.remove();
    if (details.open) details.append(make());
  });
  return details;
}
