// The matrix: queries down, keys across; move it with the pointer or the keys, zoom at the cursor.

import { WAYS, clamp, element, hiddenCanvas, sharpContext } from "./dom.js";
import { visible } from "./label.js";
import { inkOn } from "./colours.js";
import { Halves, shadeOf, topOf } from "./shade.js";
import { FONT } from "./scene.js";

const LARGEST_CELL = 96;
const ROOMIEST_CELL = 60;
const LABEL = 12;
const EDGE = 14;
const NUMBERS_FROM = 34;

export class MatrixView {
  constructor(app) {
    this.app = app;
    this.canvas = element("canvas", {
      tabindex: 0,
      role: "application",
      "aria-label": "matrix of weights; arrow keys move the cell",
    });
    this.host = element("div", { class: "rg-view rg-matrix" }, this.canvas);
    this.cell = 0; // pixels; 0 until it has been fitted
    this.x = 0; // of the first column, from the left of the canvas
    this.y = 0;
    this.pointers = new Map();
    this.stamps = new Map();
    this.listen();
  }

  /** Take the current table; stay where we are if only the head has changed. */
  show() {
    const { table, state, colours, site } = this.app;
    const key = [state.scale, state.contrast].join();
    if (this.table !== table || this.key !== key || this.colours !== colours) {
      this.halves = new Halves(table, state.scale, state.contrast, colours);
      this.halves.prepare();
    }
    this.table = table;
    this.key = key;
    this.colours = colours;
    if (this.labelsOf !== site.queries || this.keysOf !== site.keys) {
      this.labelsOf = site.queries;
      this.keysOf = site.keys;
      this.queries = site.queries.map(visible);
      this.keys = site.keys.map(visible);
      this.cell = 0;
    }
    this.draw();
  }

  /** The room left and above for labels. */
  measure() {
    const context = this.canvas.getContext("2d");
    context.font = `${LABEL}px ${FONT}`;
    // No letter is wider than it is high, so that most labels need not be measured.
    const longer = (most, label) =>
      label.length * LABEL * 2 > most ? Math.max(most, context.measureText(label).width) : most;
    const widest = (labels) => labels.reduce(longer, 18);
    this.left = Math.min(Math.ceil(widest(this.queries)) + 2 * EDGE, 190);
    this.top = Math.min(Math.ceil(widest(this.keys)) + 2 * EDGE, 170);
    this.width = this.host.clientWidth;
    this.height = this.host.clientHeight;
  }

  /** The whole matrix in the middle of the canvas. */
  fit() {
    this.measure();
    const wide = this.width - this.left - EDGE, high = this.height - this.top - EDGE;
    this.fitted = Math.max(0.02, Math.min(wide / this.table.columns, high / this.table.rows));
    this.cell = Math.min(this.fitted, ROOMIEST_CELL);
    this.x = this.left + Math.max(0, (wide - this.cell * this.table.columns) / 2);
    this.y = this.top + Math.max(0, (high - this.cell * this.table.rows) / 3);
  }

  /** Zoom by a factor, what is under a point staying there. */
  zoom(factor, x = (this.left + this.width) / 2, y = (this.top + this.height) / 2) {
    const least = Math.min(this.fitted, ROOMIEST_CELL) * 0.8;
    const cell = clamp(this.cell * factor, least, LARGEST_CELL);
    this.x = x - ((x - this.x) * cell) / this.cell;
    this.y = y - ((y - this.y) * cell) / this.cell;
    this.cell = cell;
    this.keepInSight();
    this.app.redraw();
  }

  pan(x, y) {
    this.x += x;
    this.y += y;
    this.keepInSight();
    this.app.redraw();
  }

  /** Some of the matrix is always to be seen. */
  keepInSight() {
    const some = 60;
    const wide = this.cell * this.table.columns, high = this.cell * this.table.rows;
    const kept = (at, from, size, end) =>
      clamp(at, Math.min(from, from + some - size), Math.max(end - some, from));
    this.x = kept(this.x, this.left, wide, this.width);
    this.y = kept(this.y, this.top, high, this.height);
  }

