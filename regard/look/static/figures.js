// What is exported: the whole of a view as a picture for a paper, not the part on the screen.

import { clamp, hiddenCanvas } from "./dom.js";
import { heading, visible } from "./label.js";
import { cssColour, inkOn } from "./colours.js";
import { pictureOf, shadeOf, shaded, topOf } from "./shade.js";
import { FONT, Scene } from "./scene.js";
import { measureText, orderedHeads } from "./heads.js";
import { linkOpacity, linksOf } from "./links.js";
import { groundPicture, placedAxis, placedSide } from "./grounds.js";

const MARGIN = 18;
const VECTOR_CELLS = 5000;

/** How wide a text will be. */
function widthOf(text, size, bold = false) {
  const context = (widthOf.context ??= hiddenCanvas(1, 1).getContext("2d"));
  context.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
  return context.measureText(text).width;
}

function titled(scene, app, x) {
  const title = app.caption();
  scene.text(x, MARGIN + 4, title, { size: 13, fill: app.inks.ink, bold: true });
  return scene.reach(x + widthOf(title, 13, true) + MARGIN, 0);
}

/** A matrix with its labels; cells are shapes where they are few, else one picture. */
function matrixScene(app) {
  const { table, site, state, colours, inks } = app;
  const scene = new Scene(inks.paper);
  const queries = site.queries.map(visible), keys = site.keys.map(visible);
  const cell = clamp(1100 / Math.max(table.rows, table.columns), 1, 26);
  const every = Math.ceil(12 / cell), size = clamp(cell * 0.7, 9, 12);
  const room = (labels) =>
    labels
      .filter((_, at) => at % every === 0)
      .reduce((most, label) => Math.max(most, widthOf(label, size)), 20);
  const left = MARGIN + room(queries) + 8, top = MARGIN + 24 + room(keys) + 8;
  titled(scene, app, MARGIN);
  const shades = shaded(table, state.scale, state.contrast);
  const wide = table.columns * cell, high = table.rows * cell;
  if (shades.length <= VECTOR_CELLS) {
    shades.forEach((shade, at) => {
      const column = at % table.columns, row = (at - column) / table.columns;
      const side = cell - 0.5;
      scene.box(left + column * cell, top + row * cell, side, side, cssColour(colours, shade));
    });
  } else {
    scene.picture(left, top, wide, high, pictureOf(table.rows, table.columns, shades, colours));
  }
  scene.box(left - 0.5, top - 0.5, wide + 0.5, high + 0.5, null, inks.line);
  const style = { size, fill: inks.soft };
  for (let row = 0; row < table.rows; row += every) {
    scene.text(left - 6, top + (row + 0.5) * cell, queries[row], { ...style, anchor: "end" });
  }
  for (let column = 0; column < table.columns; column += every) {
    const upright = keys[column].length < 3 && widthOf(keys[column], size) < cell;
    const way = upright ? { anchor: "middle" } : { turn: -90 };
    const x = left + (column + 0.5) * cell, y = top - (upright ? 10 : 6);
    scene.text(x, y, keys[column], { ...style, ...way });
  }
  const foot = top + table.rows * cell + 16;
  const note = `${site.axes[0]} downward, ${site.axes[1]} across; full colour is ${app.topText()}`;
  scene.text(MARGIN, foot, note, { size: 10, fill: inks.faint });
  return scene.reach(left + table.columns * cell + MARGIN, foot + MARGIN);
}

/** Every head, small, with its measure. */
async function headsScene(app) {
  const { seen, state, colours, inks } = app;
  const scene = new Scene(inks.paper);
  const side = 92, gap = 12, down = side + 34;
  const wide = state.sort === "model" ? Math.max(...seen.sites.map((site) => site.count)) : 12;
  const names = seen.sites.map((site) => widthOf(heading(site.name), 11));
  const left = MARGIN + (state.sort === "model" ? Math.max(...names) + 12 : 0);
  const measure = state.sort === "model" ? "entropy" : state.sort;
  titled(scene, app, MARGIN);
  let flat = 0;
  for (const [site, head] of orderedHeads(seen, state.sort)) {
    const column = state.sort === "model" ? head : flat % wide;
    const row = state.sort === "model" ? site.place : Math.floor(flat / wide);
    const x = left + column * (side + gap), y = MARGIN + 26 + row * down;
    const small = await seen.thumb(site, head);
    const shades = shaded(small, state.scale, state.contrast);
    scene.picture(x, y, side, side, pictureOf(small.rows, small.columns, shades, colours));
    scene.box(x - 0.5, y - 0.5, side + 1, side + 1, null, inks.line);
    const name = seen.headName(site, head);
    const numbered = [heading(site.name), name].filter(Boolean).join(" · ");
    const text = state.sort === "model" ? name && `head ${name}` : numbered;
    scene.text(x, y + side + 9, text, { size: 9.5, fill: inks.soft });
    scene.text(x, y + side + 20, measureText(site, head, measure), { size: 9, fill: inks.faint });
    if (state.sort === "model" && head === 0) {
      const style = { size: 11, fill: inks.ink, anchor: "end" };
      scene.text(left - 10, y + side / 2, heading(site.name), style);
    }
    flat += 1;
  }
  return scene.reach(scene.width + MARGIN, scene.height + 34);
}

