// A small query language: `state:running owner:ada lr<1e-3 -label:debug "two words"`.

import { h, settled } from "../core/dom.js";
import { query } from "../core/route.js";

const TERM = /(-?)(?:([\w.-]+)(<=|>=|!=|[:=<>]))?(?:"([^"]*)"?|(\S+))/g;

/** The terms of a query: [{not, field, op, value}]; a word without a field has field null. */
export function parse(text) {
  return [...text.matchAll(TERM)].map(([, not, field, op, quoted, bare]) => ({
    not: not === "-", field: field ? field.toLowerCase() : null, op: op || ":", value: (quoted ?? bare ?? "").toLowerCase(),
  }));
}

/**
 * A function that tells whether a row fits. `read(row, field)` gives a field's value (a list: any of them may fit;
 * undefined: the row has no such field), `words(row)` the text that plain words are looked for in.
 */
export function matcher(text, { read, words }) {
  const terms = parse(text);
  return (row) => terms.every((term) => fits(term, row, read, words) !== term.not);
}

function fits({ field, op, value }, row, read, words) {
  if (field === null) return words(row).toLowerCase().includes(value);
  const found = read(row, field);
  if (found === undefined || found === null) return false;
  return (Array.isArray(found) ? found : [found]).some((one) => compare(one, op, value));
}

function compare(found, op, value) {
  const number = Number(value), mine = typeof found === "number" ? found : Number.NaN;
  switch (op) {
    case "<": return mine < number;
    case ">": return mine > number;
    case "<=": return mine <= number;
    case ">=": return mine >= number;
    case "=": return Number.isNaN(mine) ? String(found).toLowerCase() === value : mine === number;
    case "!=": return Number.isNaN(mine) ? String(found).toLowerCase() !== value : mine !== number;
    default: return String(found).toLowerCase().includes(value);
  }
}

/** A search field whose text is in the address as `name`; `change(text)` is called when it has settled. */
export function filterField({ name = "q", label = "Filter", placeholder = "", change, wait_ms = 120 }) {
  const input = h("input", { type: "search", value: query.get(name), placeholder, "aria-label": label, autocomplete: "off", spellcheck: false });
  const tell = settled(() => { query.set({ [name]: input.value.trim() }); change(input.value.trim()); }, wait_ms);
  input.addEventListener("input", tell);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && input.value) { input.value = ""; tell(); event.stopPropagation(); }
  });
  return input;
}

/** A select whose value is in the address; options: [[value, text]]. */
export function filterSelect({ name, label, options, change, fallback = "" }) {
  const select = h("select", { "aria-label": label });
  const set = (list) => {
    const now = query.get(name, fallback);
    const all = now && !list.some(([value]) => value === now) ? [...list, [now, now]] : list;
    select.replaceChildren(...all.map(([value, text]) => h("option", { value }, text)));
    select.value = now;
  };
  set(options);
  select.addEventListener("change", () => { query.set({ [name]: select.value === fallback ? null : select.value }); change(select.value); });
  select.setOptions = set;
  return select;
}
