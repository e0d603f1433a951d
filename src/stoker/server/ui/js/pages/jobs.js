// All jobs, as they stand.

import { get, patch as change, post, resource } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { NONE, number, percent, progressBar, stateMark, timeAgo, timeSince, tone, whole } from "../core/format.js";
import { comparePath, go, jobPath, query } from "../core/route.js";
import { ask, confirm } from "../widgets/dialog.js";
import { filterSelect, matcher } from "../widgets/filter.js";
import { menu } from "../widgets/menu.js";
import { empty, loading, notices } from "../widgets/states.js";
import { attempt } from "../widgets/toast.js";
import { vtable } from "../widgets/vtable.js";

const FIRST = 100, MORE = 1000; // the first page is small, so that it is there at once
const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
const GROUPS = { active: ["PREPARING", "RUNNING", "PAUSING", "CANCELLING"], queued: ["QUEUED"], paused: ["PAUSED"], succeeded: ["SUCCEEDED"], failed: ["FAILED"], cancelled: ["CANCELLED"] };

export function mount(root, ctx) {
  root.className = "fill";
  ctx.title("Jobs");
  const said = h("p", { class: "muted" }, "\u00a0"); // its line is there from the start
  const notice = notices();
  const actions = h("div", { class: "row" });
  const place = h("div", { class: "grow", style: { display: "flex", minHeight: "0", flexDirection: "column" } }, loading(10));
  const table = jobTable((selected) => fill(actions, bulkActions(selected, table)));
  let whole_list = false, loadingMore = false;

  const state = filterSelect({ name: "state", label: "State", change: narrow,
    options: [["", "Any state"], ...Object.keys(GROUPS).map((name) => [name, name])] });
  const owner = filterSelect({ name: "owner", label: "Owner", options: [["", "Any owner"]], change: narrow });
  const pool = filterSelect({ name: "pool", label: "Pool", options: [["", "Any pool"]], change: narrow });
  const filters = h("div", { class: "filter" }, state, owner, pool);
  const bar = h("header", {}, filters, h("span", { class: "grow" }), actions, table.columnsButton(),
    h("button", { type: "button", onclick: () => table.saveCsv("jobs.csv") }, "CSV"));
  fill(root, h("div", { class: "page-head" }, h("div", {}, h("h1", {}, "Jobs"), said)), notice.element,
    h("section", { class: "card grow", "aria-label": "All jobs", style: { display: "flex", flexDirection: "column", minHeight: "0" } }, bar, place));

  function narrow() {
    const text = [query.get("q"), ...["owner", "pool"].map((name) => query.get(name) && `${name}="${query.get(name)}"`)].filter(Boolean).join(" ");
    const states = GROUPS[query.get("state")];
    const fits = text ? matcher(text, { read, words }) : () => true;
    table.setFilter(text || states ? (job) => (!states || states.includes(job.state)) && fits(job) : null);
    table.setBlank(table.rows.length ? empty("No job fits", "Clear the search or the filters to see all.") : empty("No jobs yet",
      "Submit one from the folder of a training package:", "stoker jobs submit training --module-name trainer.task --package-path trainer"));
    if (text || states || query.get("sort")) loadMore();
  }

  const list = resource((signal) => get("/jobs", { query: { limit: Math.max(FIRST, Math.min(table.rows.length, 10_000)) }, signal }), (data, { error, at }) => {
    notice.show(error, { at, retry: () => list.load() });
    table.element.classList.toggle("stale", !!error);
    if (error) { if (!data) place.replaceChildren(); return; }
    if (table.element.parentNode !== place) place.replaceChildren(table.element);
    whole_list = data.jobs.length < Math.max(FIRST, table.rows.length);
    table.setRows(data.jobs);
    changed();
    narrow();
  });

  /** Older jobs, until there are no more; the filter and the sort are over all of them. */
  async function loadMore() {
    if (whole_list || loadingMore || !table.rows.length) return;
    loadingMore = true;
    try {
      const oldest = table.rows.reduce((low, job) => Math.min(low, job.number), Infinity);
      const { jobs } = await get("/jobs", { query: { limit: MORE, before: oldest }, signal: ctx.signal });
      whole_list = jobs.length < MORE;
      table.setRows([...table.rows, ...jobs.filter((job) => !table.index.has(job.id))]);
      changed();
    } catch (error) {
      if (error.name !== "AbortError") notice.show(error, { retry: loadMore });
      return;
    } finally {
      loadingMore = false;
    }
    if (query.get("q") || query.get("state") || query.get("owner") || query.get("pool") || query.get("sort")) loadMore();
  }

  function changed() {
    const count = (name) => table.rows.reduce((sum, job) => sum + GROUPS[name].includes(job.state), 0);
    const all = whole_list ? whole(table.rows.length) : `${whole(table.rows.length)} newest`;
    said.textContent = `${whole(count("active"))} active · ${whole(count("queued"))} queued · ${all} in all`;
    const choices = (field, any) => [["", any], ...[...new Set(table.rows.map((job) => job[field]))].sort().map((one) => [one, one])];
    owner.setOptions(choices("owner", "Any owner"));
    pool.setOptions(choices("pool", "Any pool"));
    fill(actions, bulkActions(table.selected, table));
  }

  table.options.onEnd = loadMore;
  ctx.onLeave(() => { list.close(); table.close(); });
  ctx.search({ placeholder: "Filter: state:running owner:ada", value: query.get("q"), done: () => table.focus(),
    change: (text) => { query.set({ q: text }); narrow(); } });
  ctx.key("Escape", "Back to the list", () => table.focus());
  ctx.key("ArrowDown", "Into the list", () => table.focus());
  ctx.key("c", "Compare the selected jobs", () => { if (table.selected.size) go(comparePath([...table.selected])); });
  ctx.key("x", "Cancel the marked or selected jobs", () => { const jobs = chosen(table); if (jobs.length) steer("cancel", jobs); });
  ctx.live(["jobs"], { start: () => list.load(), resync: () => list.load(), job: (job) => { table.patch(job, { first: true }); changed(); } });
  return () => { for (const select of [state, owner, pool]) select.value = query.get(select === state ? "state" : select === owner ? "owner" : "pool"); narrow(); };
}

