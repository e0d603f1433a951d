// A job: how it stands and why, its curves, and for a search what was tried. The tabs are loaded when they are opened.

import { get, getTagged, resource } from "../core/api.js";
import { fill, h, soon } from "../core/dom.js";
import { stateMark } from "../core/format.js";
import { jobPath, query } from "../core/route.js";
import { loading, notices } from "../widgets/states.js";
import { tabs } from "../widgets/tabs.js";
import { showCheckpoints } from "./checkpoints.js";
import { showCode } from "./code.js";
import { curves } from "./curves.js";
import { showConfig } from "./job_config.js";
import { jobHeader } from "./job_header.js";
import { card, table } from "./parts.js";
import { searchOverview } from "./search.js";

const POINTS = 800;
const REFRESH_MS = 500;

export async function mount(root, ctx) {
  const name = ctx.params.job;
  const path = `/jobs/${encodeURIComponent(name)}`;
  ctx.title(name, [["Jobs", "/"], [name]]);
  const notice = notices();
  const head = h("div", {}, loading(3));
  const place = h("div", { class: "stack" });
  fill(root, notice.element, head, place);
  const page = { job: null, view: null, path, ctx, columns: null };
  const job = resource((signal) => get(path, { signal }), async (found, { error, at }) => {
    notice.show(error, { retry: job.load, at });
    if (!found) return void fill(head, h("h1", {}, name));
    page.job = found;
    await showHead(head, page, job.load);
    if (!place.firstChild) showTabs(place, page);
  });
  const refresh = soon(job.load, REFRESH_MS);
  ctx.onLeave(() => { job.close(); page.tabs?.close(); });
  ctx.live([`job:${name}`], {
    start: () => {
      // Most of what a search shows: not after the job, which says whether it is one; of others it is small.
      if (!query.get("tab")) page.columns = getTagged(`${path}/trials/columns`, { signal: ctx.signal });
      page.columns?.catch(() => {}); // who waits for it says so
      return job.load();
    },
    resync: () => { (page.job ? refresh : job.load)(); page.view?.load?.(); },
    job: (line) => { if (line.id === name) refresh(); },
    trials: (message) => { if (message.job === name) page.view?.trials?.(message); },
    metrics: (message) => { if (message.job === name) page.view?.took?.(message); },
  });
}

async function showHead(head, page, changed) {
  const { job } = page;
  if (job.state === "FAILED" && page.failingLine === undefined) page.failingLine = await failingLine(page);
  fill(head, jobHeader(job, { changed, failingLine: page.failingLine }));
}

/** The number of the last line that says ERROR, or of the traceback's end. */
async function failingLine({ path, ctx }) {
  for (const filter of [{ text: "Error:" }, { level: "ERROR" }]) {
    try {
      const found = await get(`${path}/logs/lines`, { query: { ...filter, from: -1, count: 1 }, signal: ctx.signal });
      if (found.n.length) return found.n.at(-1);
    } catch { return null; } // then the link leads to the errors of the log
  }
  return null;
}

function showTabs(place, page) {
  const { job, ctx } = page;
  const items = [
    { id: "overview", title: job.spec.search ? "Search" : "Curves", show: (panel) => overview(panel, page) },
    { id: "checkpoints", title: "Checkpoints & models", show: (panel) => showCheckpoints(panel, page) },
    { id: "code", title: "Code", show: (panel) => showCode(panel, page.job, ctx.signal) },
    { id: "config", title: "Config & environment", show: (panel) => showConfig(panel, page.job, ctx.signal) },
    ...(job.spec.search ? [] : [{ id: "runs", title: "Runs", show: (panel) => { fill(panel, runsCard(page.job.trials[0])); } }]),
  ];
  page.tabs = tabs(items, { label: "Views of the job" });
  fill(place, page.tabs.element, page.tabs.panel);
  page.tabs.start();
}

function overview(panel, page) {
  page.view = page.job.spec.search ? searchOverview(page) : curves({ read: (axis) => readSeries(page, axis), over: () => Boolean(page.job.ended) });
  fill(panel, page.view.element);
  page.view.load();
  return () => { page.view.close(); page.view = null; };
}

async function readSeries({ path, ctx }, axis) {
  return [await get(`${path}/series`, { query: { ...axis, points: POINTS }, signal: ctx.signal })];
}

/** The attempts at a trial, and why each ended. */
export function runsCard(trial) {
  const rows = (trial?.runs ?? []).map((run) => [String(run.attempt), stateMark(run.state), run.message || run.exit?.message || "", run.directory]);
  const head = [{ name: "Attempt", num: true }, "State", "Why it ended", { name: "Directory", kind: "path" }];
  return card({ title: "Runs", sub: "attempts at it, oldest first", wide: true, name: "runs" }, table("Runs", head, rows));
}

export const backTo = (job) => [["Jobs", "/"], [job, jobPath(job)]];
