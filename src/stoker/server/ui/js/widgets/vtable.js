// A table of any length: only the rows in sight are in the page.

import { csv, download, fill, h, keepFocus, oncePerFrame } from "../core/dom.js";
import { plain } from "../core/format.js";
import { query } from "../core/route.js";
import { menu } from "./menu.js";

const OVERSCAN = 6;
const MAX_HEIGHT_PX = 15_000_000; // browsers stop somewhere above 17 million

/**
 * vtable({columns, key, …}) -> {element, setRows, patch, remove, rows, selected, columnsButton, toCsv, …}
 *
 * columns: [{id, title, width ("120px" or "minmax(160px, 2fr)"), value(row) (to sort, copy and export), cell?(row) (text or
 *   element; else the value as text), num?: true (right-aligned), hidden?: true (until chosen), sort?: false}]
 * key(row): what tells rows apart. open?(row): Enter, or double click. height: px of a row.
 * selectable: checkboxes; onSelect(Set of keys). filter: set with setFilter(row => bool).
 * sort, columns and their order are in the address: ?sort=-loss&cols=a,b (prefix them with `name`).
 * onEnd(): the last row came in sight, for lists that load more.
 */
export function vtable(options) {
  return new VirtualTable({ height: 36, name: "", label: "Table", ...options });
}