  /** Move so that a cell can be seen. */
  reveal(query, key) {
    if (!this.cell) return;
    const x = this.x + key * this.cell, y = this.y + query * this.cell;
    const inside = (at, from, end) => at >= from && at + this.cell <= end;
    if (!inside(x, this.left, this.width)) this.x += (this.left + this.width) / 2 - x;
    if (!inside(y, this.top, this.height)) this.y += (this.top + this.height) / 2 - y;
  }

  /** The cell under a point of the canvas, or null. */
  cellAt(x, y) {
    if (x < this.left || y < this.top) return null;
    const key = Math.floor((x - this.x) / this.cell), query = Math.floor((y - this.y) / this.cell);
    const inside = key >= 0 && query >= 0 && key < this.table.columns && query < this.table.rows;
    return inside ? { query, key } : null;
  }

  listen() {
    const { canvas, app } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, place(event));
      this.moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const at = place(event), before = this.pointers.get(event.pointerId);
      if (!before) return this.hover(at, event);
      this.moved += Math.hypot(at[0] - before[0], at[1] - before[1]);
      if (this.pointers.size === 1) this.pan(at[0] - before[0], at[1] - before[1]);
      else this.pinch(event.pointerId, before, at);
      this.pointers.set(event.pointerId, at);
      canvas.classList.add("rg-moving");
    });
    const release = (event) => {
      const held = this.pointers.delete(event.pointerId);
      canvas.classList.remove("rg-moving");
      if (held && this.moved < 4 && event.type === "pointerup") this.click(place(event));
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => app.point(null));
    canvas.addEventListener("dblclick", (event) => this.zoom(2, ...place(event)));
    canvas.addEventListener("wheel", (event) => {
      if (!app.mayScroll(canvas, event)) return;
      event.preventDefault();
      this.zoom(Math.exp(-clamp(event.deltaY, -120, 120) * 0.0022), ...place(event));
    }, { passive: false });
  }

  hover(at, event) {
    this.app.point(this.cellAt(...at), event);
  }

  click(at) {
    const cell = this.cellAt(...at);
    if (cell) this.app.set(cell);
    else this.app.set({ query: null, key: null });
  }

  /** Two fingers: zoom by how their distance changes. */
  pinch(id, before, at) {
    const [other] = [...this.pointers].filter(([each]) => each !== id).map(([, place]) => place);
    const was = Math.hypot(before[0] - other[0], before[1] - other[1]);
    const is = Math.hypot(at[0] - other[0], at[1] - other[1]);
    if (was > 0) this.zoom(is / was, (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
  }

  /** Arrow keys move the chosen cell; with shift they move the matrix. */
  press(event) {
    const way = WAYS[event.key];
    if (way && event.shiftKey) this.pan(-60 * way[0], -60 * way[1]);
    else if (way) this.step(...way);
    else if (event.key === "+" || event.key === "=") this.zoom(1.4);
    else if (event.key === "-") this.zoom(1 / 1.4);
    else if (event.key === "0") {
      this.fit();
      this.app.redraw();
    } else return false;
    return true;
  }

  step(x, y) {
    const { query, key } = this.app.state;
    const cell = query === null
      ? { query: 0, key: this.strongest(0) }
      : {
          query: clamp(query + y, 0, this.table.rows - 1),
          key: key === null ? this.strongest(query) : clamp(key + x, 0, this.table.columns - 1),
        };
    this.reveal(cell.query, cell.key);
    this.app.set(cell);
  }

  strongest(query) {
    const row = this.table.row(query);
    return row.indexOf(this.table.peaks[query]);
  }

  draw() {
    if (!this.host.clientWidth || !this.table) return;
    const { clientWidth, clientHeight } = this.host;
    if (!this.cell || this.width !== clientWidth || this.height !== clientHeight) {
      const untouched = !this.cell || this.cell === Math.min(this.fitted, ROOMIEST_CELL);
      if (untouched) this.fit();
      else this.measure();
    }
    const context = sharpContext(this.canvas, this.width, this.height);
    context.clearRect(0, 0, this.width, this.height);
    this.drawWeights(context);
    this.drawMarks(context);
    this.drawLabels(context);
  }

  /** The part of the matrix that can be seen: [first column, last, first row, last). */
  sight() {
    const { cell, table } = this;
    return [
      clamp(Math.floor((this.left - this.x) / cell), 0, table.columns),
      clamp(Math.ceil((this.width - this.x) / cell), 0, table.columns),
      clamp(Math.floor((this.top - this.y) / cell), 0, table.rows),
      clamp(Math.ceil((this.height - this.y) / cell), 0, table.rows),
    ];
  }

  drawWeights(context) {
    const { cell } = this;
    const [left, right, top, bottom] = this.sight();
    if (left >= right || top >= bottom) return;
    const level = Math.max(0, Math.floor(Math.log2(1 / cell)));
    const { picture, rows, columns } = this.halves.at(level);
    const perX = this.table.columns / columns, perY = this.table.rows / rows;
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, this.width - this.left, this.height - this.top);
    context.clip();
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(
      picture,
      left / perX, top / perY, (right - left) / perX, (bottom - top) / perY,
      this.x + left * cell, this.y + top * cell, (right - left) * cell, (bottom - top) * cell,
    );
    context.strokeStyle = this.app.inks.line;
    context.lineWidth = 1;
    const wide = this.table.columns * cell, high = this.table.rows * cell;
    context.strokeRect(this.x - 0.5, this.y - 0.5, wide + 1, high + 1);
    if (cell >= 9) this.rule(context, left, right, top, bottom);
    if (cell >= NUMBERS_FROM) this.drawNumbers(context, left, right, top, bottom);
    context.restore();
  }

  rule(context, left, right, top, bottom) {
    const { cell } = this;
    context.strokeStyle = this.app.inks.paper;
    context.globalAlpha = Math.min(1, (cell - 8) / 12);
    context.beginPath();
    for (let column = left; column <= right; column += 1) {
      const x = Math.round(this.x + column * cell) + 0.5;
      context.moveTo(x, this.y + top * cell);
      context.lineTo(x, this.y + bottom * cell);
    }
    for (let row = top; row <= bottom; row += 1) {
      const y = Math.round(this.y + row * cell) + 0.5;
      context.moveTo(this.x + left * cell, y);
      context.lineTo(this.x + right * cell, y);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  /** Weights in their cells; what rounds to nothing needs no text. */
  drawNumbers(context, left, right, top, bottom) {
    const { cell, table } = this, { scale, contrast } = this.app.state;
    const size = Math.round(clamp(cell / 3.6, 9, 14));
    for (let row = top; row < bottom; row += 1) {
      const largest = topOf(table, row, scale);
      for (let column = left; column < right; column += 1) {
        const weight = table.at(row, column);
        if (weight < 0.005) continue;
        const ink = inkOn(this.colours, shadeOf(weight, largest, contrast));
        const hundredths = Math.round(100 * weight);
        const { canvas, width, height } = this.stamp(size, ink, hundredths);
        const x = this.x + (column + 0.5) * cell - width / 2;
        context.drawImage(canvas, x, this.y + (row + 0.5) * cell - height / 2, width, height);
      }
    }
  }

  /** A number of hundredths as a picture: letters are slow to draw, and there are only so many. */
  stamp(size, ink, hundredths) {
    const name = `${size} ${ink} ${hundredths}`;
    if (!this.stamps.has(name)) {
      const canvas = hiddenCanvas(1, 1), width = 3 * size, height = 2 * size;
      const context = sharpContext(canvas, width, height);
      context.font = `${size}px ${FONT}`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillStyle = ink;
      context.fillText((hundredths / 100).toFixed(2).replace(/^0/, ""), width / 2, height / 2);
      this.stamps.set(name, { canvas, width, height });
    }
    return this.stamps.get(name);
  }

  /** The chosen row, column and cell, and the cell under the pointer. */
  drawMarks(context) {
    const { cell, app } = this, { query, key } = app.state;
    const wide = this.table.columns * cell, high = this.table.rows * cell;
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, this.width - this.left, this.height - this.top);
    context.clip();
    context.strokeStyle = app.inks.accent;
    context.lineWidth = 1.5;
    const frame = (x, y, width, height) =>
      context.strokeRect(x - 1, y - 1, Math.max(width, 3) + 2, Math.max(height, 3) + 2);
    if (query !== null) {
      context.globalAlpha = key === null ? 1 : 0.55;
      frame(this.x, this.y + query * cell, wide, cell);
    }
    context.globalAlpha = 0.55;
    if (key !== null) frame(this.x + key * cell, this.y, cell, high);
    context.globalAlpha = 1;
    context.lineWidth = 2.5;
    if (query !== null && key !== null) {
      frame(this.x + key * cell, this.y + query * cell, cell, cell);
    }
    const hovered = app.pointed;
    if (hovered) {
      context.strokeStyle = app.inks.ink;
      context.lineWidth = 1.5;
      frame(this.x + hovered.key * cell, this.y + hovered.query * cell, cell, cell);
    }
    context.restore();
  }

  drawLabels(context) {
    const { app, cell } = this, { query, key } = app.state, pointed = app.pointed;
    const [left, right, top, bottom] = this.sight();
    const size = clamp(cell * 0.72, 9, LABEL + 1);
    const x = Math.max(this.left, this.x) - 8, y = Math.max(this.top, this.y) - 8;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, this.top - 4, this.width, this.height);
    context.clip();
    const { queries, keys } = app.found;
    for (const row of this.written(top, bottom, size, [query, pointed?.query, ...queries])) {
      this.ink(context, size, row === query || row === pointed?.query, queries.has(row));
      context.textAlign = "right";
      context.fillText(this.queries[row], x, this.y + (row + 0.5) * cell, x - 8);
    }
    context.restore();
    for (const column of this.written(left, right, size, [key, pointed?.key, ...keys])) {
      const middle = this.x + (column + 0.5) * cell;
      if (middle < this.left - 2) continue;
      this.ink(context, size, column === key || column === pointed?.key, keys.has(column));
      this.drawKey(context, this.keys[column], middle, y);
    }
    this.drawAxes(context, x, y);
  }

  ink(context, size, strong, found) {
    const { inks } = this.app;
    context.font = `${strong ? "600 " : ""}${size}px ${FONT}`;
    context.fillStyle = found ? inks.found : strong ? inks.accent : inks.soft;
  }

  /** Upright where it fits, else turned. */
  drawKey(context, label, x, y) {
    const upright = label.length <= 4 && context.measureText(label).width < 0.9 * this.cell;
    context.save();
    context.translate(x, y);
    context.textAlign = upright ? "center" : "left";
    if (!upright) context.rotate(-Math.PI / 2);
    context.fillText(label, 0, upright ? -4 : 0, y - 6);
    context.restore();
  }

  /** Which labels are written: all that have room; of the others, those that matter first. */
  written(first, last, size, special) {
    const every = Math.max(1, Math.ceil((size + 2) / this.cell));
    const places = [];
    for (let at = Math.ceil(first / every) * every; at < last; at += every) places.push(at);
    if (every === 1) return places;
    const chosen = special.filter((at) => at >= first && at < last && at !== null).slice(0, 60);
    const free = (at) => !chosen.some((each) => Math.abs(each - at) < every);
    return [...places.filter(free), ...chosen];
  }

  /** What the axes are, in the corner between them. */
  drawAxes(context, x, y) {
    const [asks, asked] = this.app.site.axes;
    context.fillStyle = this.app.inks.faint;
    context.font = `600 10px ${FONT}`;
    context.textAlign = "right";
    context.fillText(`${asked} →`, x, y - 19);
    context.fillText(`${asks} ↓`, x, y - 6);
  }
}
