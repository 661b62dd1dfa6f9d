// Elements and their parts. A string is always a text node here, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties and children; `onclick` and its like are listeners. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

/** An element of an SVG drawing in a document of its own. */
export function svgElement(owner, tag, attributes) {
  const made = owner.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

/** A drop-down list; options are [value, text]. */
export function selection(label, options, chosen, onchoose) {
  const list = element("select", { "aria-label": label, title: label });
  fillSelection(list, options, chosen);
  list.addEventListener("change", () => onchoose(list.value));
  return list;
}

/** Give a drop-down list other options. */
export function fillSelection(list, options, chosen) {
  list.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  list.value = String(chosen);
}

/** The context of a canvas as large as its box, in CSS pixels whatever the screen has. */
export function sharpContext(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** A canvas nobody sees. */
export function hiddenCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

/** Where the arrow keys go: columns, rows. */
export const WAYS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

let breathed = performance.now();

/** Now and then let the browser draw and listen, in work that goes on for long. */
export async function breathe() {
  if (performance.now() - breathed < 12) return;
  await new Promise((done) => setTimeout(done));
  breathed = performance.now();
}

export function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

/** A weight for a person: three digits that mean something. */
export function numberText(value) {
  if (value === 0) return "0";
  if (value < 0.0001) return value.toExponential(1);
  return value >= 0.1 ? value.toFixed(3) : value.toPrecision(2);
}
