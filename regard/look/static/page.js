// The whole: controls around the views of one choice of weights.
//
// mount(element, data, options) shows what packed.py made and gives back a handle:
//   options.view      the first view; options.onchange(state) is told of every choice
//   handle.state      what is chosen: view, site, head, query, key, scale, contrast, ...
//   handle.set({...}) chooses; handle.ready and what set returns wait until it is drawn
//   handle.weights()  the weights that are shown, as rows of numbers
//   handle.replace(data, {...}), handle.exported("png" | "svg" | "csv"), handle.destroy()

import { clamp, element, fillSelection, numberText } from "./dom.js";
import { heading, visible } from "./label.js";
import { colourTable, cssColour } from "./colours.js";
import { Seen } from "./decode.js";
import { MatrixView } from "./matrix.js";
import { HeadsView, MEASURES, measureText } from "./heads.js";
import { LinksView } from "./links.js";
import { HeatView } from "./heat.js";
import { placedAxis, placedSide } from "./grounds.js";
import { InputView } from "./input.js";
import { EXPORTS, download } from "./export.js";
import { pressed } from "./keys.js";
import { showTip } from "./tip.js";
import { CHOICES, controlsOf } from "./controls.js";

const VIEWS = {
  matrix: MatrixView, heads: HeadsView, links: LinksView, text: HeatView, input: InputView,
};
const INKS = ["ink", "soft", "faint", "line", "paper", "accent", "found", "link"];
const STEP_MS = 450;

/** Are most rows faint beside the largest weight, as where the first token can see only itself? */
function faint(table) {
  const peaks = Array.from(table.peaks).sort((one, other) => one - other);
  return peaks[peaks.length >> 1] < table.most / 3;
}

/** The views of a site: that of the input needs something to draw on. */
function viewsOf(site) {
  return Object.keys(VIEWS).filter((view) => view !== "input" || placedSide(site));
}

class App {
  constructor(host, data, options) {
    this.host = host;
    this.options = options;
    this.views = Object.keys(VIEWS);
    this.system = window.matchMedia("(prefers-color-scheme: dark)");
    this.found = { queries: new Set(), keys: new Set() };
    this.pointed = null;
    this.drawings = 0;
    this.state = {
      view: "matrix", site: 0, head: 0, query: null, key: null,
      palette: "ocean", scale: "head", contrast: "plain", sort: "model",
      theme: this.system.matches ? "dark" : "light",
    };
    this.shown = {};
    Object.assign(this, controlsOf(this));
    this.root.dataset.theme = this.state.theme;
    this.host.replaceChildren(this.root);
    this.listen();
    this.ready = this.replace(data, options.view);
  }

  /** Show other weights; what was chosen stays where it still makes sense. `more` is chosen too. */
  async replace(data, view = this.state.view, more = {}) {
    try {
      this.seen = new Seen(data);
    } catch (error) {
      this.fail(error);
      return;
    }
    const { seen, state } = this;
    const site = seen.sites[Math.min(Number(state.site) || 0, seen.sites.length - 1)];
    const heads = seen.sites.reduce((sum, each) => sum + each.count, 0);
    this.title.textContent = heading(seen.title) || "attention";
    this.title.title = this.title.textContent;
    fillSelection(this.siteList, this.siteOptions(), site.place);
    const fresh = !this.table;
    const first = {
      view: view ?? (placedSide(site) ? "input" : heads > 4 ? "heads" : "matrix"),
      site: site.place,
      head: this.table ? state.head : "mean",
      query: null,
      key: null,
      ...more,
    };
    this.tabled = null; // of other weights
    await this.set(first);
    if (fresh) requestAnimationFrame(() => performance.mark("regard drawn"));
    if (fresh && faint(this.table)) await this.set({ contrast: "root" });
  }

  siteOptions() {
    const options = this.seen.sites.map((site) => [site.place, heading(site.name)]);
    return this.seen.alike ? [...options, ["mean", "mean of all layers"]] : options;
  }

  headOptions() {
    const { seen, site } = this;
    const named = (name) => (name ? `head ${name}` : "all weights");
    const options = site.weights.map((_, head) => [head, named(seen.headName(site, head))]);
    const several = site.count > 1 || this.state.site === "mean";
    return several ? [["mean", "mean of heads"], ...options] : options;
  }

