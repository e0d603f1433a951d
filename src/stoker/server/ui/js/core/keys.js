// Keys: a page binds its own, and `?` lists them all.

import { h } from "./dom.js";

const bound = new Map(); // key -> {what, act, shown}

/**
 * bind("c", "Compare the selected jobs", act) calls `act(event)` unless one is typing; "Escape" also while typing.
 * Without `act` the key is only listed (the widget handles it). The result takes it back.
 */
export function bind(key, what, act = null) {
  const entry = { key, what, act };
  bound.set(key, entry);
  return () => { if (bound.get(key) === entry) bound.delete(key); };
}

const isTyping = (target) =>
  target.isContentEditable || (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(checkbox|radio|button|range)$/.test(target.type));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const entry = bound.get(event.key);
  if (!entry?.act) return;
  if (document.querySelector("dialog[open], .menu")) return; // they have their own keys
  if (isTyping(event.target) && event.key !== "Escape") return;
  if (entry.act(event) !== false) event.preventDefault();
});

/** All keys as a table, for the help dialog. */
export function keyTable() {
  const rows = [...bound.values()].map(({ key, what }) => h("tr", {},
    h("th", { scope: "row" }, key.split(" ").map((one) => [h("kbd", {}, NAMES[one] || one), " "])), h("td", {}, what)));
  return h("table", { class: "plain-table" }, h("tbody", {}, rows));
}

const NAMES = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc", " ": "Space" };
