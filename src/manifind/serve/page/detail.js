// A result looked at closely: beside the query, with what each part contributes, and the chain of photos that led there.

import * as api from "./api.js";
import { byId, counted, h, named, say } from "./dom.js";
import { facts } from "./facts.js";
import { confirm, matches } from "./geometry.js";
import { heat, marks, outlines, photo } from "./photo.js";
import { GRADES, gradeOf, isOwn, placesOf } from "./grades.js";
import { sameSource, sources } from "./state.js";

export class Detail {
  constructor(page) {
    this.page = page;
    this.dialog = byId("detail");
    this.glowing = false;
    this.dialog.addEventListener("close", () => {
      if (this.page.state.why) this.page.go({ why: null });
    });
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("keydown", (event) => {
      if (event.target.closest(".chain, [type=range]") || event.altKey || event.ctrlKey) return;
      if (event.key === "ArrowRight") this.step(1);
      if (event.key === "ArrowLeft") this.step(-1);
    });
  }

  show(key) {
    if (!key) {
      this.abort?.abort();
      this.key = null;
      if (this.dialog.open) {
        this.dialog.close();
        this.back?.isConnected && this.back.focus();
      }
      return;
    }
    if (key === this.key) return;
    this.key = key;
    if (!this.dialog.open) {
      this.back = document.querySelector(`.card[data-key="${CSS.escape(key)}"] .look`) ?? document.activeElement;
      this.dialog.showModal();
    }
    this.load(key);
  }

  results() {
    return this.page.search.answer?.results ?? [];
  }

  grade() {
    const found = this.results().find((one) => one.key === this.key);
    return found && gradeOf(found);
  }

  // The place of the result among those that the page counts.
  rank() {
    const { views } = this.page.state;
    if (isOwn(this.answer, views)) return "In the query";
    const found = this.page.search.answer;
    const places = found ? placesOf(found, views) : new Map();
    return places.has(this.key) ? `Rank ${places.get(this.key)} of ${places.size}` : `Rank ${this.answer.rank}`;
  }

  step(by) {
    const results = this.results();
    const at = results.findIndex((one) => one.key === this.key);
    const next = results[at + by];
    if (at >= 0 && next) this.page.go({ why: next.key }, { replace: true });
  }

