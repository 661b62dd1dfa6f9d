// What packed.py made small, opened again: labels at once, weights head by head when asked for.

import { breathe } from "./dom.js";

const FORMAT = 2;
const KEPT_WEIGHTS = 24e6;
const THUMB = 96;

/** A table of weights, row by row, with the largest of each row and of all. */
export class Table {
  constructor(rows, columns, values, peaks = largestOfRows(rows, columns, values)) {
    this.rows = rows;
    this.columns = columns;
    this.values = values;
    this.peaks = peaks;
    this.most = peaks.reduce((most, peak) => Math.max(most, peak), 0);
  }

  at(row, column) {
    return this.values[row * this.columns + column];
  }

  row(row) {
    return this.values.subarray(row * this.columns, (row + 1) * this.columns);
  }

  column(column) {
    return Float32Array.from({ length: this.rows }, (_, row) => this.at(row, column));
  }
}

function largestOfRows(rows, columns, values) {
  const peaks = new Float32Array(rows);
  for (let row = 0, at = 0; row < rows; row += 1) {
    let peak = 0;
    for (const end = at + columns; at < end; at += 1) if (values[at] > peak) peak = values[at];
    peaks[row] = peak;
  }
  return peaks;
}

/** Everything that was seen. */
export class Seen {
  constructor(data) {
    if (data.format !== FORMAT) throw new Error(`this page cannot read format ${data.format}`);
    this.title = data.title;
    this.sites = data.sites.map((site, place) => ({
      ...site,
      place,
      name: (site.site || site.kind) + (site.step === null ? "" : `, step ${site.step}`),
      queryAxis: data.axes[site.queries],
      keyAxis: data.axes[site.keys],
      queries: data.axes[site.queries].labels,
      keys: data.axes[site.keys].labels,
      count: site.weights.length,
    }));
    this.kept = new Map();
    this.thumbs = new Map();
    this.pictures = new Map();
  }

  /** The image under an axis once it is loaded; null if there is none, or none to be shown. */
  picture(axis) {
    const address = axis.picture ?? "";
    if (!/^data:image\/(png|jpeg|webp|gif);base64,/.test(address)) return Promise.resolve(null);
    if (!this.pictures.has(address)) {
      const image = new Image();
      image.src = address;
      this.pictures.set(address, image.decode().then(() => image, () => null));
    }
    return this.pictures.get(address);
  }

  /** May all sites be averaged: do they have the same axes? */
  get alike() {
    const [first, ...others] = this.sites;
    const same = (site) => site.queries === first.queries && site.keys === first.keys;
    return others.length > 0 && others.every(same);
  }

  /** What a head is called: its number in the model. */
  headName(site, head) {
    return site.heads === null ? "" : String(site.heads[head]);
  }

  /** The weights of one head, or the mean of several: `site` and `head` are places or "mean". */
  async table(site, head) {
    const chosen = site === "mean" ? this.sites : [this.sites[site]];
    const wanted = chosen.flatMap((each) =>
      head === "mean" ? each.weights.map((_, place) => [each, place]) : [[each, head]],
    );
    if (wanted.length === 1) return this.one(...wanted[0]);
    return this.once(`${site} ${head}`, chosen[0], async () => {
      let sum = null;
      for (const [each, place] of wanted) {
        const { rows, columns, values } = await this.one(each, place);
        sum ??= { rows, columns, values: new Float32Array(values.length) };
        for (let at = 0; at < values.length; at += 1) sum.values[at] += values[at];
      }
      for (let at = 0; at < sum.values.length; at += 1) sum.values[at] /= wanted.length;
      return new Table(sum.rows, sum.columns, sum.values);
    });
  }

  one(site, head) {
    return this.once(`${site.place} ${head}`, site, () => unpacked(site, head));
  }

  /** What was made under a name; made again only where the oldest had to be let go. */
  once(name, site, make) {
    const size = site.queries.length * site.keys.length;
    const known = this.kept.get(name) ?? { made: make(), size };
    this.kept.delete(name);
    this.kept.set(name, known); // the latest last
    let held = 0;
    for (const [each, { size }] of [...this.kept].reverse()) {
      held += size;
      if (held > KEPT_WEIGHTS && each !== name) this.kept.delete(each);
    }
    return known.made;
  }

  /** One head in no more than 96 x 96 cells, each the largest of those it stands for. */
  async thumb(site, head) {
    const name = `${site.place} ${head}`;
    if (!this.thumbs.has(name)) {
      const { rows, columns, values } = await (this.kept.get(name)?.made ?? unpacked(site, head));
      const high = Math.min(rows, THUMB), wide = Math.min(columns, THUMB);
      const small = new Float32Array(high * wide);
      const places = new Uint16Array(columns).map((_, column) => (column * wide) / columns);
      for (let row = 0, at = 0; row < rows; row += 1) {
        const base = Math.floor((row * high) / rows) * wide;
        for (let column = 0; column < columns; column += 1, at += 1) {
          const into = base + places[column];
          if (values[at] > small[into]) small[into] = values[at];
        }
      }
      this.thumbs.set(name, new Table(high, wide, small));
    }
    return this.thumbs.get(name);
  }
}

/** The weights of one head from its stream: peaks of rows, then parts of them. */
async function unpacked(site, head) {
  await breathe();
  const rows = site.queries.length, columns = site.keys.length, levels = site.levels[head];
  const bytes = await inflated(fromBase64(site.weights[head]));
  const peaks = new Float32Array(bytes.buffer.slice(0, 4 * rows));
  const numbers = numbersIn(bytes.subarray(4 * rows), levels);
  const values = new Float32Array(rows * columns);
  for (let row = 0, at = 0; row < rows; row += 1) {
    const end = row * columns + Math.min(columns, Math.max(0, row + site.reach + 1));
    const scale = peaks[row] / (levels || 1);
    for (let into = row * columns; into < end; into += 1, at += 1) {
      values[into] = levels ? numbers[at] * scale : scale; // without levels, a row is its mean
    }
  }
  return new Table(rows, columns, values, peaks);
}

/** Two to a byte below 16 levels, one up to 256, else high bytes before low ones. */
function numbersIn(bytes, levels) {
  if (levels > 15 && levels < 256) return bytes;
  const count = bytes.length;
  if (levels > 255) {
    const numbers = new Uint16Array(count / 2);
    for (let at = 0; at < numbers.length; at += 1) {
      numbers[at] = 256 * bytes[at] + bytes[at + count / 2];
    }
    return numbers;
  }
  const numbers = new Uint8Array(2 * count);
  for (let at = 0; at < count; at += 1) {
    numbers[2 * at] = bytes[at] & 15;
    numbers[2 * at + 1] = bytes[at] >> 4;
  }
  return numbers;
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

const underway = new Set();

/** By hand rather than by pipes, and held on to: Chromium may forget a pipe that nobody holds. */
async function inflated(bytes) {
  const stream = new DecompressionStream("deflate-raw");
  underway.add(stream);
  const writer = stream.writable.getWriter();
  const written = writer.write(bytes).then(() => writer.close());
  const chunks = [], reader = stream.readable.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    chunks.push(part.value);
  }
  await written;
  underway.delete(stream);
  const whole = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  chunks.reduce((at, chunk) => (whole.set(chunk, at), at + chunk.length), 0);
  return whole;
}
