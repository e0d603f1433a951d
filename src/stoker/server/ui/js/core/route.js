// Addresses: which page is shown, and the state of a page as its query.

/** Pattern, nav entry, and how to get the page's module. `mount(root, ctx)` shows it. */
const ROUTES = [
  ["/", "jobs", () => import("../pages/jobs.js")],
  ["/jobs/:job", "jobs", () => import("../pages/experiment.js")],
  ["/jobs/:job/logs", "jobs", () => import("../pages/logs.js")],
  ["/jobs/:job/trials/:number", "jobs", () => import("../pages/trial.js")],
  ["/pools", "pools", () => import("../pages/queue.js")],
  ["/models", "models", () => import("../pages/models.js")],
  ["/models/:name", "models", () => import("../pages/models.js")],
  ["/compare", "compare", () => import("../pages/compare.js")],
];

/** { params, nav, load } of a path, or null. */
export function match(path) {
  for (const [pattern, nav, load] of ROUTES) {
    const names = pattern.split("/"), parts = path.split("/");
    if (names.length !== parts.length) continue;
    const params = {};
    const fits = names.every((name, index) => {
      if (!name.startsWith(":")) return name === parts[index];
      params[name.slice(1)] = decode(parts[index]);
      return parts[index] !== "";
    });
    if (fits) return { params, nav, load };
  }
  return null;
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/** go("/jobs/x"), go("?tab=logs", {replace: true}). */
export function go(address, { replace = false } = {}) {
  const url = new URL(address, location.href);
  if (url.href === location.href) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  dispatchEvent(new Event("stoker:route"));
}

/** Addresses of things. */
export const jobPath = (job) => `/jobs/${encodeURIComponent(job)}`;
export const trialPath = (job, number) => `${jobPath(job)}/trials/${number}`;
export const logsPath = (job) => `${jobPath(job)}/logs`;
export const modelPath = (name) => `/models/${encodeURIComponent(name)}`;
export const comparePath = (runs) => `/compare?runs=${runs.map(encodeURIComponent).join(",")}`;

/** The page's state. Setting a value to null, "" or its default leaves it out; the address changes without a new page. */
export const query = {
  get(name, fallback = "") {
    return new URLSearchParams(location.search).get(name) ?? fallback;
  },
  list(name) {
    return query.get(name).split(",").filter(Boolean);
  },
  number(name, fallback = null) {
    const value = Number.parseFloat(query.get(name));
    return Number.isFinite(value) ? value : fallback;
  },
  set(changes, { push = false } = {}) {
    const now = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      const text = Array.isArray(value) ? value.join(",") : value;
      if (text === null || text === undefined || text === "" || text === false) now.delete(name);
      else now.set(name, text);
    }
    const text = now.toString().replace(/%(2C|3A|2F|7E)/g, decodeURIComponent); // what a query may hold as it is is easier to read
    const address = location.pathname + (text && `?${text}`) + location.hash;
    if (address !== location.pathname + location.search + location.hash) {
      history[push ? "pushState" : "replaceState"](null, "", address);
    }
  },
};

/** Links of ours change the page without loading it anew; others, and those opened in a new tab, are the browser's. */
export function takeLinks(show) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    const path = link.pathname;
    if (!match(path) || (path === location.pathname && link.hash)) return;
    event.preventDefault();
    go(link.href);
  });
  addEventListener("popstate", show);
  addEventListener("stoker:route", show);
}
