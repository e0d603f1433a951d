// Checkpoints, and the button that makes a model of one.

import { get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { bytes, number, timeAgo, whole } from "../core/format.js";
import { trialPath } from "../core/route.js";
import { empty, failure, loading } from "../widgets/states.js";
import { card, listCard } from "./parts.js";
import { registerButton, registerTrial, savedModels } from "./saved_models.js";

/** What a job, or one trial of it, has kept: checkpoints, and models if its code saved some. Returns what closes it. */
export function showCheckpoints(panel, { job, path, ctx, trial = null }) {
  let cards = [], closed = false;
  fill(panel, loading());
  Promise.all([get(`${path}/checkpoints`, { query: { trial }, signal: ctx.signal }), get(`${path}/models`, { signal: ctx.signal })]).then(([list, models]) => {
    if (closed) return;
    const saved = models.filter((one) => trial === null || one.trial === trial);
    cards = [checkpointCard(job, list, { showTrial: trial === null && Boolean(job.spec.search) }), ...(saved.length ? [savedModels(job, saved)] : [])];
    fill(panel, h("div", { class: "stack" }, cards.map((one) => one.element)));
  }, (error) => { if (error.name !== "AbortError") fill(panel, failure(error)); });
  return () => { closed = true; cards.forEach((one) => one.close()); };
}

/** {element, close} of GET /jobs/{job}/checkpoints, newest first. */
function checkpointCard(job, checkpoints, { showTrial }) {
  const words = { title: "Checkpoints", sub: whole(checkpoints.length), name: "checkpoints" };
  if (!checkpoints.length) {
    const none = empty("No checkpoints yet", "Code saves one with ctx.save_checkpoint(path, step); stoker's trainers do it by themselves.");
    return { element: card(words, none), close() {} };
  }
  return listCard(words, [...checkpoints].reverse(), { key: (one) => `${one.trial} ${one.path}`, columns: columns(job, checkpoints, showTrial) });
}

function columns(job, checkpoints, showTrial) {
  return [
    ...(showTrial ? [{ id: "trial", title: "Trial", num: true, width: "80px", value: (one) => one.trial, cell: (one) => h("a", { class: "name", href: trialPath(job.id, one.trial) }, String(one.trial)) }] : []),
    { id: "step", title: "Step", num: true, width: "72px", value: (one) => one.step, cell: (one) => whole(one.step) },
    ...metricNames(checkpoints).map((name) => ({ id: `metric.${name}`, title: name, num: true, width: widthFor(name), value: (one) => valueOf(one, name), cell: (one) => number(valueOf(one, name)) })),
    { id: "size", title: "Size", num: true, width: "84px", value: (one) => one.size_bytes, cell: (one) => bytes(one.size_bytes) },
    { id: "saved", title: "Saved", width: "100px", value: (one) => one.time, cell: (one) => timeAgo(one.time) },
    { id: "path", title: "Where", width: "minmax(120px, 2fr)", value: (one) => one.path, cell: (one) => h("span", { class: "mono small", title: one.path }, endOf(one.path)) },
    { id: "register", title: "", width: "160px", sort: false, cell: (one) => registerButton(() => register(job, one)) },
  ];
}

function register(job, { trial, step, path }) {
  const text = `A copy of the checkpoint at step ${step} of trial ${trial} is kept as a new version.`;
  return registerTrial(job, trial, text, { checkpoint: path, metadata: { step } });
}

/** Of a long path what tells it from its neighbours: its end. */
function endOf(path) {
  const parts = path.split("/");
  return parts.length > 3 ? `…/${parts.at(-1)}` : path;
}

const widthFor = (name) => `minmax(${Math.max(90, name.length * 7 + 20)}px, 1fr)`;

function metricNames(checkpoints) {
  const names = new Set(checkpoints.flatMap((one) => Object.keys({ ...one.metrics })));
  return [...names].slice(0, 4);
}

function valueOf(checkpoint, name) {
  return checkpoint.metrics?.[name] ?? checkpoint.metadata?.[name] ?? null;
}
