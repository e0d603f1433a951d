// Models that a job's code saved, and the button that keeps one.

import { get, post } from "../core/api.js";
import { h } from "../core/dom.js";
import { bytes, number, timeAgo } from "../core/format.js";
import { modelPath } from "../core/route.js";
import { attempt } from "../widgets/toast.js";
import { askFor, card, table } from "./parts.js";

/** A card of GET /jobs/{job}/models. */
export function savedModels(job, models) {
  const metrics = [...new Set(models.flatMap((one) => Object.keys(one.metrics)))].slice(0, 3);
  const head = ["Name", "Trial", "Framework", ...metrics.map((name) => ({ name, num: true })), { name: "Size", num: true }, "Saved", ""];
  return card({ title: "Models it saved", name: "models" }, table("Models it saved", head, [...models].reverse().map((one) => [
    one.name, String(one.trial), one.framework || "files", ...metrics.map((name) => number(one.metrics[name])), bytes(one.size_bytes), timeAgo(one.time),
    h("button", { type: "button", onclick: () => registerTrial(job, one.trial, `The model that trial ${one.trial} saved last is kept as a new version.`) }, "Register as model")])));
}

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
