"use strict";
// A line chart: axes, curves, cursor and zoom.

const PADDING = { left: 54, right: 14, top: 8, bottom: 40 };

class Chart {
  constructor(spec, onChange) {
    this.spec = spec;
    this.onChange = onChange;
    this.hint = element("p", { class: "hint" });
    this.plot = element("div", { class: "plot" });
    this.host = element("div", { class: "chart", id: `chart-${spec.id}` },
      element("h3", { id: `title-${spec.id}` }, spec.title, " ",
        element("small", {}, spec.unit)), this.plot, this.hint,
      tableAlternative(() => this.table()));
    this.tip = element("div", { class: "tip", role: "status", hidden: "" });
  }

  // Redraws everything, at the width that the page gives.
  draw() {
    this.curves = this.spec.curves();
    this.width = Math.max(this.plot.clientWidth, 200);
    this.height = this.spec.big ? (this.width < 600 ? 300 : 400) : 210;
    this.isLog = Boolean(this.spec.log && this.spec.log());
    this.setScales();
    const svg = shape("svg", { width: this.width, height: this.height, role: "img", tabindex: "0",
      viewBox: `0 0 ${this.width} ${this.height}`, "aria-label": this.summary() });
    const clip = `clip-${this.spec.id}`;
    svg.append(shape("clipPath", { id: clip }, this.frame({ fill: "none" })), ...this.axes());
    const lines = shape("g", { "clip-path": `url(#${clip})` });
    lines.append(...this.curves.map((curve) => this.line(curve)));
    svg.append(lines, ...this.curves.flatMap((curve) => this.dots(curve)), ...this.marks());
    this.cursorLine = shape("line", { class: "cursor", y1: PADDING.top, y2: this.bottom(), visibility: "hidden" });
    this.brush = shape("rect", { class: "brush", y: PADDING.top, height: this.bottom() - PADDING.top, width: 0 });
    svg.append(this.brush, this.cursorLine);
    this.listen(svg);
    this.svg = svg;
    this.plot.replaceChildren(svg, this.tip);
    this.hint.textContent = [this.spec.hint ? this.spec.hint() : "", this.outsideText()]
      .filter(Boolean).join("; ");
    this.hint.hidden = this.hint.textContent === "";
    this.drawCursor(false);
  }

  right() { return this.width - PADDING.right; }
  bottom() { return this.height - PADDING.bottom; }

  frame(attributes) {
    return shape("rect", { x: PADDING.left, y: PADDING.top, width: this.right() - PADDING.left,
      height: this.bottom() - PADDING.top, ...attributes });
  }

  setScales() {
    [this.low, this.high] = state.zoom || extentOfAll();
    if (!(this.high > this.low)) this.high = this.low + 1;
    let values = [];
    for (const { x, y } of this.curves) {
      y.forEach((value, i) => {
        const shown = x[i] >= this.low && x[i] <= this.high && Number.isFinite(value);
        if (shown && (!this.isLog || value > 0)) values.push(value);
      });
    }
    values.sort((a, b) => a - b);
    let bottom = values.length ? values[0] : 0;
    let top = values.length ? values[values.length - 1] : 1;
    // A first step of a minute would flatten all others.
    const usual = values[Math.floor(0.98 * (values.length - 1))];
    if (this.spec.robust && top > 3 * usual) top = 1.5 * usual;
    if (this.isLog) {
      const margin = (top / bottom) ** 0.04 || 1;
      this.yLow = bottom / Math.max(margin, 1.001);
      this.yHigh = top * Math.max(margin, 1.001);
    } else {
      const margin = 0.04 * (top - bottom) || 0.05 * Math.abs(top) || 1;
      this.yLow = this.spec.zero && bottom >= 0 ? 0 : bottom - margin;
      this.yHigh = top + margin;
    }
  }

  xAt(value) {
    return PADDING.left + (value - this.low) / (this.high - this.low) * (this.right() - PADDING.left);
  }

  valueAt(x) {
    return this.low + (x - PADDING.left) / (this.right() - PADDING.left) * (this.high - this.low);
  }

  // Values above the axis lie on its end, where a mark tells of them.
  yAt(value) {
    const part = this.isLog
      ? Math.log(Math.max(value, this.yLow) / this.yLow) / Math.log(this.yHigh / this.yLow)
      : (value - this.yLow) / (this.yHigh - this.yLow);
    return this.bottom() - Math.min(part, 1) * (this.bottom() - PADDING.top);
  }

