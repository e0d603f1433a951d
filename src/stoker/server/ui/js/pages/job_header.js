// The top of a job's page: what it is, how it stands and why, what was found, and what can be done about it.

import { patch, post } from "../core/api.js";
import { h } from "../core/dom.js";
import { number, percent, progressBar, stateMark, timeAgo, timeSince, whole } from "../core/format.js";
import { comparePath, go, jobPath, logsPath, trialPath } from "../core/route.js";
import { ask, confirm } from "../widgets/dialog.js";
import { attempt } from "../widgets/toast.js";
import { askFor, facts } from "./parts.js";
import { explain, whatRuns } from "./words.js";

const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

/** @param job the answer of GET /jobs/{job} @param changed called after something was done */
export function jobHeader(job, { changed, failingLine = null }) {
  const told = explain(job);
  return h("div", { class: "job-head" },
    h("div", { class: "row" }, h("h1", {}, job.id), stateMark(job.state), h("span", { class: "grow" }), actions(job, changed)),
    h("p", { class: "muted" }, whatRuns(job), " · submitted ", timeAgo(job.created), ` by ${job.owner} · pool ${job.pool}`,
      job.priority ? ` · priority ${job.priority}` : "", labels(job.labels)),
    ENDED.has(job.state) ? null : progressBar(job.progress, job.state),
    job.state === "FAILED" ? failure(job, told, failingLine) : waiting(job, told),
    facts(figures(job)));
}

function labels(given) {
  return Object.entries(given).map(([key, value]) => [" ", h("span", { class: "chip" }, value ? `${key}=${value}` : key)]);
}

function waiting(job, told) {
  if (job.state === "SUCCEEDED" || job.state === "RUNNING") return told.why ? h("p", { class: "why" }, told.why) : null;
  return h("p", { class: "why" }, h("b", {}, told.headline), told.why ? `: ${told.why}` : "");
}

function failure(job, told, failingLine) {
  const trial = told.run?.trial;
  const to = `${logsPath(job.id)}?${trial && job.spec.search ? `trial=${trial}&` : ""}${failingLine ? `line=${failingLine}` : "level=ERROR"}`;
  return h("div", { class: "failure", role: "group", "aria-label": "What failed" },
    h("p", {}, h("b", {}, told.headline), told.why ? `: ${told.why}` : ""),
    told.traceback && h("details", {}, h("summary", {}, "Traceback"), h("pre", { tabindex: "0" }, told.traceback)),
    h("p", { class: "row" }, h("a", { class: "button", href: to }, "Show the failing line in the log"),
      trial && job.spec.search && h("a", { class: "button", href: trialPath(job.id, trial) }, `Trial ${trial}`)));
}

function figures(job) {
  const time = [timeSince(job.started, job.ended), job.ended ? "it ran" : "running for"];
  if (!job.search) {
    const metrics = Object.entries(job.metrics ?? job.trials[0]?.metrics ?? {}).slice(0, 5);
    return [job.started && time, !ENDED.has(job.state) && job.progress !== null && [percent(job.progress), "done"],
      ...metrics.map(([name, value]) => [number(value), name])];
  }
  const { search } = job;
  const most = job.spec.search.max_trials;
  const best = search.best_trial && h("a", { href: trialPath(job.id, search.best_trial) }, number(search.best));
  return [[most ? `${whole(search.trials)} of ${whole(most)}` : whole(search.trials), "trials"],
    best && [best, `best ${search.metric} · trial ${search.best_trial}`],
    ...Object.entries(search.outcomes).map(([outcome, count]) => [whole(count), outcome.replaceAll("_", " ")]),
    job.started && time];
}

function actions(job, changed) {
  const path = `/jobs/${encodeURIComponent(job.id)}`;
  const does = (word, verb, explanation = "") => h("button", { type: "button", class: explanation && "danger", onclick: async () => {
    if (explanation && !(await confirm(`${word} ${job.id}?`, explanation, word, { danger: true }))) return;
    if (await attempt(() => post(`${path}/${verb}`))) changed();
  } }, word);
  const paused = job.state === "PAUSED" || job.state === "PAUSING";
  const live = [
    paused ? does("Resume", "resume") : does("Pause", "pause"),
    h("button", { type: "button", onclick: () => changePriority(job, changed) }, "Priority"),
    does("Cancel", "cancel", "Its runs get their grace time to save, then they end. This cannot be undone."),
    does("Kill", "kill", "Its processes end at once and save nothing. This cannot be undone."),
  ];
  const run = `${job.id}/${job.search?.best_trial ?? 1}`;
  return h("div", { class: "row", role: "group", "aria-label": "Actions" },
    ENDED.has(job.state) ? h("button", { type: "button", onclick: () => runAgain(job) }, "Run again") : live,
    h("a", { class: "button", href: logsPath(job.id) }, "Log"),
    h("a", { class: "button", href: comparePath([run]) }, "Compare"));
}

async function changePriority(job, changed) {
  const given = await ask(`Priority of ${job.id}`, "0 to 1000; larger goes first", { value: job.priority, type: "number", min: 0, max: 1000, word: "Change" });
  if (given === null) return;
  if (await attempt(() => patch(`/jobs/${encodeURIComponent(job.id)}`, { priority: Number(given) }), "Priority changed.")) changed();
}

async function runAgain(job) {
  const fields = [{ name: "name", label: "Name of the new job", value: `${job.id.slice(0, 118)}_again` }];
  const text = "The same code, environment, settings and seed, as a new job.";
  const given = await askFor(`Run ${job.id} again`, fields, { text, word: "Run" });
  if (!given) return;
  if (await attempt(() => post("/jobs", { ...job.spec, name: given.name }), `${given.name} is submitted.`)) go(jobPath(given.name));
}
