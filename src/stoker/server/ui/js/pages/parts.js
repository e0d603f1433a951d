// Pieces that several pages are put together from. Whatever users wrote goes in as text.

import { h } from "../core/dom.js";
import { plain } from "../core/format.js";
import { dialog } from "../widgets/dialog.js";
import { vtable } from "../widgets/vtable.js";
import { flatten } from "./where.js";

/** A card: `title`, what is said beside it, tools at its right end, and what is in it. */
export function card({ title, sub = "", tools = [], wide = false, name = "" }, ...content) {
  return h("section", { class: `card${wide ? " wide" : ""}`, "aria-label": title, dataset: name ? { card: name } : {} },
    h("header", {}, h("h2", {}, title), sub && h("span", { class: "muted small" }, sub), h("span", { class: "grow" }), tools),
    content);
}

/** A card with a table of as many rows as there may be (see vtable), no higher than they are: {element, close}. */
export function listCard(words, rows, options) {
  const list = vtable({ label: words.title, name: `${words.name}.`, ...options });
  list.setRows(rows);
  const element = card(words, list.element);
  element.classList.add("list-card");
  element.style.setProperty("--rows", rows.length);
  return { element, close: () => list.close() };
}

/** A card's content with room around it. */
export const body = (...content) => h("div", { class: "body" }, content);

/** Large figures in a row: `[["40", "trials", "what it is, on hover"], …]`. */
export function facts(list) {
  return h("div", { class: "facts" }, list.filter(Boolean).map(([value, name, more]) =>
    h("div", { title: more }, h("b", {}, value), h("span", {}, name))));
}

/** Names and values below each other. Values may be nodes. */
export function pairs(list) {
  return h("dl", { class: "pairs" }, list.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value ?? "–")]));
}

/** A table that scrolls in its card. `head`: names, or {name, num}; rows of cells, which may be nodes. */
export function table(label, head, rows) {
  const columns = head.map((column) => (typeof column === "string" ? { name: column } : column));
  const kind = (at) => (columns[at].num ? "num" : columns[at].kind ?? "");
  return h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": label },
    h("table", { class: "plain-table" },
      h("thead", {}, h("tr", {}, columns.map((column, at) => h("th", { scope: "col", class: kind(at) }, column.name)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, at) => h("td", { class: kind(at) }, cell)))))));
}

/** A table of names and values, deep ones by dotted names. */
export function valuesTable(values, caption) {
  const rows = Object.entries(flatten(values));
  if (!rows.length) return h("p", { class: "muted" }, "None.");
  return h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    h("table", { class: "plain-table values" },
      h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { title: typeof value === "number" ? String(value) : "" }, plain(value)))))));
}

/** A labelled choice of one of `[[value, word], …]`; `act(value)` when it changes. */
export function choice(label, options, chosen, act) {
  const select = h("select", { "aria-label": label, onchange: () => act(select.value) },
    options.map(([value, word]) => h("option", { value, selected: value === chosen }, word)));
  return select;
}

/** A labelled tick. */
export function tick(label, checked, act) {
  const box = h("input", { type: "checkbox", checked, onchange: () => act(box.checked) });
  return h("label", { class: "tick small" }, box, label);
}

/** Ask for several things at once: fields `{name, label, …of an input}`. Resolves with the texts by name, or null. */
export async function askFor(title, fields, { text = "", word = "Save" } = {}) {
  const inputs = fields.map(({ name, label, ...more }) => [name, label, h("input", { id: `for-${name}`, autocomplete: "off", ...more })]);
  const rows = inputs.map(([, label, input]) => h("div", { class: "field" }, h("label", { htmlFor: input.id }, label), input));
  const buttons = [["Cancel", false], [word, true, "primary"]];
  const said = await dialog(title, [text && h("p", {}, text), rows], { buttons, form: inputs[0][2] });
  return said === true ? Object.fromEntries(inputs.map(([name, , input]) => [name, input.value.trim()])) : null;
}

/** `a` or `b`, joined by the slash that an address of a run has: `taxi_1/3`. */
export function parseRun(text) {
  const at = text.lastIndexOf("/");
  const number = Number(text.slice(at + 1));
  return at > 0 && Number.isInteger(number) ? { job: text.slice(0, at), trial: number } : { job: text, trial: 1 };
}
