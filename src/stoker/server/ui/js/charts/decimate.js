// Fewer points that look the same; smoothing; the best so far. Pure.

/** First index of sorted `xs` with xs[i] >= value. */
export function lowerBound(xs, value) {
  let low = 0, high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

/**
 * Indexes to draw of [from, to): first, least, greatest and last of each pixel column, so that every spike stays.
 * `xs` is sorted; gaps (NaN in ys) are kept as one index, so that the line breaks there too.
 */
export function minMax(xs, ys, { from = 0, to = xs.length, columns = 800 } = {}) {
  const count = to - from;
  if (count <= columns * 4) return Array.from({ length: Math.max(count, 0) }, (_, at) => from + at);
  const low = xs[from], width = (xs[to - 1] - low) / columns || 1;
  const kept = [];
  let at = from;
  while (at < to) {
    const column = Math.floor((xs[at] - low) / width);
    const first = at;
    let least = -1, most = -1, gap = -1;
    for (; at < to && Math.floor((xs[at] - low) / width) === column; at++) {
      const y = ys[at];
      if (!Number.isFinite(y)) { gap = at; continue; }
      if (least < 0 || y < ys[least]) least = at;
      if (most < 0 || y > ys[most]) most = at;
    }
    const chosen = new Set([first, least, most, gap, at - 1]);
    chosen.delete(-1);
    kept.push(...[...chosen].sort((a, b) => a - b));
  }
  return kept;
}

/** Exponential moving average as TensorBoard's: debiased, `weight` 0…<1; NaN stays NaN and does not spread. */
export function smooth(ys, weight) {
  const out = new Float64Array(ys.length);
  let last = 0, seen = 0;
  for (let at = 0; at < ys.length; at++) {
    if (!Number.isFinite(ys[at])) { out[at] = Number.NaN; continue; }
    last = last * weight + (1 - weight) * ys[at];
    seen++;
    out[at] = last / (1 - weight ** seen);
  }
  return out;
}

/** The best value up to each point; `up` if more is better. */
export function bestSoFar(ys, { up = false } = {}) {
  const out = new Float64Array(ys.length);
  let best = Number.NaN;
  for (let at = 0; at < ys.length; at++) {
    const y = ys[at];
    if (Number.isFinite(y) && !(up ? best >= y : best <= y)) best = y;
    out[at] = best;
  }
  return out;
}

/** Index of the point nearest to x in sorted xs, or -1. */
export function nearest(xs, x) {
  if (!xs.length) return -1;
  const at = lowerBound(xs, x);
  if (at === 0) return 0;
  if (at === xs.length) return at - 1;
  return x - xs[at - 1] <= xs[at] - x ? at - 1 : at;
}
