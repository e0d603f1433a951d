// Any runs side by side: their curves together, and what was different about them. In the address: `runs=taxi_1/1,hunt/17`.

import { get } from "../core/api.js";
import { fill, h, soon } from "../core/dom.js";
import { number, plain, stateMark } from "../core/format.js";
import { query, trialPath } from "../core/route.js";
import { empty, failure, loading } from "../widgets/states.js";
import { attempt } from "../widgets/toast.js";
import { curves } from "./curves.js";
import { card, parseRun, tick } from "./parts.js";
import { flatten } from "./where.js";

const POINTS = 600;
const MOST_RUNS = 40;

export async function mount(root, ctx) {
  ctx.title("Compare", [["Compare"]]);
  const page = { ctx, view: null, live: new Set() };
  const again = () => show(root, page);
  ctx.onLeave(() => page.view?.close());
  ctx.live(["jobs"], {}); // for the pill in the top bar, while there is no run to follow
  await again();
  return again;
}

const chosen = () => query.list("runs").slice(0, MOST_RUNS).map(parseRun);
const nameOf = ({ job, trial }) => `${job}/${trial}`;

async function show(root, page) {
  page.view?.close();
  page.view = null;
  const runs = chosen();
  const change = (list) => { query.set({ runs: list.map(nameOf) }, { push: true }); show(root, page); };
  if (!runs.length) {
    fill(root, h("h1", {}, "Compare"), adder(runs, change), empty("Nothing to compare yet", "Add runs above, or select some in the list of jobs or in a search's table of trials."));
    return;
  }
  const place = h("div", { class: "stack" }, loading());
  fill(root, h("h1", {}, `Compare ${runs.length} run${runs.length === 1 ? "" : "s"}`), adder(runs, change), place);
  try {
    const found = await readRuns(runs, page.ctx.signal);
    const at = new Map(runs.map((run, index) => [nameOf(run), index]));
    page.view = curves({ read: (axis) => readSeries(runs, axis, page.ctx.signal), label: (job, trial) => `${job}/${trial}`, style: (job, trial) => at.get(`${job}/${trial}`) ?? 0 });
    fill(place, differences(found, (run) => change(runs.filter((one) => nameOf(one) !== run))), page.view.element);
    page.view.load();
    follow(runs, page);
  } catch (error) {
    if (error.name !== "AbortError") fill(place, failure(error, { retry: () => show(root, page) }));
  }
}

function follow(runs, page) {
  const again = soon(() => page.view?.load(), 1000);
  for (const job of new Set(runs.map((run) => run.job))) {
    if (page.live.has(job)) continue;
    page.live.add(job);
    page.ctx.live([`job:${job}`], { metrics: (message) => { if (chosen().some((run) => run.job === message.job)) again(); } });
  }
}

function adder(runs, change) {
  const input = h("input", { type: "search", placeholder: "taxi_1 or hunt/17", "aria-label": "Add a run", spellcheck: false });
  const add = async (event) => {
    event.preventDefault();
    const run = parseRun(input.value.trim());
    if (!run.job) return;
    if (await attempt(() => get(`/jobs/${encodeURIComponent(run.job)}`))) change([...runs.filter((one) => nameOf(one) !== nameOf(run)), run]);
  };
  return h("form", { class: "row", onsubmit: add }, input, h("button", { type: "submit" }, "Add run"));
}

/** What the runs' jobs and trials are; a job is asked for once, however many of its trials there are. */
async function readRuns(runs, signal) {
  const path = (job) => `/jobs/${encodeURIComponent(job)}`;
  const jobs = new Map(runs.map(({ job }) => [job, null]));
  for (const job of jobs.keys()) jobs.set(job, get(path(job), { signal }));
  return Promise.all(runs.map(async ({ job, trial }) => {
    const [whole, list] = await Promise.all([jobs.get(job), get(`${path(job)}/trials`, { query: { trial }, signal })]);
    if (!list.trials.length) throw new Error(`Job ${job} has no trial ${trial}.`);
    return { name: nameOf({ job, trial }), job: whole, trial: list.trials[0] };
  }));
}

async function readSeries(runs, axis, signal) {
  const jobs = new Map();
  for (const { job, trial } of runs) jobs.set(job, [...(jobs.get(job) ?? []), trial]);
  return Promise.all([...jobs].map(([job, trials]) =>
    get(`/jobs/${encodeURIComponent(job)}/series`, { query: { ...axis, trial: trials.join(","), points: POINTS }, signal })));
}

/** What each run was given, by section and name. */
export function parameters({ job, trial }) {
  const { name: _name, hparams: _own, search: _search, labels, package: code, ...rest } = job.spec;
  const spec = { ...(code ? { package: code.slice(0, 12) } : {}), ...rest };
  return { ...flatten(trial.hparams, "hparams."), ...flatten(labels, "labels."), ...flatten(spec) };
}

/** Names whose values are not the same in all. */
export function differing(all) {
  const names = [...new Set(all.flatMap(Object.keys))];
  return { names, differ: new Set(names.filter((name) => new Set(all.map((one) => JSON.stringify(one[name]))).size > 1)) };
}

function differences(found, leave) {
  const all = found.map(parameters);
  const { names, differ } = differing(all);
  const metrics = [...new Set(found.flatMap((run) => Object.keys(run.trial.metrics)))];
  const place = h("div", {});
  const draw = () => {
    const whole = query.get("all") === "1";
    const rows = whole ? names : names.filter((name) => differ.has(name));
    fill(place, h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Parameters" }, h("table", { class: "plain-table compare" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), found.map((run, at) => column(run, at, leave)))),
      h("tbody", {}, row("state", found.map((run) => stateMark(run.trial.state))), metrics.map((name) => row(name, found.map((run) => number(run.trial.metrics[name])))),
        rows.map((name) => row(name, all.map((one) => plain(one[name])), differ.has(name) && found.length > 1 ? "differs" : ""))))),
      found.length > 1 && !differ.size && h("p", { class: "muted body" }, "They were given exactly the same."));
  };
  draw();
  const sub = `${differ.size} of ${names.length} parameters differ`;
  const tools = [tick("all parameters", query.get("all") === "1", (on) => { query.set({ all: on ? 1 : null }); draw(); })];
  return card({ title: "Side by side", sub, tools, wide: true, name: "differences" }, place);
}

function column(run, at, leave) {
  return h("th", { scope: "col" }, h("i", { class: "swatch", style: { background: `var(--s${at % 10})` } }),
    h("a", { href: trialPath(run.job.id, run.trial.number) }, run.name),
    h("button", { type: "button", class: "icon plain", "aria-label": `Leave out ${run.name}`, title: "Leave it out", onclick: () => leave(run.name) }, "✕"));
}

const row = (name, cells, kind = "") => h("tr", { class: kind === "differs" ? kind : "" }, h("th", { scope: "row" }, name), cells.map((cell) => h("td", { title: typeof cell === "string" ? cell : "" }, cell)));
