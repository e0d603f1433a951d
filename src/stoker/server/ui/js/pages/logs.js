// The log of a job: filter by trial, process, level, words or pattern; link to a line; follow; download. All in the address.

import { API, asQuery, get } from "../core/api.js";
import { fill, h, soon } from "../core/dom.js";
import { whole } from "../core/format.js";
import { jobPath, query } from "../core/route.js";
import { filterField, filterSelect } from "../widgets/filter.js";
import { logview } from "../widgets/logview.js";
import { notices } from "../widgets/states.js";
import { tick } from "./parts.js";

const LEVELS = [["", "all levels"], ["DEBUG", "debug and above"], ["INFO", "info and above"], ["WARNING", "warnings and above"], ["ERROR", "errors"], ["CRITICAL", "critical"]];
const LOOK_AGAIN_MS = 400;

export async function mount(root, ctx) {
  const name = ctx.params.job;
  ctx.title(`Log of ${name}`, [["Jobs", "/"], [name, jobPath(name)], ["Log"]]);
  root.className = "fill";
  const page = new Log(name, ctx);
  fill(root, page.element);
  ctx.onLeave(() => page.close());
  await page.start();
  return () => page.start();
}

/** What the address asks for. */
function filters() {
  const words = query.get("text");
  return { trial: query.get("trial"), replica: query.get("replica"), level: query.get("level"), [query.get("regex") === "1" ? "regex" : "text"]: words };
}

class Log {
  constructor(name, ctx) {
    Object.assign(this, { name, ctx, path: `/jobs/${encodeURIComponent(name)}/logs` });
    this.notice = notices();
    this.status = h("span", { class: "muted small", role: "status" });
    this.view = logview({ label: `Log of ${name}`, follow: !query.get("line"), read: (from, count, signal) => this.#read(from, count, signal),
      onFollow: (on) => { this.followBox.checked = on; }, onLine: (n) => query.set({ line: n }) });
    this.again = soon(() => this.#count(), LOOK_AGAIN_MS);
    this.element = h("div", { class: "stack log-page" }, h("h1", { class: "sr" }, `Log of ${name}`), this.#tools(), this.notice.element, h("section", { class: "card log-card", "aria-label": "Log" }, this.view.element));
    ctx.key("f", "Follow the log", () => this.view.setFollow(!this.view.following));
    ctx.live([`logs:${name}`], { log: () => this.again(), resync: () => this.again() });
  }

  close() { this.closed = true; this.view.close(); }

  #tools() {
    const change = () => this.restart();
    const trial = h("input", { type: "number", min: 1, value: query.get("trial"), placeholder: "trial", "aria-label": "Trial", class: "short",
      onchange: () => { query.set({ trial: trial.value }); change(); } });
    this.replicas = filterSelect({ name: "replica", label: "Process", options: [["", "all processes"]], change });
    const follow = tick("follow", !query.get("line"), (on) => this.view.setFollow(on));
    this.followBox = follow.firstChild;
    this.link = h("a", { class: "button", download: `${this.name}.log`, href: "#" }, "Download");
    return h("div", { class: "filter" },
      filterField({ name: "text", label: "Lines with", placeholder: "lines with…", change, wait_ms: 250 }),
      tick("regular expression", query.get("regex") === "1", (on) => { query.set({ regex: on ? 1 : null }); change(); }),
      filterSelect({ name: "level", label: "Level", options: LEVELS, change }), this.replicas, trial, follow,
      h("span", { class: "grow" }), this.status, this.link);
  }

  async restart() {
    query.set({ line: null });
    await this.start();
  }

  async start() {
    const line = query.number("line");
    this.link.href = API + this.path + "/download" + asQuery({ ...filters(), stamps: true });
    this.notice.show(null);
    this.view.setFollow(true); // what is there already is not new
    try {
      await this.view.reset();
      if (line) await this.#goTo(line);
    } catch (error) {
      if (error.name !== "AbortError") this.notice.show(error, { retry: () => this.start() });
    }
  }

  async #goTo(line) {
    const found = await get(`${this.path}/lines`, { query: { ...filters(), at: line, count: 1 }, signal: this.ctx.signal });
    this.view.mark(line);
    this.view.goTo(found.from);
  }

  async #read(from, count, signal) {
    const found = await get(`${this.path}/lines`, { query: { ...filters(), from, count: Math.max(count, 1) }, signal });
    this.#tell(found);
    return { total: found.matches, lines: count ? found.n.map((n, at) => lineOf(found, n, at)) : [] };
  }

  async #count() {
    if (this.closed) return;
    try {
      const found = await get(`${this.path}/lines`, { query: { ...filters(), from: 0, count: 1 }, signal: this.ctx.signal });
      this.notice.show(null);
      this.#tell(found);
      this.view.grow(found.matches);
    } catch (error) {
      if (error.name !== "AbortError") this.notice.show(error, { retry: () => this.#count() });
    }
  }

  #tell(found) {
    const filtered = Object.values(filters()).some(Boolean);
    const looking = found.complete ? "" : `, ${Math.floor((found.scanned / Math.max(found.lines, 1)) * 100)}% looked at`;
    this.status.textContent = filtered ? `${whole(found.matches)} of ${whole(found.lines)} lines${looking}` : `${whole(found.lines)} lines`;
    if (found.replicas.length !== this.drawn) {
      this.drawn = found.replicas.length;
      this.replicas.setOptions([["", "all processes"], ...found.replicas.map((one) => [one, withRank(one, found.replicas)])]);
    }
    if (!found.complete) this.again();
  }
}

/** worker-0, rank 1: the chief is rank 0 where there is one; parameter servers and evaluators have none. */
function withRank(name, all) {
  const [, role, index] = name.match(/^(chief|master|worker)-(\d+)$/) ?? [];
  if (!role || all.length < 2) return name;
  const rank = role === "worker" ? Number(index) + all.some((one) => /^(chief|master)-/.test(one)) : Number(index);
  return `${name}, rank ${rank}`;
}

function lineOf(found, n, at) {
  const source = found.sources[found.source[at]];
  return { n, text: found.text[at], level: found.level[at], time: found.time[at], replica: source && `${source.trial > 1 || found.sources.length > 3 ? `${source.trial}/` : ""}${source.replica}` };
}
