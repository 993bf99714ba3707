// Parts of every page: building elements, asking the server, the status line, the tip, light and dark.

const SVG = "http://www.w3.org/2000/svg";
export const main = document.getElementById("main");
export const runId = document.body.dataset.run;
const status = document.getElementById("status");

/** An element with attributes and children; text stays text. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** JSON, or an error with the server's own sentence. */
export async function load(path, options) {
  const response = await fetch(path, options);
  if (!response.ok) throw new Error((await response.text()).trim() || `the server answered ${response.status}`);
  return response.json();
}

export function say(text, kind = "") {
  status.textContent = text;
  status.className = kind;
}

/** Runs a page; what goes wrong is said where the page would be. */
export async function start(page) {
  try {
    await page();
    if (status.textContent === "Loading…") say("");
  } catch (error) {
    console.error(error);
    say(error.message, "problem");
  }
  document.body.dataset.ready = "yes";
}

// On a narrow screen the tabs scroll; the page's own is in sight.
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

const tip = make("div", { id: "tip", hidden: true });
document.body.append(tip);

/** Shows text beside a point of the window, or hides it when there is none. */
export function showTip(text, x, y) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? y - height - 10 : y + 18}px`;
}

/** An element whose text follows the pointer and the focus. */
export function withTip(element, text) {
  const value = () => (typeof text === "function" ? text() : text);
  element.addEventListener("pointermove", (event) => showTip(value(), event.clientX, event.clientY));
  element.addEventListener("pointerleave", () => showTip(""));
  element.addEventListener("focus", () => {
    const box = element.getBoundingClientRect();
    showTip(value(), box.right, box.top);
  });
  element.addEventListener("blur", () => showTip(""));
  return element;
}

const root = document.documentElement;
const kept = localStorage.getItem("theme");
if (kept) root.dataset.theme = kept;
document.getElementById("theme").addEventListener("click", () => {
  const dark = kept_theme() === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("themechange"));
});

function kept_theme() {
  return root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** A colour of the style sheet, for canvases. */
export const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
