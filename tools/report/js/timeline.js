"use strict";
// A traced step: for each rank its host's phases, its device's ops, its collectives.

const LANE = { host: 15, ops: 18, collective: 11, gap: 14, left: 4, axis: 24 };

// Rows for collectives, so that none lies on another.
function packed(collectives) {
  const ends = [];
  return collectives.map((one) => {
    let row = ends.findIndex((end) => end <= one[3]);
    if (row < 0) row = ends.push(0) - 1;
    ends[row] = one[4];
    return row;
  });
}

class Timeline {
  constructor(host, trace) {
    this.trace = trace;
    this.step = trace.steps[0];
    this.zoom = null;
    this.plot = element("div", { class: "plot" });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.reset = element("button", { type: "button" }, "whole step");
    this.reset.addEventListener("click", () => this.show(this.step, null));
    const kinds = [...KINDS.keys()].filter((kind) =>
      trace.steps.some((step) => step.ranks.some((rank) => rank.ops.some(([k]) => k === kind))));
    host.append(
      element("div", { class: "controls", style: "position: static; border: 0; background: none" },
        choice("step", trace.steps.map((step) => [step, String(step.step)]), this.step,
          (step) => this.show(step, null)), this.reset),
      kindsLegend(kinds),
      element("p", { class: "hint" }, "Each rank: the host's phases, the device's ops, and below them the " +
        "collectives under way. The strong end of a collective is as long as the device stood still for it. " +
        "Ops of one kind less than a 4000th of a step apart are drawn as one."),
      this.plot);
  }

  show(step, zoom) {
    this.step = step;
    this.zoom = zoom;
    this.draw();
  }

  draw() {
    this.width = Math.max(this.plot.clientWidth, 200);
    const whole = [0, Math.max(...this.step.ranks.map((rank) => rank.span[1]))];
    [this.low, this.high] = this.zoom || whole;
    this.reset.disabled = this.zoom === null;
    const shapes = [];
    this.lanes = [];
    let y = 4;
    for (const rank of this.step.ranks) y = this.drawRank(rank, y, shapes);
    this.height = y + LANE.axis;
    const svg = shape("svg", { width: this.width, height: this.height, role: "img", tabindex: "0",
      viewBox: `0 0 ${this.width} ${this.height}`, "aria-label": this.summary() });
    this.brush = shape("rect", { class: "brush", y: 0, height: y, width: 0 });
    svg.append(...this.axis(y), ...shapes, this.brush);
    this.listen(svg);
    this.plot.replaceChildren(svg, this.tip);
  }

  xAt(ms) {
    const x = LANE.left + (ms - this.low) / (this.high - this.low) * (this.width - 2 * LANE.left);
    return Math.min(Math.max(x, LANE.left), this.width - LANE.left);
  }

  msAt(x) {
    return this.low + (x - LANE.left) / (this.width - 2 * LANE.left) * (this.high - this.low);
  }

  bar(begin, end, y, height) {
    const x = this.xAt(begin);
    return { x, y, width: Math.max(this.xAt(end) - x, 0), height };
  }

  seen(begin, end) { return end >= this.low && begin <= this.high; }

  drawRank(rank, top, shapes) {
    shapes.push(shape("text", { class: "lane", x: LANE.left, y: top + 12 }, `rank ${rank.rank}`));
    let y = top + 18;
    this.lanes.push({ y, height: LANE.host, spans: rank.host, at: 1, text: (one) => [one[0]] });
    rank.host.filter((one) => this.seen(one[1], one[2])).forEach(([name, begin, end], i) => {
      const box = this.bar(begin, end, y, LANE.host);
      shapes.push(shape("rect", { class: "host", ...box, style: `fill: var(${i % 2 ? "--line" : "--idle"})` }));
      this.label(name, box, "on-light", shapes);
    });
    y += LANE.host + 2;
    this.lanes.push({ y, height: LANE.ops, spans: rank.ops, at: 1,
      text: (one) => [`${one[0]}, ${one[3] === 1 ? "one op" : `${one[3]} ops`}`] });
    shapes.push(...this.opPaths(rank, y));
    y += LANE.ops + 2;
    const rows = packed(rank.collectives);
    rank.collectives.forEach((one, i) => this.drawCollective(one, y + rows[i] * LANE.collective, shapes));
    return y + (rows.length ? Math.max(...rows) + 1 : 0) * LANE.collective + LANE.gap;
  }