class VirtualTable {
  constructor(options) {
    this.options = options;
    this.rows = [];
    this.shown = [];
    this.index = new Map(); // key -> position in rows
    this.selected = new Set();
    this.active = -1;
    this.match = null;
    this.live = new Map(); // key -> {element, row}
    this.draw = oncePerFrame(() => this.#draw());
    this.sortBy = query.get(`${options.name}sort`, options.sort || "");
    const cols = query.list(`${options.name}cols`);
    this.visible = new Set(cols.length ? cols : options.columns.filter((column) => !column.hidden).map((column) => column.id));
    this.head = h("div", { class: "vt-head", role: "rowgroup" });
    this.body = h("div", { class: "vt-body", role: "rowgroup" });
    this.blank = h("div", { class: "vt-empty", hidden: true });
    this.element = h("div", {
      class: "vtable", role: "grid", tabIndex: 0, "aria-label": options.label, "aria-multiselectable": String(!!options.selectable),
      onscroll: this.draw, onkeydown: (event) => this.#key(event),
    }, this.head, this.body, this.blank);
    this.body.addEventListener("click", (event) => this.#click(event));
    this.body.addEventListener("dblclick", (event) => { const row = this.#rowOf(event.target); if (row) options.open?.(row); });
    this.observer = new ResizeObserver(this.draw);
    this.observer.observe(this.element);
    this.#drawHead();
  }

  /** Replace all rows; the scroll position, the active row and the selection stay. */
  setRows(rows) {
    this.rows = [...rows];
    this.#reindex();
    this.refresh();
  }

  /** Add or replace one row. New ones go first if `first`. */
  patch(row, { first = false } = {}) {
    const key = this.options.key(row);
    const at = this.index.get(key);
    if (at !== undefined) this.rows[at] = row;
    else if (first) { this.rows.unshift(row); this.#reindex(); }
    else { this.index.set(key, this.rows.length); this.rows.push(row); }
    this.refresh();
  }

  remove(key) {
    const at = this.index.get(key);
    if (at === undefined) return;
    this.rows.splice(at, 1);
    this.selected.delete(key);
    this.#reindex();
    this.refresh();
  }

  get(key) { return this.rows[this.index.get(key)]; }

  /** Only rows for which `match(row)` is true; null shows all. */
  setFilter(match) {
    if (!match && !this.match) return; // to scroll makes a browser lay out the page
    this.match = match;
    this.element.scrollTop = 0;
    this.refresh();
  }

  /** What to show instead of no rows. */
  setBlank(content) { this.blank.replaceChildren(content); }

  setColumns(columns) {
    const known = new Set(this.options.columns.map((column) => column.id));
    for (const column of columns) if (!known.has(column.id) && !column.hidden && !query.get(`${this.options.name}cols`)) this.visible.add(column.id);
    this.options.columns = columns;
    this.#redraw();
  }

  select(keys) {
    this.selected = new Set(keys);
    this.#selectionChanged();
  }

  refresh() {
    if (this.stale) return;
    this.stale = true;
    queueMicrotask(() => this.#settle());
  }

  #settle() {
    if (!this.stale) return;
    this.stale = false;
    const activeKey = this.shown[this.active] && this.options.key(this.shown[this.active]);
    this.shown = this.match ? this.rows.filter(this.match) : [...this.rows];
    this.#sort();
    this.active = activeKey === undefined ? -1 : this.shown.findIndex((row) => this.options.key(row) === activeKey);
    this.draw();
  }

  /** A button that opens the choice of columns. */
  columnsButton() {
    const button = h("button", { type: "button", "aria-haspopup": "menu" }, "Columns");
    button.addEventListener("click", () => menu(button, this.options.columns.filter((column) => column.title).map((column) => {
      const box = h("input", { type: "checkbox", checked: this.visible.has(column.id), onchange: () => {
        if (box.checked) this.visible.add(column.id); else this.visible.delete(column.id);
        query.set({ [`${this.options.name}cols`]: [...this.visible] });
        this.#redraw();
      } });
      return h("label", {}, box, column.title);
    }), { label: "Columns" }));
    return button;
  }

  toCsv() {
    const columns = this.options.columns.filter((column) => column.value);
    return csv([columns.map((column) => column.title || column.id), ...this.shown.map((row) => columns.map((column) => column.value(row)))]);
  }

  saveCsv(name) { download(name, this.toCsv(), "text/csv"); }

  close() { this.draw.cancel(); this.observer.disconnect(); }

  focus() {
    this.#settle(); // a filter set just now counts: the first row is the first of what it leaves
    this.element.focus();
    if (this.active < 0 && this.shown.length) this.#activate(0);
  }

  #columns() { return this.options.columns.filter((column) => this.visible.has(column.id)); }

  #reindex() {
    this.index = new Map(this.rows.map((row, at) => [this.options.key(row), at]));
    for (const key of this.selected) if (!this.index.has(key)) this.selected.delete(key);
  }

  #sort() {
    const down = this.sortBy.startsWith("-");
    const column = this.options.columns.find((one) => one.id === this.sortBy.replace(/^-/, ""));
    if (!column) return;
    const sign = down ? -1 : 1;
    const keyed = this.shown.map((row) => [column.value(row), row]);
    keyed.sort(([a], [b]) => {
      const noA = a === null || a === undefined || Number.isNaN(a), noB = b === null || b === undefined || Number.isNaN(b);
      if (noA || noB) return noA - noB; // what is missing goes last either way
      if (typeof a === "number" && typeof b === "number") return (a - b) * sign;
      return String(a).localeCompare(String(b), "en", { numeric: true }) * sign;
    });
    this.shown = keyed.map(([, row]) => row);
  }

  #drawHead() {
    const columns = this.#columns();
    const cells = columns.map((column) => {
      const sorted = this.sortBy.replace(/^-/, "") === column.id;
      const down = this.sortBy.startsWith("-");
      const title = column.title || h("span", { class: "sr" }, column.id);
      const inner = column.sort === false || !column.value ? title
        : h("button", { type: "button", tabIndex: -1, onclick: () => this.#sortOn(column) }, column.title);
      return h("div", {
        class: `vt-cell${column.num ? " num" : ""}`, role: "columnheader", title: column.help || "",
        "aria-sort": sorted ? (down ? "descending" : "ascending") : column.value ? "none" : null,
      }, inner);
    });
    if (this.options.selectable) cells.unshift(h("div", { class: "vt-cell", role: "columnheader" }, this.#selectAllBox()));
    const widths = columns.map((column) => column.width || "minmax(90px, 1fr)");
    this.element.style.setProperty("--cols", [this.options.selectable ? "34px" : "", ...widths].join(" "));
    // Rows are grids of their own: only with one least width do their columns stand under each other.
    const least = widths.reduce((sum, width) => sum + Number.parseFloat(/[\d.]+(?=px)/.exec(width)?.[0] ?? 90), 8 + (this.options.selectable ? 34 : 0));
    this.element.style.setProperty("--least", `${least}px`);
    fill(this.head, h("div", { class: "vt-row", role: "row" }, cells));
  }

  #selectAllBox() {
    this.allBox = h("input", { type: "checkbox", tabIndex: -1, "aria-label": "Select all", onchange: () => {
      this.select(this.allBox.checked ? this.shown.map(this.options.key) : []);
    } });
    this.#markAllBox();
    return this.allBox;
  }

  #markAllBox() {
    if (!this.allBox) return;
    this.allBox.checked = this.selected.size > 0 && this.selected.size === this.shown.length;
    this.allBox.indeterminate = this.selected.size > 0 && !this.allBox.checked;
  }

  #sortOn(column) {
    const was = this.sortBy;
    this.sortBy = was === column.id ? `-${column.id}` : was === `-${column.id}` ? "" : column.id;
    query.set({ [`${this.options.name}sort`]: this.sortBy });
    this.#drawHead();
    this.refresh();
  }

  #redraw() {
    this.#drawHead();
    for (const one of this.live.values()) one.row = null; // each is drawn anew in its place
    this.refresh();
  }

  #draw() {
    const { height, key } = this.options;
    const total = this.shown.length;
    const space = Math.min(total * height, MAX_HEIGHT_PX);
    const headHeight = this.head.offsetHeight || 36;
    this.body.style.height = `${space}px`;
    this.element.setAttribute("aria-rowcount", total + 1);
    this.blank.hidden = total > 0 || !this.blank.firstChild;
    const room = Math.max(this.element.clientHeight - headHeight, height);
    const ratio = space > room && total * height > space ? (total * height - room) / (space - room) : 1;
    const top = this.element.scrollTop * ratio; // above MAX_HEIGHT_PX a pixel of the bar is more than one of the list
    const first = Math.max(0, Math.floor(top / height) - OVERSCAN);
    const last = Math.min(total, Math.ceil((top + room) / height) + OVERSCAN);
    const wanted = new Set();
    for (let at = first; at < last; at++) {
      const row = this.shown[at], id = key(row);
      wanted.add(id);
      this.#place(id, row, at, at * height - top + this.element.scrollTop);
    }
    for (const [id, one] of this.live) if (!wanted.has(id)) { one.element.remove(); this.live.delete(id); }
    this.#inOrder(wanted);
    if (last === total && total) this.options.onEnd?.();
    this.options.onDraw?.(first, last);
  }

  /** Who reads the page without seeing it hears rows in the order they stand in; one that has the focus stays. */
  #inOrder(wanted) {
    let next = this.body.firstChild;
    for (const id of wanted) {
      const { element } = this.live.get(id);
      if (element === next) next = next.nextSibling;
      else if (!element.contains(document.activeElement)) this.body.insertBefore(element, next);
    }
  }

