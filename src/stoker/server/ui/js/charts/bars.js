// Bars with their names and numbers.

import { h } from "../core/dom.js";
import { number } from "../core/format.js";
import { color } from "../core/theme.js";
import { Frame } from "./frame.js";

/** barChart({name, format?}) -> chart; chart.setBars([{name, value, tone?: "s1"}]). As high as it needs. */
export function barChart(options) { return new BarChart(options); }

class BarChart extends Frame {
  constructor({ name, format = number, size = "" }) {
    super({ name, size, interactive: false });
    Object.assign(this, { format, bars: [] });
  }

  setBars(bars) {
    this.bars = bars;
    this.element.style.height = `${Math.max(60, 12 + bars.length * 26)}px`;
    this.redraw();
  }

  summary() { return `${this.name}: ${this.bars.map((bar) => `${bar.name} ${this.format(bar.value)}`).join(", ")}.`; }
  table() { return [["name", this.name], ...this.bars.map((bar) => [bar.name, bar.value])]; }

  paint(pen, width) {
    const names = Math.min(width * 0.4, Math.max(60, ...this.bars.map((bar) => pen.measureText(bar.name).width + 10)));
    const most = Math.max(...this.bars.map((bar) => bar.value), 1e-12), room = width - names - 64;
    pen.textBaseline = "middle";
    this.bars.forEach((bar, at) => {
      const y = 6 + at * 26;
      pen.fillStyle = color("text");
      pen.textAlign = "left";
      pen.fillText(bar.name.length > 28 ? `${bar.name.slice(0, 27)}…` : bar.name, 4, y + 11);
      pen.fillStyle = color("idle-soft");
      pen.fillRect(names, y + 6, room, 10);
      pen.fillStyle = color(bar.tone || "accent");
      pen.fillRect(names, y + 6, Math.max(0, (bar.value / most) * room), 10);
      pen.fillStyle = color("muted");
      pen.textAlign = "right";
      pen.fillText(this.format(bar.value), width - 6, y + 11);
    });
  }
}

/** A part of a whole as a bar in the page (not a canvas): share(3, 8, "CPUs"). */
export function share(used, all, unit = "") {
  const part = all ? Math.min(used / all, 1) : 0;
  return h("div", { class: "row", style: { flexWrap: "nowrap" } }, h("span", { class: "bar grow", role: "meter", "aria-valuemin": 0, "aria-valuemax": all, "aria-valuenow": used, "aria-label": unit },
    h("span", { style: { width: `${part * 100}%` } })), h("span", { class: "small muted" }, `${number(used)} of ${number(all)} ${unit}`));
}
