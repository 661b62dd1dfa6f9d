// The curves of a training, which may still go on: one small chart for each.

import { element, numberText, sharpContext } from "./look/dom.js";
import { get } from "./api.js";

const EVERY_MS = 2000;
const LATEST = new Set(["train/epoch", "train/seconds"]); // these only ever rise

export class Curves {
  constructor() {
    this.root = element("div", { class: "st-curves", "aria-live": "off" });
    this.run = null;
    this.timer = null;
    this.data = {};
  }

  /** Show the curves of a run, and go on showing them. */
  show(run) {
    this.run = run;
    clearTimeout(this.timer);
    return this.refresh();
  }

  stop() {
    clearTimeout(this.timer);
    this.run = null;
  }

  async refresh() {
    const { run } = this;
    if (!run) return;
    try {
      const { curves } = await get(`/api/runs/${encodeURIComponent(run)}/curves`);
      if (run !== this.run) return;
      this.draw(curves);
    } catch (error) {
      this.root.replaceChildren(element("p", { class: "st-wrong" }, error.message));
    }
    this.timer = setTimeout(() => this.refresh(), EVERY_MS);
  }

  draw(curves) {
    this.data = curves;
    const names = Object.keys(curves).filter((name) => !LATEST.has(name));
    if (!names.length) {
      this.root.replaceChildren(element("p", {}, "There is nothing in its log yet."));
      return;
    }
    this.root.replaceChildren(...names.map((name) => chart(name, curves[name])));
  }
}

function chart(name, points) {
  const canvas = element("canvas", { role: "img", "aria-label": name });
  const [update, last] = points[points.length - 1];
  const said = `${name}: ${numberText(Math.abs(last)) === "0" ? 0 : last.toPrecision(4)}`;
  const figure = element("figure", {}, canvas, element("figcaption", {}, `${said} at ${update}`));
  requestAnimationFrame(() => paint(canvas, points));
  return figure;
}

function paint(canvas, points) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const context = sharpContext(canvas, width, height);
  const style = getComputedStyle(canvas);
  const updates = points.map(([update]) => update);
  const values = points.map(([, value]) => value);
  const [left, right] = [Math.min(...updates), Math.max(...updates)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (update) => 4 + ((update - left) / (right - left || 1)) * (width - 8);
  const y = (value) => height - 4 - ((value - low) / (high - low || 1)) * (height - 8);
  context.clearRect(0, 0, width, height);
  context.strokeStyle = context.fillStyle = style.color;
  context.lineWidth = 1.5;
  context.beginPath();
  for (const [update, value] of points) context.lineTo(x(update), y(value));
  context.stroke();
  if (points.length < 40) {
    for (const [update, value] of points) context.fillRect(x(update) - 2, y(value) - 2, 4, 4);
  }
}
