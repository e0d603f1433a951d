// Successive halving, rung by rung: who went on, and who was stopped where.

import { h } from "../core/dom.js";
import { number, whole } from "../core/format.js";
import { trialPath } from "../core/route.js";

const SHOWN = 24; // trials named in a rung; the table of trials has all
const TONES = { promoted: "ok", finished: "ok", running: "run", stopped: "idle" };
const WORDS = { promoted: "went on", finished: "reached the end", running: "still there", stopped: "stopped here" };

/** Answers of GET /jobs/{job}/rungs. */
export function rungList(job, found) {
  return h("div", { class: "rungs" }, found.brackets.filter((one) => one.rungs.length).map((bracket) => {
    const most = Math.max(...bracket.rungs.map((rung) => rung.trials.length), 1);
    return h("section", { "aria-label": `Bracket ${bracket.bracket}` }, h("h3", {}, `Bracket ${bracket.bracket}`),
      bracket.rungs.map((rung) => rungRow(job, rung, most)));
  }));
}

function rungRow(job, rung, most) {
  const counts = Object.keys(WORDS).map((outcome) => [outcome, rung.trials.filter((one) => one.outcome === outcome)]).filter(([, list]) => list.length);
  const words = counts.map(([outcome, list]) => `${whole(list.length)} ${WORDS[outcome]}`).join(", ") || "nobody yet";
  const stopped = rung.trials.filter((one) => one.outcome === "stopped");
  return h("details", { class: "rung" },
    h("summary", {}, h("span", { class: "num" }, `at ${whole(rung.time)}`),
      h("span", { class: "rung-bar", style: { width: `${(rung.trials.length / most) * 100}%` } },
        counts.map(([outcome, list]) => h("span", { class: TONES[outcome], style: { flexGrow: list.length }, title: `${list.length} ${WORDS[outcome]}` }))),
      h("span", { class: "muted small" }, words)),
    h("p", { class: "small" }, stopped.length ? "Stopped here: " : "Nobody was stopped here.", stopped.slice(0, SHOWN).map((one) =>
      [h("a", { href: trialPath(job, one.trial) }, `trial ${one.trial}`), ` (${number(one.value)}) `]),
    stopped.length > SHOWN ? `and ${whole(stopped.length - SHOWN)} more` : ""));
}
