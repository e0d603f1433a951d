// Lines over steps, epochs or time: smoothing, log axes, zoom, hover across all of them, and points that keep coming.

import { fill, h, settled } from "../core/dom.js";
import { duration, number, roundDuration, whole } from "../core/format.js";
import { color, seriesStyle } from "../core/theme.js";
import { bestSoFar, lowerBound, minMax, nearest, smooth } from "./decimate.js";
import { Frame, axes, segment } from "./frame.js";
import { durationTicks, extent, fit, linear, log } from "./scale.js";

const TIP_ROWS = 12;
const hovering = new Map(); // group -> charts that show the same x

/**
 * lineChart({name, group?, x: "step", options}) -> chart
 *   chart.element, chart.legend, chart.saveButton(), chart.close()
 *   chart.setSeries([{id, name, kind?: "train" | "validation", xs: {step: [], epoch: [], time: []} or [], ys: [], style?: number,
 *      color?, dash?, faint?}])     xs sorted, as long as ys; ys may hold NaN
 *   chart.append(id, xs, ys)       xs of the shape of the series'; a point that is already there (x not greater) is left out
 *   chart.set({x, smooth: 0…0.99, logX, logY, best: null | "min" | "max", zoom: null | [from, to], hidden: Set,
 *      zero: the vertical axis begins at 0})
 *   onZoom([from, to] | null)      zoom by drag, back by double click; ask the server for finer points there
 *   onHover?(x)                    charts of one `group` show the same x together
 */
export function lineChart(options) { return new LineChart(options); }

class LineChart extends Frame {
  constructor({ name, group = "", onZoom = null, size = "", xLabel = null, ...set }) {
    super({ name, size });
    this.series = [];
    this.state = { x: "step", smooth: 0, logX: false, logY: false, best: null, zoom: null, hidden: new Set(), ...set };
    this.onZoom = onZoom;
    this.xLabel = xLabel;
    this.group = group;
    this.legend = h("div", { class: "legend" });
    if (!hovering.has(group)) hovering.set(group, new Set());
    hovering.get(group).add(this);
    this.#listen();
    this.zoomed = settled(() => this.onZoom?.(this.state.zoom), 150);
  }

  close() {
    super.close();
    hovering.get(this.group)?.delete(this);
  }

  setSeries(series) {
    this.series = series.map((one, at) => ({ ...one, at: one.style ?? at, xs: Array.isArray(one.xs) || ArrayBuffer.isView(one.xs) ? { step: [...one.xs] } : mapValues(one.xs, (list) => [...list]), ys: [...one.ys], cache: null }));
    this.#drawLegend();
    this.redraw();
  }

  append(id, xs, ys) {
    const one = this.series.find((line) => line.id === id);
    if (!one) return false;
    const given = Array.isArray(xs) || ArrayBuffer.isView(xs) ? { step: xs } : xs;
    const key = Object.keys(one.xs)[0];
    const last = one.ys.length ? one.xs[key].at(-1) : -Infinity;
    for (let at = 0; at < ys.length; at++) {
      if (!(given[key][at] > last)) continue;
      for (const name of Object.keys(one.xs)) one.xs[name].push(given[name]?.[at] ?? Number.NaN);
      one.ys.push(ys[at]);
    }
    one.cache = null;
    this.redraw();
    return true;
  }

  set(changes) {
    Object.assign(this.state, changes);
    if (changes.hidden) this.#drawLegend();
    this.redraw();
  }

