// The plots of a search. A brush is a set of conditions (where.js), so it holds for trials that no plot has drawn.

import { barChart } from "../charts/bars.js";
import { parcoords } from "../charts/parcoords.js";
import { scatterChart } from "../charts/scatter.js";
import { fill, h } from "../core/dom.js";
import { percent } from "../core/format.js";
import { query } from "../core/route.js";
import { empty, loading } from "../widgets/states.js";
import { choice } from "./parts.js";
import { byObjective, scaleOf } from "./trial_rows.js";

const MOST_LINES = 2000; // of the parallel plot: the best ones
const MOST_AXES = 12;
const MOST_POINTS = 3000; // of a slice
const OBJECTIVE = "objective";

/** {element, tools, set(rows, names, where), close}; `brushed(where)` when a person has brushed. */
export function parallelPlot({ metric, maximize, space, brushed }) {
  const chart = parcoords({ name: "Parallel coordinates", onBrush: (ranges) => brushed(whereOf(ranges)) });
  return {
    element: chart.element,
    tools: [chart.saveButton()],
    set(rows, names, where) {
      const shown = byObjective(rows, maximize).slice(0, MOST_LINES);
      const axes = names.slice(0, MOST_AXES).map((name) => ({ id: name, name, log: scaleOf(name, space, rows) === "log", category: scaleOf(name, space, rows) === "category" }));
      chart.setData({
        axes: [...axes, { id: OBJECTIVE, name: metric }], color: OBJECTIVE, down: !maximize,
        rows: shown.map((row) => ({ ...row.hparams, [OBJECTIVE]: row.objective })),
      });
      chart.setBrush(rangesOf(where));
    },
    close: () => chart.close(),
  };
}

/** From the chart's ranges to conditions. */
export function whereOf(ranges) {
  return new Map(Object.entries(ranges).map(([name, range]) =>
    [name, range.length === 2 && range.every((end) => typeof end === "number") ? { min: range[0], max: range[1] } : { any: range.map(String) }]));
}

export function rangesOf(where) {
  return Object.fromEntries([...where].map(([name, one]) => [name, "any" in one ? one.any : [one.min, one.max]]));
}

/** One value against another, coloured by a third: {element, tools, set(rows, names), close}. In the address: px, py, pc. */
export function scatterPlot({ metric, space, open }) {
  let rows = [], names = [], drawn = "";
  const place = h("div", {});
  const tools = h("span", { class: "row" });
  let chart = null;
  const read = (row, name) => (name === OBJECTIVE ? row.objective : row.hparams[name] ?? null);
  const word = (name) => (name === OBJECTIVE ? metric : name);
  const draw = () => {
    const [x, y, by] = [query.get("px", names[0] ?? OBJECTIVE), query.get("py", OBJECTIVE), query.get("pc", names[1] ?? OBJECTIVE)];
    if (drawn !== `${x} ${y} ${by}`) {
      chart?.close();
      chart = scatterChart({ name: `${word(y)} over ${word(x)}`, xName: word(x), yName: word(y), colorName: word(by), logX: scaleOf(x, space, rows) === "log", onPick: (at) => open(chart.numbers[at]) });
      fill(place, chart.element);
      drawn = `${x} ${y} ${by}`;
    }
    const shown = rows.filter((row) => typeof read(row, y) === "number" && read(row, x) !== null);
    const colors = shown.map((row) => read(row, by));
    chart.numbers = shown.map((row) => row.number);
    const apart = scaleOf(x, space, rows) === "category";
    const plainX = (value) => (typeof value === "number" && !apart ? value : String(value));
    chart.setPoints({ xs: shown.map((row) => plainX(read(row, x))), ys: shown.map((row) => read(row, y)), labels: shown.map((row) => `trial ${row.number}`),
      ...(colors.every((value) => typeof value === "number") ? { colors } : {}) });
    drawTools(x, y, by);
  };
  const drawTools = (x, y, by) => {
    const options = [...names, OBJECTIVE].map((name) => [name, word(name)]);
    const pick = (label, key, chosen) => choice(label, options, chosen, (value) => { query.set({ [key]: value }); draw(); });
    if (tools.dataset.names === names.join()) return;
    tools.dataset.names = names.join();
    fill(tools, pick("Horizontal", "px", x), pick("Vertical", "py", y), h("span", { class: "small muted" }, "coloured by"), pick("Colour", "pc", by));
  };
  return {
    element: place,
    tools: [tools],
    set(given, list) { rows = given; names = list; if (names.length) draw(); },
    close: () => chart?.close(),
  };
}

/** The objective over each hyperparameter, a small plot each: {element, set(rows, names), close}. Drawn once it comes in sight. */
export function slicePlots({ metric, space, open }) {
  const charts = new Map(); // hyperparameter -> chart
  const place = h("div", { class: "slices" });
  let rows = [], names = [], inSight = false;
  const draw = () => {
    if (!inSight) return;
    const wanted = names.slice(0, MOST_AXES);
    for (const [name, chart] of charts) if (!wanted.includes(name)) { chart.close(); chart.element.remove(); charts.delete(name); }
    for (const name of wanted) drawOne(name);
  };
  const drawOne = (name) => {
    const scale = scaleOf(name, space, rows);
    if (!charts.has(name)) {
      const made = scatterChart({ name: `${metric} over ${name}`, size: "short", xName: name, yName: metric, logX: scale === "log", onPick: (at) => open(made.numbers[at]) });
      charts.set(name, made);
      place.append(made.element);
    }
    const has = rows.filter((row) => typeof row.objective === "number" && row.hparams[name] !== undefined);
    const each = Math.ceil(has.length / MOST_POINTS); // evenly: the shape is what they are for
    const shown = each > 1 ? has.filter((_, at) => at % each === 0) : has;
    const chart = charts.get(name);
    chart.numbers = shown.map((row) => row.number);
    const x = (value) => (typeof value === "number" && scale !== "category" ? value : String(value));
    chart.setPoints({ xs: shown.map((row) => x(row.hparams[name])), ys: shown.map((row) => row.objective), labels: shown.map((row) => `trial ${row.number}`) });
  };
  const watch = new IntersectionObserver(([one]) => { if (one.isIntersecting && !inSight) { inSight = true; draw(); } }, { rootMargin: "300px" });
  watch.observe(place);
  return {
    element: place,
    set(given, list) { rows = given; names = list; draw(); },
    close() { watch.disconnect(); charts.forEach((chart) => chart.close()); },
  };
}

/** Bars of each hyperparameter's share, most first. */
export function importanceBars() {
  const chart = barChart({ name: "Importance", format: percent });
  const place = h("div", { class: "body" }, loading(4));
  return {
    element: place,
    set(importance) {
      const bars = Object.entries(importance).map(([name, value]) => ({ name, value }));
      if (!bars.length) return void fill(place, empty("Too few trials yet", "It takes some finished trials to tell what matters."));
      if (!place.contains(chart.element)) fill(place, chart.element);
      chart.setBars(bars);
    },
    close: () => chart.close(),
  };
}
