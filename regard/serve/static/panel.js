// A panel: one run, a text, what comes of it, and where it looked.

import { element, fillSelection, selection } from "./look/dom.js";
import { visible } from "./look/label.js";
import { mount } from "./look/page.js";
import { ask, written } from "./api.js";
import { Curves } from "./curves.js";
import { Edits } from "./edits.js";

const FIRST = { language_model: "To be, or not to be", translate: "3 mai 1998" };

export class Panel {
  constructor(runs, name) {
    this.runs = new Map(runs.map((run) => [run.name, run]));
    this.handle = null;
    this.whole = ""; // the text whose attention is shown
    this.list = selection("run", runs.map(({ name, title }) => [name, `${name}: ${title}`]), name, () => this.choose());
    this.text = element("textarea", { rows: 3, "aria-label": "text", spellcheck: "false" });
    this.temperature = number("temperature", { min: 0, max: 5, step: 0.1, value: 0.8 });
    this.tokens = number("tokens", { min: 1, max: 2000, step: 1, value: 40 });
    this.seed = number("seed", { min: 0, max: 99999, step: 1, value: 0 });
    this.options = element("div", { class: "st-options" }, ...[this.temperature, this.tokens, this.seed].map((each) => each.label));
    this.go = element("button", { type: "button", class: "st-go", onclick: () => this.start() }, "go");
    this.output = element("div", { class: "st-output", "aria-live": "polite", "aria-label": "output" });
    this.note = element("p", { class: "st-note", role: "status" });
    this.look = element("div", { class: "st-look" });
    this.edits = new Edits(() => this.chosen(), () => ({ model: this.run.name, text: this.whole }));
    this.curves = new Curves();
    this.curvesBox = element("details", { ontoggle: () => this.toggled() }, element("summary", {}, "training curves"), this.curves.root);
    this.root = element(
      "section",
      { class: "st-panel", "aria-label": `run ${name}` },
      element("div", { class: "st-head" }, this.list, this.go),
      this.text, this.options, this.output, this.note, this.look, this.edits.root, this.curvesBox,
    );
    this.choose();
  }

  get run() {
    return this.runs.get(this.list.value);
  }

  /** Another run: what it cannot do is not offered. */
  choose() {
    const { run } = this;
    this.abort?.abort();
    this.handle?.destroy();
    this.handle = null;
    this.look.replaceChildren();
    this.output.replaceChildren();
    this.edits.clear();
    this.edits.root.hidden = true;
    this.note.textContent = run.trained ? "" : "This run is still training: so far there are its curves alone.";
    this.go.disabled = !run.trained;
    this.go.textContent = run.writes ? "write" : run.translates ? "translate" : "predict";
    this.options.hidden = !run.writes;
    if (!this.text.value) this.text.value = FIRST[run.task] ?? "";
    if (!run.trained) this.curvesBox.open = true;
    this.toggled();
  }

  toggled() {
    if (this.curvesBox.open) this.curves.show(this.run.name);
    else this.curves.stop();
  }

  /** Ask the run, show what it says as it comes, and then where it looked. */
  async start() {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    const { run } = this;
    const text = this.text.value;
    this.note.textContent = "";
    this.output.replaceChildren();
    try {
      if (run.writes) this.whole = text + (await this.write(run, text, abort.signal));
      else this.whole = await this.answer(run, text, abort.signal);
      if (run.sites.length) await this.looked(abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.note.textContent = error.message;
    }
  }

  async write(run, prompt, signal) {
    let text = "";
    this.output.append(element("span", { class: "st-prompt" }, prompt));
    const room = run.context === null ? Infinity : run.context - 1;
    const asked = {
      model: run.name,
      prompt,
      max_tokens: Math.max(1, Math.min(Number(this.tokens.input.value), room)),
      temperature: Number(this.temperature.input.value),
      seed: Number(this.seed.input.value),
    };
    for await (const piece of written(asked, signal)) {
      text += piece;
      this.output.append(piece);
    }
    return text;
  }

  async answer(run, text, signal) {
    if (run.translates) {
      const { translations } = await ask("/api/translate", { model: run.name, text }, signal);
      this.output.append(translations[0].text);
    } else {
      const said = await ask("/api/predict", { model: run.name, text }, signal);
      const likely = said.choices.slice(0, 5).map(({ text, probability }) => `${visible(text)} ${probability.toFixed(3)}`);
      this.output.append([said.text, ...likely].filter(Boolean).join("\n"));
    }
    return text;
  }

  /** Where it looked: tokens to click, and the views of the page. */
  async looked(signal) {
    const data = await ask("/api/attention", { model: this.run.name, text: this.whole }, signal);
    if (this.handle) await this.handle.replace(data);
    else {
      this.handle = mount(this.look, data, { view: "matrix" });
      await this.handle.ready;
    }
    const { queries } = this.handle.labels();
    this.output.replaceChildren(...queries.map((token, query) =>
      element("button", { type: "button", class: "st-token", "data-query": query, onclick: () => this.point(query) }, token)));
    this.edits.root.hidden = false;
    await this.edits.changed();
  }

  /** A token was clicked: show where it looked. */
  async point(query) {
    await this.handle.set({ query, view: "text" });
    for (const token of this.output.children) {
      token.setAttribute("aria-pressed", String(Number(token.dataset.query) === query));
    }
    if (!this.edits.row.hidden) this.edits.draw();
  }

  /** What the views have chosen, as an edit names it. */
  chosen() {
    const { state } = this.handle;
    const every = state.site === "mean";
    const site = this.handle.sites()[every ? 0 : state.site];
    const head = state.head === "mean" || site.heads === null ? null : site.heads[state.head];
    return {
      site: every ? "*" : site.site,
      head,
      query: state.query,
      keys: site.keys,
      weights: this.handle.weights(),
    };
  }

  /** Other runs to choose from; the choice stays if it can. */
  offer(runs) {
    const name = this.list.value;
    this.runs = new Map(runs.map((run) => [run.name, run]));
    fillSelection(this.list, runs.map(({ name, title }) => [name, `${name}: ${title}`]), name);
  }
}

function number(text, properties) {
  const input = element("input", { type: "number", ...properties });
  return { input, label: element("label", {}, text, input) };
}
