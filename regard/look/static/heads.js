// All heads of all layers as small matrices, in the order of the model or by a measure.

import { WAYS, element } from "./dom.js";
import { heading } from "./label.js";
import { pictureOf, shaded } from "./shade.js";

export const SORTS = [
  ["model", "as in the model"],
  ["entropy", "by entropy"],
  ["distance", "by distance"],
  ["alignment", "by alignment"],
];
export const MEASURES = ["entropy", "distance", "alignment"];
const UNITS = { entropy: " bits", distance: " keys", alignment: "" };

/** What a measure of a head is, in words. */
export function measureText(site, head, measure) {
  return site.measures[measure][head].toFixed(2) + UNITS[measure];
}

/** Every head as [site, head] in the chosen order: the sharpest, nearest or best aligned first. */
export function orderedHeads(seen, sort) {
  const all = seen.sites.flatMap((site) => site.weights.map((_, head) => [site, head]));
  if (sort === "model") return all;
  const sign = sort === "alignment" ? -1 : 1;
  const value = ([site, head]) => sign * site.measures[sort][head];
  return all.sort((one, other) => value(one) - value(other));
}

export class HeadsView {
  constructor(app) {
    this.app = app;
    const label = "all heads; arrow keys move, Enter opens";
    this.grid = element("div", { class: "rg-grid", role: "grid", "aria-label": label });
    this.host = element("div", { class: "rg-view rg-heads" }, this.grid);
  }

  show() {
    const { state, colours, seen } = this.app;
    const order = [state.sort, state.scale, state.contrast].join();
    if (this.seen !== seen || this.sort !== state.sort) this.build();
    if (this.order !== order || this.colours !== colours) this.paint();
    this.order = order;
    this.colours = colours;
    for (const cell of this.cells) {
      const chosen = cell.site.place === state.site && cell.head === state.head;
      cell.button.setAttribute("aria-selected", String(chosen));
    }
  }

  build() {
    const { seen, state } = this.app;
    this.seen = seen;
    this.sort = state.sort;
    this.order = null;
    this.cells = orderedHeads(seen, state.sort).map(([site, head]) => this.cellOf(site, head));
    this.columns = Math.max(...seen.sites.map((site) => site.count));
    const flat = () => element("div", { class: "rg-flat", role: "row" }, ...this.buttons());
    this.grid.style.setProperty("--columns", String(Math.min(this.columns, 12)));
    this.grid.style.setProperty("--widest", this.columns > 6 ? "170px" : "230px");
    this.grid.replaceChildren(...(state.sort === "model" ? this.byLayer() : [flat()]));
    if (this.cells.length) this.cells[0].button.tabIndex = 0;
  }

  buttons(site = null) {
    return this.cells.filter((cell) => !site || cell.site === site).map((cell) => cell.button);
  }

  cellOf(site, head) {
    const { seen, state } = this.app;
    const name = seen.headName(site, head);
    const full = [heading(site.name), name && `head ${name}`].filter(Boolean).join(", ");
    const many = Math.max(...seen.sites.map((each) => each.count)) > 6; // narrow, so say less
    const short = state.sort === "model" ? name && (many ? name : `head ${name}`) : full;
    const measures = MEASURES.map((measure) => `${measure} ${measureText(site, head, measure)}`);
    const canvas = element("canvas", { "aria-hidden": "true" });
    const button = element(
      "button",
      {
        class: "rg-thumb",
        role: "gridcell",
        tabindex: -1,
        title: `${full}\n${measures.join("\n")}`,
        "aria-label": `${full}: ${measures.join(", ")}`,
        onclick: () => this.app.set({ site: site.place, head, view: "matrix" }),
      },
      canvas,
      element("span", { class: "rg-thumb-name" }, short || "weights"),
      element(
        "span",
        { class: "rg-thumb-measure" },
        measureText(site, head, state.sort === "model" ? "entropy" : state.sort),
      ),
    );
    return { site, head, canvas, button };
  }

  byLayer() {
    return this.seen.sites.map((site) => {
      const name = heading(site.name);
      const properties = { class: "rg-layer-name", role: "rowheader", title: name };
      return element(
        "div",
        { class: "rg-layer", role: "row" },
        element("div", properties, name),
        element("div", { class: "rg-layer-heads" }, ...this.buttons(site)),
      );
    });
  }

  /** One after another, so that the page stays free to do other things. */
  async paint() {
    const { colours, state, seen } = this.app;
    const turn = (this.turn = {});
    for (const { site, head, canvas } of this.cells) {
      const small = await seen.thumb(site, head);
      if (turn !== this.turn) return;
      const shades = shaded(small, state.scale, state.contrast);
      const picture = pictureOf(small.rows, small.columns, shades, colours);
      canvas.width = picture.width;
      canvas.height = picture.height;
      canvas.getContext("2d").drawImage(picture, 0, 0);
      canvas.classList.add("rg-painted");
    }
  }

  draw() {}

  focus() {
    const { state } = this.app;
    const chosen = ({ site, head }) => site.place === state.site && head === state.head;
    this.move(this.cells.find(chosen) ?? this.cells[0]);
  }

  move(cell) {
    for (const each of this.cells) each.button.tabIndex = each === cell ? 0 : -1;
    cell.button.focus();
  }

  press(event) {
    const way = WAYS[event.key];
    if (!way) return false;
    const at = this.cells.findIndex(({ button }) => button === document.activeElement);
    if (at < 0) this.focus();
    else this.move(this.cells[this.neighbour(at, ...way)]);
    return true;
  }

  /** The cell to the left or right in the order, or the nearest one above or below. */
  neighbour(at, x, y) {
    if (x) return Math.min(Math.max(at + x, 0), this.cells.length - 1);
    const here = this.cells[at].button.getBoundingClientRect();
    let best = at, least = Infinity;
    this.cells.forEach(({ button }, place) => {
      const there = button.getBoundingClientRect();
      const down = (there.top - here.top) * y;
      const away = down + Math.abs(there.left - here.left);
      if (down > 4 && away < least) [best, least] = [place, away];
    });
    return best;
  }
}
