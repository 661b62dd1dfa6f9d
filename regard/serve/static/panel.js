// A panel: one run, an input, the output for it, and its attention.

import { element, fillSelection, selection } from "./look/dom.js";
import { GROUNDS } from "./look/grounds.js";
import { visible } from "./look/label.js";
import { mount } from "./look/page.js";
import { ask, written } from "./api.js";
import { Curves } from "./curves.js";
import { Edits } from "./edits.js";

const WRITTEN = ["text", "document", "pair", "question"];
const ACCEPT = { image: "image/*", sound: "audio/*", video: "video/*", music: ".mid,.midi", strokes: ".json" };

export class Panel {
  /** `onchange()` is called whenever something else is seen. */
  constructor(runs, name, onchange = () => {}) {
    this.onchange = onchange;
    this.runs = new Map(runs.map((run) => [run.name, run]));
    this.handle = null;
    this.given = { text: "" }; // the input whose attention is shown, as a request has it
    this.list = selection("run", runs.map(({ name, title }) => [name, `${name}: ${title}`]), name, () => this.choose());
    this.text = element("textarea", {
      rows: 3, "aria-label": "text", spellcheck: "false", placeholder: "Ctrl + Enter to start",
      onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && this.start(),
    });
    this.question = element("input", {
      type: "text", class: "st-question", "aria-label": "question", placeholder: "a question about the story below", hidden: true,
      onkeydown: (event) => event.key === "Enter" && this.start(),
    });
    this.file = element("input", { type: "file", "aria-label": "file", hidden: true });
    this.temperature = number("temperature", { min: 0, max: 5, step: 0.1, value: 0.8 });
    this.tokens = number("tokens", { min: 1, max: 2000, step: 1, value: 40 });
    this.seed = number("seed", { min: 0, max: 99999, step: 1, value: 0 });
    this.options = element("div", { class: "st-options" }, ...[this.temperature, this.tokens, this.seed].map((each) => each.label));
    this.go = element("button", { type: "button", class: "st-go", onclick: () => this.press() }, "go");
    this.output = element("div", { class: "st-output", "aria-live": "polite", "aria-label": "output" });
    this.note = element("p", { class: "st-note", role: "status" });
    this.look = element("div", { class: "st-look" });
    this.lines = element("ol", { class: "st-lines", hidden: true, "aria-label": "translations" });
    this.edits = new Edits(
      () => this.chosen(),
      () => ({ model: this.run.name, ...this.given }),
      (signal) => this.redraw(signal),
    );
    this.curves = new Curves();
    this.curvesBox = element("details", { ontoggle: () => this.toggled() }, element("summary", {}, "training curves"), this.curves.root);
    this.root = element(
      "section",
      { class: "st-panel", "aria-label": `run ${name}` },
      element("div", { class: "st-head" }, this.list, this.go),
      this.question, this.text, this.file, this.options, this.lines, this.output, this.note, this.look, this.edits.root, this.curvesBox,
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
    this.given = { text: "" };
    this.look.replaceChildren();
    this.output.replaceChildren();
    this.showLines([], []);
    this.edits.clear();
    this.root.setAttribute("aria-label", `run ${run.name}`);
    this.edits.root.hidden = true;
    this.note.textContent = run.trained ? "" : "This run is still training: so far there are only its curves.";
    this.go.disabled = !run.trained;
    this.idle();
    this.options.hidden = !run.writes;
    this.file.hidden = takesText(run);
    this.text.hidden = !this.file.hidden;
    this.file.accept = ACCEPT[run.takes[0]] ?? "";
    const before = this.content();
    this.question.hidden = run.takes[0] !== "question";
    if (!before.trim() || before === this.shownExample) this.fill((this.shownExample = run.example || exampleFor(run)));
    if (!run.trained) this.curvesBox.open = true;
    this.toggled();
    this.onchange();
  }

  /** The button starts a request, and stops the one that is under way. */
  idle() {
    const { run } = this;
    this.busy = false;
    this.go.textContent = run.writes ? "write" : run.translates ? "translate" : "predict";
    this.go.classList.remove("st-stop");
  }

  press() {
    if (!this.busy) return this.start();
    this.abort?.abort();
    return this.idle();
  }

  toggled() {
    if (this.curvesBox.open) this.curves.show(this.run.name);
    else this.curves.stop();
  }

  /** The text of the input; a question and its story are separated by a tab. */
  content() {
    return this.question.hidden ? this.text.value : `${this.question.value.trim()}\t${this.text.value}`;
  }

  fill(text) {
    const [question, ...story] = this.question.hidden ? ["", text] : text.split("\t");
    this.question.value = question;
    this.text.value = story.join("\t");
  }

  /** The input as a request has it: a text, or a file in base 64. */
  async input() {
    if (takesText(this.run)) return { text: this.content() };
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
    if (this.go.disabled) return;
    await this.during(async (signal) => {
      const { run } = this;
      const given = await this.input();
      this.edits.list = [];
      if (run.writes) this.given = { text: given.text + (await this.write(run, given.text, signal)) };
      else this.given = await this.answer(run, given, signal);
      if (run.sites.length) await this.looked(signal);
    });
  }

  /** Work that the button can stop; what goes wrong is noted. */
  async during(work) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    this.note.textContent = "";
    this.output.replaceChildren();
    this.busy = true;
    this.go.textContent = "stop";
    this.go.classList.add("st-stop");
    try {
      await work(abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.note.textContent = error.message;
    } finally {
      if (this.abort === abort) this.idle();
    }
    this.onchange();
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

  /** Show the output for an input, and return the input whose attention is shown. */
  async answer(run, given, signal) {
    if (!run.translates) {
      const made = await ask("/api/predict", { model: run.name, ...given }, signal);
      const choices = made.choices.slice(0, 5).map(({ text, probability }) => `${visible(text)} ${probability.toFixed(3)}`);
      this.output.append([made.text, ...choices].filter(Boolean).join("\n"));
      if (!this.question.hidden) this.note.textContent = `answer: ${choices.slice(0, 3).join(", ")}`; // stays below the hops
      return given;
    }
    const lines = given.text === undefined ? [] : given.text.split("\n").filter((line) => line.trim());
    const several = lines.length > 1;
    const request = several ? { text: lines } : given;
    const { translations } = await ask("/api/translate", { model: run.name, ...request }, signal);
    this.showLines(several ? lines : [], translations);
    if (!several) this.output.append(translations[0].text);
    return several ? { text: lines[0] } : given;
  }

  /** Several translations, one a line; a click shows the attention of that line. */
  showLines(lines, translations) {
    this.lines.replaceChildren(...lines.map((line, number) => {
      const choose = () => this.during(async (signal) => {
        this.given = { text: line };
        this.edits.list = [];
        if (this.run.sites.length) await this.looked(signal);
      });
      const properties = { type: "button", title: line, onclick: choose };
      return element("li", {}, element("button", properties, translations[number].text || "∅"));
    }));
    this.lines.hidden = !lines.length;
  }

  /** The attention weights, with the edits there are. */
  attention(signal) {
    return ask("/api/attention", { model: this.run.name, ...this.given, edits: this.edits.list }, signal);
  }

  /** The same choice of what is shown, of the weights with the edits. */
  async redraw(signal) {
    if (!this.handle) return;
    const data = await this.attention(signal);
    const { query, key } = this.handle.state;
    const within = (place, side) =>
      data.sites.every((site) => place < data.axes[site[side]].labels.length) ? place : null;
    await this.handle.replace(data, { query: within(query, "queries"), key: within(key, "keys") });
    this.showTokens();
  }

  /** The attention: tokens to click, and the views of the page. */
  async looked(signal) {
    const data = await this.attention(signal);
    if (this.handle) await this.handle.replace(data);
    else {
      const placed = data.axes.some((axis) => axis.kind in GROUNDS);
      const view = placed ? "input" : "matrix";
      this.handle = mount(this.look, data, { view, onchange: () => this.onchange() });
      await this.handle.ready;
    }
    this.showTokens();
    this.edits.root.hidden = false;
    await this.edits.changed({ drawn: true });
  }

  showTokens() {
    const { queries } = this.handle.labels();
    this.output.replaceChildren(...queries.map((token, query) =>
      element("button", { type: "button", class: "st-token", "data-query": query, onclick: () => this.point(query) }, token)));
    this.mark(this.handle.state.query);
  }

  /** The token that is chosen. */
  mark(query) {
    for (const token of this.output.children) {
      token.setAttribute("aria-pressed", String(Number(token.dataset.query) === query));
    }
  }

  /** A token was clicked: show what it attends to. */
  async point(query) {
    await this.handle.set({ query, view: "text" });
    this.mark(query);
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

  /** What is seen, as a link keeps it; a file is not kept. */
  kept() {
    const { run, handle } = this;
    const options = [this.temperature, this.tokens, this.seed].map(({ input }) => Number(input.value));
    const seen = { run: run.name, text: this.content(), options };
    if (!handle || this.given.text === undefined) return seen;
    const { view, site, head, query, key } = handle.state;
    return { ...seen, given: this.given.text, look: { view, site, head, query, key }, edits: this.edits.list };
  }

  /** Show again what a link kept. It may come from anyone, so all of it is checked. */
  async restore({ run, text, options, given, look, edits }) {
    if (this.runs.has(run)) this.list.value = run;
    this.choose();
    if (typeof text === "string") this.fill(text);
    if (Array.isArray(options)) {
      [this.temperature, this.tokens, this.seed].forEach(({ input }, place) => {
        if (Number.isFinite(options[place])) input.value = options[place];
      });
    }
    if (typeof given !== "string" || !this.run.trained || !takesText(this.run)) return;
    await this.during(async (signal) => {
      this.given = { text: given };
      this.edits.list = Array.isArray(edits) ? edits.filter(isEdit) : [];
      if (!this.run.writes) await this.answer(this.run, this.given, signal);
      if (this.run.sites.length) await this.looked(signal);
      if (this.handle && look) await this.handle.set(checked(look, this.handle));
      if (this.handle) this.mark(this.handle.state.query);
    });
  }

  /** Other runs to choose from; the choice stays if it can. */
  offer(runs) {
    const name = this.list.value;
    this.runs = new Map(runs.map((run) => [run.name, run]));
    fillSelection(this.list, runs.map(({ name, title }) => [name, `${name}: ${title}`]), name);
  }
}

/** For a run that kept no text of its data, such as an imported checkpoint. */
function exampleFor(run) {
  const pair = run.takes[0] === "pair";
  if (run.writes) return "To be, or not to be";
  if (run.takes[0] === "question") return "Where is Mary?\tMary went to the garden.\nJohn went to the office.";
  return pair ? "Who came?\tAnn came, and Bob did not." : "This is a sentence to try it with.";
}

/** Has it the form of an edit? The server checks its values. */
function isEdit(edit) {
  return typeof edit?.site === "string" && typeof edit.how === "string" && (edit.heads === null || Array.isArray(edit.heads));
}

/** What of a kept choice there is. */
function checked({ view, site, head, query, key }, handle) {
  const sites = handle.sites();
  const place = (value, count) => Number.isInteger(value) && value >= 0 && value < count;
  const found = {};
  if (["matrix", "heads", "links", "text", "input"].includes(view)) found.view = view;
  if (site === "mean" ? sites.length > 1 : place(site, sites.length)) found.site = site;
  const shown = sites[found.site === "mean" ? 0 : found.site ?? 0];
  if (head === "mean" || place(head, shown.count)) found.head = head;
  if (place(query, shown.queries.length)) found.query = query;
  if (place(key, shown.keys.length)) found.key = key;
  return found;
}

function takesText(run) {
  return run.takes.length === 0 || run.takes.some((kind) => WRITTEN.includes(kind));
}

function number(text, properties) {
  const input = element("input", { type: "number", ...properties });
  return { input, label: element("label", {}, text, input) };
}
