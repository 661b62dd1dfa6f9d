// A panel: one run, an input, the output for it, and its attention.

import { element, fillSelection, selection } from "./look/dom.js";
import { GROUNDS } from "./look/grounds.js";
import { visible } from "./look/label.js";
import { mount } from "./look/page.js";
import { ask, written } from "./api.js";
import { Curves } from "./curves.js";
import { Edits } from "./edits.js";

const WRITTEN = ["text", "document", "pair"];
const ACCEPT = { image: "image/*", sound: "audio/*", video: "video/*", music: ".mid,.midi", strokes: ".json" };

export class Panel {
  constructor(runs, name) {
    this.runs = new Map(runs.map((run) => [run.name, run]));
    this.handle = null;
    this.given = { text: "" }; // the input whose attention is shown, as a request has it
    this.list = selection("run", runs.map(({ name, title }) => [name, `${name}: ${title}`]), name, () => this.choose());
    this.text = element("textarea", { rows: 3, "aria-label": "text", spellcheck: "false" });
    this.file = element("input", { type: "file", "aria-label": "file", hidden: true });
    this.temperature = number("temperature", { min: 0, max: 5, step: 0.1, value: 0.8 });
    this.tokens = number("tokens", { min: 1, max: 2000, step: 1, value: 40 });
    this.seed = number("seed", { min: 0, max: 99999, step: 1, value: 0 });
    this.options = element("div", { class: "st-options" }, ...[this.temperature, this.tokens, this.seed].map((each) => each.label));
    this.go = element("button", { type: "button", class: "st-go", onclick: () => this.start() }, "go");
    this.output = element("div", { class: "st-output", "aria-live": "polite", "aria-label": "output" });
    this.note = element("p", { class: "st-note", role: "status" });
    this.look = element("div", { class: "st-look" });
    this.edits = new Edits(() => this.chosen(), () => ({ model: this.run.name, ...this.given }));
    this.curves = new Curves();
    this.curvesBox = element("details", { ontoggle: () => this.toggled() }, element("summary", {}, "training curves"), this.curves.root);
    this.root = element(
      "section",
      { class: "st-panel", "aria-label": `run ${name}` },
      element("div", { class: "st-head" }, this.list, this.go),
      this.text, this.file, this.options, this.output, this.note, this.look, this.edits.root, this.curvesBox,
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
    this.note.textContent = run.trained ? "" : "This run is still training: so far there are only its curves.";
    this.go.disabled = !run.trained;
    this.go.textContent = run.writes ? "write" : run.translates ? "translate" : "predict";
    this.options.hidden = !run.writes;
    this.file.hidden = takesText(run);
    this.text.hidden = !this.file.hidden;
    this.file.accept = ACCEPT[run.takes[0]] ?? "";
    if (!this.text.value) this.text.value = run.writes ? "To be, or not to be" : run.translates ? "3 mai 1998" : "";
    if (!run.trained) this.curvesBox.open = true;
    this.toggled();
  }

  toggled() {
    if (this.curvesBox.open) this.curves.show(this.run.name);
    else this.curves.stop();
  }

  /** The input as a request has it: a text, or a file in base 64. */
  async input() {
    if (takesText(this.run)) return { text: this.text.value };
    const file = this.file.files[0];
    if (!file) throw new Error(`choose a file: ${this.run.takes.join(" or ")}`);
    const data = await new Promise((done, fail) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.onerror = () => fail(reader.error);
      reader.readAsDataURL(file);
    });
    return { input: data.slice(data.indexOf(",") + 1), kind: this.run.takes[0] };
  }

  /** Send a request, show the output as it comes, and then the attention. */
  async start() {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    const { run } = this;
    this.note.textContent = "";
    this.output.replaceChildren();
    try {
      this.given = await this.input();
      if (run.writes) this.given = { text: this.given.text + (await this.write(run, this.given.text, abort.signal)) };
      else await this.answer(run, this.given, abort.signal);
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

  async answer(run, given, signal) {
    if (run.translates) {
      const { translations } = await ask("/api/translate", { model: run.name, ...given }, signal);
      this.output.append(translations[0].text);
    } else {
      const made = await ask("/api/predict", { model: run.name, ...given }, signal);
      const choices = made.choices.slice(0, 5).map(({ text, probability }) => `${visible(text)} ${probability.toFixed(3)}`);
      this.output.append([made.text, ...choices].filter(Boolean).join("\n"));
    }
  }

  /** The attention: tokens to click, and the views of the page. */
  async looked(signal) {
    const data = await ask("/api/attention", { model: this.run.name, ...this.given }, signal);
    if (this.handle) await this.handle.replace(data);
    else {
      const placed = data.axes.some((axis) => axis.kind in GROUNDS);
      this.handle = mount(this.look, data, { view: placed ? "input" : "matrix" });
      await this.handle.ready;
    }
    const { queries } = this.handle.labels();
    this.output.replaceChildren(...queries.map((token, query) =>
      element("button", { type: "button", class: "st-token", "data-query": query, onclick: () => this.point(query) }, token)));
    this.edits.root.hidden = false;
    await this.edits.changed();
  }

  /** A token was clicked: show what it attends to. */
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

function takesText(run) {
  return run.takes.length === 0 || run.takes.some((kind) => WRITTEN.includes(kind));
}

function number(text, properties) {
  const input = element("input", { type: "number", ...properties });
  return { input, label: element("label", {}, text, input) };
}
