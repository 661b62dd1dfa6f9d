// From weights to shades, 0 to 255, and to pictures of them that get smaller by halves.

import { coloured } from "./colours.js";
import { hiddenCanvas } from "./dom.js";

export const SCALES = [
  ["head", "to the largest"],
  ["row", "row by row"],
  ["one", "0 to 1"],
];
export const CONTRASTS = [
  ["plain", "linear"],
  ["root", "lifted"],
];

/** The weight that is drawn darkest in a row. */
export function topOf(table, row, scale) {
  return scale === "one" ? 1 : scale === "row" ? table.peaks[row] : table.most;
}

/** One weight as a shade. */
export function shadeOf(weight, top, contrast) {
  const part = top > 0 ? Math.min(weight / top, 1) : 0;
  return Math.round(255 * (contrast === "root" ? Math.sqrt(part) : part));
}

/** All weights of a table as shades. */
export function shaded(table, scale, contrast) {
  const shades = new Uint8Array(table.values.length);
  const lifted = contrast === "root";
  for (let row = 0, at = 0; row < table.rows; row += 1) {
    const top = topOf(table, row, scale);
    const factor = top > 0 ? 1 / top : 0;
    for (const end = at + table.columns; at < end; at += 1) {
      const part = table.values[at] * factor;
      shades[at] = 255 * (part >= 1 ? 1 : lifted ? Math.sqrt(part) : part) + 0.5;
    }
  }
  return shades;
}

/** A picture with one pixel for each weight. */
export function pictureOf(rows, columns, shades, colours) {
  const canvas = hiddenCanvas(columns, rows);
  const image = new ImageData(coloured(shades, colours), columns, rows);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** The same weights at a half, a quarter, ...: each cell the largest of those it stands for.

The largest and not the mean, so that a thin diagonal can still be seen from far away. */
export class Halves {
  constructor(table, scale, contrast, colours) {
    this.colours = colours;
    const { rows, columns } = table;
    this.levels = [{ rows, columns, shades: shaded(table, scale, contrast) }];
  }

  /** Make the large pictures while nothing else is to be done, so that zooming need not wait. */
  prepare(level = 2) {
    const later = window.requestIdleCallback ?? ((work) => setTimeout(work, 60));
    later(() => {
      this.at(level);
      if (level > 0) this.prepare(level - 1);
    });
  }

  /** The picture at so many halvings, or at as many as there are. */
  at(level) {
    while (this.levels.length <= level) {
      const last = this.levels[this.levels.length - 1];
      if (last.rows <= 1 && last.columns <= 1) break;
      this.levels.push(halved(last));
    }
    const found = this.levels[Math.min(level, this.levels.length - 1)];
    found.picture ??= pictureOf(found.rows, found.columns, found.shades, this.colours);
    return found;
  }
}

function halved({ rows, columns, shades }) {
  const high = Math.ceil(rows / 2), wide = Math.ceil(columns / 2);
  const half = new Uint8Array(high * wide);
  for (let row = 0, at = 0; row < rows; row += 1) {
    const base = (row >> 1) * wide;
    for (let column = 0; column < columns; column += 1, at += 1) {
      const into = base + (column >> 1);
      if (shades[at] > half[into]) half[into] = shades[at];
    }
  }
  return { rows: high, columns: wide, shades: half };
}
