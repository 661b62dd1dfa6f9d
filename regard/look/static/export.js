// Files of what is shown: PNG, SVG and CSV, made in the page and handed to the browser.

import { element } from "./dom.js";
import { sceneCanvas, sceneSvg } from "./scene.js";
import { figureOf } from "./figures.js";

const FORMULA = /^[=+\-@\t\r]/;

/** A field of a CSV file. One that a spreadsheet would take for a formula gets an apostrophe. */
export function csvField(value) {
  const text = String(value);
  const safe = typeof value === "string" && FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csvOf(rows) {
  return rows.map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
}

/** The weights with their labels; of the view of heads, their measures. */
export function csvText(app) {
  const { seen, state, table, site } = app;
  if (state.view === "heads") {
    const rows = seen.sites.flatMap((each) =>
      each.weights.map((_, head) => [
        each.site, seen.headName(each, head),
        each.measures.entropy[head], each.measures.distance[head], each.measures.alignment[head],
      ]),
    );
    return csvOf([["site", "head", "entropy", "distance", "alignment"], ...rows]);
  }
  const short = (weight) => Number(weight.toPrecision(7));
  const body = site.queries.map((label, row) => [label, ...Array.from(table.row(row), short)]);
  return csvOf([["", ...site.keys], ...body]);
}

export const EXPORTS = {
  png: async (app) => {
    const canvas = sceneCanvas(await figureOf(app));
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  },
  svg: async (app) => new Blob([sceneSvg(await figureOf(app))], { type: "image/svg+xml" }),
  csv: async (app) => new Blob([csvText(app)], { type: "text/csv;charset=utf-8" }),
};

/** Give a file to the browser to keep. */
export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
