// Text heat: the words themselves, each on a shade by its attention weight.

import { element } from "./dom.js";
import { visible } from "./label.js";
import { cssColour, inkOn } from "./colours.js";
import { shadeOf, topOf } from "./shade.js";

const ROWS_UP_TO = 4000;

/** Tokens as text that flows; a click chooses one. */
function tokensOf(labels, side, choose) {
  return labels.map((label, place) => {
    const properties = { class: "rg-token", "data-place": place, "data-side": side };
    const token = element("span", properties, visible(label));
    token.addEventListener("click", () => choose(side, place));
    return token;
  });
}

/** Line breaks of the text are line breaks here. */
function flowing(labels, tokens) {
  return tokens.flatMap((token, place) =>
    labels[place].endsWith("\n") ? [token, element("br")] : [token],
  );
}

/** The weight of each key for an average query. */
export function receivedBy(table) {
  const received = new Float32Array(table.columns);
  for (let query = 0, at = 0; query < table.rows; query += 1) {
    for (let key = 0; key < table.columns; key += 1, at += 1) {
      received[key] += table.values[at] / table.rows;
    }
  }
  return received;
}

export class HeatView {
  constructor(app) {
    this.app = app;
    this.host = element("div", {
      class: "rg-view rg-heat",
      tabindex: 0,
      "aria-label": "text; arrow keys choose a token",
    });
    this.host.addEventListener("pointermove", (event) => {
      const token = event.target.closest(".rg-token");
      app.point(token && this.pointedAt(token), event);
    });
    this.host.addEventListener("pointerleave", () => app.point(null));
  }

  pointedAt(token) {
    const place = Number(token.dataset.place), { query, key } = this.app.state;
    if (this.single) return query === null ? { query: place, key: null } : { query, key: place };
    if (token.dataset.side === "queries") return { query: place, key: query === null ? key : null };
    return { query: key === null ? query : null, key: place };
  }

  show() {
    const { site } = this.app;
    if (this.queriesOf !== site.queries || this.keysOf !== site.keys) this.build();
    this.draw();
  }

  build() {
    const { site } = this.app;
    this.queriesOf = site.queries;
    this.keysOf = site.keys;
    this.single = site.queries === site.keys; // a text that attends to itself is written once
    const choose = (side, place) => this.choose(side, place);
    this.keys = tokensOf(site.keys, "keys", choose);
    this.queries = this.single ? this.keys : tokensOf(site.queries, "queries", choose);
    const block = (name, ...parts) => element("section", {}, element("h2", {}, name), ...parts);
    const text = (labels, tokens) =>
      element("p", { class: "rg-words", dir: "auto" }, ...flowing(labels, tokens));
    const [asks, asked] = site.axes;
    this.hint = element("p", { class: "rg-hint", role: "status" });
    this.rows = element("div", { class: "rg-rows" });
    this.steps = block(`every ${asks}`, this.rows);
    this.host.replaceChildren(
      this.hint,
      ...(this.single ? [] : [block(asks, text(site.queries, this.queries))]),
      block(asked, text(site.keys, this.keys)),
      this.steps,
    );
  }

  choose(side, place) {
    const { query, key } = this.app.state;
    const asks = side === "queries" || this.single;
    if (asks) this.app.set({ query: query === place && key === null ? null : place, key: null });
    else this.app.set({ key: key === place ? null : place, query: null });
  }

  press(event) {
    const way = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!way || event.shiftKey) return false;
    this.app.walk(way);
    const { query } = this.app.state;
    if (query !== null) this.queries[query].scrollIntoView({ block: "nearest" });
    return true;
  }

  /** Weights under the keys of the chosen query; of a chosen key, under those that attend to it. */
  draw() {
    if (!this.keys) return;
    const { app } = this, { table, state, site } = app, [asks, asked] = site.axes;
    const { query, key, scale } = state;
    this.clear();
    if (query !== null) {
      this.shade(this.keys, table.row(query), topOf(table, query, scale));
      this.hint.textContent = `${asks} ${query + 1} of ${table.rows}: where it attends`;
    } else if (key !== null && !this.single) {
      const column = table.column(key);
      const largest = scale === "row" ? Math.max(...column) : topOf(table, 0, scale);
      this.shade(this.queries, column, largest);
      this.hint.textContent = `${asked} ${key + 1} of ${table.columns}: what attends to it`;
    } else {
      const received = receivedBy(table);
      this.shade(this.keys, received, Math.max(...received));
      const other = this.single ? "" : `, or a ${asked} to see what attends to it`;
      this.hint.textContent =
        `The mean over every ${asks}. Choose a ${asks} to see where it attends${other}.`;
    }
    this.drawRows(query === null && (key === null || this.single));
    this.mark("queries", query);
    if (!this.single) this.mark("keys", key);
    for (const [side, places] of Object.entries(app.found)) {
      for (const place of places) this[side][place]?.classList.add("rg-found");
    }
  }

  /** The text once for each query, if it is not too long; of a causal one, what came before. */
  drawRows(wanted) {
    const { app } = this, { table, state, site, colours } = app;
    this.steps.hidden = !wanted || table.values.length > ROWS_UP_TO;
    const drawn = [state.scale, state.contrast, app.dressed].join();
    if (this.steps.hidden || (this.rowsOf === table && this.drawn === drawn)) return;
    this.rowsOf = table;
    this.drawn = drawn;
    const keys = site.keys.map(visible), queries = site.queries.map(visible);
    const rows = queries.flatMap((name, query) => {
      const seen = this.single ? keys.slice(0, query + 1 + Math.max(0, site.reach)) : keys;
      const tokens = seen.map((label, key) => {
        const token = element("span", {}, label);
        const top = topOf(table, query, state.scale);
        this.dye(token, shadeOf(table.at(query, key), top, state.contrast), colours);
        return token;
      });
      const choose = () => this.app.set({ query, key: null });
      return [
        element("button", { dir: "auto", onclick: choose }, name),
        element("p", { dir: "auto" }, ...tokens),
      ];
    });
    this.rows.replaceChildren(...rows);
  }

  clear() {
    for (const token of new Set([...this.keys, ...this.queries])) {
      token.classList.remove("rg-chosen", "rg-found");
      token.style.backgroundColor = "";
      token.style.color = "";
    }
  }

  mark(side, place) {
    if (place !== null) this[side][place].classList.add("rg-chosen");
  }

  shade(tokens, weights, top) {
    const { colours, state } = this.app;
    tokens.forEach((token, place) => {
      this.dye(token, shadeOf(weights[place], top, state.contrast), colours);
    });
  }

  dye(token, shade, colours) {
    token.style.backgroundColor = cssColour(colours, shade);
    token.style.color = inkOn(colours, shade);
  }
}
