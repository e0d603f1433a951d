// What a job was asked to be: its configuration, its environment, and the commands that run it again.

import { get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { bytes, number } from "../core/format.js";
import { commandLine, failure, loading } from "../widgets/states.js";
import { body, card, pairs, table, valuesTable } from "./parts.js";

/** Fill a panel. The three cards load on their own: one that fails leaves the others. */
export function showConfig(panel, job, signal) {
  const path = `/jobs/${encodeURIComponent(job.id)}`;
  fill(panel, h("div", { class: "cards" },
    loaded("Run it again", { wide: true, name: "commands" }, () => get(`${path}/commands`, { signal }), commands),
    loaded("Environment", { name: "environment" }, () => get(`${path}/environment`, { signal }), environment),
    card({ title: "Configuration", sub: "as submitted", name: "config" }, body(valuesTable(without(job.spec), "Configuration")))));
}

function loaded(title, options, read, show) {
  const place = body(loading(3));
  read().then((found) => fill(place, show(found)), (error) => { if (error.name !== "AbortError") fill(place, failure(error)); });
  return card({ title, ...options }, place);
}

function commands(found) {
  return h("div", { class: "commands" }, found.commands.map(({ title, command }) => [h("p", { class: "muted small" }, title), commandLine(command)]));
}

function environment(found) {
  return [pairs([
    ["Runtime", found.runtime ?? "the default one"], ["Python", found.python ?? "the runtime's"], ["Pool", found.pool],
    ["Package", found.package && h("code", {}, found.package.slice(0, 16))],
    ["Requirements", found.requirements.length ? h("ul", { class: "bare" }, found.requirements.map((one) => h("li", {}, h("code", {}, one)))) : "none beyond the runtime"],
    found.archives.length > 0 && ["Archives", found.archives.map((one) => one.filename ?? String(one)).join(", ")],
    Object.keys(found.variables).length > 0 && ["Variables", valuesTable(found.variables, "Environment variables")],
  ]), table("Processes", ["Process", { name: "CPUs", num: true }, { name: "Memory", num: true }, { name: "GPUs", num: true }],
    found.replicas.map((one) => [one.name, number(one.cpus), one.memory_gb ? bytes(one.memory_gb * 2 ** 30) : "–", number(one.gpus)]))];
}

/** What was left at its default says nothing. */
function without(spec) {
  const kept = Object.entries(spec).map(([name, value]) => [name, value !== null && typeof value === "object" && !Array.isArray(value) ? without(value) : value]);
  return Object.fromEntries(kept.filter(([, value]) => value !== null && value !== "" && !(typeof value === "object" && Object.keys(value).length === 0)));
}
