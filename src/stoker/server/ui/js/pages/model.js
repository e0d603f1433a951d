// One model: its versions, where each came from, its aliases, and a form that asks a served one.

import { get, post, put, remove } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { bytes, number, plain, timeAgo, whole } from "../core/format.js";
import { jobPath, query, trialPath } from "../core/route.js";
import { ask, confirm } from "../widgets/dialog.js";
import { commandLine, empty, failure, loading } from "../widgets/states.js";
import { attempt } from "../widgets/toast.js";
import { body, card, pairs, table, valuesTable } from "./parts.js";

const CHECKPOINT = "checkpoint";

export async function mountModel(root, ctx) {
  const { name } = ctx.params;
  ctx.title(name, [["Models", "/models"], [name]]);
  fill(root, loading());
  const path = `/models/${encodeURIComponent(name)}`;
  const read = async () => {
    try {
      const [model, { versions }] = await Promise.all([get(path, { signal: ctx.signal }), get(`${path}/versions`, { signal: ctx.signal })]);
      show(root, model, versions, { path, read });
    } catch (error) {
      if (error.name !== "AbortError") fill(root, h("h1", {}, name), failure(error, { retry: read }));
    }
  };
  await read();
  ctx.live(["jobs"], {}); // what is typed into the form stays; only the pill in the top bar listens
  return read;
}

function show(root, model, versions, { path, read }) {
  if (!versions.length) {
    fill(root, h("h1", {}, model.name), empty("No versions yet", "Keep what a job made:", `stoker models register JOB --name ${model.name}`));
    return;
  }
  const wanted = query.get("version", model.default_version ?? versions[0].name);
  const chosen = versions.find((version) => version.name === wanted) ?? versions[0];
  const choose = (version) => { query.set({ version: version.name === model.default_version ? null : version.name }); show(root, model, versions, { path, read }); };
  fill(root,
    h("div", { class: "row" }, h("h1", {}, model.name), h("span", { class: "muted" }, model.description)),
    h("div", { class: "cards" },
      versionsCard(versions, chosen, choose),
      detailCard(model, chosen, { path, read }),
      lineageCard(chosen),
      card({ title: "Metrics", sub: chosen.name }, valuesTable(chosen.card.metrics, "Metrics")),
      predictCard(model, chosen)));
}

function versionsCard(versions, chosen, choose) {
  const metrics = [...new Set(versions.flatMap((version) => Object.keys(version.card.metrics)))].slice(0, 3);
  const head = ["Version", "Aliases", ...metrics.map((name) => ({ name, num: true })), { name: "Size", num: true }, "Made"];
  const rows = versions.map((version) => [
    h("button", { type: "button", class: "plain", "aria-pressed": String(version === chosen), onclick: () => choose(version) }, version.name),
    aliasChips(version), ...metrics.map((name) => number(version.card.metrics[name])), bytes(version.size_bytes), timeAgo(version.created)]);
  return card({ title: "Versions", sub: whole(versions.length), wide: true, name: "versions" }, table("Versions", head, rows));
}

function aliasChips(version) {
  const words = [...(version.is_default ? ["default"] : []), ...version.aliases.filter((alias) => alias !== "default").map((alias) => `@${alias}`)];
  return words.map((word) => [h("span", { class: "chip" }, word), " "]);
}

function detailCard(model, version, { path, read }) {
  const own = `${path}/versions/${encodeURIComponent(version.name)}`;
  const tools = [
    version.is_default ? null : h("button", { type: "button", onclick: async () => {
      if (await attempt(() => post(`${own}:setDefault`), `${version.name} is the default now.`)) read();
    } }, "Make default"),
    h("button", { type: "button", onclick: async () => {
      const alias = await ask(`Another word for ${version.name}`, "Alias", { word: "Set", placeholder: "production" });
      if (alias && (await attempt(() => put(`${path}/aliases/${encodeURIComponent(alias)}`, { version: version.name })))) read();
    } }, "Add alias"),
    h("button", { type: "button", class: "danger", onclick: async () => {
      const sure = await confirm(`Delete ${version.name} of ${model.name}?`, "Its files go with it. This cannot be undone.", "Delete", { danger: true });
      if (sure && (await attempt(() => remove(own), "Deleted."))) read();
    } }, "Delete"),
  ];
  return card({ title: `Version ${version.name}`, tools, name: "version" }, body(pairs([
    ["Framework", version.card.framework], ["Made with", [version.card.python && `Python ${version.card.python}`, ...version.card.requirements].filter(Boolean).join(", ") || "–"],
    ["Takes", fields(version.card.signature.inputs)], ["Gives", fields(version.card.signature.outputs)],
    ["Files", `${whole(version.card.files.length)}, ${bytes(version.size_bytes)}`], ["Kept at", h("code", {}, version.url)],
    ["Description", version.description || "–"],
    Object.keys(version.card.metadata).length && ["More", Object.entries(version.card.metadata).map(([key, value]) => `${key}: ${plain(value)}`).join(", ")],
  ])));
}

