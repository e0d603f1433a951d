// Make and change elements. Strings become text nodes or attributes, never HTML.

const SAFE_LINK = /^(\/(?!\/)|#|\?|https?:|blob:)/i;
const SVG = "http://www.w3.org/2000/svg";

/**
 * h("a", {class: "name", href: "/", onclick: go, style: {width: "3px"}, dataset: {id: 1}}, "text", child, [more], null)
 * Properties that an element has are set as properties, others as attributes; null, undefined and false leave one out.
 */
export function h(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) assign(made, key, value);
  append(made, children);
  return made;
}

/** The same for SVG elements: attributes only. */
export function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes || {})) if (value != null) made.setAttribute(key, value);
  append(made, children);
  return made;
}

function assign(element, key, value) {
  if (value === null || value === undefined) return;
  if (key === "class") element.className = value;
  else if (key === "style") for (const [name, v] of Object.entries(value)) setStyle(element, name, v);
  else if (key === "dataset") Object.assign(element.dataset, value);
  else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (key === "href") { if (SAFE_LINK.test(value)) element.setAttribute("href", value); }
  else if (key in element && !key.startsWith("aria") && key !== "list") element[key] = value;
  else if (value !== false) element.setAttribute(key, value === true ? "" : value);
}

function setStyle(element, name, value) {
  if (name.startsWith("--")) element.style.setProperty(name, value);
  else element.style[name] = value;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  keepFocus(element, () => {
    element.replaceChildren();
    append(element, children);
  });
  return element;
}

/** Change what an element holds: who was at a part of it is at the part that took its place. */
export function keepFocus(element, change) {
  const at = document.activeElement;
  const inside = at !== element && element.contains(at);
  change();
  if (!inside || document.activeElement === at) return;
  const known = nameOf(at);
  const there = element.contains(at) ? at : [...element.querySelectorAll(at.tagName)].find((one) => nameOf(one) === known);
  there?.focus({ preventScroll: true });
}

const nameOf = (element) => element.getAttribute("href") ?? element.getAttribute("aria-label") ?? element.textContent;

/** Set text only if it is another one: a selection in it survives. */
export function setText(element, text) {
  const value = String(text ?? "");
  if (element.textContent !== value) element.textContent = value;
}

/** A function that runs `draw` once in the next animation frame, however often it is called. */
export function oncePerFrame(draw) {
  let waiting = 0;
  const ask = () => {
    if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; draw(); });
  };
  ask.cancel = () => { cancelAnimationFrame(waiting); waiting = 0; };
  return ask;
}

/** A function that runs `act` when it was not called for `ms`. */
export function settled(act, ms) {
  let timer = 0;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => act(...given), ms); };
}

/** A function that runs `act` `ms` after its first call; calls until then are one with it. Steady news cannot put it off. */
export function soon(act, ms) {
  let timer = 0;
  return () => { timer ||= setTimeout(() => { timer = 0; act(); }, ms); };
}

export function download(name, content, kind) {
  const blob = content instanceof Blob ? content : new Blob([content], { type: kind });
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Rows of values as CSV text; what a spreadsheet would take for a formula is quoted. */
export function csv(rows) {
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { value: text, class: "sr" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
