// The controls around a view: what can be chosen, where it is chosen, and the help.

import { element, selection } from "./dom.js";
import { PALETTES } from "./colours.js";
import { CONTRASTS, SCALES } from "./shade.js";
import { SORTS } from "./heads.js";
import { KEYS } from "./keys.js";

const NAMES = { matrix: "Matrix", heads: "Heads", links: "Links", text: "Text", input: "Input" };

export const CHOICES = {
  palette: PALETTES,
  scale: SCALES.map(([name]) => name),
  contrast: CONTRASTS.map(([name]) => name),
  sort: SORTS.map(([name]) => name),
  theme: ["light", "dark"],
};

const HELP = [
  "Drag to move the matrix, turn the wheel to zoom, click a cell or a token to choose it.",
  "Entropy: bits of an average row; 0 attends to one key.",
  "Distance: the mean distance from the diagonal, in keys.",
  "Alignment: from −1 to 1, whether later queries attend to later keys.",
];

function button(text, label, onclick, properties = {}) {
  const own = { class: "rg-round", title: label, "aria-label": label, onclick };
  return element("button", { ...own, ...properties }, text);
}

function named(text, list) {
  return element("label", { class: "rg-named" }, element("span", {}, text), list);
}

/** Lists to choose from; what is chosen goes to the app. */
function lists(app) {
  const place = (value) => (value === "mean" ? value : Number(value));
  const chosen = (name) => (value) => app.set({ [name]: value });
  const palettes = PALETTES.map((name) => [name, name]);
  const kinds = [["", "Export"], ["png", "PNG"], ["svg", "SVG"], ["csv", "CSV"]];
  const exports = selection("export (e)", kinds, "", (kind) => {
    exports.value = "";
    if (kind) app.keep(kind);
  });
  return {
    siteList: selection("layer ({ and })", [], 0, (value) => app.set({ site: place(value) })),
    headList: selection("head ([ and ])", [], 0, (value) => app.set({ head: place(value) })),
    sortList: selection("order of heads (s)", SORTS, "model", chosen("sort")),
    scaleList: selection("what has the full colour (r)", SCALES, "head", chosen("scale")),
    contrastList: selection("contrast (l)", CONTRASTS, "plain", chosen("contrast")),
    paletteList: selection("colours (c)", palettes, "ocean", chosen("palette")),
    exports,
  };
}

/** The slider through the steps, and what stands beside it. */
function steps(app) {
  const slider = element("input", {
    type: "range",
    min: 0,
    max: 0,
    value: 0,
    "aria-label": "step (, and .)",
    oninput: () => app.set({ query: Number(slider.value), key: null }),
  });
  const playing = { "aria-pressed": "false" };
  return {
    slider,
    playButton: button("▶", "play the steps (p)", () => app.play(), playing),
    stepName: element("span", { class: "rg-step-name" }),
    stepText: element("bdi", { class: "rg-step-text" }),
    stepCount: element("span", { class: "rg-count" }),
  };
}

function helpDialog() {
  const rows = KEYS.map(([names, text]) => {
    const keys = names.map((name) => element("kbd", {}, name));
    return element("div", {}, element("span", {}, ...keys), element("span", {}, text));
  });
  const dialog = element(
    "dialog",
    { class: "rg-help", "aria-label": "help" },
    element("button", { class: "rg-close", onclick: () => dialog.close() }, "Close"),
    element("h2", {}, "Keys"),
    element("div", { class: "rg-keys" }, ...rows),
    ...HELP.map((text) => element("p", {}, text)),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}

/** Every control by name; `root` holds them all. */
export function controlsOf(app) {
  const tabs = Object.fromEntries(
    app.views.map((view, place) => {
      const choose = () => app.set({ view });
      const properties = { role: "tab", title: `${NAMES[view]} (${place + 1})`, onclick: choose };
      return [view, element("button", properties, NAMES[view])];
    }),
  );
  const search = element("input", {
    type: "search",
    placeholder: "Find a token",
    "aria-label": "find a token (/)",
    spellcheck: "false",
  });
  const parts = {
    ...lists(app),
    ...steps(app),
    tabs,
    search,
    title: element("h1", { dir: "auto" }),
    matches: element("output", { class: "rg-count" }),
    stage: element("div", { class: "rg-stage", role: "tabpanel" }),
    tip: element("div", { class: "rg-tip", role: "tooltip", hidden: true }),
    bar: element("span", { class: "rg-bar" }),
    barTop: element("span"),
    told: element("output", { class: "rg-told", "aria-live": "polite" }),
    rounded: element("span", { class: "rg-rounded" }),
    dialog: helpDialog(),
  };
  return { ...parts, root: laidOut(app, parts) };
}

function laidOut(app, parts) {
  const group = (names, ...children) => element("div", { class: names }, ...children);
  return element(
    "div",
    { class: "regard", tabindex: -1 },
    element(
      "header",
      {},
      parts.title,
      group("rg-search", parts.search, parts.matches),
      parts.exports,
      button("◐", "light or dark (d)", () => app.cycle("theme")),
      button("?", "help (?)", () => app.help()),
    ),
    element(
      "nav",
      { "aria-label": "what is shown" },
      element("div", { class: "rg-tabs", role: "tablist" }, ...Object.values(parts.tabs)),
      group(
        "rg-choice rg-not-heads",
        named("Layer", parts.siteList),
        named("Head", parts.headList),
      ),
      group("rg-choice rg-only-heads", named("Order", parts.sortList)),
      group(
        "rg-choice rg-end",
        named("Scale", parts.scaleList),
        named("Contrast", parts.contrastList),
        named("Colours", parts.paletteList),
      ),
    ),
    parts.stage,
    element(
      "footer",
      {},
      group(
        "rg-steps rg-not-heads",
        parts.playButton,
        parts.stepName,
        parts.slider,
        parts.stepCount,
        parts.stepText,
      ),
      parts.told,
      parts.rounded,
      group("rg-legend", element("span", {}, "0"), parts.bar, parts.barTop),
    ),
    parts.dialog,
  );
}