  summary() {
    const lines = this.#visible();
    const best = lines.map((one) => ({ name: one.name, value: this.#bestOf(one) })).filter((one) => Number.isFinite(one.value));
    best.sort((a, b) => (this.state.best === "max" ? b.value - a.value : a.value - b.value));
    const first = best[0] ? `, ${this.state.best === "max" ? "highest" : "lowest"} ${number(best[0].value)} in ${best[0].name}` : "";
    return `${this.name}: ${lines.length} line${lines.length === 1 ? "" : "s"} over ${this.state.x}${first}.`;
  }

  table() {
    const rows = this.series.flatMap((one) => one.ys.map((y, at) => [one.name, one.kind || "", this.#xs(one)[at], y]));
    return [["line", "kind", this.state.x, this.name], ...rows];
  }

  paint(pen, width, height) {
    const lines = this.#visible();
    const box = { left: 54, top: 10, right: width - 12, bottom: height - 36 };
    const [xScale, yScale] = this.#scales(lines, box);
    this.box = box;
    this.scales = [xScale, yScale];
    axes(pen, box, xScale, yScale, { xLabel: this.xLabel ?? this.state.x, xFormat: this.#xFormat({ tick: true }),
      xTicks: this.state.x === "time" && !this.state.logX ? durationTicks(xScale.low, xScale.high, Math.max(2, Math.floor((box.right - box.left) / 96))) : null });
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    pen.clip();
    const many = lines.length > 60;
    for (const one of lines) this.#paintLine(pen, one, box, many);
    pen.restore();
    if (!lines.length) this.#paintWords(pen, box, "No points yet");
    this.#paintHover(pen, lines, box);
    if (this.drag) {
      pen.globalAlpha = 0.15;
      pen.fillStyle = color("accent");
      pen.fillRect(Math.min(...this.drag), box.top, Math.abs(this.drag[1] - this.drag[0]), box.bottom - box.top);
      pen.globalAlpha = 1;
    }
  }

  #visible() { return this.series.filter((one) => one.ys.length && !this.state.hidden.has(one.id)); }
  #xs(one) { return one.xs[this.state.x] || Object.values(one.xs)[0]; }

  #bestOf(one) {
    const values = bestSoFar(one.ys, { up: this.state.best === "max" });
    return values[values.length - 1];
  }

  /** The values drawn: smoothed, or the best so far. Kept until a point comes or a switch is turned. */
  #shown(one) {
    const key = `${this.state.smooth}/${this.state.best}/${one.ys.length}`;
    if (one.cache?.key !== key) {
      const { best, smooth: weight } = this.state;
      one.cache = { key, ys: best ? bestSoFar(one.ys, { up: best === "max" }) : weight ? smooth(one.ys, weight) : one.ys };
    }
    return one.cache.ys;
  }

  #scales(lines, box) {
    const { zoom, logX, logY } = this.state;
    const xs = lines.map((one) => this.#xs(one));
    const [low, high] = zoom || extent(xs, { positive: logX });
    const xScale = zoom ? (logX && low > 0 ? log : linear)(low, high, box.left, box.right) : fit(low, high, { start: box.left, end: box.right, logAxis: logX, air: 0 });
    const parts = lines.map((one, at) => {
      const ys = this.#shown(one);
      return zoom ? ys.slice(Math.max(0, lowerBound(xs[at], low) - 1), lowerBound(xs[at], high) + 1) : ys;
    });
    const [bottom, top] = extent(parts, { positive: logY });
    return [xScale, fit(this.state.zero && bottom > 0 ? 0 : bottom, top, { start: box.bottom, end: box.top, logAxis: logY })];
  }

  #paintLine(pen, one, box, many) {
    const style = seriesStyle(one.at);
    pen.strokeStyle = one.color ? color(one.color) : style.color;
    pen.setLineDash(one.dash || (one.kind === "validation" ? [5, 3] : style.dash));
    const ys = this.#shown(one);
    if (ys !== one.ys && !many) {
      pen.globalAlpha = 0.22;
      pen.lineWidth = 1;
      this.#trace(pen, one, one.ys, box);
    }
    pen.globalAlpha = one.faint ? 0.35 : many ? 0.6 : 1;
    pen.lineWidth = one.id === this.marked ? 2.6 : many ? 1 : 1.6;
    this.#trace(pen, one, ys, box);
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  }

  #trace(pen, one, ys, box) {
    const [xScale, yScale] = this.scales, xs = this.#xs(one);
    const from = Math.max(0, lowerBound(xs, xScale.low) - 1), to = Math.min(xs.length, lowerBound(xs, xScale.high) + 1);
    pen.beginPath();
    let down = false, count = 0, x = 0, y = 0;
    for (const at of minMax(xs, ys, { from, to, columns: Math.ceil(box.right - box.left) })) {
      [x, y] = [xScale.to(xs[at]), yScale.to(ys[at])];
      if (!Number.isFinite(x) || !Number.isFinite(y)) { down = false; continue; }
      if (down) pen.lineTo(x, y); else pen.moveTo(x, y);
      down = true;
      count++;
    }
    if (count === 1) pen.arc(x, y, 2, 0, 7); // a lone point would be invisible
    pen.stroke();
  }

  #paintHover(pen, lines, box) {
    if (this.at === undefined || this.at === null) return;
    const [xScale, yScale] = this.scales, x = xScale.to(this.at);
    if (!(x >= box.left && x <= box.right)) return;
    pen.strokeStyle = color("strong-line");
    pen.lineWidth = 1;
    segment(pen, Math.round(x) + 0.5, box.top, Math.round(x) + 0.5, box.bottom);
    for (const one of lines.slice(0, 60)) {
      const near = nearest(this.#xs(one), this.at), y = yScale.to(this.#shown(one)[near]);
      if (!(y >= box.top - 1 && y <= box.bottom + 1)) continue;
      pen.fillStyle = one.color ? color(one.color) : seriesStyle(one.at).color;
      pen.beginPath();
      pen.arc(xScale.to(this.#xs(one)[near]), y, 3, 0, 7);
      pen.fill();
    }
  }

  #paintWords(pen, box, words) {
    pen.fillStyle = color("muted");
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(words, (box.left + box.right) / 2, (box.top + box.bottom) / 2);
  }

  #xFormat({ tick = false } = {}) {
    if (this.state.x === "time") return tick ? roundDuration : duration;
    return (value) => (Number.isInteger(value) ? whole(value) : number(value));
  }

  #drawLegend() {
    fill(this.legend, this.series.slice(0, 40).map((one) => {
      const style = seriesStyle(one.at);
      const button = h("button", { type: "button", "aria-pressed": String(!this.state.hidden.has(one.id)), title: "Show or hide" },
        h("i", { class: one.kind === "validation" || style.dash.length ? "dash" : "", style: { borderColor: `var(--s${one.at % 10})` } }), h("span", {}, one.name));
      button.addEventListener("click", () => {
        const hidden = new Set(this.state.hidden);
        if (!hidden.delete(one.id)) hidden.add(one.id);
        this.set({ hidden });
        this.onHide?.(hidden);
      });
      button.addEventListener("pointerenter", () => { this.marked = one.id; this.redraw(); });
      button.addEventListener("pointerleave", () => { this.marked = null; this.redraw(); });
      return button;
    }));
    if (this.series.length > 40) this.legend.append(h("span", { class: "muted" }, `and ${this.series.length - 40} more`));
  }

  // --- pointer and keys

  #listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointermove", (event) => this.#move(event.offsetX, event.offsetY));
    canvas.addEventListener("pointerleave", () => { if (!this.drag) this.#hoverAll(null); });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || event.pointerType === "touch") return;
      this.drag = [event.offsetX, event.offsetX];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => this.#drop());
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.redraw(); });
    canvas.addEventListener("dblclick", () => this.zoom(null));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.#hoverAll(null));
  }

