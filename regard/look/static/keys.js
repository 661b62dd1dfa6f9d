// Keys: what each does, as the help shows it and as it is done.

/** [keys, what they do, the action]. Keys without an action belong to the views. */
export const KEYS = [
  [["1", "2", "3", "4", "5"], "matrix, heads, links, text, input", (app, key) => app.nthView(key)],
  [["[", "]"], "the head before, the head after", (app, key) => app.nextHead(key === "[" ? -1 : 1)],
  [["{", "}"], "the layer before or after", (app, key) => app.nextSite(key === "{" ? -1 : 1)],
  [["m"], "the mean of all heads", (app) => app.set({ head: "mean" })],
  [["Arrows"], "move the cell, the token or the head"],
  [["Enter"], "open the head that is marked"],
  [["Shift + arrows"], "move the matrix"],
  [["+", "-", "0"], "zoom in, zoom out, show all"],
  [[",", "."], "the step before, the step after", (app, key) => app.walk(key === "," ? -1 : 1)],
  [["p"], "play the steps, or stop", (app) => app.play()],
  [["Escape"], "choose nothing", (app) => app.set({ query: null, key: null })],
  [["/"], "search a token", (app) => app.search.focus()],
  [["n", "N"], "the match after or before", (app, key) => app.nextMatch(key === "n" ? 1 : -1)],
  [["s"], "sort heads: model, entropy, distance, alignment", (app) => app.cycle("sort")],
  [["c"], "other colours", (app) => app.cycle("palette")],
  [["r"], "other scale: largest of all, of each row, 0 to 1", (app) => app.cycle("scale")],
  [["l"], "lift small weights: linear or square root", (app) => app.cycle("contrast")],
  [["d"], "light or dark", (app) => app.cycle("theme")],
  [["e"], "export", (app) => app.exports.showPicker()],
  [["?"], "this help", (app) => app.help()],
];

/** Do what a key asks for; true if it asked for anything. */
export function pressed(app, event) {
  const found = KEYS.find(([names, , action]) => action && names.includes(event.key));
  if (!found) return false;
  found[2](app, event.key);
  return true;
}