  /** The site that labels are taken from; of a mean over all, they are the same in each. */
  get site() {
    return this.seen.sites[this.state.site === "mean" ? 0 : this.state.site];
  }

  /** Whose weights are wanted; `tabled` says whose are there. */
  get chosen() {
    return `${this.state.site} ${this.state.head}`;
  }

  /** Choose something, and wait until it is drawn. */
  async set(patch) {
    const before = this.state;
    const state = { ...before, ...patch };
    const { seen } = this;
    if (!seen) return;
    const site = seen.sites[state.site === "mean" ? 0 : state.site];
    if (state.head !== "mean" && state.head >= site.count) state.head = site.count > 1 ? "mean" : 0;
    if (site.count === 1 && state.site !== "mean") state.head = 0;
    const old = before.site === "mean" ? 0 : before.site;
    // What was chosen of another text is not there; what is chosen now is.
    if (site.queries !== seen.sites[old]?.queries) state.query = patch.query ?? null;
    if (site.keys !== seen.sites[old]?.keys) state.key = patch.key ?? null;
    if (!viewsOf(site).includes(state.view)) state.view = "matrix";
    this.state = state;
    const turn = (this.turn = {});
    const { chosen } = this;
    if (state.view === "input") {
      const picture = await seen.picture(placedAxis(site));
      if (turn !== this.turn) return;
      this.picture = picture;
    }
    if (this.tabled !== chosen) {
      try {
        const table = await seen.table(state.site, state.head);
        if (turn !== this.turn) return; // whoever came after this waits for what it needs itself
        this.table = table;
        this.tabled = chosen;
      } catch (error) {
        this.fail(error);
        return;
      }
    }
    this.dress();
    this.match();
    this.update();
    this.options.onchange?.({ ...state });
  }

  /** Colours of the theme and the palette. */
  dress() {
    const { theme, palette } = this.state;
    this.root.dataset.theme = theme;
    const key = `${theme} ${palette}`;
    if (this.dressed === key) return;
    this.dressed = key;
    const style = getComputedStyle(this.root);
    const ink = (name) => style.getPropertyValue(`--${name}`).trim();
    this.inks = Object.fromEntries(INKS.map((name) => [name, ink(name)]));
    this.colours = colourTable(palette, theme);
    const stops = [0, 1, 2, 3, 4].map((at) => cssColour(this.colours, Math.round((at * 255) / 4)));
    this.bar.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
  }

  update() {
    const { state } = this;
    const view = (this.shown[state.view] ??= new VIEWS[state.view](this));
    if (this.current !== view) {
      this.stage.replaceChildren(view.host, this.tip);
      this.current = view;
      this.point(null);
    }
    for (const [name, tab] of Object.entries(this.tabs)) {
      tab.setAttribute("aria-selected", String(name === state.view));
      tab.tabIndex = name === state.view ? 0 : -1;
      tab.hidden = !viewsOf(this.site).includes(name);
    }
    this.siteList.value = String(state.site);
    fillSelection(this.headList, this.headOptions(), state.head);
    this.sortList.value = state.sort;
    this.paletteList.value = state.palette;
    this.scaleList.value = state.scale;
    this.contrastList.value = state.contrast;
    this.root.dataset.view = state.view;
    this.root.classList.toggle("rg-lit", this.lit());
    view.show();
    this.updateSteps();
    this.tell();
    this.drawings += 1;
  }

  updateSteps() {
    const { state, table, site } = this;
    this.slider.max = String(table.rows - 1);
    this.slider.value = String(state.query ?? 0);
    this.slider.classList.toggle("rg-unset", state.query === null);
    const label = state.query === null ? "all" : visible(site.queries[state.query]);
    this.stepName.textContent = site.axes[0];
    this.stepText.textContent = label;
    this.slider.setAttribute("aria-valuetext", label);
    const count = state.query === null ? `${table.rows}` : `${state.query + 1} / ${table.rows}`;
    this.stepCount.textContent = count;
    this.barTop.textContent = this.topText();
  }