function fields(list) {
  return list.map((field) => `${field.name || "value"} (${field.dtype})`).join(", ") || "not said";
}

function lineageCard(version) {
  const { origin } = version.card;
  const rows = [
    origin.job && ["Job", h("a", { href: jobPath(origin.job) }, origin.job)],
    origin.job && origin.trial && ["Trial", h("a", { href: trialPath(origin.job, origin.trial) }, `trial ${origin.trial}`)],
    origin.job && origin.package && ["Code", h("a", { href: `${jobPath(origin.job)}?tab=code` }, `package ${origin.package.slice(0, 12)}`)],
    origin.checkpoint && ["Checkpoint", h("code", {}, origin.checkpoint)],
    ["Copied from", h("code", {}, version.source)],
    origin.data.length > 0 && ["Data", origin.data.join(", ")],
    Object.keys(origin.hparams).length > 0 && ["Hyperparameters", valuesTable(origin.hparams, "Hyperparameters")],
  ];
  return card({ title: "Where it came from", name: "lineage" }, body(pairs(rows)));
}

// A page may speak to its own server only (Content-Security-Policy), so that passes the question on, to this machine alone.
function predictCard(model, version) {
  if (version.card.framework === CHECKPOINT) {
    return card({ title: "Predict", name: "predict" }, body(h("p", {}, "A checkpoint does not predict by itself: the code that it was trained with loads it."),
      commandLine(`stoker.pytorch.load_trial_from_checkpoint_path("${version.url}")`)));
  }
  const url = h("input", { id: "serve-url", value: query.get("serve", "http://127.0.0.1:8080"), class: "grow", spellcheck: false });
  const text = h("textarea", { id: "instance", rows: 5, spellcheck: false, value: example(version.card.signature) });
  const answer = h("pre", { class: "answer", "aria-live": "polite", hidden: true });
  const send = async (event) => {
    event.preventDefault();
    answer.hidden = false;
    answer.textContent = "…";
    query.set({ serve: url.value === "http://127.0.0.1:8080" ? null : url.value });
    try {
      const instance = JSON.parse(text.value);
      const found = await post(`/models/${encodeURIComponent(model.name)}/predict`, { url: url.value, instances: [instance] });
      answer.textContent = JSON.stringify(found.answer, null, 2);
    } catch (error) {
      answer.textContent = error instanceof SyntaxError ? `The instance is no JSON: ${error.message}` : error.message;
    }
  };
  return card({ title: "Predict", sub: "with a served model on this machine", name: "predict" }, body(
    h("form", { class: "stack", onsubmit: send },
      h("p", { class: "muted small" }, "Serve it first:"), commandLine(`stoker serve ${model.name}:${version.name} --port 8080`),
      h("div", { class: "field" }, h("label", { htmlFor: url.id }, "Address"), url),
      h("div", { class: "field" }, h("label", { htmlFor: text.id }, "One instance, as JSON"), text),
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Send")), answer)));
}

/** What an instance of this signature looks like, to begin with. */
export function example(signature) {
  const one = (field) => field.categories?.[0] ?? { float: 1.5, integer: 1, boolean: true, string: "text", bytes: "", any: 1 }[field.dtype] ?? 1;
  const { inputs } = signature;
  if (!inputs.length) return "[1.0]";
  if (inputs.length === 1 && !inputs[0].name) {
    const width = inputs[0].shape?.[0];
    return JSON.stringify(width ? Array(Math.min(width, 32)).fill(one(inputs[0])) : one(inputs[0]));
  }
  return JSON.stringify(Object.fromEntries(inputs.map((field) => [field.name, one(field)])), null, 2);
}
