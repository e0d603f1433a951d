// Short words about what was done; errors stay until they are closed.

import { h } from "../core/dom.js";

export function toast(text, { error = false } = {}) {
  const box = h("div", { class: error ? "toast err" : "toast", role: error ? "alert" : null }, text,
    h("button", { type: "button", "aria-label": "Dismiss", onclick: () => box.remove() }, "✕"));
  document.getElementById("toasts").append(box);
  if (!error) setTimeout(() => box.remove(), 5000);
}

/** Runs `act`; says what it did or why not. True if it went well. */
export async function attempt(act, done) {
  try {
    const found = await act();
    if (done) toast(typeof done === "function" ? done(found) : done);
    return true;
  } catch (error) {
    toast([error.message, ...(error.problems || [])].join(" "), { error: true });
    return false;
  }
}
