// Links: keys on the left, queries on the right, and lines as heavy as the weights between them.

import { clamp, element, sharpContext } from "./dom.js";
import { visible } from "./label.js";
import { FONT } from "./scene.js";

const PITCH = 24;
const TIGHT = 17;
const THICKEST = 5;
const LEAST = 0.01;
const STRONGEST = 6;
const TOP = 44;

/** The links worth drawing, the lightest first: [query, key, weight].

All that reach a hundredth of the heaviest; of long texts the six strongest of each query. */
export function linksOf(table, chosen = { query: null, key: null }) {
  const most = table.most || 1;
  const few = table.values.length > 4096 && chosen.query === null && chosen.key === null;
  const found = [];
  for (let query = 0; query < table.rows; query += 1) {
    if (chosen.query !== null && chosen.query !== query) continue;
    const mine = [];
    for (let key = 0; key < table.columns; key += 1) {
      if (chosen.key !== null && chosen.key !== key) continue;
      const weight = table.at(query, key);
      if (weight >= LEAST * most) mine.push([query, key, weight]);
    }
    if (few) mine.sort((one, other) => other[2] - one[2]).splice(STRONGEST);
    found.push(...mine);
  }
  return found.sort((one, other) => one[2] - other[2]);
}

/** Light links almost vanish, so that a crowd of them does not hide a heavy one. */
export function linkOpacity(part) {
  return 0.05 + 0.95 * part ** 1.2;
}

