// Light, dark, or as the system says; and the colours of the theme, for canvases.

import { signal } from "./store.js";

const KEY = "stoker.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const ORDER = ["auto", "light", "dark"];

/** "auto", "light" or "dark", as chosen. */
export const choice = signal(document.documentElement.dataset.theme || "auto");
/** Whether it is dark now; charts watch it and draw anew. */
export const dark = signal(isDark());

export function choose(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch { /* no storage: for this page only */ }
  choice.set(theme);
  dark.set(isDark());
}

export const nextTheme = () => choose(ORDER[(ORDER.indexOf(choice.value) + 1) % ORDER.length]);

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

system.addEventListener("change", () => dark.set(isDark()));

const cache = new Map();
dark.watch(() => cache.clear());

/** The value of a CSS variable: color("accent"), color("s3"). */
export function color(name) {
  if (!cache.has(name)) cache.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return cache.get(name);
}

/** Colour and dash of the n-th line: ten colours, then the same again with dashes. */
export function seriesStyle(index) {
  return { color: color(`s${index % 10}`), dash: [[], [6, 4], [2, 3]][Math.floor(index / 10) % 3] };
}

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];

/** 0…1 to a colour of a sequential scale that also colour-blind people can order; 1 stands out most, in either theme. */
export function sequential(share) {
  if (!Number.isFinite(share)) return color("idle");
  const step = Math.round(Math.min(Math.max(share, 0), 1) * 255); // ten thousand points share so many colours
  const key = `step ${step}`;
  if (!cache.has(key)) cache.set(key, mixed(step / 255));
  return cache.get(key);
}

function mixed(given) {
  const at = (dark.value ? 0.1 + 0.9 * given : 0.9 * (1 - given)) * (VIRIDIS.length - 1); // yellow is for the dark
  const low = Math.min(Math.floor(at), VIRIDIS.length - 2), part = at - low;
  const mix = (from) => {
    const [a, b] = [VIRIDIS[low], VIRIDIS[low + 1]].map((text) => parseInt(text.slice(from, from + 2), 16));
    return Math.round(a + (b - a) * part);
  };
  return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
}