/** Two columns of tokens and the links between them. */
function linksScene(app) {
  const { table, site, state, inks } = app;
  const scene = new Scene(inks.paper);
  const queries = site.queries.map(visible), keys = site.keys.map(visible);
  const pitch = 20, apart = 260, count = Math.max(table.rows, table.columns), top = MARGIN + 46;
  const left = MARGIN + Math.max(40, ...keys.map((label) => widthOf(label, 12))) + 8;
  const right = left + apart;
  const place = (rows, row) => top + ((count - rows) * pitch) / 2 + (row + 0.5) * pitch;
  titled(scene, app, MARGIN);
  scene.text(left - 6, top - 12, site.axes[1], { size: 10, fill: inks.faint, anchor: "end" });
  scene.text(right + 6, top - 12, site.axes[0], { size: 10, fill: inks.faint });
  const chosen = { query: state.query, key: state.query === null ? state.key : null };
  for (const [query, key, weight] of linksOf(table, chosen)) {
    const part = weight / (table.most || 1);
    const from = place(table.columns, key), to = place(table.rows, query);
    scene.link(left, from, right, to, inks.link, 0.5 + 4.5 * part, linkOpacity(part));
  }
  const style = { size: 12, fill: inks.ink };
  keys.forEach((label, row) =>
    scene.text(left - 6, place(table.columns, row), label, { ...style, anchor: "end" }),
  );
  queries.forEach((label, row) => scene.text(right + 6, place(table.rows, row), label, style));
  const widest = Math.max(40, ...queries.map((label) => widthOf(label, 12)));
  return scene.reach(right + 6 + widest + MARGIN, top + count * pitch + MARGIN);
}

/** The keys as a text on shades: under the chosen query, or one text for each query. */
function heatScene(app) {
  const { table, site, state, colours, inks } = app;
  const scene = new Scene(inks.paper);
  const keys = site.keys.map(visible), queries = site.queries.map(visible);
  const rows = state.query === null ? queries.map((_, row) => row).slice(0, 400) : [state.query];
  const side = MARGIN + Math.max(...rows.map((row) => widthOf(queries[row], 12, true))) + 14;
  titled(scene, app, MARGIN);
  let y = MARGIN + 40;
  for (const query of rows) {
    const style = { size: 12, fill: inks.ink, anchor: "end", bold: true };
    scene.text(side - 10, y, queries[query], style);
    let x = side;
    keys.forEach((label, key) => {
      const width = widthOf(label, 12) + 8;
      if (x > side && x + width > side + 900) [x, y] = [side, y + 22];
      const shade = shadeOf(table.at(query, key), topOf(table, query, state.scale), state.contrast);
      scene.box(x, y - 9, width, 18, cssColour(colours, shade));
      scene.text(x + 4, y, label, { size: 12, fill: inkOn(colours, shade) });
      x += width + 2;
    });
    y += 26;
  }
  return scene.reach(scene.width + MARGIN, y + MARGIN / 2);
}

/** The input with its weights: of what is chosen, or an image for each of the others. */
function inputScene(app) {
  const { site, state, inks } = app;
  const scene = new Scene(inks.paper);
  const axis = placedAxis(site), keys = placedSide(site) === "keys";
  const labels = (keys ? site.queries : site.keys).map(visible);
  const other = keys ? state.query : state.key;
  const top = MARGIN + 26;
  titled(scene, app, MARGIN);
  if (axis.kind !== "patches" || other !== null) {
    const [wide, high] = axis.kind === "patches" ? [520, 520] : [900, 520];
    scene.picture(MARGIN, top, wide, high, groundPicture(app, wide, high, other));
    if (other !== null) scene.text(MARGIN, top + high + 12, labels[other], { fill: inks.ink });
    return scene.reach(MARGIN + wide + MARGIN, top + high + 24 + MARGIN);
  }
  const side = 150, down = side + 30, across = 6;
  labels.slice(0, 120).forEach((label, at) => {
    const x = MARGIN + (at % across) * (side + 12), y = top + Math.floor(at / across) * down;
    scene.picture(x, y, side, side, groundPicture(app, side, side, at));
    scene.text(x + side / 2, y + side + 10, label, { size: 11, fill: inks.ink, anchor: "middle" });
  });
  return scene.reach(scene.width + MARGIN, scene.height + 18 + MARGIN);
}

const FIGURES = {
  matrix: matrixScene, heads: headsScene, links: linksScene, text: heatScene, input: inputScene,
};

/** The current view as a scene. */
export async function figureOf(app) {
  return FIGURES[app.state.view](app);
}