  #place(id, row, at, y) {
    let one = this.live.get(id);
    if (!one || one.row !== row) {
      const element = this.#rowElement(row, id);
      if (one) {
        keepFocus(this.body, () => one.element.replaceWith(element));
      } else this.body.append(element);
      one = { element, row };
      this.live.set(id, one);
    }
    const { element } = one;
    const move = `translateY(${y}px)`;
    if (element.style.transform !== move) element.style.transform = move;
    element.setAttribute("aria-rowindex", at + 2);
    element.classList.toggle("active", at === this.active);
    element.id = at === this.active ? `${this.options.name}row-active` : "";
    if (at === this.active) this.element.setAttribute("aria-activedescendant", element.id);
    if (this.options.selectable) {
      const chosen = this.selected.has(id);
      element.setAttribute("aria-selected", String(chosen));
      element.firstChild.firstChild.checked = chosen;
    }
  }

  #rowElement(row, id) {
    const element = h("div", { class: "vt-row", role: "row", style: { height: `${this.options.height}px` } });
    element.dataset.key = id;
    if (this.options.selectable) {
      element.append(h("div", { class: "vt-cell", role: "gridcell" },
        h("input", { type: "checkbox", tabIndex: -1, "aria-label": `Select ${id}` })));
    }
    for (const column of this.#columns()) {
      const content = column.cell ? column.cell(row) : plain(column.value(row));
      const title = column.cell ? "" : String(content);
      element.append(h("div", { class: `vt-cell${column.num ? " num" : ""}`, role: "gridcell", title }, content));
    }
    return element;
  }

  #rowOf(target) {
    const element = target.closest(".vt-row");
    return element ? this.shown.find((row) => String(this.options.key(row)) === element.dataset.key) : null;
  }

  #click(event) {
    const row = this.#rowOf(event.target);
    if (!row) return;
    const at = this.shown.indexOf(row);
    if (event.target.type === "checkbox") this.#toggle(at, event.shiftKey);
    else if (!event.target.closest("a, button") && !getSelection()?.toString()) this.options.click?.(row);
    this.active = at;
    this.draw();
  }

  #toggle(at, range = false) {
    const key = this.options.key(this.shown[at]);
    const on = !this.selected.has(key);
    const [from, to] = range && this.anchor !== undefined ? [Math.min(at, this.anchor), Math.max(at, this.anchor)] : [at, at];
    for (let one = from; one <= to; one++) {
      const id = this.options.key(this.shown[one]);
      if (on) this.selected.add(id); else this.selected.delete(id);
    }
    this.anchor = at;
    this.#selectionChanged();
  }

  #selectionChanged() {
    this.#markAllBox();
    this.draw();
    this.options.onSelect?.(this.selected);
  }

  #activate(at) {
    this.active = Math.max(0, Math.min(at, this.shown.length - 1));
    const { height } = this.options, y = this.active * height, head = this.head.offsetHeight;
    const room = this.element.clientHeight - head;
    if (y < this.element.scrollTop) this.element.scrollTop = y;
    else if (y + height > this.element.scrollTop + room) this.element.scrollTop = y + height - room;
    this.draw();
    this.options.onActive?.(this.shown[this.active]);
  }

  #key(event) {
    if (event.target !== this.element && /^(INPUT|BUTTON|A|SELECT)$/.test(event.target.tagName) && [" ", "Enter"].includes(event.key)) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.options.height) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, j: 1, k: -1 };
    const row = this.shown[this.active];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.#activate(this.active < 0 ? 0 : this.active + moves[event.key]);
    else if (event.key === "Home") this.#activate(0);
    else if (event.key === "End") this.#activate(this.shown.length - 1);
    else if (event.key === "Enter" && row) this.options.open?.(row);
    else if (event.key === " " && row && this.options.selectable) this.#toggle(this.active, event.shiftKey);
    else return;
    event.preventDefault();
  }
}
