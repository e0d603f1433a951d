// A menu that opens at a button and closes by itself.

import { h } from "../core/dom.js";

/** items: [{text, act, danger?, disabled?}] or elements. Arrows move, Esc closes, the button gets the focus back. */
export function menu(button, items, { label = "Actions" } = {}) {
  document.querySelector(".menu")?.remove();
  const box = h("div", { class: "menu", role: "menu", "aria-label": label },
    items.map((item) => item instanceof Node ? item : h("button", {
      type: "button", role: "menuitem", class: item.danger ? "danger" : "", disabled: !!item.disabled,
      onclick: () => { close(); item.act(); },
    }, item.text)));
  const close = () => {
    box.remove();
    button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
    removeEventListener("scroll", close, true);
    button.focus({ preventScroll: true });
  };
  const outside = (event) => { if (!box.contains(event.target)) close(); };
  box.addEventListener("keydown", (event) => {
    const stops = [...box.querySelectorAll("button:not(:disabled), input")];
    const at = stops.indexOf(document.activeElement);
    if (event.key === "Escape" || event.key === "Tab") close();
    else if (event.key === "ArrowDown") stops[(at + 1) % stops.length].focus();
    else if (event.key === "ArrowUp") stops[(at - 1 + stops.length) % stops.length].focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  document.body.append(box);
  const at = button.getBoundingClientRect();
  const fits = at.bottom + box.offsetHeight + 8 < innerHeight;
  box.style.top = `${fits ? at.bottom + 4 : Math.max(8, at.top - box.offsetHeight - 4)}px`;
  box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`;
  button.setAttribute("aria-expanded", "true");
  box.querySelector("button:not(:disabled), input")?.focus();
  document.addEventListener("pointerdown", outside, true);
  addEventListener("scroll", (event) => { if (!box.contains(event.target)) close(); }, { capture: true, once: true });
  return close;
}
