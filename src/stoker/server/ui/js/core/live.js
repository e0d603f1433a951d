// News from the server: one stream for the page, which comes back by itself and never leaves a hole unnoticed.
//
// subscribe(["jobs"], { job(data) {…}, resync() {…} }) listens to topics. `resync` is called once at the start and again
// whenever something may have been missed (server restarted, laptop slept, tab was hidden): it is where a page loads what
// it shows. Between two resyncs every event of the topics arrives, in order. The result ends the subscription.
// A page whose first load is long begins with it at once in `start`, which gives a promise: the first `resync`, which looks
// whether something has changed meanwhile, comes when that is on the screen.

import { API } from "./api.js";
import { signal } from "./store.js";

const WAITS_MS = [300, 600, 1200, 2500, 5000];
const SILENCE_MS = 45_000; // the server says something every 15 s
const ABSENT = "NotFoundError";
const DRAWN_MS = 500; // after a first load
const FIRST_LOAD_MS = 400; // do not let the first paint wait for the stream

/** "connecting", "live", "reconnecting", "paused" (the tab is hidden) or "absent" (there is no such thing to follow). */
export const status = signal("connecting");
/** When something was last heard, for "as of 12:03:11". */
export const heard = { at: 0 };

const subscribers = new Set();
let current = null; // the open (or opening) connection
let failures = 0;
let timer = 0;
let hasStream = true; // false: an older server, which has /events alone
let planned = 0;

export function subscribe(topics, handlers) {
  const me = { topics, handlers, fresh: false, started: handlers.start?.() };
  subscribers.add(me);
  if (current?.open && covers(current.topics)) tell(me);
  else {
    plan();
    if (!me.started) setTimeout(() => { if (!me.fresh && subscribers.has(me)) handlers.resync?.(); }, FIRST_LOAD_MS);
  }
  return () => { subscribers.delete(me); };
}

/** Try at once, as a person who clicks on the pill expects. */
export function retry() {
  failures = 0;
  connect();
}

function tell(subscriber) {
  subscriber.fresh = true;
  if (!subscriber.started) return void subscriber.handlers.resync?.();
  const { started } = subscriber;
  subscriber.started = null;
  const again = () => { if (subscribers.has(subscriber)) subscriber.handlers.resync?.(); };
  return void started.then(() => setTimeout(again, DRAWN_MS));
}

const wanted = () => [...new Set([...subscribers].flatMap((one) => one.topics))].sort();
const covers = (topics) => wanted().every((topic) => topics.includes(topic));

function plan() { // the subscriptions of one page come together
  if (planned) return;
  planned = setTimeout(() => { planned = 0; connect(); }, 0);
}

function connect() {
  clearTimeout(timer);
  if (document.hidden || !subscribers.size) return;
  const old = current;
  const mine = { topics: wanted(), stop: new AbortController(), open: false };
  current = mine;
  listen(mine, old).then(() => "", (error) => error.name).then((end) => {
    if (end === "AbortError" || current !== mine) return;
    current = null;
    old?.stop.abort(new DOMException("replaced", "AbortError"));
    for (const one of subscribers) one.fresh = false;
    if (document.hidden) return;
    if (end === ABSENT) return void status.set("absent"); // the server is there: trying again would not help
    status.set("reconnecting");
    timer = setTimeout(connect, WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)] * (0.8 + 0.4 * Math.random()));
  });
}

async function listen(mine, old) {
  const path = hasStream ? `/stream?topics=${mine.topics.map(encodeURIComponent).join(",")}` : "/events";
  let watchdog = setTimeout(() => mine.stop.abort(new Error("silent")), SILENCE_MS);
  const response = await fetch(API + path, { signal: mine.stop.signal, headers: { Accept: "text/event-stream" }, cache: "no-store" });
  if (response.status === 404 && hasStream && /^Not Found/.test((await response.json()).error)) { // no such route, not no such job
    hasStream = false;
    clearTimeout(watchdog);
    return listen(mine, old);
  }
  if (response.status === 401) location.reload();
  if (response.status === 404) throw new DOMException("no such topic", ABSENT);
  if (!response.ok) throw new Error(`the stream answers ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => mine.stop.abort(new Error("silent")), SILENCE_MS);
      heard.at = Date.now();
      if (!mine.open) opened(mine, old);
      rest = dispatch(rest + value);
    }
  } finally {
    clearTimeout(watchdog);
  }
}

function opened(mine, old) { // the old stream ends only now: those who already listened miss nothing
  mine.open = true;
  old?.stop.abort(new DOMException("replaced", "AbortError"));
  failures = 0;
  status.set("live");
  for (const one of [...subscribers]) {
    if (one.topics.every((topic) => mine.topics.includes(topic)) && !one.fresh) tell(one);
  }
}

function dispatch(text) {
  const messages = text.split("\n\n");
  const rest = messages.pop();
  for (const message of messages) {
    let event = "message", data = "";
    for (const line of message.split("\n")) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data += line.slice(5);
    }
    if (data) deliver(event, JSON.parse(data));
  }
  return rest;
}

function deliver(event, data) {
  for (const one of [...subscribers]) {
    if (!subscribers.has(one)) continue;
    if (event === "resync") { if (!data.topics || one.topics.some((topic) => data.topics.includes(topic))) one.handlers.resync?.(); }
    else one.handlers[event]?.(data);
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) { // browsers allow six connections to a server, for all tabs together
    clearTimeout(timer);
    current?.stop.abort(new DOMException("hidden", "AbortError"));
    current = null;
    for (const one of subscribers) one.fresh = false;
    status.set("paused");
  } else {
    failures = 0;
    status.set("connecting");
    connect();
  }
});
addEventListener("online", retry);
