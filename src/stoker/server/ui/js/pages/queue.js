// Queue and pools: what there is, who holds it, what waits and why, and how full it was.

import { get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { number, timeAgo, whole } from "../core/format.js";
import { jobPath, trialPath } from "../core/route.js";
import { empty, failure, loading, notices } from "../widgets/states.js";
import { historyChart } from "./history.js";
import { body, card, facts, table } from "./parts.js";

const MOST_SLOTS = 256; // drawn one by one
const HISTORY_MS = 60_000;

export async function mount(root, ctx) {
  ctx.title("Queue & pools", [["Queue & pools"]]);
  const notice = notices();
  const pools = h("div", { class: "stack" }, loading());
  fill(root, h("h1", {}, "Queue & pools"), notice.element, pools);
  const drawn = new Map(); // by pool: what is patched when news comes
  const show = (list) => { notice.show(null); showPools(pools, list, drawn, ctx); };
  const read = () => get("/pools", { signal: ctx.signal }).then(show, (error) => {
    if (error.name !== "AbortError") notice.show(error, { retry: read });
  });
  ctx.live(["pools"], { pools: show, resync: read });
}

function showPools(place, list, drawn, ctx) {
  if (!list.length) return void fill(place, empty("No pools", "config.toml in STOKER_HOME names them."));
  if (list.length !== drawn.size || list.some((pool) => !drawn.has(pool.name))) {
    drawn.clear();
    fill(place, list.map((pool) => newPool(pool.name, drawn, ctx)));
    ctx.onLeave(readHistory(drawn, ctx));
  }
  for (const pool of list) {
    const parts = drawn.get(pool.name);
    fill(parts.facts, facts(figures(pool)));
    fill(parts.slots, slotMap(pool));
    fill(parts.holders, holders(pool));
    fill(parts.waiting, waiting(pool));
  }
}

function newPool(name, drawn, ctx) {
  const parts = { facts: body(), slots: body(), holders: body(), waiting: body(), chart: historyChart(ctx, name) };
  drawn.set(name, parts);
  return h("section", { class: "stack", "aria-label": `Pool ${name}` },
    h("h2", { class: "pool-name" }, `Pool ${name}`), parts.facts,
    h("div", { class: "cards" },
      card({ title: "Who holds what", name: "holders" }, parts.slots, parts.holders),
      card({ title: "Queue", sub: "in the order they start", name: "queue" }, parts.waiting),
      card({ title: "In use over time", wide: true, name: "history" }, parts.chart.element)));
}

function readHistory(drawn, ctx) {
  const read = () => get("/pools/history", { query: { hours: 24 }, signal: ctx.signal }).then(
    (list) => { for (const one of list) drawn.get(one.name)?.chart.set(one); },
    (error) => { if (error.name !== "AbortError") for (const one of drawn.values()) one.chart.fail(error); });
  read();
  const timer = setInterval(() => { if (!document.hidden) read(); }, HISTORY_MS);
  return () => clearInterval(timer);
}

function figures(pool) {
  const of = (what) => `${number(pool.used[what])} of ${number(pool.capacity[what])}`;
  return [[of("cpus"), "CPUs in use"], pool.capacity.memory_gb ? [`${of("memory_gb")} GB`, "memory given out"] : null,
    pool.capacity.gpus ? [of("gpus"), "GPUs in use"] : null, [whole((pool.holders ?? pool.running).length), "runs"],
    [whole((pool.waiting ?? pool.queued).length), "jobs wait"], [pool.engine, "engine"]];
}

/** One cell a slot, coloured by the job that holds it; the words are in the table below. */
function slotMap(pool) {
  const what = pool.capacity.gpus ? "gpus" : "cpus";
  const count = Math.floor(pool.capacity[what]);
  if (!count || count > MOST_SLOTS) return null;
  const cells = (pool.holders ?? []).flatMap((one) => Array(Math.max(1, Math.round(one.share[what]))).fill(one)).slice(0, count);
  const colours = colourOf(pool);
  return h("div", { class: "slots", role: "img", "aria-label": `${cells.length} of ${count} ${what === "gpus" ? "GPUs" : "CPUs"} are held` },
    Array.from({ length: count }, (_, at) => h("span", {
      class: "slot", title: cells[at] ? `${cells[at].job}, trial ${cells[at].trial}` : "free",
      style: cells[at] ? { background: `var(--s${colours.get(cells[at].job) % 10})` } : {} })));
}

function colourOf(pool) {
  return new Map([...new Set((pool.holders ?? []).map((one) => one.job))].map((job, at) => [job, at]));
}

function holders(pool) {
  const list = pool.holders ?? [];
  if (!list.length) return h("p", { class: "muted" }, "Nobody: the pool is free.");
  const colours = colourOf(pool);
  return table(`Holders in ${pool.name}`, ["Job", "Trial", "Owner", { name: "CPUs", num: true }, { name: "GPUs", num: true }, "Since"], list.map((one) => [
    [h("i", { class: "swatch", style: { background: `var(--s${colours.get(one.job) % 10})` } }), h("a", { href: jobPath(one.job) }, one.job)],
    h("a", { href: trialPath(one.job, one.trial) }, String(one.trial)), one.owner, number(one.share.cpus), number(one.share.gpus), timeAgo(one.since)]));
}

function waiting(pool) {
  const list = pool.waiting ?? [];
  if (!list.length) return h("p", { class: "muted" }, "Nothing waits.");
  return h("ol", { class: "queue" }, list.map((one) => h("li", {},
    h("div", { class: "row" }, h("a", { class: "name", href: jobPath(one.job) }, one.job), h("span", { class: "chip" }, needs(one.share)),
      one.priority ? h("span", { class: "chip" }, `priority ${one.priority}`) : null, h("span", { class: "grow" }), timeAgo(one.since)),
    h("p", { class: "muted small" }, one.reason))));
}

function needs(share) {
  return [`${number(share.cpus)} CPU${share.cpus === 1 ? "" : "s"}`, share.gpus ? `${number(share.gpus)} GPU${share.gpus === 1 ? "" : "s"}` : ""].filter(Boolean).join(", ");
}
