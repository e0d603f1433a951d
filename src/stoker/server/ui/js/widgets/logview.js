// A log of any length: windows of it are fetched as one scrolls, and following never moves what one is reading.

import { copy, h, oncePerFrame } from "../core/dom.js";
import { exact, whole } from "../core/format.js";
import { toast } from "./toast.js";

const LINE_PX = 18;
const WINDOW = 500;
const KEPT_WINDOWS = 40; // 20,000 lines in memory at most
const MAX_HEIGHT_PX = 15_000_000; // above that, a pixel of the scroll bar is more than one of the log
const OVERSCAN = 20;
const RETRY_MS = 1500;

/**
 * logview({read, label, follow: true, highlight?}) -> view
 *   read(from, count, signal) -> Promise<{lines: [{n, text, level?, replica?, time?}], total}>: lines from..from+count-1 of the
 *     (filtered) log; `n` is the line's own number, from 1, also under a filter, and what #L123 means.
 *   view.element; view.grow(total): there are so many lines now (live); view.reset(): another filter, read anew;
 *   view.goTo(index): put this line (counted from 0 in what is shown) in the middle; view.setFollow(on); view.close()
 *   view.mark(n): highlight line n. onFollow(on), onLine(n): a line number was clicked.
 */
export function logview(options) { return new LogView({ label: "Log", follow: true, ...options }); }

class LogView {
  constructor(options) {
    this.options = options;
    this.total = 0;
    this.windows = new Map(); // number of window -> {lines, fresh: all that there are, asked: they are on their way}
    this.following = options.follow;
    this.marked = null;
    this.turn = 0;
    this.stop = new AbortController();
    this.pool = [];
    this.draw = oncePerFrame(() => this.#draw());
    this.space = h("div", { class: "log-space" });
    this.lines = h("div", { class: "log-lines", role: "log", tabIndex: 0, "aria-label": options.label, "aria-live": "off", onscroll: () => this.#scrolled(), onkeydown: (event) => this.#key(event) }, this.space);
    this.more = h("button", { type: "button", class: "log-new primary", hidden: true, onclick: () => this.setFollow(true) }, "");
    this.note = h("div", { class: "muted small", role: "status", style: { padding: "4px 12px" } });
    this.element = h("div", { class: "log" }, this.lines, this.more, this.note);
    this.space.addEventListener("click", (event) => {
      const line = event.target.closest(".no")?.parentNode;
      if (line) { this.mark(Number(line.dataset.n)); options.onLine?.(this.marked); }
    });
    this.observer = new ResizeObserver(() => { if (this.following) this.#toEnd(); this.draw(); });
    this.observer.observe(this.lines);
  }

  /** Read the first (or, when following, the last) lines; resolves when they are there. */
  async start() {
    const { total } = await this.options.read(0, 0, this.stop.signal);
    this.grow(total);
  }

  grow(total) {
    if (total === this.total) return;
    if (total < this.total) this.windows.clear();
    const last = this.windows.get(Math.floor(this.total / WINDOW));
    if (last) last.fresh = false; // it was not full; what it has is shown until the rest is there
    const unseen = total - this.total;
    const ratio = this.#ratio();
    this.total = total;
    this.#size();
    if (this.following) this.#toEnd();
    else if (ratio !== this.#ratio()) { // the bar now stands for more lines: what is read stays where it is
      this.own = true;
      this.lines.scrollTop *= ratio / this.#ratio();
    }
    if (this.following) this.unseen = 0;
    else if (unseen > 0) { this.unseen = (this.unseen || 0) + unseen; this.#showMore(); }
    this.draw();
  }

  async reset() {
    this.turn++;
    this.stop.abort();
    this.stop = new AbortController();
    this.windows.clear();
    this.total = 0;
    this.unseen = 0;
    this.#size();
    this.draw();
    await this.start();
  }

  goTo(index) {
    this.setFollow(false);
    const room = this.lines.clientHeight;
    this.lines.scrollTop = Math.max(0, (index * LINE_PX - room / 2) / this.#ratio());
    this.draw();
  }

  mark(n) { this.marked = n; this.draw(); }

  setFollow(on) {
    if (on) { this.unseen = 0; this.more.hidden = true; }
    if (on !== this.following) { this.following = on; this.options.onFollow?.(on); }
    if (on) this.#toEnd();
  }

  /** The lines in sight as text. */
  text() { return this.pool.filter((line) => !line.hidden).map((line) => line.lastChild.textContent).join("\n"); }

  async copyShown() { await copy(this.text()); toast("Copied the lines in sight."); }

  close() { this.turn++; this.stop.abort(); this.draw.cancel(); this.observer.disconnect(); clearTimeout(this.retry); }

  #ratio() {
    const full = this.total * LINE_PX, room = this.lines.clientHeight;
    return full > MAX_HEIGHT_PX ? (full - room) / (MAX_HEIGHT_PX - room) : 1;
  }

  #size() { this.space.style.height = `${Math.max(Math.min(this.total * LINE_PX, MAX_HEIGHT_PX), 1)}px`; }

  #toEnd() { this.own = true; this.lines.scrollTop = this.lines.scrollHeight; this.draw(); }

  #showMore() {
    this.more.hidden = !this.unseen;
    this.more.textContent = `↓ ${whole(this.unseen)} new line${this.unseen === 1 ? "" : "s"}`;
  }

  #scrolled() {
    const end = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < 4;
    if (this.own) this.own = false; // we moved it, not the reader
    else if (end && !this.following) this.setFollow(true);
    else if (!end && this.following) this.setFollow(false);
    this.draw();
  }

  #draw() {
    const top = this.lines.scrollTop * this.#ratio(), room = this.lines.clientHeight;
    const first = Math.max(0, Math.floor(top / LINE_PX) - OVERSCAN), last = Math.min(this.total, Math.ceil((top + room) / LINE_PX) + OVERSCAN);
    let used = 0;
    for (let at = first; at < last; at++) {
      const element = this.pool[used] || this.#newLine();
      used++;
      this.#fill(element, this.#line(at), at * LINE_PX - top + this.lines.scrollTop);
    }
    for (let at = used; at < this.pool.length; at++) this.pool[at].hidden = true;
    this.note.textContent = this.total ? `${whole(this.total)} lines${this.following ? ", following" : ""}` : "No lines";
  }

  #newLine() {
    const element = h("div", { class: "log-line" }, h("span", { class: "no" }), h("span", { class: "who" }), h("span", { class: "lv" }), h("span", { class: "tx" }));
    this.pool.push(element);
    this.space.append(element);
    return element;
  }

  #fill(element, line, y) {
    element.hidden = false;
    element.style.transform = `translateY(${y}px)`;
    const key = line ? line : null;
    const isTarget = !!line && line.n === this.marked;
    element.classList.toggle("target", isTarget);
    if (element.line === key) return;
    element.line = key;
    element.className = `log-line ${/^[A-Z]+$/.test(line?.level || "") ? line.level : ""}${isTarget ? " target" : ""}`;
    const [no, who, level, text] = element.children;
    element.dataset.n = line?.n ?? "";
    no.textContent = line ? line.n : "…";
    no.title = line?.time ? exact(line.time) : "";
    who.textContent = line?.replica ?? "";
    level.textContent = line?.level ?? "";
    this.#text(text, line?.text ?? "");
  }

  #text(element, text) {
    const found = this.options.highlight?.(text); // [[start, end], …]
    if (!found?.length) { element.textContent = text; return; }
    const parts = [];
    let at = 0;
    for (const [start, end] of found) { parts.push(text.slice(at, start), h("mark", { class: "hit" }, text.slice(start, end))); at = end; }
    element.replaceChildren(...parts, text.slice(at));
  }