function chosen(table) {
  if (table.selected.size) return [...table.selected].map((id) => table.get(id)).filter(Boolean);
  return table.shown[table.active] ? [table.shown[table.active]] : [];
}

function jobTable(onSelect) {
  return vtable({
    label: "Jobs", height: 52, selectable: true, key: (job) => job.id, open: (job) => go(jobPath(job.id)), onSelect,
    columns: [
      { id: "name", title: "Job", width: "minmax(150px, 2fr)", value: (job) => job.id, cell: nameCell },
      { id: "state", title: "State", width: "minmax(130px, 1.7fr)", value: (job) => job.state, cell: stateCell },
      { id: "progress", title: "Progress", width: "minmax(112px, .8fr)", value: (job) => job.progress, cell: progressCell },
      { id: "best", title: "Best metric", width: "minmax(150px, 1.2fr)", value: (job) => bestOf(job)?.value ?? null, cell: bestCell },
      { id: "trials", title: "Trials", num: true, width: "64px", value: (job) => job.search?.trials ?? 1 },
      { id: "age", title: "Submitted", width: "96px", value: (job) => job.created, cell: (job) => timeAgo(job.created) },
      { id: "ran", title: "Ran for", num: true, width: "104px", value: ranFor, cell: (job) => timeSince(job.started, job.ended) },
      { id: "owner", title: "Owner", width: "74px", value: (job) => job.owner },
      { id: "pool", title: "Pool", width: "74px", value: (job) => job.pool },
      { id: "priority", title: "Priority", num: true, width: "80px", value: (job) => job.priority, hidden: true },
      { id: "kind", title: "Kind", width: "80px", value: (job) => job.kind, hidden: true },
      { id: "number", title: "Number", num: true, width: "80px", value: (job) => job.number, hidden: true },
      { id: "actions", title: "", width: "46px", cell: actionsCell },
    ],
  });
}

function nameCell(job) {
  const labels = Object.entries(job.labels).map(([key, value]) => h("span", { class: "chip", title: `${key}=${value}` }, value ? `${key}=${value}` : key));
  return h("div", {}, h("div", { class: "ellipsis" }, h("a", { class: "name", href: jobPath(job.id), title: job.id, tabIndex: -1 }, job.id)),
    labels.length ? h("div", { class: "ellipsis" }, labels.flatMap((label) => [label, " "])) : null);
}

const stateCell = (job) => h("div", {}, stateMark(job.state),
  job.reason ? h("div", { class: "muted small ellipsis", title: job.reason }, job.reason) : null);

const progressCell = (job) => h("div", { class: "row", style: { flexWrap: "nowrap" } },
  h("span", { class: "grow" }, progressBar(job.progress, job.state)), h("span", { class: "small muted num", style: { width: "34px" } }, job.progress === null ? "" : percent(job.progress)));

