// A job's package: its files as text, and how they differ from another job's.

import { API, get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { bytes, plain, whole } from "../core/format.js";
import { jobPath, query } from "../core/route.js";
import { empty, failure, loading } from "../widgets/states.js";
import { card, table } from "./parts.js";

const MOST_LINES = 20_000;

/** Fill a panel with the code of this job. In the address: `file`, `against`. */
export function showCode(panel, job, signal) {
  if (!job.spec.package) {
    fill(panel, empty("No package", "This job runs a command without code of its own."));
    return;
  }
  const files = h("div", { class: "code-files" }, loading(4));
  const place = h("div", { class: "code-view" });
  const other = h("input", { type: "search", placeholder: "Name of another job", "aria-label": "Compare with job", value: query.get("against") });
  const compare = async (event) => {
    event?.preventDefault();
    query.set({ against: other.value.trim() });
    await (other.value.trim() ? showDiff(place, job, other.value.trim(), signal) : showFile(place, job, query.get("file"), signal));
  };
  const tools = [h("form", { class: "row", onsubmit: compare }, other, h("button", { type: "submit" }, "Difference")),
    h("a", { class: "button", href: `${API}/packages/${job.spec.package}`, download: `${job.id}.tar.gz` }, "Download")];
  fill(panel, card({ title: "Code", sub: `package ${job.spec.package.slice(0, 12)}`, tools, wide: true, name: "code" },
    h("div", { class: "code" }, files, place)));
  listFiles(files, job, signal, (path) => { query.set({ file: path, against: null }); other.value = ""; showFile(place, job, path, signal); })
    .then((first) => (query.get("against") ? compare() : showFile(place, job, query.get("file") || first, signal)));
}

async function listFiles(place, job, signal, open) {
  try {
    const { files } = await get(`/jobs/${encodeURIComponent(job.id)}/package/files`, { signal });
    const main = job.spec.module?.replaceAll(".", "/");
    const first = files.find((file) => main && file.path.endsWith(`${main}.py`)) ?? files.find((file) => file.is_text);
    const chosen = query.get("file") || first?.path;
    const buttons = files.map((file) => h("button", { type: "button", class: "plain", "aria-current": file.path === chosen ? "true" : null,
      onclick: (event) => {
        place.querySelector("[aria-current]")?.removeAttribute("aria-current");
        event.currentTarget.setAttribute("aria-current", "true");
        open(file.path);
      } }, h("span", { class: "ellipsis", title: file.path }, file.path), h("span", { class: "muted small" }, bytes(file.size_bytes))));
    fill(place, h("nav", { "aria-label": "Files" }, buttons));
    return first?.path ?? "";
  } catch (error) {
    if (error.name !== "AbortError") fill(place, failure(error));
    return "";
  }
}

async function showFile(place, job, path, signal) {
  if (!path) return void fill(place, empty("No text files"));
  fill(place, loading());
  const address = path.split("/").map(encodeURIComponent).join("/");
  try {
    const file = await get(`/jobs/${encodeURIComponent(job.id)}/package/files/${address}`, { signal });
    fill(place, h("h3", {}, file.path), file.is_text ? numbered(file.text) : empty("Not shown", file.reason));
  } catch (error) {
    if (error.name !== "AbortError") fill(place, failure(error));
  }
}

function numbered(text) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const shown = lines.slice(0, MOST_LINES);
  const numbers = h("span", { class: "numbers", "aria-hidden": "true" }, shown.map((_, at) => at + 1).join("\n"));
  const rest = lines.length > shown.length && h("p", { class: "muted" }, `${whole(lines.length - shown.length)} more lines; download it to see them.`);
  return [h("pre", { class: "source", tabIndex: 0 }, numbers, h("code", {}, shown.join("\n"))), rest];
}

async function showDiff(place, job, other, signal) {
  fill(place, loading());
  try {
    const found = await get(`/jobs/${encodeURIComponent(job.id)}/diff/${encodeURIComponent(other)}`, { signal });
    const changed = found.files.filter((file) => file.change !== "same");
    const alike = found.files.length - changed.length;
    fill(place,
      h("h3", {}, "From ", h("a", { href: jobPath(found.a) }, found.a), " to ", h("a", { href: jobPath(found.b) }, found.b)),
      found.config.length ? table("Differing configuration", ["Configuration", found.a, found.b], found.config.map((one) => [one.path, plain(one.a), plain(one.b)]))
        : h("p", { class: "muted" }, "The configuration is the same."),
      changed.map((file) => h("details", { open: true }, h("summary", {}, file.path, h("span", { class: "chip" }, file.change)), unified(file.diff))),
      h("p", { class: "muted" }, `${whole(alike)} file${alike === 1 ? " is" : "s are"} the same.`));
  } catch (error) {
    if (error.name !== "AbortError") fill(place, failure(error));
  }
}

function unified(text) {
  const kinds = { "+": "new", "-": "gone", "@": "where" };
  const lines = text.split("\n").slice(0, MOST_LINES);
  return h("pre", { class: "diff", tabIndex: 0 }, lines.map((line) =>
    h("span", { class: /^(\+\+\+|---)/.test(line) ? "where" : kinds[line[0]] ?? "" }, `${line}\n`)));
}