  axes() {
    const shapes = [this.frame({ class: "frame" })];
    const rows = (this.bottom() - PADDING.top) / 44;
    const ticks = this.isLog ? logTicks(this.yLow, this.yHigh, rows) : linearTicks(this.yLow, this.yHigh, rows);
    for (const tick of ticks) {
      const y = this.yAt(tick);
      shapes.push(shape("line", { class: "gridline", x1: PADDING.left, x2: this.right(), y1: y, y2: y }),
        shape("text", { class: "tick-y", x: PADDING.left - 7, y: y + 4, "text-anchor": "end" }, shortText(tick)));
    }
    const [, divisor] = state.x === "time" ? timeUnit(this.high) : ["", 1];
    const columns = (this.right() - PADDING.left) / 88;
    for (const tick of linearTicks(this.low / divisor, this.high / divisor, columns)) {
      const x = this.xAt(tick * divisor);
      // The first and last label stay within the chart.
      const anchor = x > this.right() - 18 ? "end" : "middle";
      shapes.push(shape("line", { class: "gridline", x1: x, x2: x, y1: PADDING.top, y2: this.bottom() }),
        shape("text", { class: "tick-x", x: anchor === "end" ? this.right() : x, y: this.bottom() + 16,
          "text-anchor": anchor }, shortText(tick)));
    }
    shapes.push(shape("text", { class: "axis-title", x: this.right(), y: this.height - 6, "text-anchor": "end" },
      axisTitle(this.high)));
    return shapes;
  }

  // The curve as a path with gaps where the value is not finite.
  pathOf(curve) {
    let path = "";
    let open = false;
    curve.x.forEach((value, i) => {
      const y = curve.y[i];
      const good = Number.isFinite(y) && (!this.isLog || y > 0);
      const near = (curve.x[i + 1] ?? value) >= this.low && (curve.x[i - 1] ?? value) <= this.high;
      if (!good || !near) {
        open = false;
        return;
      }
      const place = `${this.xAt(value).toFixed(2)} ${this.yAt(y).toFixed(2)}`;
      if (!open) path += `M${place}h0`;
      else if (this.spec.steps) path += `H${this.xAt(value).toFixed(2)}V${this.yAt(y).toFixed(2)}`;
      else path += `L${place}`;
      open = true;
    });
    return path;
  }

  line(curve) {
    return shape("path", { class: `series ${curve.kind}`, d: this.pathOf(curve),
      style: `stroke: ${curve.colour}`, "stroke-dasharray": curve.dash, "data-run": curve.run,
      "data-label": curve.label });
  }

  // Of curves with few values; whole ones at the frame too.
  dots(curve) {
    if (!curve.points || curve.x.length > 200) return [];
    return curve.x.map((value, i) => [value, curve.y[i]])
      .filter(([x, y]) => Number.isFinite(y) && x >= this.low && x <= this.high && (!this.isLog || y > 0))
      .map(([x, y]) => shape("circle", { cx: this.xAt(x), cy: this.yAt(y), r: 2.8,
        style: `fill: ${curve.colour}` }));
  }

  // The target, crosses for what is not finite, triangles for what lies above the axis.
  marks() {
    const shapes = [];
    const { target } = this.spec;
    if (target && target > this.yLow && target < this.yHigh) {
      const y = this.yAt(target);
      shapes.push(shape("line", { class: "target", x1: PADDING.left, x2: this.right(), y1: y, y2: y }),
        shape("text", { x: PADDING.left + 5, y: y - 5 }, `target ${target}`));
    }
    this.notFinite = 0;
    this.above = 0;
    let crosses = "";
    let triangles = "";
    for (const curve of this.curves.filter((one) => !one.smoothed)) {
      curve.x.forEach((value, i) => {
        if (value < this.low || value > this.high) return;
        const x = this.xAt(value);
        if (Number.isNaN(curve.y[i])) {
          ++this.notFinite;
          crosses += `M${x - 4} ${this.bottom() - 11}l8 8m0 -8l-8 8`;
        } else if (curve.y[i] > this.yHigh) {
          ++this.above;
          triangles += `M${x - 4} ${PADDING.top + 8}h8l-4 -7z`;
        }
      });
    }
    if (crosses) shapes.push(shape("path", { class: "nan", d: crosses }));
    if (triangles) shapes.push(shape("path", { class: "above", d: triangles }));
    return shapes;
  }

  outsideText() {
    const parts = [];
    if (this.notFinite) parts.push(`crosses: not finite (${this.notFinite})`);
    if (this.above) parts.push(`triangles: above the axis (${this.above})`);
    return parts.join("; ");
  }

  // What a screen reader says in place of the picture.
  summary() {
    const ends = this.curves.filter((curve) => !curve.quiet).slice(0, 8).map((curve) => {
      const last = curve.y[curve.y.length - 1];
      return `${curve.label} ends at ${Number.isFinite(last) ? numberText(last, 5) : "NaN"}`;
    });
    return `${this.spec.title} against ${axisTitle(this.high)}. ${ends.join("; ")}`;
  }

