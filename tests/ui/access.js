// What a page gets wrong for people who see, point or listen differently: a list of findings, empty if nothing.
// WCAG 2.2 AA: 1.3.1, 1.4.3, 1.4.11, 2.4.2, 2.4.3, 2.5.8, 4.1.2. Text in canvases has the colours of `tokens`.
() => {
  const found = [];
  const say = (rule, element, more) => found.push(`${rule}: ${describe(element)}${more ? ` (${more})` : ""}`);
  const describe = (element) => {
    const name = element.tagName.toLowerCase() + (element.className && typeof element.className === "string" ? `.${element.className.trim().replaceAll(" ", ".")}` : "");
    return `${name} "${(element.textContent || element.placeholder || "").trim().slice(0, 40)}"`;
  };
  const visible = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && element.getClientRects().length > 0
    && getComputedStyle(element).clipPath === "none";

  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (text) => {
    if (!known.has(text)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = text;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const grounds = new Map([[null, { back: [255, 255, 255, 1], opacity: 1 }]]); // asked once for each element
  const ground = (element) => {
    if (!grounds.has(element)) {
      const { back, opacity } = ground(element.parentElement);
      const style = getComputedStyle(element);
      grounds.set(element, { back: over(rgba(style.backgroundColor), back), opacity: opacity * Number(style.opacity) });
    }
    return grounds.get(element);
  };
  const check = (element, colour, least) => {
    const { back, opacity } = ground(element);
    const [r, g, b, a] = rgba(colour);
    const ratio = contrast(over([r, g, b, a * opacity], back), back);
    if (ratio < least) say("contrast", element, `${ratio.toFixed(2)} of ${least}, ${colour}`);
  };

  // Text against what is behind it.
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const done = new Set();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || done.has(element) || element.closest("noscript, script, :disabled") || !visible(element)) continue;
    done.add(element);
    const style = getComputedStyle(element);
    const size = Number.parseFloat(style.fontSize);
    check(element, style.color, size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5);
  }
  for (const field of document.querySelectorAll("input, select, textarea")) {
    if (!visible(field) || field.disabled || ["checkbox", "radio", "range"].includes(field.type)) continue;
    check(field, getComputedStyle(field).color, 4.5);
    if (field.placeholder) check(field, getComputedStyle(field, "::placeholder").color, 4.5);
    check(field.parentElement, getComputedStyle(field).borderTopColor, 3);
  }

  // Colours that charts draw with.
  const tokens = getComputedStyle(document.documentElement);
  const token = (name) => rgba(tokens.getPropertyValue(`--${name}`).trim());
  const pairs = [["text", "surface", 4.5], ["muted", "surface", 4.5], ["accent", "surface", 4.5], ["strong-line", "surface", 3]];
  for (let at = 0; at < 10; at++) pairs.push([`s${at}`, "surface", 3]);
  for (const [ink, paper, least] of pairs) {
    const ratio = contrast(token(ink), token(paper));
    if (ratio < least) found.push(`contrast: --${ink} on --${paper} ${ratio.toFixed(2)} of ${least}`);
  }

  // Everything one can act on says what it is, and can be hit.
  const named = (element) => {
    const by = (element.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const labels = [...(element.labels ?? [])].map((label) => label.textContent).join(" ");
    const own = ["INPUT", "SELECT", "TEXTAREA"].includes(element.tagName) ? "" : element.textContent;
    return [element.getAttribute("aria-label"), by, labels, own].some((text) => text?.trim());
  };
  const controls = "a[href], button, input, select, textarea, summary, canvas, dialog, nav, [tabindex='0'], [role=tab], [role=grid], [role=log], [role=menu], [role=meter], [role=progressbar], [role=img]";
  for (const element of document.querySelectorAll(controls)) {
    if (!visible(element) && element.tagName !== "DIALOG") continue;
    if (!named(element)) say("no name", element);
    const { width, height } = element.getBoundingClientRect();
    if (element.matches("button, select, textarea, .button, [role=tab], input:not([type=checkbox], [type=radio], [type=range])") && Math.min(width, height) < 23.5) say("small target", element, `${width.toFixed(0)} by ${height.toFixed(0)}`);
  }
  for (const element of document.querySelectorAll("[tabindex]")) if (element.tabIndex > 0) say("order of focus", element);
  for (const element of document.querySelectorAll("a:not([href]):not([role])")) say("link without address", element);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id).filter(Boolean);
  for (const id of new Set(ids.filter((one, at) => ids.indexOf(one) !== at))) found.push(`id twice: ${id}`);
  for (const table of document.querySelectorAll("table")) if (visible(table) && !table.querySelector("th")) say("table without headings", table);
  const heads = document.querySelectorAll("h1").length;
  if (heads !== 1) found.push(`headings: ${heads} h1`);
  if (!document.documentElement.lang || !document.title.trim()) found.push("no language or no title");

  // Nothing is wider than the screen but what scrolls in itself.
  const main = document.querySelector("main");
  for (const box of [document.documentElement, main, document.querySelector(".top")]) {
    if (box && box.scrollWidth > box.clientWidth + 1) say("wider than the screen", box, `${box.scrollWidth} in ${box.clientWidth}`);
  }
  return found;
}
