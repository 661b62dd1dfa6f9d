// Edits: other attention weights, and the prediction with them.

import { element } from "./look/dom.js";
import { visible } from "./look/label.js";
import { ask } from "./api.js";

const WAYS = { off: "switch off", uniform: "make uniform", permuted: "permute" };
const MOST_KEYS = 64;
const PAUSE_MS = 120;

export class Edits {
  /**
   * `chosen()` returns the site, head and row on show: {site, head, query, keys, weights};
   * `context()` the input of a request: {model, text} or {model, input, kind};
   * `redraw(signal)` shows the attention with the edits in `list`.
   */
  constructor(chosen, context, redraw) {
    this.chosen = chosen;
    this.context = context;
    this.redraw = redraw;
    this.list = [];
    this.shown = element("ul", { class: "st-edits" });
    this.row = element("div", { class: "st-row", hidden: true });
    this.said = element("div", { class: "st-said" });
    this.buttons = [
      ...Object.entries(WAYS).map(([how, text]) =>
        element("button", { type: "button", "data-how": how, onclick: () => this.add({ how }) }, text),
      ),
      element("button", { type: "button", "data-how": "row", onclick: () => this.draw() }, "draw the row"),
      element("button", { type: "button", "data-how": "clear", onclick: () => this.clear() }, "undo all"),
    ];
    this.root = element(
      "section",
      { class: "st-edit", "aria-label": "edit the attention" },
      element("div", { class: "st-buttons" }, ...this.buttons),
      this.row,
      this.shown,
      this.said,
    );
  }

  /** Add an edit of what is chosen, or put it in the place of the same row's. */
  add(edit) {
    const { site, head } = this.chosen();
    const made = { site, heads: head === null ? null : [head], ...edit };
    const same = (each) => edit.how === "row" && each.how === "row" && where(each) === where(made);
    this.list = [...this.list.filter((each) => !same(each)), made];
    return this.changed();
  }

  /** Take one edit back. */
  remove(edit) {
    this.list = this.list.filter((each) => each !== edit);
    return this.changed();
  }

  clear() {
    this.list = [];
    this.row.hidden = true;
    return this.changed();
  }

  /** One slider for each key of the chosen row. */
  draw() {
    const { query, keys, weights } = this.chosen();
    const row = weights[query] ?? weights[weights.length - 1];
    const place = query ?? weights.length - 1;
    const given = Array.from(row).slice(0, MOST_KEYS);
    const sliders = given.map((weight, key) =>
      element(
        "label",
        {},
        element("span", {}, visible(keys[key])),
        element("input", {
          type: "range", min: 0, max: 1, step: 0.01, value: weight, "data-key": key,
          oninput: (event) => {
            given[key] = Number(event.target.value);
            clearTimeout(this.timer);
            this.timer = setTimeout(() => this.add({ how: "row", query: place, weights: [...given] }), PAUSE_MS);
          },
        }),
      ),
    );
    const title = `row ${place + 1}: drag to change its weights`;
    this.row.replaceChildren(element("p", {}, title), ...sliders);
    this.row.hidden = false;
  }

  listed(edit) {
    const text = where(edit);
    const remove = { type: "button", class: "st-remove", "aria-label": `remove: ${text}`, onclick: () => this.remove(edit) };
    return element("li", {}, element("span", {}, text), element("button", remove, "×"));
  }

  /** Predict with the edits, and show the attention with them unless it is on show already. */
  async changed({ drawn = false } = {}) {
    this.shown.replaceChildren(...this.list.map((edit) => this.listed(edit)));
    this.abort?.abort();
    const { signal } = (this.abort = new AbortController());
    const context = this.context();
    if (context.text !== undefined && !context.text.trim()) return;
    try {
      const made = await ask("/api/intervene", { ...context, edits: this.list }, signal);
      this.answer = made;
      this.said.replaceChildren(...compared(made));
      if (!drawn) await this.redraw(signal);
    } catch (error) {
      if (error.name !== "AbortError") {
        this.said.replaceChildren(element("p", { class: "st-wrong" }, error.message));
      }
    }
  }
}

/** One edit in words, for a person; rows are counted from 1, as everywhere on the page. */
function where({ site, heads, how, query }) {
  const head = heads === null ? "all heads" : `head ${heads[0]}`;
  return `${site}, ${head}: ${how === "row" ? `row ${query + 1} as drawn` : how}`;
}

/** The predictions without the edits and with them, side by side. */
function compared({ before, after }) {
  if (before.text !== null) {
    return [
      element("p", { class: "st-before" }, before.text),
      element("p", { class: "st-after" }, after.text),
    ];
  }
  const then = new Map(after.choices.map((choice) => [choice.text, choice.probability]));
  const names = [...new Set([...before.choices, ...after.choices].map((choice) => choice.text))];
  const now = new Map(before.choices.map((choice) => [choice.text, choice.probability]));
  const rows = names.slice(0, 10).map((name) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, visible(name)),
      ...[now, then].map((chances) => bar(chances.get(name) ?? 0)),
    ),
  );
  const head = ["next", "as it is", "edited"].map((text) => element("th", { scope: "col" }, text));
  return [element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))];
}

function bar(chance) {
  const meter = element("meter", { min: 0, max: 1, value: chance });
  return element("td", {}, meter, element("span", {}, `${(100 * chance).toFixed(1)} %`));
}
