// The part of a canvas context that our charts use, written down as SVG.

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => String(text).replace(/[&<>"]/g, (one) => ESCAPES[one]);
const r = (value) => Math.round(value * 100) / 100;

export class SvgPen {
  constructor(width, height, background, font) {
    Object.assign(this, { width, height, font, fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, textAlign: "left", textBaseline: "alphabetic", lineJoin: "round" });
    this.parts = [`<rect width="${width}" height="${height}" fill="${escaped(background)}"/>`];
    this.path = "";
    this.dash = [];
    this.saved = [];
    this.clips = 0;
  }

  beginPath() { this.path = ""; }
  moveTo(x, y) { this.path += `M${r(x)} ${r(y)}`; }
  lineTo(x, y) { this.path += `L${r(x)} ${r(y)}`; }
  closePath() { this.path += "Z"; }
  rect(x, y, w, h) { this.path += `M${r(x)} ${r(y)}h${r(w)}v${r(h)}h${r(-w)}Z`; }
  arc(x, y, radius) { this.path += `M${r(x - radius)} ${r(y)}a${r(radius)} ${r(radius)} 0 1 0 ${r(2 * radius)} 0a${r(radius)} ${r(radius)} 0 1 0 ${r(-2 * radius)} 0`; }
  setLineDash(dash) { this.dash = dash; }
  stroke() { this.#add(`<path d="${this.path}" fill="none" stroke="${escaped(this.strokeStyle)}" stroke-width="${this.lineWidth}" stroke-linejoin="round"${this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : ""}${this.#alpha()}/>`); }
  fill() { this.#add(`<path d="${this.path}" fill="${escaped(this.fillStyle)}"${this.#alpha()}/>`); }
  fillRect(x, y, w, h) { this.#add(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${escaped(this.fillStyle)}"${this.#alpha()}/>`); }
  strokeRect(x, y, w, h) { this.#add(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="none" stroke="${escaped(this.strokeStyle)}"${this.#alpha()}/>`); }
  measureText(text) { return { width: String(text).length * 6 }; }

  fillText(text, x, y) {
    const anchor = { left: "start", right: "end", center: "middle" }[this.textAlign] || "start";
    const base = { top: "hanging", middle: "central", bottom: "text-after-edge" }[this.textBaseline] || "auto";
    const [, size, family] = /([\d.]+)px (.*)/.exec(this.font) || [0, 11, "sans-serif"];
    this.#add(`<text x="${r(x)}" y="${r(y)}" font-size="${size}" font-family="${escaped(family)}" fill="${escaped(this.fillStyle)}" text-anchor="${anchor}" dominant-baseline="${base}"${this.#alpha()}>${escaped(text)}</text>`);
  }

  save() { this.saved.push([{ ...this }, this.clips]); }

  clip() {
    const id = `c${this.parts.length}`;
    this.parts.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath><g clip-path="url(#${id})">`);
    this.clips++;
  }

  restore() {
    const [was, clips] = this.saved.pop();
    while (this.clips > clips) { this.parts.push("</g>"); this.clips--; }
    const { parts, saved } = this;
    Object.assign(this, was, { parts, saved, clips });
  }

  toString(title) {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"><title>${escaped(title)}</title>${this.parts.join("")}</svg>`;
  }

  #alpha() { return this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : ""; }
  #add(part) { this.parts.push(part); }
}