  // A path a kind: there may be thousands of ops.
  opPaths(rank, y) {
    const paths = new Map();
    for (const [kind, begin, end] of rank.ops) {
      if (!this.seen(begin, end)) continue;
      const box = this.bar(begin, end, y, LANE.ops);
      const width = Math.max(box.width, 0.3);
      paths.set(kind, `${paths.get(kind) || ""}M${box.x.toFixed(2)} ${y}h${width.toFixed(2)}v${LANE.ops}h-${width.toFixed(2)}z`);
    }
    return [...paths].map(([kind, d]) => shape("path", { class: "ops", d, style: `fill: ${kindColour(kind)}` }));
  }

  drawCollective(one, y, shapes) {
    const [name, label, bytes, begin, end, exposed, under] = one;
    const meanwhile = Object.entries(under).map(([kind, ms]) => `${kind} ${numberText(ms, 3)} ms`);
    this.lanes.push({ y, height: LANE.collective, spans: [one], at: 3, text: () => [`${name} ${label}`,
      `${shortText(bytes)}B, exposed ${numberText(exposed, 3)} ms`,
      `meanwhile: ${meanwhile.join(", ") || "nothing"}`] });
    if (!this.seen(begin, end)) return;
    const box = this.bar(begin, end, y, LANE.collective - 1);
    shapes.push(shape("rect", { class: "collective", ...box, width: Math.max(box.width, 0.6), style: "fill: var(--hidden)" }),
      shape("rect", { class: "exposed", ...this.bar(end - exposed, end, y, LANE.collective - 1), style: "fill: var(--exposed)" }));
    this.label(`${name} ${label}`, { ...box, width: this.xAt(end - exposed) - box.x }, "on-light", shapes);
  }

  // Only where it has room.
  label(text, box, style, shapes) {
    if (box.width < 6.4 * text.length + 6) return;
    shapes.push(shape("text", { class: style, x: box.x + 3, y: box.y + box.height / 2 + 3.5 }, text));
  }

  axis(y) {
    const shapes = [];
    for (const tick of linearTicks(this.low, this.high, this.width / 90)) {
      const x = this.xAt(tick);
      const anchor = x < 20 ? "start" : x > this.width - 44 ? "end" : "middle";
      shapes.push(shape("line", { class: "gridline", x1: x, x2: x, y1: 0, y2: y }),
        shape("text", { class: "tick-x", x, y: y + 16, "text-anchor": anchor }, `${numberText(tick, 6)} ms`));
    }
    return shapes;
  }

  summary() {
    const ranks = this.step.ranks.map((rank) => {
      const exposed = rank.collectives.reduce((sum, one) => sum + one[5], 0);
      return `rank ${rank.rank}: ${rank.collectives.length} collectives, exposed ${numberText(exposed, 3)} ms ` +
        `of ${numberText(rank.span[1] - rank.span[0])} ms`;
    });
    return `Timeline of step ${this.step.step}. ${ranks.join("; ")}`;
  }

  listen(svg) {
    let start = null;
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      return { x: Math.min(Math.max(event.clientX - box.left, LANE.left), this.width - LANE.left),
        y: event.clientY - box.top };
    };
    svg.addEventListener("pointermove", (event) => {
      const at = place(event);
      if (start !== null) {
        this.brush.setAttribute("x", Math.min(start, at.x));
        this.brush.setAttribute("width", Math.abs(at.x - start));
      }
      this.drawTip(at);
    });
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = place(event).x;
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointerup", (event) => {
      const [a, b] = [start, place(event).x].sort((p, q) => p - q);
      start = null;
      this.brush.setAttribute("width", 0);
      if (b - a > 6) this.show(this.step, [this.msAt(a), this.msAt(b)]);
    });
    svg.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    svg.addEventListener("dblclick", () => this.show(this.step, null));
    svg.addEventListener("keydown", (event) => { if (event.key === "Escape") this.show(this.step, null); });
  }

  drawTip({ x, y }) {
    const ms = this.msAt(x);
    const slack = (this.high - this.low) / this.width;
    let found = null;
    for (const lane of this.lanes) {
      if (y < lane.y || y >= lane.y + lane.height) continue;
      const span = lane.spans.find((one) => ms >= one[lane.at] - slack && ms <= one[lane.at + 1] + slack);
      if (span) found = [lane, span];
    }
    this.tip.hidden = found === null;
    if (found === null) return;
    const [lane, span] = found;
    const [head, ...lines] = lane.text(span);
    this.tip.replaceChildren(element("b", {}, head),
      element("div", {}, `${numberText(span[lane.at + 1] - span[lane.at], 4)} ms from ${numberText(span[lane.at], 5)} ms`),
      ...lines.map((line) => element("div", {}, line)));
    this.tip.style.top = `${y + 16}px`;
    const left = x < this.width / 2;
    this.tip.style.left = left ? `${x + 10}px` : "auto";
    this.tip.style.right = left ? "auto" : `${this.width - x + 10}px`;
  }
}
