// Models that a job's code saved, and the button that keeps one.

import { get, post } from "../core/api.js";
import { h } from "../core/dom.js";
import { bytes, number, timeAgo, whole } from "../core/format.js";
import { modelPath } from "../core/route.js";
import { attempt } from "../widgets/toast.js";
import { askFor, listCard } from "./parts.js";

/** A card of GET /jobs/{job}/models, newest first: {element, close}. */
export function savedModels(job, models) {
  const metrics = [...new Set(models.flatMap((one) => Object.keys(one.metrics)))].slice(0, 3);
  const keep = (one) => registerTrial(job, one.trial, `The model that trial ${one.trial} saved last is kept as a new version.`);
  return listCard({ title: "Models it saved", sub: whole(models.length), name: "models" }, [...models].reverse(), { key: (one) => `${one.trial} ${one.name} ${one.time}`, columns: [
    { id: "name", title: "Name", width: "minmax(140px, 2fr)", value: (one) => one.name },
    { id: "trial", title: "Trial", num: true, width: "80px", value: (one) => one.trial },
    { id: "framework", title: "Framework", value: (one) => one.framework || "files" },
    ...metrics.map((name) => ({ id: `metric.${name}`, title: name, num: true, value: (one) => one.metrics[name] ?? null, cell: (one) => number(one.metrics[name]) })),
    { id: "size", title: "Size", num: true, value: (one) => one.size_bytes, cell: (one) => bytes(one.size_bytes) },
    { id: "saved", title: "Saved", value: (one) => one.time, cell: (one) => timeAgo(one.time) },
    { id: "register", title: "", width: "160px", sort: false, cell: (one) => registerButton(() => keep(one)) },
  ] });
}

export const registerButton = (act) => h("button", { type: "button", onclick: act }, "Register as model");

/** Ask for a model's name, and keep what a trial left as a version of it; `more` says what exactly. */
export async function registerTrial(job, trial, text, more = {}) {
  const fields = [{ name: "model", label: "Model", value: job.id.replace(/_\d+$/, "") }, { name: "alias", label: "Alias, if any", placeholder: "candidate" }];
  const given = await askFor("Register as model", fields, { text, word: "Register" });
  if (!given) return;
  const version = { job: job.id, trial, ...more, ...(given.alias ? { alias: given.alias } : {}) };
  await attempt(() => keep(given.model, version), (made) => [`Registered as version ${made.name} of `, h("a", { href: modelPath(made.model) }, made.model)]);
}

async function keep(model, version) {
  const path = `/models/${encodeURIComponent(model)}`;
  try {
    await get(path);
  } catch (error) {
    if (error.status !== 404) throw error;
    await post("/models", { name: model });
  }
  return post(`${path}/versions`, version);
}
