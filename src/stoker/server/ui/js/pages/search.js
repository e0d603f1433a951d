// A search: every plot and the table show the same trials, those that the brushes and the filter leave.

import { importanceBars, parallelPlot, scatterPlot, slicePlots } from "./search_plots.js";
import { get, getTagged } from "../core/api.js";
import { fill, h, soon } from "../core/dom.js";
import { number, plain, stateMark, timeSince, whole } from "../core/format.js";
import { comparePath, go, query, trialPath } from "../core/route.js";
import { filterField, matcher } from "../widgets/filter.js";
import { empty, loading, notices } from "../widgets/states.js";
import { vtable } from "../widgets/vtable.js";
import { curves } from "./curves.js";
import { body, card } from "./parts.js";
import { rungList } from "./rungs.js";
import { family } from "./series.js";
import { byObjective, rowsOf, valueOf, varying } from "./trial_rows.js";
import { describe, formatWhere, matches, parseWhere } from "./where.js";

const TOP = 20;
const POINTS = 400;
const REST_MS = 1500;

/** {element, load, trials(message), took(message), close} of a job with a search. */
export function searchOverview(page) { return new Search(page); }

class Search {
  constructor({ job, path, ctx, columns }) {
    Object.assign(this, { job, path, ctx, columns, spec: job.spec.search });
    this.metric = this.spec.metric ?? "objective";
    this.maximize = this.spec.goal === "maximize";
    this.rows = [];
    this.byNumber = new Map();
    this.where = parseWhere(query.get("where"));
    this.notice = notices();
    this.chips = h("div", { class: "row", "aria-live": "polite", hidden: true });
    this.curves = curves({ read: (axis) => this.#readCurves(axis), label: (_, trial) => `trial ${trial}`, style: (_, trial) => Math.max(this.best?.indexOf(trial) ?? 0, 0), first: family(this.metric), goal: this.maximize ? "max" : "min" });
    this.parallel = parallelPlot({ metric: this.metric, maximize: this.maximize, space: this.spec.space, brushed: (where) => this.#narrow(where) });
    this.scatter = scatterPlot({ metric: this.metric, space: this.spec.space, open: (trial) => go(trialPath(job.id, trial)) });
    this.slices = slicePlots({ metric: this.metric, space: this.spec.space, open: (trial) => go(trialPath(job.id, trial)) });
    this.importance = importanceBars();
    this.rungs = body(loading(3));
    this.later = soon(() => this.#rest(), REST_MS);
    this.shownSoon = soon(() => this.#show(), 200);
    this.table = this.#newTable();
    this.element = this.#layout();
  }

  #layout() {
    const filter = filterField({ name: "q", label: "Filter trials", placeholder: "state:running lr<1e-3", change: () => this.#filter() });
    const compare = h("button", { type: "button", disabled: true, onclick: () => go(comparePath([...this.table.selected].map((number) => `${this.job.id}/${number}`))) }, "Compare");
    this.compareButton = compare;
    this.count = h("span", { class: "muted small" });
    const halving = ["asha", "async_halving"].includes(this.spec.stopping?.name);
    return h("div", { class: "stack" }, this.notice.element, this.chips,
      h("div", { class: "cards" },
        card({ title: "Parallel coordinates", sub: "drag along an axis to keep only those trials", tools: this.parallel.tools, wide: true, name: "parallel" }, this.parallel.element),
        card({ title: "Scatter", tools: this.scatter.tools, name: "scatter" }, this.scatter.element),
        card({ title: "Importance", sub: "each hyperparameter's share of what made the difference", name: "importance" }, this.importance.element),
        card({ title: "Slices", sub: `${this.metric} over each hyperparameter`, wide: true, name: "slices" }, this.slices.element),
        halving && card({ title: "Rungs", sub: "who was stopped where", wide: true, name: "rungs" }, this.rungs)),
      this.curves.element,
      h("section", { class: "card list-card", "aria-label": "Trials" },
        h("header", {}, h("h2", {}, "Trials"), this.count, h("span", { class: "grow" }), filter, compare, this.table.columnsButton(),
          h("button", { type: "button", onclick: () => this.table.saveCsv(`${this.job.id}-trials.csv`) }, "CSV")),
        this.table.element));
  }

  close() {
    for (const part of [this.curves, this.parallel, this.scatter, this.slices, this.importance, this.table]) part.close();
    this.closed = true;
  }

  async load() {
    try {
      const found = await this.#readColumns();
      if (this.closed || !found) return;
      this.rows = rowsOf(found);
      this.byNumber = new Map(this.rows.map((row) => [row.number, row]));
      this.notice.show(null);
      this.#show();
      await this.curves.load();
      this.#rest();
    } catch (error) {
      if (error.name !== "AbortError") this.notice.show(error, { retry: () => this.load() });
    }
  }

  /** All trials; null if they are as they were. */
  async #readColumns() {
    const asked = this.columns ?? getTagged(`${this.path}/trials/columns`, { tag: this.tag, signal: this.ctx.signal });
    this.columns = null; // the first answer only, which was asked for before this was made
    const found = await asked;
    if (found) this.tag = found.tag;
    return found?.data;
  }

  /** News of trials: only those change, and what is drawn of them. */
  trials(message) {
    for (const one of message.trials) {
      const old = this.byNumber.get(one.number);
      const row = { ...old, ...one };
      if (old) this.rows[this.rows.indexOf(old)] = row;
      else this.rows.push(row);
      this.byNumber.set(one.number, row);
    }
    this.shownSoon();
    this.later();
  }

  took(message) { this.curves.took(message); }

  #show() {
    if (this.closed) return;
    this.names = varying(this.rows);
    this.parallel.set(this.rows, this.names, this.where);
    this.table.setColumns(this.#columns());
    this.table.setRows(this.rows);
    this.#filter();
  }

  /** Importance, rungs and curves follow at leisure. */
  async #rest() {
    if (this.closed) return;
    const [status, rungs] = await Promise.allSettled([get(`${this.path}/search`, { query: { best: 1 } }), get(`${this.path}/rungs`)]);
    if (this.closed) return;
    if (status.status === "fulfilled") this.importance.set(status.value.importance);
    if (rungs.status === "fulfilled") fill(this.rungs, rungs.value.brackets.some((one) => one.rungs.length) ? rungList(this.job.id, rungs.value) : empty("No rung was reached yet"));
  }

  #narrow(where) {
    this.where = where;
    query.set({ where: formatWhere(where) });
    this.#filter();
    this.curves.later();
  }

  #fits() {
    const read = (row, field) => valueOf(row, Object.keys(row.hparams).find((name) => name.toLowerCase() === field) ?? field, this.metric);
    const said = matcher(query.get("q"), { read, words: (row) => `${row.number} ${row.state} ${row.outcome ?? ""} ${Object.values(row.hparams).map(plain).join(" ")}` });
    return (row) => matches(this.where, (name) => valueOf(row, name, this.metric)) && said(row);
  }

  #filter() {
    const fits = this.#fits();
    const kept = this.rows.filter(fits);
    this.kept = kept;
    this.table.setFilter(kept.length === this.rows.length ? null : fits);
    this.scatter.set(kept, this.names ?? []);
    this.slices.set(kept, this.names ?? []);
    this.count.textContent = kept.length === this.rows.length ? `${whole(kept.length)}` : `${whole(kept.length)} of ${whole(this.rows.length)}`;
    this.chips.hidden = !this.where.size;
    fill(this.chips, [...this.where].map(([name, condition]) => h("span", { class: "chip where" }, describe(name, condition),
      h("button", { type: "button", class: "icon plain", "aria-label": `Forget ${name}`, onclick: () => this.#forget([name]) }, "✕"))),
    this.where.size ? h("button", { type: "button", onclick: () => this.#forget([...this.where.keys()]) }, "Show all trials") : null);
  }

  #forget(names) {
    const where = new Map(this.where);
    for (const name of names) where.delete(name);
    this.#narrow(where);
    this.parallel.set(this.rows, this.names, where);
  }

  async #readCurves(axis) {
    const best = byObjective(this.kept ?? this.rows, this.maximize).slice(0, TOP).map((row) => row.number);
    this.best = best; // a trial has one colour in all charts
    if (!best.length) return [];
    return [await get(`${this.path}/series`, { query: { ...axis, trial: best.join(","), points: POINTS }, signal: this.ctx.signal })];
  }

  #newTable() {
    const table = vtable({
      label: "Trials", key: (row) => row.number, columns: this.#columns(), selectable: true, sort: this.maximize ? "-objective" : "objective",
      open: (row) => go(trialPath(this.job.id, row.number)), onSelect: (chosen) => { this.compareButton.disabled = chosen.size < 1; },
    });
    table.setBlank(empty("No trials", "None yet, or none that fit the filter."));
    return table;
  }

  #columns() {
    return [
      { id: "number", title: "Trial", num: true, width: "80px", value: (row) => row.number, cell: (row) => h("a", { class: "name", href: trialPath(this.job.id, row.number) }, String(row.number)) },
      { id: "state", title: "State", width: "130px", value: (row) => endOf(row), cell: (row) => stateMark(endOf(row), row.stopped) },
      { id: "objective", title: this.metric, num: true, value: (row) => row.objective, cell: (row) => number(row.objective) },
      ...(this.names ?? []).map((name) => ({ id: `hp.${name}`, title: name, num: this.rows.some((row) => typeof row.hparams[name] === "number"), value: (row) => row.hparams[name] ?? null })),
      { id: "took", title: "Ran for", num: true, value: (row) => (row.started ? (row.ended ?? Date.now() / 1000) - row.started : null), cell: (row) => timeSince(row.started, row.ended) },
      { id: "stopped", title: "Why it ended", width: "minmax(160px, 2fr)", value: (row) => row.stopped },
      { id: "bracket", title: "Bracket", num: true, hidden: true, value: (row) => row.bracket },
      { id: "parent", title: "Started from", num: true, hidden: true, value: (row) => row.parent },
    ];
  }
}

/** A trial that the search stopped says so; the others say their state. */
export function endOf(row) {
  if (row.stopped?.startsWith("pruned")) return "stopped";
  if (row.stopped?.startsWith("finished")) return row.state; // told to stop, but at the last rung
  return row.outcome && row.outcome !== "completed" ? row.outcome : row.state;
}
