// How full a pool was, as a chart.

import { lineChart } from "../charts/line.js";
import { h } from "../core/dom.js";
import { failure } from "../widgets/states.js";

/** {element, set(history of a pool), fail(error)}; closed with the page. */
export function historyChart(ctx, name) {
  const chart = lineChart({ name: `${name} in use`, x: "time", size: "short", zero: true, xLabel: "since the first point" });
  const problem = h("div", {});
  ctx.onLeave(() => chart.close());
  return {
    element: h("div", {}, problem, chart.element, chart.legend),
    set(found) {
      problem.replaceChildren();
      const xs = { time: found.time.map((time) => time - found.time[0]) };
      const lines = [["CPUs", found.cpus], ["GPUs", found.gpus], ["runs", found.running], ["jobs waiting", found.queued]];
      chart.setSeries(lines.filter(([line, ys]) => line !== "GPUs" || ys.some(Boolean)).map(([line, ys]) => ({ id: line, name: line, xs, ys })));
    },
    fail(error) { problem.replaceChildren(failure(error)); },
  };
}