export class LinksView {
  constructor(app) {
    this.app = app;
    this.canvas = element("canvas", {
      tabindex: 0,
      role: "application",
      "aria-label": "links between tokens; up and down choose a query",
    });
    this.host = element("div", { class: "rg-view rg-links" }, this.canvas);
    this.scroll = 0;
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => {
      this.over = null;
      app.point(null);
    });
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("wheel", (event) => {
      if (this.whole <= this.height || !app.mayScroll(this.canvas, event)) return;
      event.preventDefault();
      this.scroll += event.deltaY;
      app.redraw();
    }, { passive: false });
  }

  show() {
    const { site, table } = this.app;
    if (this.table !== table) {
      this.all = linksOf(table);
      this.table = table;
    }
    if (this.queriesOf !== site.queries || this.keysOf !== site.keys) {
      this.queriesOf = site.queries;
      this.keysOf = site.keys;
      this.queries = site.queries.map(visible);
      this.keys = site.keys.map(visible);
      this.scroll = 0;
    }
    this.draw();
  }

  layout() {
    this.width = this.host.clientWidth;
    this.height = this.host.clientHeight;
    const count = Math.max(this.table.rows, this.table.columns);
    this.pitch = clamp((this.height - TOP - 16) / count, TIGHT, PITCH + 8);
    this.whole = TOP + count * this.pitch + 16;
    this.scroll = clamp(this.scroll, 0, Math.max(0, this.whole - this.height));
    const apart = clamp(this.width * 0.42, 150, 460);
    this.left = (this.width - apart) / 2;
    this.right = this.left + apart;
    const slack = (rows) => ((count - rows) * this.pitch) / 2;
    this.placeOf = {
      query: (row) => TOP + slack(this.table.rows) + (row + 0.5) * this.pitch - this.scroll,
      key: (row) => TOP + slack(this.table.columns) + (row + 0.5) * this.pitch - this.scroll,
    };
  }

  /** The token under the pointer: {query} or {key}, or null. */
  tokenAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const side = x < this.left + 12 ? "key" : x > this.right - 12 ? "query" : null;
    if (!side) return null;
    const row = Math.floor((y - this.placeOf[side](0)) / this.pitch + 0.5);
    const count = side === "key" ? this.table.columns : this.table.rows;
    return row >= 0 && row < count ? { [side]: row } : null;
  }

  hover(event) {
    this.over = this.tokenAt(event);
    this.canvas.style.cursor = this.over ? "pointer" : "default";
    this.app.point(this.over && { query: null, key: null, ...this.over }, event);
  }

  click(event) {
    const token = this.tokenAt(event);
    const { query, key } = this.app.state;
    const again = token && ((token.query ?? null) === query) && ((token.key ?? null) === key);
    this.app.set({ query: null, key: null, ...(again ? {} : token) });
  }

  press(event) {
    const way = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way) return false;
    this.app.walk(way);
    const y = this.placeOf.query(this.app.state.query ?? 0);
    if (y < TOP + 20 || y > this.height - 30) this.scroll += y - this.height / 2;
    this.app.redraw();
    return true;
  }

  draw() {
    if (!this.host.clientWidth || !this.table) return;
    this.layout();
    const { app, table } = this, { inks, state } = app;
    const context = sharpContext(this.canvas, this.width, this.height);
    context.clearRect(0, 0, this.width, this.height);
    const none = { query: null, key: null };
    const { query, key } = state;
    const steady = query === null ? { ...none, key } : { ...none, query };
    const chosen = this.over ? { ...none, ...this.over } : steady;
    const lit = chosen.query !== null || chosen.key !== null ? linksOf(table, chosen) : null;
    this.drawLinks(context, this.all, lit ? 0.12 : 1, inks.link);
    if (lit) this.drawLinks(context, lit, 1, inks.accent);
    const bright = { query: new Map(), key: new Map() };
    for (const [query, key, weight] of lit ?? []) {
      bright.query.set(query, Math.max(weight, bright.query.get(query) ?? 0));
      bright.key.set(key, Math.max(weight, bright.key.get(key) ?? 0));
    }
    this.drawTokens(context, "key", this.keys, lit && bright.key, chosen.key);
    this.drawTokens(context, "query", this.queries, lit && bright.query, chosen.query);
  }

  drawLinks(context, links, strength, colour) {
    const middle = (this.left + this.right) / 2, most = this.table.most || 1;
    context.strokeStyle = colour;
    context.lineCap = "round";
    for (const [query, key, weight] of links) {
      const from = this.placeOf.key(key), to = this.placeOf.query(query);
      if (Math.max(from, to) < TOP - 10 || Math.min(from, to) > this.height + 10) continue;
      const part = weight / most;
      context.globalAlpha = strength * linkOpacity(part);
      context.lineWidth = 0.5 + (THICKEST - 0.5) * part;
      context.beginPath();
      context.moveTo(this.left + 6, from);
      context.bezierCurveTo(middle, from, middle, to, this.right - 6, to);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  drawTokens(context, side, labels, bright, chosen) {
    const { inks, found, site } = this.app;
    const key = side === "key";
    const x = key ? this.left - 4 : this.right + 4;
    context.clearRect(key ? 0 : this.right, 0, key ? this.left : this.width, TOP - 8);
    context.textAlign = key ? "right" : "left";
    context.textBaseline = "middle";
    labels.forEach((label, row) => {
      const y = this.placeOf[side](row);
      if (y < TOP - 4 || y > this.height + 20) return;
      const strong = row === chosen;
      context.font = `${strong ? "600 " : ""}${Math.min(14, this.pitch * 0.66)}px ${FONT}`;
      const isFound = found[key ? "keys" : "queries"].has(row);
      context.fillStyle = isFound ? inks.found : strong ? inks.accent : inks.ink;
      context.globalAlpha = bright && !strong && !bright.has(row) ? 0.35 : 1;
      context.fillText(label, x, y, this.left - 60);
      if (bright?.has(row) && !strong) {
        const width = Math.min(context.measureText(label).width, this.left - 60);
        context.font = `11px ${FONT}`;
        context.fillStyle = inks.faint;
        context.fillText(bright.get(row).toFixed(2), key ? x - width - 10 : x + width + 10, y);
      }
      context.globalAlpha = 1;
    });
    context.font = `600 10px ${FONT}`;
    context.fillStyle = inks.faint;
    context.fillText(site.axes[key ? 1 : 0], x, 18);
  }
}
