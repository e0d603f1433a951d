// A grid of cells coloured by value: slots over time, trials over rungs.

import { h } from "../core/dom.js";
import { number } from "../core/format.js";
import { color, sequential } from "../core/theme.js";
import { Frame } from "./frame.js";
import { extent } from "./scale.js";

/** heatChart({name, format?}) -> chart; chart.setCells({rows: names, columns: names, values: rows of numbers or null, range?}). */
export function heatChart(options) { return new HeatChart(options); }

class HeatChart extends Frame {
  constructor({ name, format = number, size = "" }) {
    super({ name, size });
    Object.assign(this, { format, data: { rows: [], columns: [], values: [] } });
    this.canvas.addEventListener("pointermove", (event) => this.#hover(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.hideTip());
  }

  setCells(data) { this.data = data; this.redraw(); }

  summary() {
    const { rows, columns, values } = this.data, [low, high] = extent(values);
    return `${this.name}: ${rows.length} by ${columns.length} cells from ${this.format(low)} to ${this.format(high)}.`;
  }

  table() { return [["", ...this.data.columns], ...this.data.rows.map((row, at) => [row, ...this.data.values[at]])]; }

  paint(pen, width, height) {
    const { rows, columns, values } = this.data;
    if (!rows.length || !columns.length) return;
    const [low, high] = this.data.range || extent(values);
    const left = Math.min(width * 0.3, Math.max(30, ...rows.map((row) => pen.measureText(row).width + 10)));
    const [w, t] = [(width - left - 6) / columns.length, (height - 24) / rows.length];
    this.grid = { left, w, t };
    rows.forEach((row, y) => {
      pen.fillStyle = color("muted");
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      if (t >= 9 || y % Math.ceil(12 / t) === 0) pen.fillText(row, left - 6, (y + 0.5) * t);
      values[y].forEach((value, x) => {
        pen.fillStyle = value === null || value === undefined ? color("sunken") : sequential((value - low) / (high - low || 1));
        pen.fillRect(left + x * w, y * t, Math.max(w - (w > 4 ? 1 : 0), 0.5), Math.max(t - (t > 4 ? 1 : 0), 0.5));
      });
    });
    pen.fillStyle = color("muted");
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const every = Math.ceil(70 / w);
    columns.forEach((column, x) => { if (x % every === 0) pen.fillText(column, left + (x + 0.5) * w, rows.length * t + 6); });
  }

  #hover(px, py) {
    if (!this.grid) return;
    const x = Math.floor((px - this.grid.left) / this.grid.w), y = Math.floor(py / this.grid.t);
    const value = this.data.values[y]?.[x];
    if (value === undefined) { this.hideTip(); return; }
    this.showTip(px, py, [h("div", { class: "muted" }, `${this.data.rows[y]} · ${this.data.columns[x]}`), h("b", {}, this.format(value))]);
  }
}
