// The jobs as they stand, and one job with its log and metrics. Everything that users wrote goes in as text, never as HTML.

const API = "/api/v1";
const MAX_LINES = 5000;
const MAX_POINTS = 400;
const view = document.getElementById("view");
let streams = [];
let timer = 0;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function call(path, method = "GET") {
  const response = await fetch(API + path, { method });
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

function listen(path, handlers) {
  const stream = new EventSource(API + path);
  for (const [event, handle] of Object.entries(handlers)) {
    stream.addEventListener(event, (message) => handle(JSON.parse(message.data), stream));
  }
  const status = document.getElementById("connection");
  stream.onopen = () => { status.textContent = "live"; };
  stream.onerror = () => { status.textContent = "no connection, trying again"; };
  streams.push(stream);
  return stream;
}

function ago(seconds) {
  if (!seconds) return "";
  const past = Math.max(0, Date.now() / 1000 - seconds);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (past >= size) return `${Math.floor(past / size)} ${unit} ago`;
  }
  return "just now";
}

function lasted(job) {
  if (!job.started) return "";
  const s = Math.round((job.ended || Date.now() / 1000) - job.started);
  return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}

function state(job) {
  return element("span", { className: `state ${job.state}` }, job.state.toLowerCase());
}

// --- all jobs

async function showJobs() {
  const rows = new Map();
  const body = element("tbody");
  const head = ["Job", "State", "Submitted", "Ran for", ""].map((name) => element("th", { scope: "col" }, name));
  const put = (job) => {
    const link = element("a", { href: `#${encodeURIComponent(job.id)}` }, job.id);
    const done = job.progress === null ? "" : ` ${Math.round(job.progress * 100)}%`;
    const row = element("tr", {}, element("td", {}, link), element("td", {}, state(job), done),
      element("td", {}, ago(job.created)), element("td", {}, lasted(job)), element("td", { className: "why" }, job.reason));
    if (rows.has(job.id)) rows.get(job.id).replaceWith(row);
    else body.prepend(row);
    rows.set(job.id, row);
  };
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), body);
  const empty = element("p", { className: "empty" }, "No jobs yet. Submit one with `stoker jobs submit training`.");
  const { jobs } = await call("/jobs?limit=200");
  jobs.reverse().forEach(put);
  view.replaceChildren(jobs.length ? table : empty);
  listen("/events", { job: (job) => { put(job); view.replaceChildren(table); } });
}

// --- one job

async function showJob(id) {
  const path = `/jobs/${encodeURIComponent(id)}`;
  const title = element("div");
  const plots = element("div", { className: "plots" });
  const log = element("pre", { tabIndex: 0 });
  const headline = element("h3", { hidden: true }, "Metrics");
  view.replaceChildren(title, headline, plots, element("h3", {}, "Log"), log);
  const refresh = async () => showTitle(title, await call(path), path);
  await refresh();
  // Not a third stream: browsers allow six connections to a server, for all tabs together.
  timer = setInterval(() => refresh().catch(() => {}), 2000);
  listen(`${path}/logs?follow=true&tail=1000`, { log: (block) => addLines(log, block), end: (_, stream) => stream.close() });
  const series = new Map();
  listen(`${path}/metrics?follow=true`, {
    metrics: (points) => { collect(series, points); headline.hidden = false; draw(plots, series); },
    end: (_, stream) => stream.close(),
  });
}

function showTitle(title, job, path) {
  const facts = [state(job), element("span", { className: "why" },
    [` submitted ${ago(job.created)}`, lasted(job) && `${job.ended ? "ran" : "has run"} for ${lasted(job)}`, job.reason].filter(Boolean).join(" · "))];
  const steer = (word) => {
    const button = element("button", { type: "button" }, word);
    button.onclick = () => call(`${path}/${word.toLowerCase()}`, "POST").catch((error) => alert(error.message));
    return button;
  };
  const words = { QUEUED: ["Pause", "Cancel"], PREPARING: ["Pause", "Cancel"], RUNNING: ["Pause", "Cancel"],
    PAUSED: ["Resume", "Cancel"], PAUSING: ["Resume", "Cancel"] }[job.state] || [];
  const run = job.trials[0]?.runs.at(-1);
  const failure = run?.exit?.traceback ? [element("h3", {}, "What failed"), element("pre", { className: "short" }, run.exit.traceback)] : [];
  title.replaceChildren(element("h2", {}, job.id), ...facts, element("div", { className: "bar" }, ...words.map(steer)), ...failure);
}

function addLines(log, block) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
  const lines = document.createDocumentFragment();
  block.text.split("\n").forEach((text, offset) => {
    const line = element("div", { className: block.levels[offset] || "" });
    line.append(element("span", { className: "who" }, `${block.replica} `), text);
    lines.append(line);
  });
  log.append(lines);
  while (log.childElementCount > MAX_LINES) log.firstElementChild.remove();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function collect(series, points) {
  for (const point of points) {
    for (const [name, value] of Object.entries(point.values)) {
      if (typeof value !== "number") continue; // NaN and the infinities come as strings
      const key = `${point.group}/${name}`;
      if (!series.has(key)) series.set(key, []);
      series.get(key).push([point.step, value]);
    }
  }
}

function draw(plots, series) {
  plots.replaceChildren(...[...series].map(([name, points]) => plot(name, points)));
}

function plot(name, points) {
  const every = Math.ceil(points.length / MAX_POINTS);
  const shown = points.filter((_, index) => index % every === 0 || index === points.length - 1);
  const range = (at) => {
    const values = shown.map((point) => point[at]);
    const low = Math.min(...values), high = Math.max(...values);
    return [low, high === low ? low + 1 : high];
  };
  const [[left, right], [low, high]] = [range(0), range(1)];
  const place = ([x, y]) => `${(((x - left) / (right - left)) * 300).toFixed(1)},${(100 - ((y - low) / (high - low)) * 96).toFixed(1)}`;
  const drawing = (kind, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const line = drawing("path", { d: `M${shown.map(place).join("L")}` });
  const svg = drawing("svg", { viewBox: "0 0 300 102", preserveAspectRatio: "none", role: "img", "aria-label": `${name} over steps` });
  svg.append(line);
  const last = points.at(-1);
  return element("div", { className: "plot" }, element("strong", {}, name),
    element("span", {}, `${Number(last[1].toPrecision(5))} at step ${last[0]}`), svg);
}

// --- which of the two

async function route() {
  streams.forEach((stream) => stream.close());
  streams = [];
  clearInterval(timer);
  const id = decodeURIComponent(location.hash.slice(1));
  try {
    await (id ? showJob(id) : showJobs());
    const pools = await call("/pools");
    document.getElementById("pools").textContent = pools
      .map((pool) => `${pool.name}: ${pool.used.cpus} of ${pool.capacity.cpus} CPUs in use, ${pool.queued.length} waiting`).join(" · ");
  } catch (error) {
    view.replaceChildren(element("p", { className: "empty" }, error.message));
  }
}

addEventListener("hashchange", route);
route();
