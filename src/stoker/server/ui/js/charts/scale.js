// From values to pixels, and where to put ticks. Pure.

/** linear(0, 10, 40, 600): .to(value) -> px, .from(px) -> value, .ticks(n). */
export function linear(low, high, start, end) {
  const span = high - low || 1;
  return {
    low, high, start, end, log: false,
    to: (value) => start + ((value - low) / span) * (end - start),
    from: (at) => low + ((at - start) / (end - start || 1)) * span,
    ticks: (count = 5) => linearTicks(low, high, count),
  };
}

/** The same on a log axis; values of 0 or less have no place (NaN). */
export function log(low, high, start, end) {
  const a = Math.log10(low), span = Math.log10(high) - a || 1;
  return {
    low, high, start, end, log: true,
    to: (value) => (value > 0 ? start + ((Math.log10(value) - a) / span) * (end - start) : Number.NaN),
    from: (at) => 10 ** (a + ((at - start) / (end - start || 1)) * span),
    ticks: (count = 5) => logTicks(low, high, count),
  };
}

/** A scale that shows [low, high] with a little air, whatever was given (one value, none, infinities). */
export function fit(low, high, { start, end, logAxis = false, air = 0.04 }) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) [low, high] = logAxis ? [1, 10] : [0, 1];
  if (logAxis) {
    const from = low > 0 ? low : Math.min(high > 0 ? high / 1e6 : 1, 1e-6), to = high > from ? high : from * 10;
    const room = (to / from) ** air;
    return log(from / room, to * room, start, end);
  }
  if (low === high) { const half = Math.abs(low) * 0.1 || 0.5; [low, high] = [low - half, high + half]; }
  const room = (high - low) * air;
  return linear(low - room, high + room, start, end);
}

export function linearTicks(low, high, count = 5) {
  const raw = (high - low) / Math.max(count, 1);
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => one >= raw * 0.999) || 10 * size;
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) ticks.push(Number((at * step).toPrecision(12)));
  return ticks;
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** Ticks at whole minutes, hours and days rather than at 50, 100 and 150 seconds. */
export function durationTicks(low, high, count = 5) {
  const step = STEPS_S.find((one) => (high - low) / one <= count);
  if (!step || high - low < 4) return linearTicks(low, high, count);
  return Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, at) => (Math.ceil(low / step) + at) * step);
}

export function logTicks(low, high, count = 5) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  if (to - from <= 1) return linearTicks(low, high, count).filter((tick) => tick > 0);
  const every = Math.max(1, Math.ceil((to - from) / Math.max(count, 2)));
  const marks = to - from <= 2 ? [1, 2, 5] : to - from <= 4 ? [1, 3] : [1];
  const ticks = [];
  for (let power = from; power <= to; power += every) {
    for (const mark of marks) { const tick = Number(`${mark}e${power}`); if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick); }
  }
  return ticks;
}

/** The least and the greatest finite value (only positive ones for a log axis). */
export function extent(lists, { positive = false } = {}) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) {
    for (let at = 0; at < list.length; at++) {
      const value = list[at];
      if (!(value <= Number.MAX_VALUE) || value < -Number.MAX_VALUE || (positive && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
}
