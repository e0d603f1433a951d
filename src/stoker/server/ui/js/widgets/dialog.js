// Dialogs: a question with buttons, and anything else in a box. They take the focus and give it back.

import { fill, h } from "../core/dom.js";

/** Shows `content` in a modal dialog; resolves with the value of the button that closed it, or null (Esc). */
export function dialog(title, content, { buttons = [["Close", "close"]], wide = false, form = null } = {}) {
  const before = document.activeElement;
  const heading = h("h2", { id: `dialog-${++count}` }, title);
  const box = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": heading.id });
  return new Promise((resolve) => {
    let chosen = null;
    const close = (value) => { chosen = value; box.close(); };
    const foot = buttons.map(([text, value, kind]) => h("button", { type: "button", class: kind || "", onclick: () => close(value) }, text));
    fill(box, h("header", {}, heading), h("div", { class: "body" }, content), h("footer", {}, foot));
    box.addEventListener("close", () => { box.remove(); before?.focus?.(); resolve(chosen); });
    box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && form && event.target.tagName === "INPUT") { event.preventDefault(); close(buttons.at(-1)[1]); }
    });
    document.body.append(box);
    box.showModal();
    (form || foot.at(-1)).focus();
  });
}
let count = 0;

/** True if the person says yes. `word` is the verb on the button: "Cancel 3 jobs". */
export async function confirm(title, explanation, word, { danger = false } = {}) {
  return (await dialog(title, h("p", {}, explanation), { buttons: [["Keep as it is", false], [word, true, danger ? "danger" : "primary"]] })) === true;
}

/** The text typed, or null. */
export async function ask(title, label, { value = "", type = "text", word = "Save", ...more } = {}) {
  const input = h("input", { type, value, id: `ask-${++count}`, ...more });
  const body = h("div", { class: "row" }, h("label", { htmlFor: input.id }, label), input);
  const said = await dialog(title, body, { buttons: [["Cancel", false], [word, true, "primary"]], form: input });
  return said === true ? input.value : null;
}
