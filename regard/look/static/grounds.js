// What weights are drawn on, besides text: an image, a sound, notes, a memory by time.
//
// One side of a site has places (patches, frames, notes, slots); the other one attends, or is
// attended to.

import { clamp, hiddenCanvas, sharpContext } from "./dom.js";
import { visible } from "./label.js";
import { cssColour } from "./colours.js";
import { Table } from "./decode.js";
import { pictureOf, shadeOf, shaded } from "./shade.js";
import { FONT } from "./scene.js";
import { receivedBy } from "./heat.js";

const UNLIT = 0.16;
const SMALL = 11;

/** The side of a site that has places: "keys", "queries", or null where both are texts. */
export function placedSide(site) {
  if (site.keyAxis.kind in GROUNDS) return "keys";
  return site.queryAxis.kind in GROUNDS ? "queries" : null;
}

/** The axis that has places. */
export function placedAxis(site) {
  return placedSide(site) === "queries" ? site.queryAxis : site.keyAxis;
}

function write(context, text, x, y, { align = "left", ink, bold = false, most }) {
  context.font = `${bold ? "600 " : ""}${SMALL}px ${FONT}`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillStyle = ink;
  context.fillText(text, x, y, most);
}

function outline(context, [x, y, width, height], ink, line) {
  context.strokeStyle = ink;
  context.lineWidth = line;
  context.strokeRect(x, y, Math.max(width, 2), Math.max(height, 2));
}

/** Boxes on a plane: patches on their image, notes by time and pitch. */
class BoxGround {
  constructor(axis) {
    if (axis.kind === "notes") {
      const high = Math.max(...axis.notes.map(([pitch]) => pitch));
      const low = Math.min(...axis.notes.map(([pitch]) => pitch));
      this.boxes = axis.notes.map(([pitch, begin, length]) => [begin, high - pitch, length, 1]);
      this.wide = Math.max(1e-9, ...axis.notes.map(([, begin, length]) => begin + length));
      this.high = high - low + 1;
    } else {
      this.boxes = axis.boxes;
      [this.wide, this.high] = [axis.width, axis.height];
    }
    this.stretches = axis.kind === "notes";
  }

  /** Positions without a place, such as a class token. */
  get unplaced() {
    return this.boxes.flatMap(([, , width, height], at) => (width && height ? [] : [at]));
  }

  fit(x, y, width, height) {
    const scale = Math.min(width / this.wide, height / this.high);
    [this.across, this.down] = this.stretches
      ? [width / this.wide, Math.min(height / this.high, 24)]
      : [scale, scale];
    this.x = Math.round(x + (width - this.wide * this.across) / 2);
    this.y = Math.round(y + (height - this.high * this.down) / 2);
  }

  /** A box in pixels; edges that boxes share stay shared. */
  box(at) {
    const [left, top, width, height] = this.boxes[at];
    const x = Math.round(this.x + left * this.across), y = Math.round(this.y + top * this.down);
    return [
      x, y,
      Math.round(this.x + (left + width) * this.across) - x,
      Math.round(this.y + (top + height) * this.down) - y,
    ];
  }

  at(x, y) {
    const inside = ([left, top, width, height]) =>
      x >= left && y >= top && x < left + width && y < top + height;
    const place = this.boxes.findIndex((_, at) => inside(this.box(at)));
    return place < 0 ? null : { place };
  }

  paint(context, look) {
    const { picture, shades, colours, inks } = look;
    const wide = Math.round(this.wide * this.across), high = Math.round(this.high * this.down);
    if (picture) {
      const own = [picture.naturalWidth / this.wide, picture.naturalHeight / this.high];
      context.fillStyle = inks.paper;
      context.fillRect(this.x, this.y, wide, high);
      context.imageSmoothingEnabled = wide < 4 * picture.naturalWidth;
      context.globalAlpha = UNLIT;
      context.drawImage(picture, this.x, this.y, wide, high);
      this.boxes.forEach(([left, top, width, height], at) => {
        context.globalAlpha = shades[at] / 255;
        if (!width || !height || !shades[at]) return;
        const from = [left * own[0], top * own[1], width * own[0], height * own[1]];
        context.drawImage(picture, ...from, ...this.box(at));
      });
      context.globalAlpha = 1;
    } else {
      this.boxes.forEach((_, at) => {
        context.fillStyle = cssColour(colours, shades[at]);
        context.fillRect(...this.box(at));
        outline(context, this.box(at), inks.line, 1);
      });
    }
    outline(context, [this.x - 0.5, this.y - 0.5, wide + 1, high + 1], inks.line, 1);
    for (const [at, ink, line] of look.marks) outline(context, this.box(at), ink, line);
  }
}

