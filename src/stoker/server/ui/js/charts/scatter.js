// Points: one value against another, coloured by a third.

import { h } from "../core/dom.js";
import { number } from "../core/format.js";
import { color, sequential } from "../core/theme.js";
import { Frame, axes } from "./frame.js";
import { extent, fit } from "./scale.js";

/**
 * scatterChart({name, xName, yName, colorName?, logX?, logY?, onPick?(index)}) -> chart
 *   chart.setPoints({xs, ys, colors?: numbers, labels?: strings, faint?: Set of indexes})
 *   chart.set({logX, logY}). Text values of xs get a place each.
 */
export function scatterChart(options) { return new ScatterChart(options); }

class ScatterChart extends Frame {
  constructor({ name, size = "", onPick = null, ...options }) {
    super({ name, size });
    Object.assign(this, { options, onPick, points: { xs: [], ys: [] }, picked: -1 });
    this.canvas.addEventListener("pointermove", (event) => this.#hover(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.#mark(-1));
    this.canvas.addEventListener("click", () => { if (this.picked >= 0) this.onPick?.(this.picked); });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  setPoints(points) {
    this.words = points.xs.some((x) => typeof x === "string") ? [...new Set(points.xs.map(String))].sort((a, b) => a.localeCompare(b, "en", { numeric: true })) : null;
    const xs = this.words ? points.xs.map((x) => this.words.indexOf(String(x))) : points.xs;
    this.points = { ...points, xs, given: points.xs };
    this.picked = -1;
    this.redraw();
  }

  set(changes) { Object.assign(this.options, changes); this.redraw(); }

  summary() {
    const { xs, ys } = this.points, [low, high] = extent([ys]);
    return `${this.name}: ${xs.length} points, ${this.options.yName} from ${number(low)} to ${number(high)} over ${this.options.xName}.`;
  }

  table() {
    const { given = [], ys, colors, labels } = this.points;
    return [["", this.options.xName, this.options.yName, ...(colors ? [this.options.colorName] : [])],
      ...ys.map((y, at) => [labels?.[at] ?? at, given[at], y, ...(colors ? [colors[at]] : [])])];
  }

  paint(pen, width, height) {
    const { xs, ys, colors, faint } = this.points, { logX, logY, xName } = this.options;
    const box = { left: 54, top: 10, right: width - 14, bottom: height - 36 };
    const positive = logX && !this.words;
    const x = fit(...extent([xs], { positive }), { start: box.left, end: box.right, logAxis: positive });
    const y = fit(...extent([ys], { positive: logY }), { start: box.bottom, end: box.top, logAxis: logY });
    this.scales = [x, y];
    axes(pen, box, x, y, { xLabel: xName + (positive ? " (log)" : ""), ...(this.words ? { xTicks: this.words.map((_, at) => at), xFormat: (at) => this.words[at] } : {}) });
    const [least, most] = colors ? extent([colors]) : [0, 1];
    const small = xs.length > 2000;
    for (let at = 0; at < xs.length; at++) {
      const [px, py] = [x.to(xs[at]), y.to(ys[at])];
      if (!Number.isFinite(px) || !Number.isFinite(py)) continue;
      pen.globalAlpha = faint?.has(at) ? 0.08 : 0.8;
      pen.fillStyle = colors ? sequential((colors[at] - least) / (most - least || 1)) : color("accent");
      if (small) pen.fillRect(px - 1.5, py - 1.5, 3, 3);
      else { pen.beginPath(); pen.arc(px, py, 3.2, 0, 7); pen.fill(); }
    }
    pen.globalAlpha = 1;
    if (this.picked >= 0) {
      pen.strokeStyle = color("text");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x.to(xs[this.picked]), y.to(ys[this.picked]), 6, 0, 7);
      pen.stroke();
    }
  }

  #hover(px, py) {
    if (!this.scales) return;
    const [x, y] = this.scales, { xs, ys } = this.points;
    let best = 225, found = -1; // within 15 px
    for (let at = 0; at < xs.length; at++) {
      const away = (x.to(xs[at]) - px) ** 2 + (y.to(ys[at]) - py) ** 2;
      if (away < best) [best, found] = [away, at];
    }
    this.#mark(found);
  }

  #mark(at) {
    if (at === this.picked) return;
    this.picked = at;
    this.redraw();
    if (at < 0) { this.hideTip(); return; }
    const { xs, ys, given, labels, colors } = this.points, { xName, yName, colorName } = this.options;
    const row = (name, value) => h("div", {}, h("span", {}, name), h("b", {}, number(value)));
    this.showTip(this.scales[0].to(xs[at]), this.scales[1].to(ys[at]), [h("div", { class: "muted" }, labels?.[at] ?? `#${at}`),
      row(xName, given[at]), row(yName, ys[at]), ...(colors ? [row(colorName, colors[at])] : [])]);
  }

  #key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { // by x, as the eye goes
      const order = this.points.xs.map((x, at) => [x, at]).sort((a, b) => a[0] - b[0]).map(([, at]) => at);
      this.#mark(order[(order.indexOf(this.picked) + step + order.length) % order.length] ?? -1);
    } else if (event.key === "Enter" && this.picked >= 0) this.onPick?.(this.picked);
    else return;
    event.preventDefault();
  }
}