  /** Is the image itself brighter where more is attended to? Then there are no colours. */
  lit() {
    const { state, site, picture } = this;
    return state.view === "input" && Boolean(picture) && placedAxis(site).kind === "patches";
  }

  topText() {
    const { scale, view } = this.state;
    if (scale === "one") return "1";
    if (scale === "row") return "row's largest";
    return view === "heads" ? "head's largest" : numberText(this.table.most);
  }

  /** Where the weights come from, for a person. */
  caption() {
    const { state, seen, site } = this;
    if (state.view === "heads") return heading(seen.title);
    const layer = state.site === "mean" ? "mean of all layers" : heading(site.name);
    const name = state.head === "mean" ? "" : seen.headName(site, state.head);
    const head = state.head === "mean" ? "mean of heads" : name && `head ${name}`;
    return [layer, head].filter(Boolean).join(", ");
  }

  /** What is chosen, in words, also for those who listen to the page. */
  tell() {
    const { state, site, table } = this;
    const { query, key } = state;
    if (query !== null && key !== null) {
      const pair = `${visible(site.queries[query])} → ${visible(site.keys[key])}`;
      this.told.textContent = `${pair}: ${this.weightText(query, key)}`;
    } else if (state.site !== "mean" && state.head !== "mean") {
      const told = MEASURES.map((name) => `${name} ${measureText(site, state.head, name)}`);
      this.told.textContent = told.join(" · ");
    } else {
      this.told.textContent = `${table.rows} × ${table.columns}`;
    }
    const levels = this.levels();
    const rounding = levels ? `rounded to 1/${levels} of each row's largest` : "means of rows only";
    this.rounded.textContent = levels > 255 ? "" : rounding;
  }

  /** The coarsest rounding of what is shown. */
  levels() {
    const { state, seen, site } = this;
    const chosen = state.site === "mean" ? seen.sites : [site];
    const levels = (each) => (state.head === "mean" ? each.levels : [each.levels[state.head]]);
    return Math.min(...chosen.flatMap(levels));
  }

  weightText(query, key) {
    return (this.levels() < 255 ? "≈ " : "") + numberText(this.table.at(query, key));
  }

  /** What is under the pointer, beside it. */
  point(place, event) {
    this.pointed = place && place.query !== null && place.key !== null ? place : null;
    if (place && event) showTip(this, place, event);
    else this.tip.hidden = true;
    this.redraw();
  }

