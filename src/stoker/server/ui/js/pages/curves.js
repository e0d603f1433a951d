// Learning curves: a chart for each metric, train and validation together, any number of runs, all with the same x.

import { lineChart } from "../charts/line.js";
import { fill, h, soon } from "../core/dom.js";
import { query } from "../core/route.js";
import { empty, loading, notices } from "../widgets/states.js";
import { card, choice, tick } from "./parts.js";
import { families, hasEpochs, idOf, newPositions } from "./series.js";

const RELOAD_MS = 1000;
const MOST_CHARTS = 12;

/**
 * curves({ctx, read, label, first}) -> {element, load, took, close}
 *   read({x, start, end}) -> a list of answers of GET /jobs/{job}/series, one for each job
 *   label(job, trial): the name of a run; first: the metric whose chart comes first; goal: "min" or "max" of it
 *   load() reads anew; took(message) takes a `metrics` message of the stream
 */
export function curves(options) { return new Curves(options); }

class Curves {
  constructor({ read, label = () => "", first = null, goal = "min", style = null, only = null, small = false, over = () => false }) {
    Object.assign(this, { read, label, first, goal, style, only, small, over });
    this.charts = new Map(); // family -> {chart, card}
    this.found = [];
    this.turn = 0;
    this.notice = notices();
    this.grid = h("div", { class: "cards" });
    this.tools = h("div", { class: "row curve-tools", role: "group", "aria-label": "Curves" });
    this.element = h("div", { class: "stack" }, this.tools, this.notice.element, this.grid);
    this.state = { x: query.get("x", "step"), smooth: query.number("smooth", 0), logX: query.get("logx") === "1", logY: query.get("logy") === "1",
      best: query.get("best") === "1" ? goal : null, zoom: parseZoom(query.get("zoom")) };
    this.later = soon(() => this.load(), RELOAD_MS);
    fill(this.grid, loading());
    this.#drawTools();
  }

  close() {
    this.turn += 1;
    for (const { chart } of this.charts.values()) chart.close();
    this.charts.clear();
  }

  async load() {
    const mine = ++this.turn;
    const [start, end] = this.state.zoom && this.state.x === "step" ? this.state.zoom : [null, null];
    try {
      const found = await this.read({ x: this.state.x === "time" ? "time" : "step", start, end });
      if (mine !== this.turn) return;
      this.found = found;
      this.notice.show(null);
      this.#show();
    } catch (error) {
      if (error.name !== "AbortError" && mine === this.turn) this.notice.show(error, { retry: () => this.load() });
    }
  }

  /** Points of the stream; what does not fit to what is there is read anew. */
  took(message) {
    const known = this.found.find((one) => one.job === message.job);
    if (!known) return this.later();
    if (message.after > known.cursor) return this.later();
    let fresh = false;
    for (const one of message.series) {
      if (one.group === "system") continue;
      const xs = newPositions(one, this.state.x);
      const from = one.n.findIndex((n) => n > known.cursor);
      if (from < 0) continue;
      const id = idOf(message.job, one);
      const chart = [...this.charts.values()].find((each) => each.ids.has(id));
      if (chart && xs) chart.chart.append(id, xs.slice(from), one.y.slice(from).map((y) => y ?? Number.NaN));
      else if (known.trials.includes(one.trial) || known.trials.length < 20) fresh = true;
    }
    known.cursor = Math.max(known.cursor, message.cursor);
    if (fresh) this.later();
    return undefined;
  }