/** Frames under their sound: its envelope or spectrogram, and every row of weights below it. */
class TimeGround {
  constructor(axis) {
    this.axis = axis;
    this.begin = Math.min(...axis.times.map(([begin]) => begin));
    this.end = Math.max(...axis.times.map(([, end]) => end), this.begin + 1e-9);
    this.unplaced = [];
  }

  fit(x, y, width, height, others) {
    this.left = x + 96;
    this.wide = Math.max(40, width - 96);
    this.wave = clamp(height * 0.36, 60, 190);
    this.y = y;
    this.rowsFrom = y + this.wave + 30;
    this.rowHeight = clamp((y + height - this.rowsFrom) / Math.max(1, others), 1, 26);
    this.rows = others;
  }

  timed(seconds) {
    return this.left + ((seconds - this.begin) / (this.end - this.begin)) * this.wide;
  }

  span(at) {
    const [begin, end] = this.axis.times[at];
    const x = Math.round(this.timed(begin));
    return [x, Math.max(1, Math.round(this.timed(end)) - x)];
  }

  box(at) {
    const [x, width] = this.span(at);
    return [x, this.y, width, this.wave];
  }

  at(x, y) {
    const place = this.axis.times.findIndex((_, at) => {
      const [from, width] = this.span(at);
      return x >= from && x < from + width;
    });
    const row = Math.floor((y - this.rowsFrom) / this.rowHeight);
    if (place < 0 || y < this.y) return null;
    if (y < this.y + this.wave) return { place };
    return row >= 0 && row < this.rows ? { place, other: row } : null;
  }

  paint(context, look) {
    const { shades, colours, inks, picture } = look;
    this.axis.times.forEach((_, at) => {
      const [x, width] = this.span(at);
      context.fillStyle = cssColour(colours, shades[at]);
      const [top, height] = picture ? [this.y + this.wave - 22, 22] : [this.y, this.wave];
      context.fillRect(x, top, width, height);
    });
    if (picture) {
      context.imageSmoothingEnabled = true;
      context.drawImage(picture, this.left, this.y, this.wide, this.wave - 24);
    } else {
      this.drawEnvelope(context, inks);
    }
    outline(context, [this.left - 0.5, this.y - 0.5, this.wide + 1, this.wave + 1], inks.line, 1);
    this.drawTimes(context, inks);
    this.drawRows(context, look);
    for (const [at, ink, line] of look.marks) outline(context, this.box(at), ink, line);
  }

  drawEnvelope(context, inks) {
    const { envelope } = this.axis;
    if (!envelope.length) return;
    const loudest = Math.max(...envelope) || 1, middle = this.y + this.wave / 2;
    const step = this.wide / envelope.length;
    context.fillStyle = inks.accent;
    envelope.forEach((loud, at) => {
      const high = Math.max(1, (loud / loudest) * (this.wave - 12));
      context.fillRect(this.left + at * step, middle - high / 2, Math.max(step, 0.7), high);
    });
  }

  drawTimes(context, inks) {
    const length = this.end - this.begin;
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300]
      .find((each) => length / each <= this.wide / 60) ?? length;
    for (let time = Math.ceil(this.begin / step) * step; time <= this.end; time += step) {
      const text = `${Number(time.toFixed(2))} s`;
      const style = { align: "center", ink: inks.faint };
      write(context, text, this.timed(time), this.y + this.wave + 12, style);
    }
  }

  drawRows(context, { facing, scale, contrast, colours, inks, labels, chosen }) {
    const small = pictureOf(facing.rows, facing.columns, shaded(facing, scale, contrast), colours);
    const high = this.rowHeight * facing.rows;
    context.imageSmoothingEnabled = false;
    this.axis.times.forEach((_, at) => {
      const [x, width] = this.span(at);
      context.drawImage(small, at, 0, 1, facing.rows, x, this.rowsFrom, width, high);
    });
    outline(context, [this.left - 0.5, this.rowsFrom - 0.5, this.wide + 1, high + 1], inks.line, 1);
    const every = Math.ceil((SMALL + 2) / this.rowHeight);
    labels.forEach((label, row) => {
      if (row % every && row !== chosen) return;
      const ink = row === chosen ? inks.accent : inks.soft;
      const y = this.rowsFrom + (row + 0.5) * this.rowHeight;
      const style = { align: "right", ink, bold: row === chosen, most: 88 };
      write(context, label, this.left - 8, y, style);
    });
    if (chosen !== null) {
      const y = this.rowsFrom + chosen * this.rowHeight;
      outline(context, [this.left - 1, y, this.wide + 2, this.rowHeight], inks.accent, 2);
    }
  }
}

/** A memory by time: slots down, steps across. */
class MemoryGround {
  constructor(axis) {
    this.axis = axis;
    this.slots = axis.labels.map(visible);
    this.unplaced = [];
  }

