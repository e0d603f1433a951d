// What all charts share: a canvas of the right size that follows the theme, its words, and saving it.

import { csv, download, h, oncePerFrame } from "../core/dom.js";
import { number } from "../core/format.js";
import { color, dark } from "../core/theme.js";
import { dialog } from "../widgets/dialog.js";
import { menu } from "../widgets/menu.js";
import { SvgPen } from "./svgpen.js";

const TABLE_ROWS = 500;
export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/**
 * A chart draws with `paint(pen, width, height)`; a pen is a canvas context or an SvgPen, so that what is saved is what
 * is seen. `summary()` is the chart in a sentence, `table()` its data as rows with a header.
 */
export class Frame {
  constructor({ name = "chart", size = "", interactive = true }) {
    this.name = name;
    this.tip = h("div", { class: "tip", hidden: true });
    this.canvas = h("canvas", { role: "img", tabIndex: interactive ? 0 : -1, "aria-label": name }); // a sentence once it is drawn
    this.element = h("div", { class: `chart ${size}` }, this.canvas, this.tip);
    this.width = 0;
    this.height = 0;
    this.redraw = oncePerFrame(() => this.#draw());
    this.observer = new ResizeObserver(() => this.#resize());
    this.observer.observe(this.element);
    this.unwatch = dark.watch(() => this.redraw());
  }

  close() {
    this.observer.disconnect();
    this.redraw.cancel();
    this.unwatch();
  }

  summary() { return this.name; }
  table() { return [[]]; }

  /** A "Save" button: SVG, PNG, CSV, and the data as a table. */
  saveButton() {
    const button = h("button", { type: "button", class: "icon plain", "aria-haspopup": "menu", "aria-label": `Save or view ${this.name} as a table`, title: "Save, or view as a table" }, "⤓");
    button.addEventListener("click", () => menu(button, [
      { text: "View as table", act: () => this.viewAsTable() },
      { text: "Save as SVG", act: () => download(`${this.#file()}.svg`, this.toSvg(), "image/svg+xml") },
      { text: "Save as PNG", act: () => this.canvas.toBlob((blob) => download(`${this.#file()}.png`, blob)) },
      { text: "Save data as CSV", act: () => download(`${this.#file()}.csv`, csv(this.table()), "text/csv") },
    ], { label: "Save" }));
    return button;
  }

  viewAsTable() {
    const [head, ...rows] = this.table();
    const cell = (value) => h("td", { class: typeof value === "number" ? "num" : "" }, typeof value === "number" ? number(value, 6) : String(value ?? ""));
    const shown = rows.slice(0, TABLE_ROWS);
    const left = rows.length - shown.length;
    return dialog(this.name, [
      h("p", { class: "muted" }, this.summary(), left > 0 ? ` The first ${TABLE_ROWS} of ${rows.length} rows; the CSV file has all.` : ""),
      h("div", { class: "scroll" }, h("table", { class: "plain-table" }, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, shown.map((row) => h("tr", {}, row.map(cell))))))], { wide: true });
  }

  toSvg() {
    const pen = new SvgPen(this.width || 720, this.height || 280, color("surface"), FONT);
    this.paint(pen, pen.width, pen.height);
    return pen.toString(this.summary());
  }

  showTip(x, y, content) {
    this.tip.replaceChildren(...content);
    this.tip.hidden = false;
    const { offsetWidth, offsetHeight } = this.tip;
    this.tip.style.left = `${x + offsetWidth + 24 > this.width ? Math.max(0, x - offsetWidth - 12) : x + 12}px`;
    this.tip.style.top = `${Math.max(0, Math.min(y - offsetHeight / 2, this.height - offsetHeight))}px`;
  }

  hideTip() { this.tip.hidden = true; }

  #file() { return this.name.replace(/[^\w.-]+/g, "_"); }

  #resize() {
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth || !clientHeight || (clientWidth === this.width && clientHeight === this.height && this.ratio === devicePixelRatio)) return;
    [this.width, this.height, this.ratio] = [clientWidth, clientHeight, devicePixelRatio];
    this.canvas.width = Math.round(clientWidth * this.ratio);
    this.canvas.height = Math.round(clientHeight * this.ratio);
    this.#draw();
  }

  #draw() {
    if (!this.width || document.hidden) return;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = FONT;
    pen.lineJoin = "round";
    this.paint(pen, this.width, this.height);
    this.canvas.setAttribute("aria-label", this.summary());
  }
}

/** Grid lines and numbers of both axes inside `box` {left, top, right, bottom}. */
export function axes(pen, box, xScale, yScale, { xLabel = "", xFormat = number, yFormat = number, xTicks = null } = {}) {
  pen.lineWidth = 1;
  pen.strokeStyle = color("line");
  pen.fillStyle = color("muted");
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const tick of yScale.ticks(Math.max(2, Math.round((box.bottom - box.top) / 44)))) {
    const y = Math.round(yScale.to(tick)) + 0.5;
    if (!(y >= box.top - 1 && y <= box.bottom + 1)) continue;
    segment(pen, box.left, y, box.right, y);
    pen.fillText(yFormat(tick), box.left - 6, y);
  }
  pen.textBaseline = "top";
  pen.textAlign = "center";
  const room = Math.max(3, Math.floor((box.right - box.left) / 84));
  let free = -Infinity; // from where there is room for the next one's text
  for (const tick of xTicks || xScale.ticks(room)) {
    const x = xScale.to(tick), text = String(xFormat(tick)), half = text.length * 3.2;
    if (!(x >= box.left - 1 && x <= box.right + 1)) continue;
    const at = Math.min(Math.max(x, box.left + 8), box.right - 8);
    if (at - half < free) continue;
    pen.fillText(text, at, box.bottom + 5);
    free = at + half + 4;
  }
  if (xLabel) { pen.textAlign = "right"; pen.fillText(xLabel, box.right, box.bottom + 18); }
}

export function segment(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}