  /** Draw again with the next frame; however often it is asked for, once. */
  redraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.tabled === this.chosen) this.current?.draw();
    });
  }

  /** Does the wheel belong to us? In a notebook only after a click, so that reading can go on. */
  mayScroll(canvas, event) {
    return !this.options.embedded || event.ctrlKey || document.activeElement === canvas;
  }

  walk(by) {
    const last = this.table.rows - 1, { query } = this.state;
    const first = by > 0 ? 0 : last;
    this.set({ query: query === null ? first : clamp(query + by, 0, last), key: null });
  }

  play() {
    if (this.playing) {
      clearInterval(this.playing);
      this.playing = null;
    } else {
      if (this.state.query === this.table.rows - 1) this.set({ query: 0, key: null });
      this.playing = setInterval(() => {
        if (this.state.query === this.table.rows - 1) this.play();
        else this.walk(1);
      }, STEP_MS);
    }
    this.playButton.setAttribute("aria-pressed", String(Boolean(this.playing)));
    this.playButton.textContent = this.playing ? "❚❚" : "▶";
  }

  nthView(number) {
    const view = this.views[number - 1];
    if (viewsOf(this.site).includes(view)) this.set({ view });
  }

  nextHead(by) {
    const { site, state } = this;
    const order = site.count > 1 ? ["mean", ...site.weights.keys()] : [0];
    const at = order.indexOf(state.head);
    this.set({ head: order[(at + by + order.length) % order.length] });
  }

  nextSite(by) {
    const order = this.siteOptions().map(([place]) => place);
    const at = order.indexOf(this.state.site);
    this.set({ site: order[(at + by + order.length) % order.length] });
  }

  cycle(name) {
    const all = CHOICES[name];
    this.set({ [name]: all[(all.indexOf(this.state[name]) + 1) % all.length] });
  }

  /** Which tokens the search finds. */
  match() {
    const wanted = this.search.value.toLowerCase();
    const { site } = this;
    const { value } = this.search;
    const has = (label) => label.toLowerCase().includes(wanted) || visible(label) === value;
    const places = (labels) =>
      new Set(labels.flatMap((label, at) => (wanted && has(label) ? [at] : [])));
    this.found = { queries: places(site.queries), keys: places(site.keys) };
    const once = site.queries === site.keys;
    const count = this.found.keys.size + (once ? 0 : this.found.queries.size);
    this.matches.textContent = wanted ? String(count) : "";
    this.search.classList.toggle("rg-none", Boolean(wanted) && count === 0);
  }

  nextMatch(by) {
    const { queries, keys } = this.found, { query, key } = this.state;
    const byQuery = queries.size > 0;
    const places = [...(byQuery ? queries : keys)];
    if (!places.length) return;
    const at = places.indexOf(byQuery ? query : key);
    const next = places[(at + by + places.length) % places.length];
    this.set(byQuery ? { query: next, key: null } : { query: null, key: next });
    this.current.reveal?.(byQuery ? next : 0, byQuery ? this.current.strongest(next) : next);
    this.redraw();
  }

  async keep(kind) {
    const blob = await EXPORTS[kind](this);
    const name = this.caption().replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60).replace(/^-|-$/g, "");
    download(blob, `${name || "attention"}-${this.state.view}.${kind}`);
  }

  help() {
    if (this.dialog.open) this.dialog.close();
    else this.dialog.showModal();
  }

  fail(error) {
    const text = `This cannot be shown: ${error.message}`;
    this.stage.replaceChildren(element("p", { class: "rg-error", role: "alert" }, text));
  }

  listen() {
    const within = this.options.whole ? document : this.root;
    this.onkeydown = (event) => this.press(event);
    within.addEventListener("keydown", this.onkeydown);
    this.search.addEventListener("input", () => this.set({}));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        this.search.value = "";
        this.set({});
        this.root.focus();
      }
    });
    this.onsystem = () => this.set({ theme: this.system.matches ? "dark" : "light" });
    this.system.addEventListener("change", this.onsystem);
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(this.stage);
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.dialog.open || !this.current) return;
    const { target } = event;
    if (target.matches?.("input[type=search], select")) return;
    const arrow = event.key.startsWith("Arrow");
    if (arrow && target.getAttribute?.("role") === "tab") this.nextTab(event);
    else if (arrow && target === this.slider) return;
    else if (this.current.press(event)) event.preventDefault();
    else if (pressed(this, event)) event.preventDefault();
  }

  /** Arrow keys go from tab to tab, as in any list of tabs. */
  nextTab(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const views = viewsOf(this.site), at = views.indexOf(this.state.view);
    const next = views[(at + by + views.length) % views.length];
    this.set({ view: next }).then(() => this.tabs[next].focus());
    event.preventDefault();
  }

  destroy() {
    (this.options.whole ? document : this.root).removeEventListener("keydown", this.onkeydown);
    this.system.removeEventListener("change", this.onsystem);
    this.resized.disconnect();
    clearInterval(this.playing);
    this.host.replaceChildren();
  }
}

/** Show what was seen inside an element. */
export function mount(host, data, options = {}) {
  const app = new App(host, data, options);
  return {
    get state() {
      return { ...app.state };
    },
    get drawings() {
      return app.drawings;
    },
    get found() {
      return { queries: [...app.found.queries], keys: [...app.found.keys] };
    },
    ready: app.ready,
    set: (patch) => app.set(patch),
    replace: (fresh, more) => app.replace(fresh, undefined, more),
    weights: () => [...app.table.peaks.keys()].map((row) => Array.from(app.table.row(row))),
    labels: () => ({ queries: app.site.queries.map(visible), keys: app.site.keys.map(visible) }),
    sites: () => app.seen.sites,
    exported: (kind) => EXPORTS[kind](app),
    view: () => app.current,
    destroy: () => app.destroy(),
  };
}