  #show() {
    const all = new Map();
    for (const found of this.found) {
      const lines = families(found, { axis: this.state.x, label: (trial) => this.label(found.job, trial), style: this.style && ((trial) => this.style(found.job, trial)) });
      for (const [name, list] of lines) all.set(name, [...(all.get(name) ?? []), ...list]);
    }
    this.#drawTools();
    this.tools.hidden = !all.size;
    const names = [...all.keys()].sort((a, b) => (b === this.first) - (a === this.first)).filter((name) => !this.only || this.only === name).slice(0, MOST_CHARTS);
    if (!names.length) {
      for (const { chart } of this.charts.values()) chart.close();
      this.charts.clear();
      fill(this.grid, h("div", { class: "card wide" }, this.over() ? empty("No metrics", "Its code reported none. ctx.report(step, loss=…) does.")
        : empty("No metrics so far", "Code reports them with ctx.report(step, loss=…); they appear here at once.")));
      return;
    }
    for (const [name, { chart, element }] of this.charts) if (!all.has(name)) { chart.close(); element.remove(); this.charts.delete(name); }
    if (!this.charts.size) fill(this.grid);
    for (const name of names) this.#showOne(name, all.get(name));
  }

  #showOne(name, lines) {
    if (!this.charts.has(name)) this.#newChart(name);
    const entry = this.charts.get(name);
    entry.ids = new Set(lines.map((line) => line.id));
    const up = /acc|auc|f1|precision|recall|r2|score|reward|bleu/i.test(name);
    const best = this.state.best && (name === this.first ? this.goal : up ? "max" : "min");
    const { zoom: _, ...state } = this.state; // a chart may have been zoomed just now, and tells in a moment
    entry.chart.set({ ...state, best });
    entry.chart.setSeries(lines);
    const runs = new Set(lines.map((line) => `${line.job}/${line.trial}`)).size;
    entry.sub.textContent = runs > 1 ? `${runs} runs` : "";
  }

  #newChart(name) {
    const chart = lineChart({ name, group: "curves", ...this.state, onZoom: (zoom) => this.#set({ zoom }) });
    const sub = h("span", { class: "muted small" });
    const element = card({ title: name, tools: [sub, chart.saveButton()], name: `curve-${name}` }, chart.element, chart.legend);
    this.grid.append(element);
    this.charts.set(name, { chart, element, sub, ids: new Set() });
  }

  #set(changes) {
    Object.assign(this.state, changes);
    const { x, smooth, logX, logY, best, zoom } = this.state;
    query.set({ x: x === "step" ? null : x, smooth: smooth || null, logx: logX ? 1 : null, logy: logY ? 1 : null, best: best ? 1 : null,
      zoom: zoom ? zoom.map((at) => Number(at.toPrecision(6))).join("~") : null });
    if ("x" in changes) {
      this.state.zoom = null;
      query.set({ zoom: null });
      for (const { chart } of this.charts.values()) chart.set({ zoom: null });
      this.load();
      return;
    }
    for (const { chart } of this.charts.values()) chart.set(changes);
    if ("zoom" in changes) { this.#drawTools(); this.load(); }
    if ("best" in changes) this.#show();
  }

  #drawTools() {
    const axes = [["step", "steps"], ...(this.found.some(hasEpochs) || this.state.x === "epoch" ? [["epoch", "epochs"]] : []), ["time", "time"]];
    const key = JSON.stringify([axes, !!this.state.zoom]);
    if (this.drawn === key) return; // who is at it keeps the focus
    this.drawn = key;
    const { x, smooth, logX, logY, best, zoom } = this.state;
    const slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: smooth, "aria-label": "Smoothing", oninput: () => this.#set({ smooth: Number(slider.value) }) });
    fill(this.tools,
      h("label", { class: "tick small" }, "x", choice("Horizontal axis", axes, x, (value) => this.#set({ x: value }))),
      h("label", { class: "tick small" }, "Smooth", slider),
      tick("log x", logX, (on) => this.#set({ logX: on })), tick("log y", logY, (on) => this.#set({ logY: on })),
      tick("best so far", !!best, (on) => this.#set({ best: on ? this.goal : null })),
      zoom && h("button", { type: "button", onclick: () => this.#set({ zoom: null }) }, "Whole range"));
  }
}

function parseZoom(text) {
  const [from, to] = text.split("~").map(Number);
  return text && Number.isFinite(from) && Number.isFinite(to) && from < to ? [from, to] : null;
}
