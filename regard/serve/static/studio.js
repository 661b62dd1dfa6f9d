// The studio: one panel, or two side by side, over the server's runs.

import { element } from "./look/dom.js";
import { get } from "./api.js";
import { Panel } from "./panel.js";

const host = document.getElementById("studio");

async function open() {
  const { runs } = await get("/api/runs");
  const panels = element("div", { class: "st-panels" });
  const made = [];
  const add = () => {
    const panel = new Panel(runs, runs[made.length % runs.length].name);
    if (made.length) panel.text.value = made[0].text.value;
    made.push(panel);
    panels.append(panel.root);
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
  }
  add();
  host.replaceChildren(element("header", {}, element("h1", {}, "regard studio"), beside), panels);
  window.studio = { panels: made };
}

open().catch((error) => host.replaceChildren(element("p", { class: "st-wrong", role: "alert" }, error.message)));
