// Conditions on rows, as a page's address says them: `lr:0.001..0.1;optimizer:adam|sgd`. A brush is one of these, so it
// holds for every row there is, also those that no plot has drawn.

/**
 * @typedef {{min: number, max: number} | {any: string[]}} Condition
 */

/** Nested values as dotted names, in their order: `{a: {b: 1}}` is `{"a.b": 1}`. */
export function flatten(values, prefix = "", into = {}) {
  for (const [name, value] of Object.entries(values ?? {})) {
    const path = prefix + name;
    const inner = value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length;
    if (inner) flatten(value, `${path}.`, into);
    else into[path] = value;
  }
  return into;
}

/** @returns {Map<string, Condition>} what cannot be read is left out */
export function parseWhere(text) {
  const found = new Map();
  for (const part of (text ?? "").split(";")) {
    const at = part.indexOf(":");
    if (at < 1) continue;
    const name = decode(part.slice(0, at));
    const range = /^(-?[\d.e+-]+)\.\.(-?[\d.e+-]+)$/i.exec(part.slice(at + 1));
    const [min, max] = range ? [Number(range[1]), Number(range[2])] : [NaN, NaN];
    if (range && !Number.isNaN(min + max)) found.set(name, { min, max });
    else found.set(name, { any: part.slice(at + 1).split("|").map(decode) });
  }
  return found;
}

/** @param {Map<string, Condition>} where */
export function formatWhere(where) {
  return [...where].map(([name, condition]) => `${encode(name)}:${formatCondition(condition)}`).join(";");
}

/** For people: `0.001 ≤ lr ≤ 0.1`. */
export function describe(name, condition) {
  if ("any" in condition) return `${name} is ${condition.any.join(" or ")}`;
  return `${short(condition.min)} ≤ ${name} ≤ ${short(condition.max)}`;
}

/** @param {Map<string, Condition>} where @param {(name: string) => unknown} valueOf */
export function matches(where, valueOf) {
  for (const [name, condition] of where) {
    const value = valueOf(name);
    if ("any" in condition) {
      if (!condition.any.includes(String(value))) return false;
    } else if (typeof value !== "number" || value < condition.min || value > condition.max) return false;
  }
  return true;
}

function formatCondition(condition) {
  return "any" in condition
    ? condition.any.map(encode).join("|")
    : `${Number(condition.min.toPrecision(6))}..${Number(condition.max.toPrecision(6))}`;
}

function short(value) {
  return String(Number(value.toPrecision(4)));
}

// Only what this little language uses itself: the address bar is read by people.
function encode(text) {
  return String(text).replace(/[%:;|]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
