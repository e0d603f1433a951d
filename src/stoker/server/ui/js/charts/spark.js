// A curve as small as a word, in SVG: it sits in table rows.

import { svg } from "../core/dom.js";
import { extent } from "./scale.js";

/** spark([3, 2, 1.5], {label: "loss", width: 90, height: 22}) */
export function spark(values, { label = "trend", width = 90, height = 22, tone = "s0" } = {}) {
  const [low, high] = extent([values]), span = high - low || 1;
  const points = values.map((value, at) => (Number.isFinite(value) ? [2 + (at / Math.max(values.length - 1, 1)) * (width - 4), height - 3 - ((value - low) / span) * (height - 6)] : null)).filter(Boolean);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label} from ${values[0]} to ${values.at(-1)}` },
    points.length ? svg("path", { d: `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`, fill: "none", stroke: `var(--${tone})`, "stroke-width": 1.4 }) : null);
}
