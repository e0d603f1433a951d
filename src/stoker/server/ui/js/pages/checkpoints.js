// Checkpoints, and the button that makes a model of one.

import { get, post } from "../core/api.js";
import { h } from "../core/dom.js";
import { bytes, number, timeAgo, whole } from "../core/format.js";
import { modelPath, trialPath } from "../core/route.js";
import { empty } from "../widgets/states.js";
import { attempt } from "../widgets/toast.js";
import { askFor, table } from "./parts.js";

/** A table of checkpoints (GET /jobs/{job}/checkpoints), newest first; with `metric`, its value at each. */
export function checkpointTable(job, checkpoints, { metric = null, showTrial = true } = {}) {
  if (!checkpoints.length) {
    return empty("No checkpoints yet", "Code saves one with ctx.save_checkpoint(path, step); stoker's trainers do it by themselves.");
  }
  const names = metric ? [metric] : metricNames(checkpoints);
  const head = [...(showTrial ? ["Trial"] : []), { name: "Step", num: true }, ...names.map((name) => ({ name, num: true })),
    { name: "Size", num: true }, "Saved", { name: "Where", kind: "path" }, ""];
  return table("Checkpoints", head, [...checkpoints].reverse().map((one) => [
    ...(showTrial ? [h("a", { href: trialPath(job.id, one.trial) }, String(one.trial))] : []),
    whole(one.step), ...names.map((name) => number(valueOf(one, name))), bytes(one.size_bytes), timeAgo(one.time), one.path,
    h("button", { type: "button", onclick: () => register(job, one) }, "Register as model"),
  ]));
}

/** Ask for a name and keep what this checkpoint is as a version of that model, made if it is not there. */
export async function register(job, checkpoint) {
  const base = job.id.replace(/_\d+$/, "");
  const text = `A copy of the checkpoint at step ${checkpoint.step} of trial ${checkpoint.trial} is kept as a new version.`;
  const fields = [{ name: "model", label: "Model", value: base }, { name: "alias", label: "Alias, if any", placeholder: "candidate" }];
  const given = await askFor("Register as model", fields, { text, word: "Register" });
  if (!given) return;
  await attempt(() => keep(job, checkpoint, given), (version) => [`Registered as version ${version.name} of `,
    h("a", { href: modelPath(version.model) }, version.model)]);
}

async function keep(job, checkpoint, { model, alias }) {
  const path = `/models/${encodeURIComponent(model)}`;
  try {
    await get(path);
  } catch (error) {
    if (error.status !== 404) throw error;
    await post("/models", { name: model });
  }
  const from = { job: job.id, trial: checkpoint.trial, checkpoint: checkpoint.path, metadata: { step: checkpoint.step } };
  return post(`${path}/versions`, alias ? { ...from, alias } : from);
}

function metricNames(checkpoints) {
  const names = new Set(checkpoints.flatMap((one) => Object.keys({ ...one.metrics })));
  return [...names].slice(0, 4);
}

function valueOf(checkpoint, name) {
  return checkpoint.metrics?.[name] ?? checkpoint.metadata?.[name] ?? null;
}
