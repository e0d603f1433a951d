// Numbers and times as people read them.

import { h } from "./dom.js";

// Not Intl: to make its first formatter takes a browser longer than all else that the first page does.
const grouped = (value) => value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ",");
const two = (value) => String(Math.floor(value)).padStart(2, "0");
export const NONE = "–";

/** 0.0123, 1.2e-5, 1,234, 12.35: `digits` significant ones. NaN and the infinities, also as strings, as words. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || value === "") return NONE;
  const given = Number(value);
  if (Number.isNaN(given)) return typeof value === "string" && value !== "NaN" ? value : "NaN";
  if (!Number.isFinite(given)) return given > 0 ? "∞" : "−∞";
  const size = Math.abs(given);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e9) return given.toExponential(Math.min(digits - 1, 2)).replace(/\.?0*e\+?/, "e").replace("-", "−").replace("e-", "e−");
  if (Number.isInteger(given) || size >= 10 ** (digits - 1)) return grouped(given).replace("-", "−");
  return String(Number(given.toPrecision(digits))).replace("-", "−");
}

export const whole = (value) => (value === null || value === undefined ? NONE : grouped(Number(value)));
export const percent = (share) => (share === null || share === undefined ? NONE : `${Math.floor(share * 100)}%`);

/** Anything a hyperparameter may be, in one line. */
export function plain(value) {
  if (typeof value === "number") return number(value);
  if (value === null || value === undefined) return NONE;
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function bytes(size) {
  if (size === null || size === undefined) return NONE;
  for (const [unit, name] of [[1 << 30, "GB"], [1 << 20, "MB"], [1 << 10, "kB"]]) {
    if (size >= unit) return `${(size / unit).toPrecision(3)} ${name}`;
  }
  return `${size} B`;
}

/** 3.4 s, 42 s, 5 min 03 s, 3 h 12 min, 2 d 05 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${two((s % 86400) / 3600)} h`;
}

/** 0, 30 s, 5 min, 1 h 30 min: of a tick, without the zeros that `duration` ends in. */
export const roundDuration = (seconds) => (seconds === 0 ? "0" : duration(seconds).replace(/^(\d+)\.0 s/, "$1 s").replace(/ 00 (s|min|h)$/, ""));

/** "just now", "5 min ago", "3 d ago"; `now` and `time` in seconds since 1970. */
export function ago(time, now = Date.now() / 1000) {
  if (!time) return NONE;
  const past = now - time;
  for (const [size, unit] of [[86400 * 365, "y"], [86400, "d"], [3600, "h"], [60, "min"]]) {
    if (past >= size) return `${Math.floor(past / size)} ${unit} ago`;
  }
  return past < 10 ? "just now" : `${Math.floor(past)} s ago`;
}

/** 2026-11-15 12:30:05 UTC, in this browser's zone. */
export function exact(time) {
  if (!time) return NONE;
  const at = new Date(time * 1000);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())} ${zone(-at.getTimezoneOffset())}`;
}

/** UTC, UTC+2, UTC−3:30. */
const zone = (minutes) => (minutes === 0 ? "UTC" : `UTC${minutes > 0 ? "+" : "−"}${Math.floor(Math.abs(minutes) / 60)}${minutes % 60 ? `:${two(Math.abs(minutes) % 60)}` : ""}`);

export const clock = (ms) => new Date(ms).toLocaleTimeString("sv-SE");

/** <time> with the relative time; the exact one on hover. It keeps itself up to date. */
export function timeAgo(time) {
  if (!time) return h("span", { class: "muted" }, NONE);
  return h("time", { dateTime: new Date(time * 1000).toISOString(), title: exact(time), dataset: { ago: time } }, ago(time));
}

/** <time> that counts up from `from` (to `to` if it has ended). */
export function timeSince(from, to = null) {
  if (!from) return h("span", { class: "muted" }, NONE);
  const title = `${exact(from)} to ${to ? exact(to) : "now"}`;
  const now = Date.now() / 1000;
  return h("time", { title, dataset: to ? {} : { since: from } }, duration((to || now) - from));
}

setInterval(() => {
  if (document.hidden) return;
  const now = Date.now() / 1000;
  for (const element of document.querySelectorAll("time[data-ago], time[data-since]")) {
    const text = element.dataset.ago ? ago(Number(element.dataset.ago), now) : duration(Math.floor(now - Number(element.dataset.since)));
    if (element.textContent !== text) element.textContent = text;
  }
}, 1000);

const STATES = {
  QUEUED: "warn", PREPARING: "run", STARTING: "run", RUNNING: "run", SUCCEEDED: "ok", COMPLETED: "ok", READY: "ok",
  FAILED: "err", LOST: "err", INVALID_HP: "err", CANCELLING: "idle", CANCELLED: "idle", STOPPED: "idle", PAUSING: "warn", PAUSED: "warn",
};

/** ok, run, warn, err or idle: the tone of a state. */
export const tone = (state) => STATES[String(state).toUpperCase()] || "idle";

/** A dot and the word. */
export function stateMark(state, title = "") {
  return h("span", { class: `state ${tone(state)}`, title }, h("span", { class: "dot" }), String(state).toLowerCase().replaceAll("_", " "));
}

/** A progress bar with its number as text. */
export function progressBar(share, state) {
  const done = share ?? (tone(state) === "ok" ? 1 : 0);
  return h("span", { class: `bar ${tone(state)}`, role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.floor(done * 100), "aria-label": "progress" },
    h("span", { style: { width: `${Math.min(done, 1) * 100}%` } }));
}
