// One trial: its metrics, hyperparameters, what it used of the machine, its checkpoints and its log.

import { lineChart } from "../charts/line.js";
import { get, resource } from "../core/api.js";
import { fill, h, soon } from "../core/dom.js";
import { bytes, number, progressBar, stateMark, timeSince } from "../core/format.js";
import { comparePath, jobPath, logsPath } from "../core/route.js";
import { empty, failure, loading, notices } from "../widgets/states.js";
import { tabs } from "../widgets/tabs.js";
import { showCheckpoints } from "./checkpoints.js";
import { curves } from "./curves.js";
import { runsCard } from "./experiment.js";
import { body, card, facts, valuesTable } from "./parts.js";
import { GIGA, systemLines } from "./series.js";
import { lastFailure } from "./words.js";

const POINTS = 1200;

export async function mount(root, ctx) {
  const { job: name } = ctx.params;
  const trial = Number(ctx.params.number);
  const path = `/jobs/${encodeURIComponent(name)}`;
  ctx.title(`Trial ${trial} of ${name}`, [["Jobs", "/"], [name, jobPath(name)], [`Trial ${trial}`]]);
  const notice = notices();
  const head = h("div", {}, loading(3));
  const place = h("div", { class: "stack" });
  fill(root, notice.element, head, place);
  const page = { name, number: trial, path, ctx, job: null, trial: null, view: null };
  const both = resource((signal) => readBoth(page, signal), (found, { error, at }) => {
    notice.show(error, { retry: both.load, at });
    if (!found) return void fill(head, h("h1", {}, `Trial ${trial}`));
    [page.job, page.trial] = found;
    fill(head, trialHead(page));
    if (!place.firstChild) showTabs(place, page);
  });
  const refresh = soon(both.load, 500);
  ctx.onLeave(() => { both.close(); page.tabs?.close(); });
  const mine = (message) => message.job === name;
  ctx.live([`trial:${name}:${trial}`], {
    resync: () => { both.load(); page.view?.load?.(); },
    trials: (message) => { if (mine(message) && message.trials.some((one) => one.number === trial)) refresh(); },
    metrics: (message) => { if (mine(message)) page.view?.took?.({ ...message, series: message.series.filter((one) => one.trial === trial) }); },
  });
}

async function readBoth({ path, number: trial }, signal) {
  const [job, found] = await Promise.all([get(path, { signal }), get(`${path}/trials`, { query: { trial }, signal })]);
  if (!found.trials.length) throw new Error(`This job has no trial ${trial}.`);
  return [job, found.trials[0]];
}

function trialHead({ job, trial, name }) {
  const failed = trial.state === "FAILED" ? lastFailure(job, trial) : null;
  const run = trial.runs.at(-1);
  const why = trial.stopped || failed?.message || "";
  const log = `${logsPath(name)}?trial=${trial.number}`;
  return h("div", { class: "job-head" },
    h("div", { class: "row" }, h("h1", {}, `Trial ${trial.number}`), stateMark(trial.state), h("span", { class: "grow" }),
      h("a", { class: "button", href: log }, "Log"), h("a", { class: "button", href: comparePath([`${name}/${trial.number}`]) }, "Compare")),
    why && h("p", { class: "why" }, why),
    failed && h("p", { class: "row" }, h("a", { class: "button", href: `${log}&level=ERROR` }, "Show the failing line in the log")),
    trial.outcome ? null : progressBar(trial.progress, trial.state),
    facts([trial.objective !== null && job.search && [number(trial.objective), `best ${job.search.metric}`],
      ...Object.entries(trial.metrics).slice(0, 5).map(([metric, value]) => [number(value), metric]),
      run?.started && [timeSince(run.started, run.ended), run.ended ? "it ran" : "running for"],
      trial.runs.length > 1 && [String(trial.runs.length), "runs"], trial.parent && [`trial ${trial.parent}`, "started from"]]));
}

function showTabs(place, page) {
  page.tabs = tabs([
    { id: "metrics", title: "Metrics", show: (panel) => metrics(panel, page) },
    { id: "hparams", title: "Hyperparameters", show: (panel) => { fill(panel, card({ title: "Hyperparameters", name: "hparams" }, body(valuesTable(page.trial.hparams, "Hyperparameters")))); } },
    { id: "system", title: "System use", show: (panel) => system(panel, page) },
    { id: "checkpoints", title: "Checkpoints & models", show: (panel) => showCheckpoints(panel, { ...page, trial: page.number }) },
    { id: "runs", title: "Runs", show: (panel) => { fill(panel, runsCard(page.trial)); } },
  ], { label: "Views of the trial" });
  fill(place, page.tabs.element, page.tabs.panel);
  page.tabs.start();
}

function metrics(panel, page) {
  const read = async (axis) => [await get(`${page.path}/series`, { query: { ...axis, trial: page.number, points: POINTS }, signal: page.ctx.signal })];
  page.view = curves({ read });
  fill(panel, page.view.element);
  page.view.load();
  return () => { page.view.close(); page.view = null; };
}

const SYSTEM = { cpu: "CPU, cores", memory: "Memory, GB", processes: "Processes", gpu_use: "GPU use, 0 to 1", gpu_memory: "GPU memory, GB" };

function system(panel, page) {
  const charts = new Map(); // name -> {chart, card}
  const grid = h("div", { class: "cards" });
  fill(panel, loading());
  const read = () => get(`${page.path}/series`, { query: { trial: page.number, group: "system", x: "time", points: POINTS }, signal: page.ctx.signal }).then((found) => {
    const all = systemLines(found);
    if (!all.size) return fill(panel, empty("Nothing measured yet", "What a run uses of the machine is looked at every few seconds while it runs."));
    for (const [name, lines] of all) showUse(charts, grid, name, lines);
    return grid.parentNode === panel ? undefined : fill(panel, grid);
  }, (error) => { if (error.name !== "AbortError" && !charts.size) fill(panel, failure(error)); });
  const later = soon(read, 1000);
  page.view = { load: read, took: (message) => { if (message.series.some((one) => one.group === "system")) later(); } };
  read();
  return () => { page.view = null; charts.forEach(({ chart }) => chart.close()); };
}

function showUse(charts, grid, name, lines) {
  if (!charts.has(name)) {
    const chart = lineChart({ name: SYSTEM[name] ?? name, x: "time", group: "system", size: "short", zero: true });
    const most = h("span", {});
    charts.set(name, { chart, most });
    grid.append(card({ title: SYSTEM[name] ?? name, sub: most, tools: [chart.saveButton()] }, chart.element, chart.legend));
  }
  const { chart, most } = charts.get(name);
  chart.setSeries(lines);
  const highest = lines.reduce((high, line) => line.ys.reduce((top, y) => (y > top ? y : top), high), 0);
  fill(most, `at most ${name.endsWith("memory") ? bytes(highest * GIGA) : number(highest)}`);
}
