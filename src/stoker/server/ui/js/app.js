// The shell: navigation, breadcrumb, search, live pill, theme, help; and the page in the middle.

import { fill, h } from "./core/dom.js";
import { bind, keyTable } from "./core/keys.js";
import * as live from "./core/live.js";
import { go, match, takeLinks } from "./core/route.js";
import { choice, nextTheme } from "./core/theme.js";
import { clock } from "./core/format.js";
import { dialog } from "./widgets/dialog.js";
import { empty, failure, loading } from "./widgets/states.js";

const main = document.getElementById("main");
const searchText = document.getElementById("search-text");
let shown = null; // the page: {path, leave}
let turn = 0;

/**
 * What a page gets: mount(root, ctx).
 *   ctx.params          the parts of the path
 *   ctx.onLeave(fn)     called when the page goes away (stop streams, remove keys)
 *   ctx.title(text, crumbs)   crumbs: [[text, href], …, [text]]
 *   ctx.live(topics, handlers)   core/live.js subscribe, ended with the page
 *   ctx.key(key, what, act)      core/keys.js bind, ended with the page
 *   ctx.search({placeholder, value, change})   the page takes the search field of the top bar
 *   ctx.signal          aborted when the page goes away
 */
function context(params, leaving) {
  const stop = new AbortController();
  leaving.push(() => stop.abort());
  return {
    params,
    signal: stop.signal,
    onLeave: (act) => leaving.push(act),
    title: (text, crumbs) => setTitle(text, crumbs),
    live: (topics, handlers) => leaving.push(live.subscribe(topics, handlers)),
    key: (key, what, act) => leaving.push(bind(key, what, act)),
    search: (options) => takeSearch(options),
  };
}

async function show() {
  const found = match(location.pathname);
  if (shown && shown.path === location.pathname && shown.again) { shown.again(); return; }
  const mine = ++turn;
  shown?.leave();
  shown = null;
  document.querySelectorAll(".menu, dialog").forEach((element) => element.remove());
  for (const link of document.querySelectorAll("[data-nav]")) {
    if (found && link.dataset.nav === found.nav) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.className = "";
  takeSearch(null);
  if (!found) {
    setTitle("Not found", [["Not found"]]);
    fill(main, h("h1", { class: "sr" }, "Not found"), empty("No such page", `Nothing is at ${location.pathname}.`));
    return;
  }
  fill(main, loading());
  const leaving = [];
  const leave = () => { while (leaving.length) leaving.pop()(); };
  try {
    const page = await found.load();
    if (mine !== turn) return;
    main.replaceChildren();
    shown = { path: location.pathname, leave, again: null };
    const again = await page.mount(main, context(found.params, leaving));
    if (mine === turn && typeof again === "function") shown.again = again;
  } catch (error) {
    if (mine !== turn) return;
    leave();
    fill(main, failure(error, { retry: () => location.reload() }));
    console.error(error);
  }
}

function setTitle(text, crumbs = [[text]]) {
  document.title = text ? `${text} · stoker` : "stoker";
  fill(document.getElementById("crumbs"), crumbs.map(([label, href], at) => [
    at ? h("span", { class: "sep", "aria-hidden": "true" }, "/") : null,
    href && at < crumbs.length - 1 ? h("a", { href }, label) : h("span", { "aria-current": "page", title: label }, label),
  ]));
}

// --- search: a page may take it; else it looks for jobs

let searching = null;

function takeSearch(options) {
  searching = options;
  searchText.value = options?.value ?? "";
  searchText.placeholder = options?.placeholder ?? "Search jobs";
  searchText.setAttribute("aria-label", searchText.placeholder);
}

let settle = 0;
searchText.addEventListener("input", () => {
  clearTimeout(settle);
  settle = setTimeout(() => searching?.change?.(searchText.value.trim()), 120);
});
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(settle);
  if (searching?.change) { searching.change(searchText.value.trim()); searching.done?.(); }
  else go(`/?q=${encodeURIComponent(searchText.value.trim())}`);
});
searchText.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" && searching?.done) { event.preventDefault(); searching.done(); }
  if (event.key !== "Escape") return;
  if (searchText.value) { searchText.value = ""; searching?.change?.(""); }
  else searchText.blur();
  event.stopPropagation();
});

// --- the pill, the theme, the keys

const pill = document.getElementById("live");
const WORDS = { connecting: "Connecting…", live: "Live", reconnecting: "Reconnecting…", paused: "Paused" };

live.status.watch((status) => {
  pill.dataset.status = status;
  pill.hidden = status === "absent";
  pill.textContent = status === "reconnecting" && live.heard.at ? `Reconnecting… as of ${clock(live.heard.at)}` : WORDS[status];
  pill.title = status === "live" ? "What you see changes as it happens" : "Click to try at once";
  main.toggleAttribute("data-stale", status === "reconnecting");
});
pill.addEventListener("click", () => { if (live.status.value === "reconnecting") live.retry(); });

const themeButton = document.getElementById("theme");
choice.watch((theme) => {
  themeButton.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
  themeButton.title = `Theme: ${theme === "auto" ? "as the system" : theme}`;
  themeButton.setAttribute("aria-label", themeButton.title);
});
themeButton.addEventListener("click", nextTheme);

const help = () => { dialog("Keys", keyTable()); };
document.getElementById("help").addEventListener("click", help);
bind("?", "Show these keys", help);
bind("/", "Search", () => { searchText.focus(); searchText.select(); });
bind("Escape", "Close, clear, go back to the list");
bind("ArrowUp ArrowDown", "Move in a list (also j and k)");
bind("Enter", "Open what is marked");
bind("t", "Change the theme", nextTheme);
for (const [key, path, what] of [["1", "/", "Jobs"], ["2", "/pools", "Queue and pools"], ["3", "/models", "Models"], ["4", "/compare", "Compare"]]) {
  bind(key, what, () => go(path));
}

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
takeLinks(show);
show();