  #line(at) {
    const number = Math.floor(at / WINDOW);
    const found = this.windows.get(number) ?? { lines: [], fresh: false, asked: false };
    this.windows.delete(number);
    this.windows.set(number, found); // used last
    if (!found.fresh && !found.asked) this.#fetch(number, found);
    return found.lines[at % WINDOW] ?? null;
  }

  async #fetch(number, found) {
    const mine = this.turn;
    found.asked = found.fresh = true; // unless it grows meanwhile
    try {
      const { lines, total } = await this.options.read(number * WINDOW, WINDOW, this.stop.signal);
      if (mine !== this.turn) return;
      const old = found.lines;
      found.lines = lines.map((line, at) => (old[at]?.n === line.n ? old[at] : line)); // what is drawn stays, and what is marked in it
      found.asked = false;
      for (const one of [...this.windows.keys()].slice(0, Math.max(0, this.windows.size - KEPT_WINDOWS))) this.windows.delete(one);
      this.options.onError?.(null);
      if (total > this.total) this.grow(total);
      this.draw();
    } catch (error) {
      if (mine !== this.turn || error.name === "AbortError") return;
      this.retry = setTimeout(() => { found.asked = found.fresh = false; this.draw(); }, RETRY_MS);
      this.options.onError?.(error);
    }
  }

  #key(event) {
    const ends = { Home: 0, End: this.total };
    if (!(event.key in ends) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (event.key === "End") this.setFollow(true);
    else { this.setFollow(false); this.lines.scrollTop = 0; }
  }
}
