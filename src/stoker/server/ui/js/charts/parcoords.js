// Parallel coordinates: a line a trial through all its hyperparameters; drag on an axis to keep what passes there.

import { number } from "../core/format.js";
import { color, sequential } from "../core/theme.js";
import { Frame, segment } from "./frame.js";
import { extent, fit } from "./scale.js";

/**
 * parcoords({name, onBrush?(ranges, kept)}) -> chart
 *   chart.setData({axes: [{id, name, log?, category?}], rows: [{id: value}], color: id of the axis that colours, down?: less is better})
 *   chart.setBrush({id: [low, high], id2: ["a", "b"]})   the same shape as `ranges`; fits(row, ranges) tells for any row
 */
export function parcoords(options) { return new ParallelCoordinates(options); }

/** Whether a row passes all ranges: numbers between two ends, words in a list. */
export function fits(row, ranges) {
  return Object.entries(ranges).every(([id, range]) => {
    const value = row[id];
    if (value === null || value === undefined) return false;
    return typeof range[0] === "number" && typeof value === "number" ? value >= range[0] && value <= range[1] : range.map(String).includes(String(value));
  });
}

class ParallelCoordinates extends Frame {
  constructor({ name, size = "tall", onBrush = null }) {
    super({ name, size });
    Object.assign(this, { onBrush, axes: [], rows: [], ranges: {}, drag: null, current: 0 });
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) { this.drag.to = event.offsetY; this.redraw(); }
      else canvas.style.cursor = this.#axisAt(event.offsetX) ? "ns-resize" : "";
    });
    canvas.addEventListener("pointerup", () => this.#up());
    canvas.addEventListener("dblclick", () => this.#brushed({}));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  setData({ axes, rows, color: by = null, down = false }) {
    this.rows = rows;
    this.by = by;
    this.down = down;
    this.axes = axes.map((axis) => {
      const values = rows.map((row) => row[axis.id]);
      const apart = axis.category || values.some((value) => typeof value === "string" || typeof value === "boolean" || (value !== null && typeof value === "object"));
      const words = apart ? inOrder(values.filter((value) => value !== null && value !== undefined)) : null;
      return { ...axis, words, range: words ? [0, Math.max(words.length - 1, 1)] : extent([values], { positive: axis.log }) };
    });
    this.redraw();
  }

  setBrush(ranges) { this.ranges = { ...ranges }; this.redraw(); }

  kept() { return this.rows.filter((row) => fits(row, this.ranges)); }

  summary() {
    const brushed = Object.keys(this.ranges).length ? `, ${this.kept().length} of them chosen by ${Object.keys(this.ranges).join(", ")}` : "";
    return `${this.name}: ${this.rows.length} lines over ${this.axes.map((axis) => axis.name).join(", ")}${brushed}.`;
  }

  table() { return [this.axes.map((axis) => axis.name), ...this.kept().map((row) => this.axes.map((axis) => row[axis.id]))]; }

  paint(pen, width, height) {
    const [top, bottom, left, right] = [40, height - 24, 46, width - 46];
    this.axes.forEach((axis, at) => {
      axis.x = left + (at / Math.max(this.axes.length - 1, 1)) * (right - left);
      axis.scale = fit(...axis.range, { start: bottom, end: top, logAxis: !!axis.log && !axis.words, air: 0 });
    });
    this.bounds = [top, bottom];
    this.#paintRows(pen);
    this.#paintAxes(pen, top, bottom);
  }

  #place(axis, row) {
    const value = row[axis.id];
    if (value === null || value === undefined) return Number.NaN;
    return axis.scale.to(axis.words ? axis.words.indexOf(String(value)) : value);
  }

  #paintRows(pen) {
    const by = this.axes.find((axis) => axis.id === this.by);
    const brushing = Object.keys(this.ranges).length > 0;
    const share = (row) => {
      if (!by || by.words) return 0.5;
      const [top, bottom] = this.bounds, part = (bottom - this.#place(by, row)) / (bottom - top);
      return this.down ? 1 - part : part;
    };
    const faded = [], kept = [];
    for (const row of this.rows) (brushing && !fits(row, this.ranges) ? faded : kept).push(row);
    kept.sort((a, b) => (share(a) || 0) - (share(b) || 0)); // the best are drawn last, on top
    pen.lineWidth = 1;
    pen.globalAlpha = 0.06;
    pen.strokeStyle = color("muted");
    for (const row of faded) this.#trace(pen, row);
    pen.globalAlpha = kept.length > 3000 ? 0.25 : kept.length > 500 ? 0.4 : 0.75;
    for (const row of kept) {
      pen.strokeStyle = by ? sequential(share(row)) : color("accent");
      this.#trace(pen, row);
    }
    pen.globalAlpha = 1;
  }

  #trace(pen, row) {
    pen.beginPath();
    let down = false;
    for (const axis of this.axes) {
      const y = this.#place(axis, row);
      if (!Number.isFinite(y)) { down = false; continue; }
      if (down) pen.lineTo(axis.x, y); else pen.moveTo(axis.x, y);
      down = true;
    }
    pen.stroke();
  }

  #paintTitles(pen, top) {
    const room = (this.axes[1]?.x - this.axes[0]?.x || this.width) - 10;
    const titles = this.axes.map((axis) => axis.name + (axis.log ? " (log)" : ""));
    const crowded = titles.some((title) => pen.measureText(title).width > room); // then in two rows
    pen.fillStyle = color("text");
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    this.axes.forEach((axis, at) => {
      const title = trimmed(pen, titles[at], crowded ? 2 * room : room), half = pen.measureText(title).width / 2;
      pen.fillText(title, Math.min(Math.max(axis.x, half + 4), this.width - half - 4), top - (crowded && at % 2 === 0 ? 24 : 10));
    });
  }

  #paintAxes(pen, top, bottom) {
    this.#paintTitles(pen, top);
    this.axes.forEach((axis, at) => {
      pen.strokeStyle = color("strong-line");
      pen.lineWidth = 1;
      segment(pen, axis.x, top, axis.x, bottom);
      pen.textAlign = "center";
      const ticks = axis.words ? axis.words.map((word, index) => [index, short(word, 12)]) : axis.scale.ticks(4).map((tick) => [tick, number(tick, 3)]);
      for (const [value, text] of ticks.slice(0, 12)) {
        const y = axis.scale.to(value), wide = pen.measureText(text).width;
        pen.globalAlpha = 0.75;
        pen.fillStyle = color("surface");
        pen.fillRect(axis.x - wide / 2 - 2, y - 7, wide + 4, 14);
        pen.globalAlpha = 1;
        pen.fillStyle = color("text");
        pen.textBaseline = "middle";
        pen.fillText(text, axis.x, y);
      }
      this.#paintBrush(pen, axis, at);
    });
  }

  #paintBrush(pen, axis, at) {
    const range = this.ranges[axis.id];
    const spans = this.drag?.axis === axis ? [[this.drag.from, this.drag.to]] : !range ? []
      : axis.words ? range.map((word) => axis.scale.to(axis.words.indexOf(String(word)))).map((y) => [y - 9, y + 9]) : [[axis.scale.to(range[0]), axis.scale.to(range[1])]];
    pen.fillStyle = color("accent");
    for (const [a, b] of spans) {
      pen.globalAlpha = 0.35;
      pen.fillRect(axis.x - 7, Math.min(a, b), 14, Math.max(Math.abs(b - a), 2));
    }
    pen.globalAlpha = 1;
    if (this.focused && at === this.current) { pen.strokeStyle = color("accent"); pen.strokeRect(axis.x - 10, this.bounds[0] - 4, 20, this.bounds[1] - this.bounds[0] + 8); }
  }

  #axisAt(x) { return this.axes.find((axis) => Math.abs(axis.x - x) < 16); }

  #down(event) {
    const axis = this.#axisAt(event.offsetX);
    if (!axis) return;
    this.drag = { axis, from: event.offsetY, to: event.offsetY };
    this.canvas.setPointerCapture(event.pointerId);
  }

  #up() {
    if (!this.drag) return;
    const { axis, from, to } = this.drag;
    this.drag = null;
    const ranges = { ...this.ranges };
    const [a, b] = [Math.min(from, to), Math.max(from, to)];
    if (b - a < 4) delete ranges[axis.id];
    else if (axis.words) {
      ranges[axis.id] = axis.words.filter((_, at) => axis.scale.to(at) >= a && axis.scale.to(at) <= b);
      if (!ranges[axis.id].length) delete ranges[axis.id];
    } else ranges[axis.id] = [axis.scale.from(b), axis.scale.from(a)];
    this.#brushed(ranges);
  }

  #brushed(ranges) {
    this.ranges = ranges;
    this.redraw();
    this.onBrush?.(ranges, this.kept());
  }

  /** Arrows choose an axis and move a window of a third over it; Backspace removes it, Esc all. */
  #key(event) {
    if (!this.axes.length) return;
    this.focused = true;
    const axis = this.axes[this.current];
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") this.current = (this.current + (event.key === "ArrowRight" ? 1 : -1) + this.axes.length) % this.axes.length;
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") this.#nudge(axis, event.key === "ArrowUp" ? 1 : -1);
    else if (event.key === "Backspace" || event.key === "Delete") { const ranges = { ...this.ranges }; delete ranges[axis.id]; this.#brushed(ranges); }
    else if (event.key === "Escape") { this.focused = false; this.#brushed({}); }
    else return;
    this.redraw();
    event.preventDefault();
    event.stopPropagation();
  }

  #nudge(axis, way) {
    const range = this.ranges[axis.id];
    if (axis.words) {
      const at = range ? axis.words.indexOf(String(range[0])) + way : way > 0 ? 0 : axis.words.length - 1;
      this.#brushed({ ...this.ranges, [axis.id]: [axis.words[(at + axis.words.length) % axis.words.length]] });
      return;
    }
    const [top, bottom] = this.bounds, third = (bottom - top) / 3;
    const middle = range ? (axis.scale.to(range[0]) + axis.scale.to(range[1])) / 2 - way * 12 : way > 0 ? bottom - third / 2 : top + third / 2;
    const y = Math.min(Math.max(middle, top + third / 2), bottom - third / 2);
    this.#brushed({ ...this.ranges, [axis.id]: [axis.scale.from(y + third / 2), axis.scale.from(y - third / 2)] });
  }
}

const inOrder = (values) => [...new Set(values.every((value) => typeof value === "number") ? [...values].sort((a, b) => a - b) : values.map(String).sort())].map(String);

function trimmed(pen, text, room) {
  let shown = text;
  while (shown.length > 2 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
