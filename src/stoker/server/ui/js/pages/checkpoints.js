// Checkpoints, and the button that makes a model of one.

import { h } from "../core/dom.js";
import { bytes, number, timeAgo, whole } from "../core/format.js";
import { trialPath } from "../core/route.js";
import { empty } from "../widgets/states.js";
import { table } from "./parts.js";
import { registerTrial } from "./saved_models.js";

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

function register(job, { trial, step, path }) {
  const text = `A copy of the checkpoint at step ${step} of trial ${trial} is kept as a new version.`;
  return registerTrial(job, trial, text, { checkpoint: path, metadata: { step } });
}

function metricNames(checkpoints) {
  const names = new Set(checkpoints.flatMap((one) => Object.keys({ ...one.metrics })));
  return [...names].slice(0, 4);
}

function valueOf(checkpoint, name) {
  return checkpoint.metrics?.[name] ?? checkpoint.metadata?.[name] ?? null;
}
