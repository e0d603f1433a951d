// Registered models: all of them, or one with its versions.

import { get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { timeAgo } from "../core/format.js";
import { go, modelPath } from "../core/route.js";
import { empty, failure, loading } from "../widgets/states.js";
import { vtable } from "../widgets/vtable.js";
import { mountModel } from "./model.js";

export async function mount(root, ctx) {
  if (ctx.params.name) return mountModel(root, ctx);
  ctx.title("Models", [["Models"]]);
  fill(root, loading());
  const read = async () => {
    try {
      show(root, ctx, (await get("/models", { signal: ctx.signal })).models);
    } catch (error) {
      if (error.name !== "AbortError") fill(root, h("h1", {}, "Models"), failure(error, { retry: read }));
    }
  };
  await read();
  let fresh = true; // it was read just now
  ctx.live(["jobs"], { resync: () => { if (!fresh) read(); fresh = false; } });
  return read;
}

function show(root, ctx, models) {
  if (!models.length) {
    fill(root, h("h1", {}, "Models"), empty("No models yet",
      "A model is kept from what a job made: the button beside a checkpoint, or this command.", "stoker models register JOB --name NAME"));
    return;
  }
  const list = vtable({ label: "Models", key: (model) => model.name, open: (model) => go(modelPath(model.name)), columns: COLUMNS });
  list.setRows(models);
  ctx.onLeave(() => list.close());
  fill(root, h("h1", {}, "Models"), h("section", { class: "card list-card" }, list.element));
}

const aliases = (model) => Object.entries(model.aliases).map(([alias, version]) => `@${alias} ${version}`).join(", ");
const labels = (model) => Object.entries(model.labels).map(([key, value]) => `${key}=${value}`).join(", ");

const COLUMNS = [
  { id: "name", title: "Model", width: "minmax(160px, 2fr)", value: (model) => model.name,
    cell: (model) => h("a", { class: "name", href: modelPath(model.name) }, model.name) },
  { id: "versions", title: "Versions", num: true, value: (model) => model.num_versions },
  { id: "default", title: "Default", value: (model) => model.default_version },
  { id: "aliases", title: "Aliases", width: "minmax(140px, 1.5fr)", value: aliases },
  { id: "labels", title: "Labels", value: labels },
  { id: "description", title: "What it is", width: "minmax(160px, 2fr)", value: (model) => model.description },
  { id: "created", title: "Made", value: (model) => model.created, cell: (model) => timeAgo(model.created) },
];
