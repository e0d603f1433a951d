// What a place shows when it has nothing, waits, or could not be loaded.

import { copy, h } from "../core/dom.js";
import { clock } from "../core/format.js";
import { toast } from "./toast.js";

/** Nothing here yet, and what to do about it. */
export function empty(title, words = "", command = "") {
  return h("div", { class: "blank" }, h("h2", {}, title), words && h("p", {}, words), command && commandLine(command));
}

/** A command with a button that copies it. */
export function commandLine(command) {
  return h("span", { class: "copy" }, h("code", {}, command),
    h("button", { type: "button", "aria-label": `Copy ${command}`, onclick: async () => { await copy(command); toast("Copied."); } }, "Copy"));
}

/** Grey bars of about the right size; they appear only when it takes longer than 150 ms. */
export function loading(lines = 6) {
  return h("div", { class: "skeleton", "aria-busy": "true", "aria-label": "Loading" },
    Array.from({ length: lines }, (_, i) => h("i", { style: { width: `${92 - ((i * 37) % 40)}%` } })));
}

/** Why it could not be loaded; `at` says how old the data is that is still shown. */
export function failure(error, { retry = null, at = 0 } = {}) {
  return h("div", { class: "notice", role: "alert" }, h("span", {}, error.message, (error.problems || []).map((one) => h("div", {}, one)),
    at ? h("div", { class: "small" }, `What you see is as of ${clock(at)}.`) : null),
    retry && h("button", { type: "button", onclick: retry }, "Try again"));
}

/** A place above the data for `failure`: show(error, options) or show(null). */
export function notices() {
  const place = h("div", { hidden: true });
  return {
    element: place,
    show(error, options) {
      place.hidden = !error;
      place.replaceChildren(...(error ? [failure(error, options)] : []));
    },
  };
}
