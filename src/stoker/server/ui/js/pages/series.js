// Answers of GET /jobs/{job}/series as lines of charts. Pure.

const HIDDEN = new Set(["epoch", "epochs"]);
const PREFIX = /^(train|training|val|valid|validation|eval|test)[_/ -]+/i;
const VALIDATION = /^(val|valid|validation|eval|test)/i;

/** What a metric is about, whatever it was measured on: `val_loss` and `loss` of validation are both `loss`. */
export const family = (name) => name.replace(PREFIX, "") || name;

/** "validation" or "train". */
export const kindOf = (group, name) => (VALIDATION.test(name) || VALIDATION.test(group) ? "validation" : "train");

export const idOf = (job, one) => [job, one.trial, one.group, one.name, one.replica].join(" ");

/** Families in the order they appear, each with its lines; `label(trial)` names a run, or "" if there is one only. */
export function families(found, { axis, label = () => "", style = null }) {
  const epochs = axis === "epoch" ? epochLines(found.series) : null;
  const all = new Map();
  for (const one of found.series) {
    if (one.group === "system" || HIDDEN.has(one.name)) continue;
    const xs = positions(one, axis, epochs);
    if (!xs) continue;
    const name = family(one.name);
    if (!all.has(name)) all.set(name, []);
    const kind = kindOf(one.group, one.name);
    const words = [label(one.trial), kind === "validation" ? "validation" : "train"].filter(Boolean);
    all.get(name).push({ id: idOf(found.job, one), job: found.job, trial: one.trial, name: words.join(" · "), kind, xs: { [axis]: xs }, ys: one.y.map(finite),
      ...(style ? { style: style(one.trial) } : {}) });
  }
  return all;
}

export const GIGA = 1 << 30;

/** System use by name, over seconds since the first point; memory in gigabytes, so that axes have short numbers. */
export function systemLines(found) {
  const all = new Map();
  for (const one of found.series.filter((line) => line.group === "system")) {
    const name = one.name.replace(/\d+/, "");
    const unit = name.endsWith("memory") ? GIGA : 1;
    if (!all.has(name)) all.set(name, []);
    all.get(name).push({ id: idOf(found.job, one), name: `${one.name} ${one.replica}`, xs: { time: since(one.x) }, ys: one.y.map((y) => finite(y) / unit) });
  }
  return all;
}

/** Whether any of these reports has an epoch, so that it can be an axis. */
export const hasEpochs = (found) => found.names.some((one) => HIDDEN.has(one.name));

/** Where the points of a message of the stream go on the chosen axis; null if that needs a new answer. */
export const newPositions = (one, axis) => (axis === "step" ? one.step : null);

const finite = (value) => (value === null ? Number.NaN : Number(value));
const since = (times) => times.map((time) => time - times[0]);

function positions(one, axis, epochs) {
  if (axis === "step") return one.x;
  if (axis === "time") return since(one.x);
  const line = epochs.get(`${one.trial} ${one.group}`) ?? epochs.get(`${one.trial}`);
  return line ? one.x.map((step) => between(line, step)) : null;
}

function epochLines(series) {
  const lines = new Map();
  for (const one of series.filter((line) => HIDDEN.has(line.name))) {
    lines.set(`${one.trial} ${one.group}`, one);
    if (!lines.has(`${one.trial}`)) lines.set(`${one.trial}`, one);
  }
  return lines;
}

function between({ x, y }, at) {
  let high = x.findIndex((one) => one >= at);
  if (high < 0) return y.at(-1);
  if (x[high] === at || high === 0) return y[high];
  const share = (at - x[high - 1]) / (x[high] - x[high - 1]);
  return y[high - 1] + share * (y[high] - y[high - 1]);
}