/** Of a search its objective; of a single run, which has none, the newest value of a metric, validation first. */
function bestOf(job) {
  if (job.search) return job.search.best === null || job.search.best === undefined ? null : { metric: job.search.metric, value: job.search.best, newest: false };
  const all = Object.entries(job.metrics ?? {});
  const [metric, value] = all.find(([name]) => name.startsWith("validation/")) ?? all[0] ?? [];
  return metric ? { metric, value, newest: true } : null;
}

function bestCell(job) {
  const best = bestOf(job);
  if (!best) return h("span", { class: "muted" }, NONE);
  return h("div", { title: `${best.newest ? "newest" : "best"} ${best.metric}: ${best.value}` }, h("div", {}, number(best.value), best.newest ? h("span", { class: "muted small" }, " now") : null),
    h("div", { class: "muted small ellipsis" }, best.metric));
}

const ranFor = (job) => (job.started ? (job.ended || Date.now() / 1000) - job.started : null);

function actionsCell(job) {
  const button = h("button", { type: "button", class: "icon plain", "aria-haspopup": "menu", "aria-label": `Actions for ${job.id}`, tabIndex: -1 }, "⋯");
  button.addEventListener("click", (event) => { event.stopPropagation(); menu(button, actionsOf(job)); });
  return button;
}

function actionsOf(job) {
  const over = ENDED.has(job.state), paused = /^PAUS/.test(job.state);
  return [
    { text: "Open", act: () => go(jobPath(job.id)) },
    paused ? { text: "Resume", act: () => steer("resume", [job]) } : { text: "Pause", disabled: over, act: () => steer("pause", [job]) },
    { text: "Priority…", disabled: over, act: () => setPriority(job) },
    { text: "Cancel…", disabled: over, act: () => steer("cancel", [job]) },
    { text: "Kill…", danger: true, disabled: over, act: () => steer("kill", [job]) },
  ];
}

const ASK = {
  cancel: ["Cancel", "They are told to stop, get their grace to save a checkpoint, and do not go on."],
  kill: ["Kill", "Their processes end at once and save nothing. What they did since their last checkpoint is lost."],
};
const DONE = { cancel: "is being cancelled", kill: "is being killed", pause: "is being paused", resume: "goes on" };

/** Do something to jobs, after asking where it cannot be taken back. */
export async function steer(verb, jobs) {
  const which = jobs.filter((job) => !ENDED.has(job.state));
  if (!which.length) return;
  const what = which.length === 1 ? which[0].id : `${which.length} jobs`;
  if (ASK[verb] && !(await confirm(`${ASK[verb][0]} ${what}?`, ASK[verb][1], `${ASK[verb][0]} ${what}`, { danger: true }))) return;
  for (const job of which) {
    await attempt(() => post(`${jobPath(job.id)}/${verb}`), which.length === 1 ? `${job.id} ${DONE[verb]}.` : null);
  }
}

async function setPriority(job) {
  const said = await ask(`Priority of ${job.id}`, "0 to 1000, more goes first:", { type: "number", value: job.priority, min: 0, max: 1000, word: "Set" });
  if (said !== null && said !== "") await attempt(() => change(jobPath(job.id), { priority: Number(said) }), `${job.id} has priority ${said}.`);
}

function bulkActions(selected, table) {
  if (!selected.size) return [];
  const jobs = () => chosen(table);
  const act = (text, verb, kind) => h("button", { type: "button", class: kind || "", onclick: () => steer(verb, jobs()) }, text);
  return [h("span", { class: "muted small" }, `${selected.size} selected`),
    h("button", { type: "button", class: "primary", onclick: () => go(comparePath([...selected])) }, `Compare (${selected.size})`),
    act("Pause", "pause"), act("Resume", "resume"), act("Cancel", "cancel")];
}

function read(job, field) {
  if (field === "label") return Object.entries(job.labels).flatMap(([key, value]) => [`${key}=${value}`, key]);
  if (field === "state") return [job.state, tone(job.state) === "run" ? "active" : job.state];
  if (field === "name") return job.id;
  if (field === "best") return bestOf(job)?.value;
  if (field === "trials") return job.search?.trials ?? 1;
  if (field in job.labels) return job.labels[field];
  return job[field];
}

const words = (job) => [job.id, job.owner, job.pool, job.state, ...Object.entries(job.labels).flat(), job.reason].join(" ");
