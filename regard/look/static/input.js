// The input itself, with the attention weights over it. Choose one of those that attend, or point
// at it, to see its weights on the places of the input.

import { clamp, element, sharpContext } from "./dom.js";
import { visible } from "./label.js";
import { cssColour, inkOn } from "./colours.js";
import { shadeOf } from "./shade.js";
import { GROUNDS, facingPlaces, lookOf, placedAxis, placedSide } from "./grounds.js";

const LISTED = 1200;
const EDGES = 18;

export class InputView {
  constructor(app) {
    this.app = app;
    this.over = null; // what is pointed at in the list
    this.canvas = element("canvas", {
      tabindex: 0,
      role: "application",
      "aria-label": "the input with attention weights over it; arrow keys choose what attends",
    });
    this.hint = element("p", { class: "rg-hint", role: "status" });
    this.list = element("div", { class: "rg-others" });
    this.rest = element("p", { class: "rg-words rg-unplaced" });
    this.plane = element("div", { class: "rg-plane" }, this.canvas);
    const main = element("div", { class: "rg-main" }, this.hint, this.plane, this.rest);
    this.host = element("div", { class: "rg-view rg-input" }, this.list, main);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => {
      this.spot = null;
      app.point(null);
    });
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.list.addEventListener("pointerleave", () => {
      this.over = null;
      app.redraw();
    });
  }

  show() {
    const { site, table } = this.app;
    if (this.queriesOf !== site.queryAxis || this.keysOf !== site.keyAxis) this.build();
    if (this.table !== table) {
      this.table = table;
      this.facing = facingPlaces(table, this.side);
    }
    this.draw();
  }

  build() {
    const { site } = this.app;
    this.queriesOf = site.queryAxis;
    this.keysOf = site.keyAxis;
    this.side = placedSide(site);
    this.single = site.queryAxis === site.keyAxis; // positions that attend to each other
    this.asks = this.side === "keys" ? "query" : "key";
    this.ground = new GROUNDS[placedAxis(site).kind](placedAxis(site));
    this.over = this.spot = null;
    this.table = null;
    const others = this.side === "keys" ? site.queries : site.keys;
    const chip = (label, place) => {
      const button = element("button", { class: "rg-token", "data-place": place }, visible(label));
      button.addEventListener("click", () => this.choose(place));
      button.addEventListener("pointerenter", () => {
        this.over = place;
        this.app.redraw();
      });
      return button;
    };
    this.chips = others.slice(0, LISTED).map(chip);
    const name = this.side === "keys" ? site.axes[0] : site.axes[1];
    this.list.replaceChildren(element("h2", {}, name), ...this.chips);
    const labels = placedAxis(site).labels;
    this.restChips = this.ground.unplaced.map((at) => [
      at, element("span", { class: "rg-token" }, visible(labels[at])),
    ]);
    this.rest.replaceChildren(...this.restChips.map(([, each]) => each));
    this.rest.hidden = !this.restChips.length;
  }

  choose(place) {
    const again = this.app.state[this.asks] === place;
    this.app.set({ query: null, key: null, [this.asks]: again ? null : place });
  }

  /** Which of the others is shown: the one pointed at, else the chosen one. */
  get other() {
    if (this.over !== null) return this.over;
    if (this.single && this.spot && this.app.state.query === null) return this.spot.place;
    return this.app.state[this.asks];
  }

  spotAt(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.ground.at(event.clientX - box.left, event.clientY - box.top);
  }

  /** A spot as the query and key of the site. */
  pairOf({ place, other = this.other }) {
    return this.side === "keys" ? { query: other, key: place } : { query: place, key: other };
  }

  hover(event) {
    this.spot = this.spotAt(event);
    this.app.point(this.spot && this.pairOf(this.spot), event);
  }

  click(event) {
    const spot = this.spotAt(event);
    const { state } = this.app;
    if (!spot) this.app.set({ query: null, key: null });
    else if (spot.other !== undefined) this.app.set(this.pairOf(spot));
    else if (this.single) this.choose(spot.place);
    else this.app.set(this.pairOf({ place: spot.place, other: state[this.asks] }));
  }

  press(event) {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!by || event.shiftKey) return false;
    const last = this.facing.rows - 1, now = this.app.state[this.asks];
    const next = now === null ? (by > 0 ? 0 : last) : clamp(now + by, 0, last);
    this.app.set({ query: null, key: null, [this.asks]: next });
    return true;
  }

  /** What stands out: the strongest place, the one that attends, the one under the pointer. */
  marks() {
    const { state, inks } = this.app;
    const { other, facing } = this;
    const marks = [];
    const placed = state[this.side === "keys" ? "key" : "query"];
    if (other !== null && this.app.site.keyAxis.kind === "patches" && this.side === "keys") {
      const row = facing.row(other);
      marks.push([row.indexOf(facing.peaks[other]), inks.accent, 2]);
    }
    if (this.single && other !== null) marks.push([other, inks.found, 3]);
    if (placed !== null) marks.push([placed, inks.accent, 3]);
    if (this.spot) marks.push([this.spot.place, inks.ink, 1.5]);
    return marks.filter(([at]) => at >= 0 && !this.ground.unplaced.includes(at));
  }

  draw() {
    if (!this.plane.clientWidth || !this.facing) return;
    const { app, other } = this;
    const width = this.plane.clientWidth, height = this.plane.clientHeight;
    const context = sharpContext(this.canvas, width, height);
    context.clearRect(0, 0, width, height);
    this.ground.fit(EDGES, EDGES, width - 2 * EDGES, height - 2 * EDGES, this.facing.rows);
    const look = lookOf(app, this.facing, other, this.marks());
    this.ground.paint(context, look);
    this.restChips.forEach(([at, chip]) => this.dye(chip, look.shades[at]));
    this.drawChips(other);
    this.tellWhat(look);
  }

  dye(chip, shade) {
    chip.style.backgroundColor = cssColour(this.app.colours, shade);
    chip.style.color = inkOn(this.app.colours, shade);
  }

  /** The list: which of the others is shown; with a place chosen, how much each attends to it. */
  drawChips(other) {
    const { app, facing } = this, { state } = app;
    const place = state[this.side === "keys" ? "key" : "query"];
    const column = place === null ? null : facing.column(place);
    const top = column && (state.scale === "one" ? 1 : column.reduce((a, b) => Math.max(a, b), 0));
    const found = app.found[this.side === "keys" ? "queries" : "keys"];
    this.chips.forEach((chip, at) => {
      chip.classList.toggle("rg-chosen", at === other);
      chip.classList.toggle("rg-found", found.has(at));
      chip.style.backgroundColor = chip.style.color = "";
      if (column) this.dye(chip, shadeOf(column[at], top, state.contrast));
    });
  }

  tellWhat({ names, labels }) {
    const { other } = this;
    const what = this.side === "keys" ? "where it attends" : "what attends to it";
    this.hint.textContent =
      other === null
        ? `The mean over every ${names.other}. Point at one to see its weights.`
        : `${names.other} ${other + 1} of ${labels.length}, ${labels[other]}: ${what}`;
  }
}