  listen(svg) {
    let start = null;
    const place = (event) => {
      const x = event.clientX - svg.getBoundingClientRect().left;
      return Math.min(Math.max(x, PADDING.left), this.right());
    };
    svg.addEventListener("pointermove", (event) => {
      const x = place(event);
      if (start !== null) {
        this.brush.setAttribute("x", Math.min(start, x));
        this.brush.setAttribute("width", Math.abs(x - start));
      }
      this.onChange({ cursor: this.valueAt(x), from: this });
    });
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = place(event);
      svg.setPointerCapture(event.pointerId);
    });
    const release = (event) => {
      const end = place(event);
      const from = start;
      start = null;
      this.brush.setAttribute("width", 0);
      if (event.type === "pointerup" && from !== null && Math.abs(end - from) > 6) {
        this.onChange({ zoom: [Math.min(from, end), Math.max(from, end)].map((x) => this.valueAt(x)) });
      }
    };
    svg.addEventListener("pointerup", release);
    svg.addEventListener("pointercancel", release);
    svg.addEventListener("pointerleave", () => this.onChange({ cursor: null }));
    svg.addEventListener("dblclick", () => this.onChange({ zoom: null }));
    svg.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.onChange({ zoom: null, cursor: null });
    if (!way || this.curves.length === 0) return;
    event.preventDefault();
    const { x } = this.walked();
    const now = state.cursor === null ? (way > 0 ? -1 : x.length) : nearest(x, state.cursor);
    const next = Math.min(Math.max(now + way * (event.shiftKey ? 10 : 1), 0), x.length - 1);
    this.onChange({ cursor: x[next], from: this });
  }

  // The curve whose points the arrow keys visit: one that goes furthest, and of those the sparest.
  walked() {
    const end = (curve) => curve.x[curve.x.length - 1];
    return this.curves.reduce((best, curve) => {
      const further = end(curve) - end(best);
      return further > 0 || (further === 0 && curve.x.length < best.x.length) ? curve : best;
    });
  }

  // The cursor is in all charts, its values where the pointer is.
  drawCursor(withValues) {
    const x = state.cursor === null ? -1 : this.xAt(state.cursor);
    const shown = x >= PADDING.left && x <= this.right();
    this.cursorLine.setAttribute("visibility", shown ? "visible" : "hidden");
    this.tip.hidden = !shown || !withValues;
    if (!shown) return;
    this.cursorLine.setAttribute("x1", x);
    this.cursorLine.setAttribute("x2", x);
    if (!withValues) return;
    const [unit, divisor] = timeUnit(this.high);
    const place = state.x === "time" ? `${numberText(state.cursor / divisor)} ${unit}`
      : `${state.x} ${numberText(Math.round(state.cursor), 6)}`;
    this.tip.replaceChildren(element("b", {}, place),
      ...this.valuesAt(state.cursor).slice(0, 14).map(({ curve, value }) => element("div", { class: "row" },
        element("span", { class: "swatch", style: `background: ${curve.colour}` }),
        element("span", { class: "name" }, curve.label),
        element("span", { class: "value" }, Number.isFinite(value) ? numberText(value, 5) : "NaN"))));
    const left = x < this.width / 2;
    this.tip.style.left = left ? `${x + 12}px` : "auto";
    this.tip.style.right = left ? "auto" : `${this.width - x + 12}px`;
  }

  // Of each curve that reaches there.
  valuesAt(x) {
    return this.curves.filter((curve) => x >= curve.x[0] && x <= curve.x[curve.x.length - 1])
      .map((curve) => ({ curve, value: curve.y[nearest(curve.x, x)] }));
  }

  table() {
    const curves = this.curves.filter((curve) => !curve.quiet);
    const dotted = curves.filter((curve) => curve.points);
    const places = new Set((dotted.length ? dotted : curves).flatMap((curve) => curve.x));
    const sorted = [...places].sort((a, b) => a - b);
    const every = Math.ceil(sorted.length / 60);
    const rows = sorted.filter((_, i) => i % every === 0 || i === sorted.length - 1).map((x) => {
      const at = new Map(this.valuesAt(x).map(({ curve, value }) => [curve, value]));
      return [numberText(x, 6), ...curves.map((curve) =>
        at.has(curve) ? (Number.isFinite(at.get(curve)) ? numberText(at.get(curve), 5) : "NaN") : "–")];
    });
    const caption = every > 1 ? `${this.spec.title}, every ${every}th value` : this.spec.title;
    const x = state.x === "time" ? "train time, s" : axisTitle(0);
    return dataTable(caption, [x, ...curves.map((curve) => curve.label)], rows);
  }
}
