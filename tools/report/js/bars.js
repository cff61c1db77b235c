"use strict";
// The parts of a step's time, a bar for each traced rank.

// In the order in which bars show them: what ops do, then what the device waits for.
const KINDS = new Map([
  ["gemm", "--gemm"], ["attention", "--attention"], ["norm/elementwise", "--norm"],
  ["head+loss", "--head"], ["embedding", "--embedding"], ["optimizer", "--optimizer"],
  ["other", "--other"], ["communication, exposed", "--exposed"], ["idle", "--idle"],
]);

// Of these the colour is too dark for dark letters.
const STRONG = new Set(["gemm", "embedding"]);

function kindColour(kind) {
  return `var(${KINDS.get(kind) || "--other"})`;
}

function kindsLegend(kinds) {
  return element("div", { class: "kinds" }, ...kinds.map((kind) => element("span", {},
    element("span", { class: "swatch", style: `background: ${kindColour(kind)}` }), kind)));
}

function partsOf(phases) {
  const parts = { ...phases.ops, "communication, exposed": phases.exposed, idle: phases.idle };
  const order = [...KINDS.keys(), ...Object.keys(parts).filter((kind) => !KINDS.has(kind))];
  return order.filter((kind) => parts[kind] > 0).map((kind) => [kind, parts[kind]]);
}

// Of a long name the trace's part is cut: ranks are to be told apart.
function nameOf(row, room = Infinity) {
  const long = row.trace.length + row.rank.length > room;
  return (long ? `${row.trace.slice(0, Math.max(room - row.rank.length - 2, 0))}… ` : row.trace) + row.rank;
}

class PhaseBars {
  constructor(host) {
    this.rows = data.traces.flatMap((trace) => trace.phases.map((phases) => ({
      trace: data.traces.length > 1 ? `${trace.name} ` : "", rank: `rank ${phases.rank}`,
      step: phases.step_ms, parts: partsOf(phases),
    })));
    this.plot = element("div", { class: "bars" });
    const kinds = [...KINDS.keys()].filter((kind) => this.rows.some((row) => row.parts.some(([k]) => k === kind)));
    host.append(element("p", { class: "hint" }, "Means over the traced steps, in ms. Exposed: the device had " +
      "nothing to do but wait for a collective. Traced steps are run op by op and take longer than others."),
    kindsLegend(kinds), this.plot, tableAlternative(() => this.table(kinds)));
  }

  draw() {
    const width = Math.max(this.plot.clientWidth, 200);
    const name = Math.min(Math.max(...this.rows.map((row) => 8 * nameOf(row).length)) + 8, 0.4 * width);
    const most = Math.max(...this.rows.map((row) =>
      Math.max(row.step, row.parts.reduce((sum, [, ms]) => sum + ms, 0))));
    const total = 62;
    const height = 28 * this.rows.length + 4;
    const times = this.rows.map((row) => `${nameOf(row)}: ${numberText(row.step)} ms`);
    const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Step time by phase. ${times.join("; ")}` });
    this.rows.forEach((row, i) => {
      const y = 28 * i + 3;
      const room = Math.floor((name - 8) / 7.4);
      svg.append(shape("text", { class: "lane", x: 0, y: y + 16 }, nameOf(row, room)));
      let x = name;
      for (const [kind, ms] of row.parts) {
        const length = ms / most * (width - name - total);
        const text = numberText(ms, 3);
        svg.append(shape("rect", { class: "part", x, y, width: length, height: 22, style: `fill: ${kindColour(kind)}` },
          shape("title", {}, `${kind}: ${text} ms`)));
        if (length > 8 * text.length + 8 && kind !== "idle") {
          svg.append(shape("text", { class: STRONG.has(kind) ? "on-bar on-strong" : "on-bar", x: x + length / 2, y: y + 15, "text-anchor": "middle" }, text));
        }
        x += length;
      }
      svg.append(shape("text", { x: x + 6, y: y + 16 }, `${numberText(row.step, 4)} ms`));
    });
    this.plot.replaceChildren(svg);
  }

  table(kinds) {
    return dataTable("Step time by phase, ms", ["rank", ...kinds, "step"], this.rows.map((row) => {
      const parts = new Map(row.parts);
      return [nameOf(row), ...kinds.map((kind) => (parts.has(kind) ? numberText(parts.get(kind)) : "–")),
        numberText(row.step)];
    }));
  }
}
