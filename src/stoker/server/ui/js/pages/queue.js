// Queue and pools: what there is, who holds it, what waits and why, and how full it was.

import { get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { number, timeAgo, whole } from "../core/format.js";
import { jobPath, trialPath } from "../core/route.js";
import { empty, failure, loading, notices } from "../widgets/states.js";
import { historyChart } from "./history.js";
import { nodeName, nodeTable, slotCells } from "./nodes.js";
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
    parts.trouble.hidden = !pool.trouble;
    parts.draw("trouble", pool.trouble, () => (pool.trouble ? failure(new Error(pool.trouble)) : null));
    const nodes = nodeTable(pool, colourOf(pool));
    parts.nodesCard.hidden = !nodes;
    parts.slots.hidden = Boolean(nodes);
    parts.draw("facts", [pool.used, pool.capacity, pool.nodes?.length, pool.holders?.length, pool.waiting?.length], () => facts(figures(pool)));
    parts.draw("nodes", [pool.nodes, pool.holders], () => nodes);
    parts.draw("slots", [pool.capacity, pool.holders], () => (nodes ? null : slotMap(pool)));
    parts.draw("holders", [pool.holders, pool.nodes], () => holders(pool));
    parts.draw("waiting", pool.waiting, () => waiting(pool));
  }
}

function newPool(name, drawn, ctx) {
  const parts = { facts: body(), nodes: body(), slots: body(), holders: body(), waiting: body(), chart: historyChart(ctx, name), trouble: h("div", { hidden: true }) };
  const last = {};
  // What is as it was stays in the page: a link in it keeps its focus.
  parts.draw = (part, from, make) => {
    const text = JSON.stringify(from ?? null);
    if (last[part] !== text) fill(parts[part], make());
    last[part] = text;
  };
  parts.nodesCard = card({ title: "Nodes", wide: true, name: "nodes" }, parts.nodes);
  drawn.set(name, parts);
  return h("section", { class: "stack", "aria-label": `Pool ${name}` },
    h("h2", { class: "pool-name" }, `Pool ${name}`), parts.trouble, parts.facts,
    h("div", { class: "cards" }, parts.nodesCard,
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
  const of = (what) => (pool.trouble ? number(pool.used[what]) : `${number(pool.used[what])} of ${number(pool.capacity[what])}`); // of nobody knows how many
  return [[of("cpus"), "CPUs in use"], pool.capacity.memory_gb ? [`${of("memory_gb")} GB`, "memory given out"] : null,
    pool.capacity.gpus ? [of("gpus"), "GPUs in use"] : null, [whole((pool.holders ?? pool.running).length), "runs"],
    [whole((pool.waiting ?? pool.queued).length), "jobs wait"], pool.nodes?.length ? [whole(pool.nodes.length), "nodes"] : null, [pool.engine, "engine"]];
}

/** All slots of a pool that is one machine. */
function slotMap(pool) {
  const what = pool.capacity.gpus ? "gpus" : "cpus";
  const count = Math.floor(pool.capacity[what]);
  return count && count <= MOST_SLOTS ? slotCells(count, pool.holders ?? [], what, colourOf(pool)) : null;
}

function colourOf(pool) {
  return new Map([...new Set((pool.holders ?? []).map((one) => one.job))].map((job, at) => [job, at]));
}

function holders(pool) {
  const list = pool.holders ?? [];
  if (!list.length) return h("p", { class: "muted" }, "Nobody: the pool is free.");
  const colours = colourOf(pool);
  const names = new Map((pool.nodes ?? []).map((node) => [node.id, nodeName(node, pool.nodes)]));
  const onNodes = list.some((one) => one.nodes?.length);
  const where = (one) => [...new Set((one.nodes ?? []).map((held) => names.get(held.node) ?? "a node that is gone"))].map((name) => h("span", { class: "held" }, name));
  return table(`Holders in ${pool.name}`, ["Job", "Trial", "Owner", { name: "CPUs", num: true }, { name: "GPUs", num: true }, ...(onNodes ? ["On"] : []), "Since"], list.map((one) => [
    h("span", { class: "held" }, h("i", { class: "swatch", style: { background: `var(--s${colours.get(one.job) % 10})` } }), h("a", { href: jobPath(one.job) }, one.job)),
    h("a", { href: trialPath(one.job, one.trial) }, String(one.trial)), one.owner, number(one.share.cpus), number(one.share.gpus), ...(onNodes ? [one.nodes?.length ? where(one) : "not placed yet"] : []), timeAgo(one.since)]));
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
