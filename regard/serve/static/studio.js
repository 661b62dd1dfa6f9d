// The studio: one panel, or two side by side, over the server's runs.

import { element } from "./look/dom.js";
import { get } from "./api.js";
import { read, write } from "./link.js";
import { Panel } from "./panel.js";

const host = document.getElementById("studio");

async function open() {
  const { runs } = await get("/api/runs");
  const panels = element("div", { class: "st-panels" });
  const made = [];
  const changed = () => write(made.map((panel) => panel.kept()));
  const add = () => {
    const panel = new Panel(runs, runs[made.length % runs.length].name, changed);
    made.push(panel);
    panels.append(panel.root);
    return panel;
  };
  const beside = element("button", { type: "button", "aria-pressed": "false", onclick: toggle }, "two side by side");
  function toggle() {
    if (made.length > 1) {
      const gone = made.pop();
      gone.curves.stop();
      gone.abort?.abort();
      gone.root.remove();
    } else add();
    beside.setAttribute("aria-pressed", String(made.length > 1));
    changed();
  }
  const link = element("button", { type: "button", class: "st-link", onclick: () => copy(link) }, "copy link");
  const kept = read();
  add();
  host.replaceChildren(element("header", {}, element("h1", {}, "regard studio"), beside, link), panels);
  window.studio = { panels: made };
  if (kept.length > 1) toggle();
  await Promise.all(kept.map((each, place) => made[place].restore(each)));
}

/** The link to what is seen, on the clipboard where the browser allows it. */
async function copy(button) {
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "copied";
  } catch {
    button.textContent = "it is in the address bar";
  }
  setTimeout(() => (button.textContent = "copy link"), 2000);
}

open().catch((error) => host.replaceChildren(element("p", { class: "st-wrong", role: "alert" }, error.message)));
