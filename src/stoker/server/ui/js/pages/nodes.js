// The nodes of a cluster: what each has, who holds how much of it, and what is free by the cluster's own word.

import { h } from "../core/dom.js";
import { number } from "../core/format.js";
import { jobPath } from "../core/route.js";
import { table } from "./parts.js";

const MOST_NODES = 200; // in the table
const MOST_SLOTS = 64; // of a node, drawn one by one
const FEW = 8; // in one line

/** A row for each; `colours` gives each job's. Null of a pool that is one machine. */
export function nodeTable(pool, colours) {
  const nodes = pool.nodes ?? [];
  if (!nodes.length || !nodes.some((node) => node.id)) return null;
  const what = pool.capacity.gpus ? "gpus" : "cpus";
  const shown = [...nodes].sort((a, b) => (a.host + a.address).localeCompare(b.host + b.address, "en", { numeric: true })).slice(0, MOST_NODES);
  const head = ["Node", "Slots", { name: "CPUs", num: true }, pool.capacity.gpus ? { name: "GPUs", num: true } : null,
    { name: "Memory", num: true }, { name: "Free there", num: true }, "Held by"].filter(Boolean);
  return [table(`Nodes of ${pool.name}`, head, shown.map((node) => row(node, pool, what, colours))),
    nodes.length > shown.length ? h("p", { class: "muted small" }, `and ${nodes.length - shown.length} more nodes`) : null];
}

/** Its host's, or its address where several are of one host. */
export const nodeName = (node, all) => (node.host && all.filter((one) => one.host === node.host).length === 1 ? node.host : node.address);

function row(node, pool, what, colours) {
  const mine = (pool.holders ?? []).flatMap((one) => (one.nodes ?? []).filter((held) => held.node === node.id).map((held) => ({ ...one, share: held.share })));
  const sum = (name) => mine.reduce((total, one) => total + one.share[name], 0);
  const of = (name) => `${number(sum(name))} of ${number(node[name])}`;
  return [[h("span", {}, node.host), " ", h("span", { class: "muted small" }, node.address)], slotsOf(node, mine, what, colours), of("cpus"),
    pool.capacity.gpus ? of("gpus") : null, node.memory_gb ? `${number(node.memory_gb)} GB` : "–", free(node), who(mine, colours)].filter((cell) => cell !== null);
}

/** What Ray says is free: where others use the cluster, too, it is less than what we have not given out. */
function free(node) {
  if (!node.free) return "–";
  const words = `${number(node.free.cpus)} CPU${node.free.cpus === 1 ? "" : "s"}`;
  return h("span", { title: "By the cluster's own word, some seconds ago" }, node.gpus ? `${words}, ${number(node.free.gpus)} GPU${node.free.gpus === 1 ? "" : "s"}` : words);
}

function slotsOf(node, mine, what, colours) {
  const count = Math.floor(node[what]);
  if (!count || count > MOST_SLOTS) return "–";
  return slotCells(count, mine, what, colours);
}

/** One cell a slot, coloured by the job that holds it; the words are beside it. */
export function slotCells(count, holders, what, colours) {
  const cells = holders.flatMap((one) => Array(Math.max(1, Math.round(one.share[what]))).fill(one)).slice(0, count);
  return h("div", { class: count > FEW ? "slots" : "slots few", role: "img", "aria-label": `${cells.length} of ${count} ${what === "gpus" ? "GPUs" : "CPUs"} are held` },
    Array.from({ length: count }, (_, at) => h("span", {
      class: "slot", title: cells[at] ? `${cells[at].job}, trial ${cells[at].trial}` : "free",
      style: cells[at] ? { background: `var(--s${colours.get(cells[at].job) % 10})` } : {} })));
}

function who(mine, colours) {
  if (!mine.length) return h("span", { class: "muted" }, "nobody");
  const jobs = [...new Set(mine.map((one) => one.job))];
  return jobs.map((job) => h("span", { class: "held" }, h("i", { class: "swatch", style: { background: `var(--s${colours.get(job) % 10})` } }), h("a", { href: jobPath(job) }, job)));
}