  zoom(range) {
    this.set({ zoom: range });
    this.zoomed();
  }

  #drop() {
    if (!this.drag) return;
    const [a, b] = this.drag.map((x) => this.scales[0].from(Math.min(Math.max(x, this.box.left), this.box.right)));
    const wide = Math.abs(this.drag[1] - this.drag[0]) > 6;
    this.drag = null;
    if (wide) this.zoom([Math.min(a, b), Math.max(a, b)]); else this.redraw();
  }

  #move(x, y) {
    if (!this.box) return;
    if (this.drag) { this.drag[1] = x; this.redraw(); return; }
    if (x < this.box.left || x > this.box.right) { this.#hoverAll(null); return; }
    this.#hoverAll(this.scales[0].from(x));
    this.#tipAt(x, y);
  }

  #hoverAll(x) {
    for (const chart of this.group ? hovering.get(this.group) : [this]) {
      chart.at = x;
      if (x === null || chart !== this) chart.hideTip();
      chart.redraw();
    }
    this.onHover?.(x);
  }

  #tipAt(px, py) {
    const lines = this.#visible(), [, yScale] = this.scales;
    const rows = lines.map((one) => {
      const near = nearest(this.#xs(one), this.at);
      return { one, x: this.#xs(one)[near], value: this.#shown(one)[near], raw: one.ys[near] };
    }).filter((row) => row.value !== undefined);
    const away = (row) => Math.abs((yScale.to(row.value) || 0) - py);
    const shown = [...rows].sort((a, b) => away(a) - away(b)).slice(0, TIP_ROWS);
    if (!shown.length) { this.hideTip(); return; }
    shown.sort((a, b) => b.value - a.value);
    const format = this.#xFormat();
    this.showTip(px, py, [h("div", { class: "muted" }, `${this.state.x} ${format(shown[0].x)}`),
      ...shown.map(({ one, value, raw }) => h("div", {}, h("i", { style: { background: `var(--s${one.at % 10})` } }), h("span", {}, one.name),
        h("b", {}, number(value)), value !== raw ? h("span", { class: "muted" }, number(raw)) : null)),
      rows.length > shown.length ? h("div", { class: "muted" }, `and ${rows.length - shown.length} more`) : ""]);
  }

  #key(event) {
    if (!this.scales || event.ctrlKey || event.metaKey || event.altKey) return;
    const [scale] = this.scales, span = scale.high - scale.low, middle = (scale.low + scale.high) / 2;
    const step = span / 40;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const x = Math.min(Math.max((this.at ?? middle) + (event.key === "ArrowLeft" ? -step : step), scale.low), scale.high);
      this.#hoverAll(x);
      this.#tipAt(scale.to(x), this.height / 2);
    } else if (event.key === "+" || event.key === "=") this.zoom([(this.at ?? middle) - span / 4, (this.at ?? middle) + span / 4]);
    else if (event.key === "-") this.zoom(this.state.zoom ? [scale.low - span / 2, scale.high + span / 2] : null);
    else if (event.key === "0" || event.key === "Escape") { this.zoom(null); this.#hoverAll(null); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

const mapValues = (object, change) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]));