  fit(x, y, width, height, others) {
    this.x = x + 64;
    this.y = y + 8;
    this.cellWide = clamp((width - 72) / Math.max(1, others), 0.5, 72);
    this.cellHigh = clamp((height - 64) / this.slots.length, 0.5, 48);
    this.steps = others;
  }

  box(at) {
    return [this.x, this.y + at * this.cellHigh, this.steps * this.cellWide, this.cellHigh];
  }

  at(x, y) {
    const place = Math.floor((y - this.y) / this.cellHigh);
    const other = Math.floor((x - this.x) / this.cellWide);
    const inside = place >= 0 && other >= 0 && place < this.slots.length && other < this.steps;
    return inside ? { place, other } : null;
  }

  paint(context, look) {
    const { facing, scale, contrast, colours, inks, labels, chosen, names } = look;
    const shades = shaded(facing, scale, contrast), turned = new Uint8Array(shades.length);
    for (let step = 0; step < facing.rows; step += 1) {
      for (let slot = 0; slot < facing.columns; slot += 1) {
        turned[slot * facing.rows + step] = shades[step * facing.columns + slot];
      }
    }
    const small = pictureOf(facing.columns, facing.rows, turned, colours);
    const wide = this.cellWide * this.steps, high = this.cellHigh * this.slots.length;
    context.imageSmoothingEnabled = false;
    context.drawImage(small, this.x, this.y, wide, high);
    outline(context, [this.x - 0.5, this.y - 0.5, wide + 1, high + 1], inks.line, 1);
    const down = Math.ceil((SMALL + 2) / this.cellHigh);
    this.slots.forEach((label, slot) => {
      if (slot % down) return;
      const y = this.y + (slot + 0.5) * this.cellHigh;
      write(context, label, this.x - 8, y, { align: "right", ink: inks.soft, most: 56 });
    });
    const foot = this.y + high + 14;
    const across = Math.ceil(52 / this.cellWide);
    labels.forEach((label, step) => {
      if (step % across && step !== chosen) return;
      const x = this.x + (step + 0.5) * this.cellWide;
      const ink = step === chosen ? inks.accent : inks.soft;
      write(context, label, x, foot, { align: "center", ink, bold: step === chosen, most: 60 });
    });
    const note = `${names.placed} downward, ${names.other} across`;
    write(context, note, this.x, foot + 22, { ink: inks.faint });
    if (chosen !== null) {
      const x = this.x + chosen * this.cellWide;
      outline(context, [x, this.y - 1, this.cellWide, high + 2], inks.accent, 2);
    }
    for (const [at, ink, line] of look.marks) outline(context, this.box(at), ink, line);
  }
}

export const GROUNDS = {
  patches: BoxGround, notes: BoxGround, frames: TimeGround, slots: MemoryGround,
};

/** The weights with what has places across: [others, places]. */
export function facingPlaces(table, side) {
  if (side === "keys") return table;
  const values = new Float32Array(table.values.length);
  for (let row = 0; row < table.rows; row += 1) {
    for (let column = 0; column < table.columns; column += 1) {
      values[column * table.rows + row] = table.at(row, column);
    }
  }
  return new Table(table.columns, table.rows, values);
}

/** The weights on the places as shades: those of one of the others, or the mean of all. */
function shadesOf(facing, other, { scale, contrast }) {
  const weights = other === null ? receivedBy(facing) : facing.row(other);
  const own = weights.reduce((most, each) => Math.max(most, each), 0);
  const top = scale === "one" ? 1 : other === null || scale === "row" ? own : facing.most;
  return Uint8Array.from(weights, (weight) => shadeOf(weight, top, contrast));
}

/** Everything a ground is painted from. */
export function lookOf(app, facing, other, marks = []) {
  const { site, state, colours, inks } = app;
  const side = placedSide(site);
  const labels = (side === "keys" ? site.queries : site.keys).map(visible);
  const [placed, named] = side === "keys" ? [site.axes[1], site.axes[0]] : site.axes;
  return {
    facing, colours, inks, labels, marks,
    chosen: other,
    names: { placed, other: named },
    picture: app.picture,
    scale: state.scale,
    contrast: state.contrast,
    shades: shadesOf(facing, other, state),
  };
}

/** The ground of one of the others, or of all, as a picture for an export. */
export function groundPicture(app, width, height, other) {
  const ground = new GROUNDS[placedAxis(app.site).kind](placedAxis(app.site));
  const facing = facingPlaces(app.table, placedSide(app.site));
  const canvas = hiddenCanvas(1, 1);
  const context = sharpContext(canvas, width, height);
  context.fillStyle = app.inks.paper;
  context.fillRect(0, 0, width, height);
  ground.fit(1, 1, width - 2, height - 2, facing.rows);
  ground.paint(context, lookOf(app, facing, other));
  return canvas;
}