  async load(key) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    const { state } = this.page;
    this.answer = null;
    this.fill(h("p", { class: "loading" }, "Following the chain …"));
    try {
      const answer = await api.explain(state.views, state.negatives, key, abort.signal, state.mirrored);
      const all = await Promise.all(sources(state.views).map(async (one) => ({ ...one, ...(await this.page.about(one)) })));
      const stops = await Promise.all(answer.links.map((link) => this.page.about({ key: link.target.key })));
      if (abort.signal.aborted) return;
      this.answer = answer;
      const about = (view) => all.find((one) => sameSource(one, view));
      this.fill(this.beside(all, answer), facts(answer),
        matches(state.views, about, answer, abort.signal, (outline) => this.outline(answer, outline), state.mirrored, () => this.grade()),
        this.why(all, answer, stops));
      confirm(answer.links, state.views, this.dialog.querySelectorAll(".chain .arrow"), abort.signal, state.mirrored);
      say(`${key}: ${this.rank().toLowerCase()}, found in ${counted(answer.links.length, "step")}.`);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.fill(h("p", { class: "loading" }, error.message));
    }
  }

  fill(...parts) {
    const held = document.activeElement;
    this.dialog.replaceChildren(this.head(), ...parts);
    this.hold(held);
  }

  // The list of results may come after the dialog, where the address asks for both. Only the head tells of it: whoever
  // has begun to read, to press or to slide something below goes on with it.
  refresh() {
    if (!this.key) return;
    const [head, held] = [this.dialog.firstElementChild, document.activeElement];
    const holds = head.contains(held);
    head.replaceWith(this.head());
    if (holds) this.hold(held);
  }

  // Give the button that had the focus, or else the one that closes, the focus again.
  hold(held) {
    const label = held?.getAttribute("aria-label");
    const button = label && this.dialog.querySelector(`.steps [aria-label="${CSS.escape(label)}"]:enabled`);
    (button || this.dialog.querySelector(".steps [aria-label=Close]")).focus();
  }

  head() {
    const { key, answer } = this;
    const results = this.results();
    const place = results.findIndex((one) => one.key === key);
    // The list ranks what verified photos have taught the query; the chain is that of the query as it was given.
    const found = results[place] ?? answer ?? {};
    const grade = GRADES[gradeOf(found)];
    return h("header", { class: "detail-head" },
      h("div", {},
        h("h2", { id: "detail-title" }, key),
        h("p", { class: "quiet" }, answer ? this.rank() : "\u00a0",
          grade && answer && !isOwn(answer, this.page.state.views) ? [" · ", h("span", { class: grade.kind, title: grade.meaning(found) }, grade.mark)] : null)),
      h("div", { class: "steps" },
        h("button", { type: "button", disabled: place <= 0, "aria-label": "The result before", onclick: () => this.step(-1) }, "‹"),
        h("button", { type: "button", disabled: place < 0 || place >= results.length - 1, "aria-label": "The next result", onclick: () => this.step(1) }, "›"),
        h("button", { type: "button", "aria-label": "Close", onclick: () => this.dialog.close() }, "×")));
  }

  beside(all, answer) {
    const glow = heat(answer.width, answer.height, answer.regions);
    glow.hidden = !this.glowing;
    const { box } = answer;
    const part = this.results().find((one) => one.key === answer.key)?.part;
    const marked = isOwn(answer, this.page.state.views);
    return h("div", { class: "beside" },
      h("figure", {},
        all.map((source) => photo(source, { side: 1280, boxes: source.boxes, kind: "asked", lazy: false, alt: `The query: ${source.key ?? "an uploaded photo"}` })),
        h("figcaption", {}, all.length > 1 ? `The query, ${all.length} photos` : "The query")),
      h("figure", {},
        photo({ key: answer.key, width: answer.width, height: answer.height, version: answer.version },
          { side: 1280, ...marks({ box, part }), lazy: false, alt: `The result: ${answer.key}`, overlays: [glow] }),
        h("figcaption", {},
          h("label", { class: "switch" },
            h("input", { type: "checkbox", checked: this.glowing, onchange: (event) => { this.glowing = event.target.checked; glow.hidden = !this.glowing; } }),
            "Show what each part contributes"),
          marked ? null : h("span", { class: "marks" },
            h("button", { type: "button", onclick: () => this.page.search.mark("views", answer.key, box) }, "Also this"),
            h("button", { type: "button", onclick: () => this.page.search.mark("negatives", answer.key, box) }, "Not this")))));
  }

  // Geometry knows better than regions where the object is.
  outline(answer, corners) {
    answer.outlined = corners;
    const drawn = this.dialog.querySelector(".beside figure:last-child .outlines");
    drawn?.replaceWith(outlines(answer.width, answer.height, [], "found", [corners]));
  }

  why(all, answer, stops) {
    if (!answer.links.length) {
      return h("section", { class: "why" }, h("h3", {}, "Why?"), h("p", {}, "No chain of photos leads here from the query."));
    }
    const first = answer.links[0].source;
    // Descriptors of the client's own have no photo; views of one photo share it.
    const view = this.page.state.views[first.view];
    const asked = all.find((one) => (view.key != null ? one.key === view.key : one.upload === view.upload)) ?? all[0];
    const nodes = [
      { about: asked, box: first.box, kind: "asked", label: "The query" },
      ...answer.links.map((link, at) => ({
        about: stops[at], box: link.target.box, kind: "found", label: link.target.key, similarity: link.similarity,
      })),
    ];
    const direct = answer.links.length === 1;
    return h("section", { class: "why", "aria-label": "Why it was found" },
      h("h3", {}, "Why?"),
      h("p", { class: "quiet" }, direct
        ? "It resembles the query directly: the two outlined parts look alike."
        : `It was reached in ${answer.links.length} steps. Each outlined part looks like the one before it.`),
      h("ol", { class: "chain", tabindex: "0", "aria-label": "The chain of photos, from the query to the result" },
        nodes.flatMap((node, at) => [
          at ? h("li", { class: "arrow", "aria-label": `similarity ${node.similarity.toFixed(2)}` },
            h("span", { "aria-hidden": "true" }, "→"), h("small", { "aria-hidden": "true" }, node.similarity.toFixed(2))) : null,
          h("li", { class: `stop ${node.kind}` },
            photo(node.about, { side: 320, boxes: [node.box], kind: node.kind, lazy: false }),
            h("img", { class: "crop", src: api.picture(node.about, 160, { box: node.box, version: node.about.version }), alt: `The part of it that matches` }),
            named(node.label)),
        ])));
  }
}
