// Tabs whose choice is in the address.

import { h } from "../core/dom.js";
import { query } from "../core/route.js";

/**
 * tabs([{id, title, show(panel) -> cleanup?}], {name: "tab"}): a panel is filled when it is first chosen and emptied when
 * it is left. Arrows, Home and End move. Returns {element, panel, choose(id), close()}.
 */
export function tabs(items, { name = "tab", label = "Views" } = {}) {
  const panel = h("section", { class: "panel", role: "tabpanel", id: `panel-${name}`, tabIndex: -1 });
  const buttons = items.map((item) => h("button", {
    type: "button", role: "tab", id: `tab-${name}-${item.id}`, "aria-controls": panel.id, onclick: () => choose(item.id),
  }, item.title));
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label }, buttons);
  let chosen = null, leave = null;
  const choose = (id, { remember = true } = {}) => {
    const index = Math.max(0, items.findIndex((item) => item.id === id));
    if (items[index].id === chosen) return;
    leave?.();
    chosen = items[index].id;
    buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", String(at === index));
      button.tabIndex = at === index ? 0 : -1;
    });
    panel.replaceChildren();
    panel.className = `panel${items[index].fill ? " fill" : ""}`;
    panel.setAttribute("aria-labelledby", buttons[index].id);
    if (remember) query.set({ [name]: index ? chosen : null });
    leave = items[index].show(panel) || null;
  };
  list.addEventListener("keydown", (event) => {
    const at = items.findIndex((item) => item.id === chosen);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const index = (next + items.length) % items.length;
    choose(items[index].id);
    buttons[index].focus();
  });
  return { element: list, panel, choose, start: () => choose(query.get(name), { remember: false }), close: () => leave?.() };
}
