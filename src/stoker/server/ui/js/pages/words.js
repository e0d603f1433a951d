// A job's state in plain words. Pure: answers of the API in, text out.

const HEADLINES = {
  QUEUED: "Waiting for a place",
  PREPARING: "Getting its code and Python ready",
  RUNNING: "Running",
  PAUSING: "Pausing: its runs are saving and leaving",
  PAUSED: "Paused. Resume it to go on from its latest checkpoints",
  CANCELLING: "Being cancelled: its runs are leaving",
  CANCELLED: "Cancelled",
  SUCCEEDED: "Done",
  FAILED: "Failed",
};

const WORDS_OF_SIGNALS = {
  SIGKILL: "it was killed from outside, often because the machine ran out of memory",
  SIGSEGV: "it crashed inside compiled code",
  SIGTERM: "it was told to end",
};

/** What happened and why: a line, and more when it failed or waits. */
export function explain(job, trial = null) {
  const failed = job.state === "FAILED" ? lastFailure(job, trial) : null;
  const why = (job.reason ?? "").trim();
  const signal = WORDS_OF_SIGNALS[failed?.exit?.signal];
  return {
    headline: HEADLINES[job.state] ?? job.state.toLowerCase(),
    why: signal && !why.includes(signal) ? `${why}${why ? ". " : ""}In words: ${signal}.` : why,
    traceback: failed?.exit?.traceback ?? "",
    run: failed,
  };
}

/** The newest run that ended badly, with its trial's number. */
export function lastFailure(job, only = null) {
  let found = null;
  for (const trial of only ? [only] : job.trials ?? []) {
    for (const run of trial.runs) {
      const bad = run.state === "FAILED" || run.state === "LOST" || Boolean(run.exit?.traceback);
      if (bad && (!found || (run.ended ?? 0) >= (found.ended ?? 0))) found = { ...run, trial: trial.number };
    }
  }
  return found;
}

const NAMES = { tpe: "TPE", gp: "GP", cmaes: "CMA-ES", asha: "ASHA", pbt: "PBT" };
const named = (word) => NAMES[word] ?? word;

/** What is being done, in one line: `trainer.task`, `python fit.py`, `tpe search of 40 trials of trainer.task`. */
export function whatRuns(job) {
  const { spec } = job;
  const what = spec.module ?? (spec.command ?? []).join(" ");
  if (!spec.search) return what;
  const { sampler, stopping, max_trials: most } = spec.search;
  const stopped = stopping?.name && stopping.name !== "none" ? `, stopped early by ${named(stopping.name)}` : "";
  return `${named(sampler?.name ?? "random")} search${most ? ` of ${most} trials` : ""} of ${what}${stopped}`;
}
