// The box beside the pointer: labels, weight and rank of what is under it.

import { clamp, element } from "./dom.js";
import { visible } from "./label.js";

/** What is under the pointer, in a box beside it. */
export function showTip(app, { query, key }, event) {
  const { site, table, tip, stage } = app;
  const rows = [];
  const line = (name, text) => {
    rows.push(element("dt", {}, name), element("dd", { dir: "auto" }, text));
  };
  if (query !== null) line(`${site.axes[0]} ${query + 1}`, visible(site.queries[query]));
  if (key !== null) line(`${site.axes[1]} ${key + 1}`, visible(site.keys[key]));
  if (query !== null && key !== null) {
    const row = table.row(query), weight = row[key];
    let heavier = 0;
    for (const each of row) if (each > weight) heavier += 1;
    line("weight", app.weightText(query, key));
    line("rank", `${heavier + 1} of ${row.length}`);
  }
  if (query !== null && site.rows.length) line("beam row", String(site.rows[query]));
  tip.replaceChildren(element("dl", {}, ...rows));
  tip.hidden = false;
  const box = stage.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const left = x + 18 + own.width > box.width ? Math.max(4, x - own.width - 14) : x + 18;
  const top = clamp(y + 16, 4, Math.max(4, box.height - own.height - 6));
  Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
}
