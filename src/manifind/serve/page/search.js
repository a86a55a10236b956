// The query on one side, what was found on the other.

import * as api from "./api.js";
import { BoxEditor } from "./boxes.js";
import { copies } from "./duplicates.js";
import { complain, counted, h, named, say } from "./dom.js";
import { marks, photo } from "./photo.js";
import { Proposals } from "./proposals.js";
import { Selection } from "./selection.js";
import { chips, filters, sheet } from "./filters.js";
import { GRADES, gradeOf, isOpen, isOwn, matchesOf, othersOf, placesOf, summary } from "./grades.js";
import { Steps, capture } from "./steps.js";
import { METHODS, PAPER_NAMES, address, sameSource, sources, tenths, viewText, viewsOf, within } from "./state.js";

const FIRST = 60;
const MORE = 120;
const SIDE_BY_SIDE = 15;
const NO_DEADLINE = 3600; // seconds; the service allows less
const SETTLES = 50; // milliseconds after which a box counts as settled; a search that it makes stale is cancelled
const SETTLES_SLOWLY = 700; // the same while keys are being pressed
const TINY = 32; // pixels of the photo: in a smaller box nothing can be recognised
const LARGE = 0.25; // of the photo: a larger box holds more than most objects

export class Search {
  constructor(page) {
    this.page = page;
    this.active = 0;
    this.top = FIRST;
    this.asked = null;
    this.answer = null;
    this.steps = null;
    this.ticks = new Selection(page);
    this.more = false; // whether what is rarely needed is shown
    this.editing = null; // whether the query is open on a small screen; null until somebody says so
    this.query = h("section", { class: "query", "aria-label": "What to look for" });
    this.found = h("section", { class: "results", "aria-label": "Results" });
    this.element = h("div", { class: "desk" }, this.query, this.found);
  }

  forget() {
    this.active = 0;
    this.top = FIRST;
    this.more = false;
    this.editing = null;
  }

  show(main, state) {
    if (!state.views.length) {
      this.abort?.abort();
      this.asked = this.shown = this.answer = this.shownQuery = null;
      this.landing(main);
      return;
    }
    if (main.firstElementChild !== this.element) {
      main.replaceChildren(this.element);
      this.shown = null;
    }
    this.showQuery(state);
    this.ask(state);
  }

  // -- before anything was asked -------------------------------------------------------------------------------------

  landing(main) {
    const some = h("div", { class: "wall", "aria-label": "Photos of the collection" });
    main.replaceChildren(
      h("section", { class: "landing" },
        h("h1", {}, "Find every photo that contains this object"),
        h("p", { class: "lead" },
          "Choose a photo and draw a box round what you are looking for. However small it is, and seen from wherever, " +
          "the search follows it from photo to photo, and shows you how it got there."),
        h("div", { class: "ways" },
          h("button", { type: "button", class: "primary", onclick: () => this.page.choose() }, "Upload a photo"),
          h("a", { class: "button", href: "/?tab=browse", "data-local": true }, "Choose from the collection"),
          h("span", { class: "quiet" }, "or drop or paste one anywhere on this page")),
        h("h2", {}, "Or begin with one of these"),
        some));
    this.offer(some);
  }

  async offer(wall) {
    try {
      const { total } = await api.photos("", "", 0, 1);
      const count = Math.min(18, total);
      const starts = [...new Set(Array.from({ length: count }, (_, i) => Math.floor(((i + Math.random()) * total) / count)))];
      const answers = await Promise.all(starts.map((start) => api.photos("", "", start, 1)));
      const photos = answers.flatMap((answer) => answer.photos);
      this.page.learn(photos);
      wall.append(...photos.map((one) =>
        h("button", { type: "button", class: "pick", style: { "--aspect": one.width / one.height },
          "aria-label": `Search with ${one.key}`, onclick: () => this.page.take({ key: one.key }) },
        photo(one, { side: 320 }))));
    } catch (error) {
      complain(error.message);
    }
  }

  // -- the query -----------------------------------------------------------------------------------------------------

  async showQuery(state) {
    const all = sources(state.views);
    this.active = Math.min(this.active, all.length - 1);
    const source = all[this.active];
    const shown = JSON.stringify([all.map(({ key, upload }) => [key, upload]), this.active, state.negatives]);
    const boxes = JSON.stringify(source.boxes.map((box) => box.map((corner) => corner.toFixed(1))));
    this.fold();
    if (this.shown === shown && boxes === this.drawn) return;
    this.shown = shown;
    this.drawn = boxes;
    let about;
    try {
      about = await this.page.about(source);
    } catch (error) {
      if (this.shown !== shown) return;
      this.query.replaceChildren(
        h("p", { class: "gone-note" }, error.message),
        this.tools(all));
      return;
    }
    if (this.shown !== shown) return;
    this.editor = new BoxEditor({
      image: api.picture(source, 1280, { version: about.version }),
      width: about.width,
      height: about.height,
      boxes: source.boxes,
      label: `The query: ${source.key ?? "an uploaded photo"}`,
      changed: (drawn, { slowly = false } = {}) => this.settle(drawn, slowly ? SETTLES_SLOWLY : SETTLES),
      // A touch of a box that somebody drew changes nothing.
      touched: (place, { inside = false } = {}) => (!inside || proposals.current) && proposals.touch(place),
      stepped: (direction) => proposals.step(direction),
    });
    const proposals = (this.proposals = new Proposals({
      source, editor: this.editor, redraw: () => this.hint?.replaceChildren(...this.hintParts(this.editor.boxes)) }));
    const strip = await this.strip(all);
    if (this.shown !== shown) return;
    const parts = [
      h("h2", {}, "Looking for"),
      (this.hint = h("div", { class: "quiet hint" }, this.hintParts(source.boxes))),
      this.editor.element,
      h("p", { id: "box-help", class: "unseen" },
        "Arrow keys move the box, Shift with an arrow resizes it, Control takes small steps, Delete removes it. " +
        "Enter proposes a box round what lies in the middle of it, plus and minus a larger and a smaller one."),
      h("p", { class: "caption" }, source.key ?? "Uploaded photo", h("span", {}, `${about.width} × ${about.height}`)),
      h("button", { type: "button", class: "fold", onclick: () => { this.editing = this.query.classList.contains("folded"); this.fold(); } }),
      this.tools(all),
      strip,
      this.rejected(state.negatives),
    ];
    this.query.replaceChildren(...parts.filter(Boolean));
    this.fold();
    if (!source.boxes.length && matchMedia("(pointer: coarse)").matches) proposals.suggest();
  }

  // On a small screen a query that has its box takes one line, until somebody wants to change it.
  fold() {
    const { views, negatives } = this.page.state;
    const folded = !(this.editing ?? !views.some((view) => view.box));
    this.query.classList.toggle("folded", folded);
    const button = this.query.querySelector(".fold");
    if (!button) return;
    button.setAttribute("aria-expanded", String(!folded));
    const parts = views.length + negatives.length;
    button.textContent = folded ? (parts > 1 ? `Change the query (${parts} parts)` : "Change the box") : "Show the results";
  }

  // What a drag does now; with several boxes, what they mean and the way back to one.
  hintParts(boxes) {
    const proposed = this.proposals?.controls();
    if (!boxes.length) return [h("p", {}, "The whole photo is searched for. Click the object, or draw a box round it."), proposed].filter(Boolean);
    if (boxes.length === 1 && proposed) return [h("div", { class: "both" }, h("p", {}, "Not the right box? Click again, or draw one."), proposed)];
    if (boxes.length === 1) return [h("p", {}, "Draw again, or move or resize the box.")];
    const number = boxes.length === 2 ? "Both" : `All ${boxes.length}`;
    return [h("div", { class: "both" },
      h("p", {}, `${number} boxes show one object: photos of any of them are found.`),
      h("button", { type: "button", onclick: () => this.editor.keepOne() }, "Back to one box"))];
  }

  tools(all) {
    return h("div", { class: "tools" },
      this.editor ? h("button", { type: "button", onclick: () => this.editor.add() }, "Add a box") : null,
      h("button", { type: "button", onclick: () => this.page.choose(true), title: "Another photo of the same object" }, "Add an upload"),
      h("a", { class: "button", "data-local": true,
        href: address({ ...this.page.state, tab: "browse", add: true, why: null }) }, "Add from the collection"),
      all.length > 1
        ? h("button", { type: "button", onclick: () => this.dropSource(all[this.active]) }, "Remove this photo")
        : h("button", { type: "button", onclick: () => this.page.go({ views: [], negatives: [], why: null, compare: false, expand: true, mirrored: false, method: "regional" }) }, "Start over"));
  }

  async strip(all) {
    if (all.length < 2) return null;
    const known = await Promise.all(all.map((one) => this.page.about(one).catch(() => null)));
    return h("div", { class: "strip", role: "group", "aria-label": "Photos of the query" },
      all.map((source, at) => known[at] && h("button", {
        type: "button", "aria-pressed": String(at === this.active), "aria-label": `Photo ${at + 1} of the query: ${source.key ?? "uploaded"}`,
        style: { "--aspect": known[at].width / known[at].height },
        onclick: () => { this.active = at; this.showQuery(this.page.state); },
      }, photo(known[at], { side: 160, boxes: source.boxes, kind: "asked" }))));
  }

  rejected(negatives) {
    if (!negatives.length) return null;
    return h("div", { class: "rejected" },
      h("h3", {}, "Not this"),
      h("ul", {}, negatives.map((view, at) => h("li", {},
        h("img", { src: api.picture(view, 160, { box: view.box }), alt: "" }),
        h("span", {}, view.key ?? "uploaded"),
        h("button", { type: "button", class: "remove-chip", "aria-label": `Take back: not ${view.key ?? "the upload"}`,
          onclick: () => this.page.go({ negatives: negatives.filter((_, i) => i !== at) }) }, "×")))));
  }

  settle(drawn, milliseconds) {
    clearTimeout(this.settling);
    this.proposals?.forgetDashed();
    this.abort?.abort(); // nobody waits for the results of the box before
    this.steps?.drop();
    this.asked = null;
    this.found.setAttribute("aria-busy", "true");
    this.found.classList.add("stale");
    this.settling = setTimeout(() => {
      const all = sources(this.page.state.views);
      all[this.active].boxes = drawn.map(tenths);
      this.hint?.replaceChildren(...this.hintParts(drawn));
      this.drawn = JSON.stringify(drawn.map((box) => box.map((corner) => corner.toFixed(1))));
      this.editing ??= true; // it was open, and stays so
      this.top = FIRST;
      this.page.go({ views: viewsOf(all) });
    }, milliseconds);
  }

  dropSource(source) {
    this.page.go({ views: this.page.state.views.filter((view) => !sameSource(view, source)) });
  }

  // -- asking --------------------------------------------------------------------------------------------------------

  // The collection has changed.
  again() {
    this.asked = null;
    this.show(this.page.main, this.page.state);
  }

  async ask(state, { deadline } = {}) {
    const query = JSON.stringify([state.views.map(viewText), state.negatives.map(viewText), state.compare ? "all" : state.method, within(state)]);
    const asked = JSON.stringify([query, this.top]);
    if (asked === this.asked) {
      if (this.drawnSheet !== state.sheet && this.final) this.redraw(state);
      this.steps?.release();
      return;
    }
    this.asked = asked;
    this.final = null;
    this.steps?.drop();
    this.abort?.abort(); // the service stops working on what nobody waits for
    const abort = (this.abort = new AbortController());
    const again = query === this.shownQuery; // more of what is shown: it stays until all is known
    this.found.setAttribute("aria-busy", "true");
    this.found.classList.toggle("stale", !again);
    try {
      if (state.compare) await this.compare(state, abort.signal);
      else await this.follow(state, abort.signal, again, deadline ? { ...within(state), deadline } : within(state));
      if (abort.signal.aborted) return;
      this.shownQuery = query;
      this.found.removeAttribute("aria-busy");
    } catch (error) {
      if (error.name === "AbortError" || abort.signal.aborted) return;
      this.found.removeAttribute("aria-busy");
      this.found.classList.remove("stale");
      this.asked = this.shownQuery = this.answer = this.steps = null;
      this.found.replaceChildren(...this.head(state, "No result"));
      complain(error.message);
    }
  }

  async compare(state, signal) {
    const answers = await Promise.all(Object.keys(METHODS).map((method) =>
      api.search(state.views, state.negatives, method, SIDE_BY_SIDE, signal, within(state))));
    answers.forEach((answer) => this.page.learn(answer.results));
    this.answer = answers[0];
    this.steps = null;
    this.found.classList.remove("stale");
    this.showCompared(state, answers);
    this.page.detail.refresh();
  }

  // Show the ranking at once, and each result that is surer than the one before.
  async follow(state, signal, again, options) {
    let latest = null;
    let drawn = null;
    const show = (last) => {
      drawn = latest;
      this.showStep(state, latest, last);
    };
    for await (const { result, progress } of api.searchSteps(state.views, state.negatives, state.method, this.top, signal, options)) {
      if (signal.aborted) return;
      if (!again && latest && latest !== drawn) show(false); // another follows it
      latest = result ?? latest;
      if (!again && !drawn) {
        this.begin(state);
        if (!latest.complete) show(false);
      }
      if (progress) this.progress(progress);
    }
    if (signal.aborted) return;
    if (again) this.begin(state, capture(this.found));
    show(true);
    this.final = latest;
    if (this.drawnSheet !== this.page.state.sheet) this.redraw(this.page.state);
  }

  // Show the same answer otherwise: photos, or only the parts that match.
  redraw(state) {
    this.begin(state, capture(this.found));
    this.showStep(state, this.final, true);
  }

  // -- what was found ------------------------------------------------------------------------------------------------

  // One line above the photos says what was found; what is rarely needed waits under More.
  head(state, words) {
    this.count = h("h2", { class: "count" }, words);
    this.offered = h("div", { class: "offered" });
    const panel = h("div", { class: "panel", id: "more", hidden: !this.more },
      this.methods(state), filters(this.page, state), this.offered);
    const more = h("button", { type: "button", class: "more-button", "aria-expanded": String(this.more), "aria-controls": "more", onclick: () => {
      this.more = !this.more;
      panel.hidden = !this.more;
      more.setAttribute("aria-expanded", String(this.more));
    } }, "More");
    return [
      h("h1", { class: "unseen" }, "Results"),
      h("div", { class: "bar" }, this.count,
        h("div", { class: "actions" },
          state.compare ? null : h("button", { type: "button", "aria-pressed": String(state.sheet),
            onclick: () => this.page.go({ sheet: !state.sheet }, { replace: true }) }, "Only the parts that match"),
          more)),
      panel,
      chips(this.page, state),
    ].filter(Boolean);
  }

  methods(state) {
    const choices = [...Object.entries(METHODS), ["compare", "Side by side"]];
    const chosen = state.compare ? "compare" : state.method;
    return h("fieldset", { class: "methods" },
      h("legend", {}, "Look for"),
      choices.map(([name, label]) => h("label", { class: name === chosen ? "chosen" : null, title: PAPER_NAMES[name] ?? "All three at once" },
        h("input", { type: "radio", name: "method", value: name, checked: name === chosen,
          onchange: () => this.page.go(name === "compare" ? { compare: true } : { compare: false, method: name }) }),
        label)));
  }

  // Those above the line, and all: whoever wants the object does not want what stands below.
  downloads(state, answer) {
    const [matches, others] = [matchesOf(answer, state.views).length, othersOf(answer, state.views).length];
    const own = others < answer.results.length ? ", and your own photo" : "";
    const group = (top, label) => h("span", { class: "downloads", role: "group", "aria-label": `Download ${label}` },
      h("span", { class: "quiet" }, `Download ${label}:`),
      ["zip", "csv", "json"].map((kind) =>
        h("a", { href: api.download(kind, state, top), download: `${fileName(state)}.${kind}` },
          { json: "JSON", csv: "CSV", zip: "Photos (zip)" }[kind])));
    if (others === 1) return h("div", { class: "taken" }, group(this.top, `it${own}`));
    return h("div", { class: "taken" },
      matches && matches < others ? group(answer.n_matches, `${matches === 1 ? "the one" : `the ${matches}`} above the line${own}`) : null,
      group(this.top, `all ${others}${own}`));
  }

  // Lay out what stays while the steps of a search come.
  begin(state, before = null) {
    const { why } = state;
    this.tickedAtFirst = null;
    this.drawnSheet = state.sheet;
    this.before = before ?? new Map([...capture(this.found)].map(([key, { image }]) => [key, { image }])); // another query's move nowhere
    this.steps = new Steps(() => this.ticks.chosen.size > this.tickedAtFirst || (this.page.state.why && this.page.state.why !== why));
    this.waiting = h("div", { class: "waiting" });
    this.found.replaceChildren(...this.head(state, "Checking …"), this.waiting, this.steps.element);
    this.found.classList.remove("stale");
  }

  progress({ checked, total }) {
    this.count?.replaceChildren(`Checking ${checked} of ${total} …`);
  }

  // Show a result of a search: its last one, or one that another follows.
  showStep(state, answer, last) {
    this.page.learn(answer.results);
    const { steps } = this;
    steps.offer(() => {
      this.answer = answer;
      const parts = last ? this.foundParts(state, answer) : this.rankingParts(state, answer);
      if (!last) this.tickedAtFirst ??= this.ticks.chosen.size;
      this.page.detail.refresh();
      return parts;
    }, this.before);
    this.before = null;
    if (!last) return;
    const words = summary(answer, state.views);
    const unchecked = answer.complete ? "" : ` ${uncheckedWords(answer)}.`;
    if (!steps.waiting) {
      say(`${sentence(words)}${unchecked}`);
      return;
    }
    say(`${sentence(words)}${unchecked} Their order has changed.`);
    this.count.replaceChildren(words);
    this.waiting.replaceChildren(h("button", { type: "button", onclick: () => steps.apply() }, "Show the new order"));
  }

  // A ranking that is not verified yet says nothing of an empty collection.
  rankingParts(state, answer) {
    if (answer.n_matches === 0) return [];
    return [this.gallery(state, answer), this.ticks.element];
  }

  // What can be done with the last result: taken along, kept as a set, searched with once more.
  offerMore(state, answer) {
    const sure = othersOf(answer, state.views).some((one) => one.verified);
    this.offered.replaceChildren(...[
      this.downloads(state, answer),
      this.ticks.all(),
      sure ? this.teaching(state) : null,
      this.mirroring(state),
    ].filter(Boolean));
  }

  gallery(state, answer) {
    const { views } = state;
    const [others, matches, places] = [othersOf(answer, views), matchesOf(answer, views), placesOf(answer, views)];
    this.ticks.begin(answer, matches);
    const gallery = h("ol", { class: "gallery", role: "list", "aria-label": "Photos, best first" });
    gallery.append(...answer.results.filter((one) => isOwn(one, views)).map((one) => this.ownCard(one)));
    others.forEach((one, at) => {
      if (at === matches.length && at && state.sort !== "date") {
        gallery.append(h("li", { class: "filler", "aria-hidden": "true" }), line(matches.some((match) => match.verified)));
      }
      gallery.append(this.card(one, places.get(one.key), !matches.includes(one)));
    });
    gallery.append(h("li", { class: "filler", "aria-hidden": "true" }));
    if (isOpen(answer, views)) requestAnimationFrame(() => brightenFirstRow(gallery));
    return gallery;
  }

  foundParts(state, answer) {
    const { results } = answer;
    const gallery = this.gallery(state, answer);
    const milliseconds = Math.round(Object.values(answer.milliseconds).reduce((sum, one) => sum + one, 0));
    this.waiting.replaceChildren();
    this.count.replaceChildren(summary(answer, state.views));
    this.count.title = `Searched in ${milliseconds} ms`;
    const found = matchesOf(answer, state.views).length > 0;
    if (!found && !isOpen(answer, state.views) && !results.some((one) => isOwn(one, state.views))) {
      this.offered.replaceChildren();
      return [this.unchecked(answer), this.emptiness(state, answer, () => {
        this.offerMore(state, answer);
        return [gallery, this.ticks.element];
      })].filter(Boolean);
    }
    this.offerMore(state, answer);
    return [
      this.unchecked(answer),
      found ? null : h("p", { class: "note" }, this.advice(state)),
      gallery,
      results.length === this.top && this.top < 1000
        ? h("button", { type: "button", class: "more", onclick: () => {
          this.top = Math.min(1000, this.top + MORE);
          this.ask(this.page.state);
        } }, "Show more") : null,
      this.ticks.element,
    ].filter(Boolean);
  }

  unchecked(answer) {
    if (answer.complete) return null;
    return h("div", { class: "note unchecked" },
      h("p", {}, `${uncheckedWords(answer)}: the service had no time left.`),
      h("button", { type: "button", onclick: () => {
        this.asked = null;
        this.ask(this.page.state, { deadline: NO_DEADLINE });
      } }, answer.n_unchecked === 1 ? "Check it" : "Check them"),
      h("p", { class: "quiet wide" }, "The search goes on where it stopped, for as long as the service allows."));
  }

  // What verified photos show of the object may join the query, which is then answered once more.
  teaching(state) {
    return h("button", { type: "button", class: "toggle", role: "switch", "aria-checked": String(state.expand),
      title: "Photos that are sure show the object from other sides: the search is run again with them",
      onclick: () => this.page.go({ expand: !state.expand }) }, "Search again with the sure ones");
  }

  // Reversed slides, prints after paintings, and selfies show things mirrored.
  mirroring(state) {
    return h("button", { type: "button", class: "toggle", role: "switch", "aria-checked": String(state.mirrored),
      title: "Reversed slides, prints and selfies show the object mirrored",
      onclick: () => this.page.go({ mirrored: !state.mirrored }) }, "Look for mirrored ones too");
  }

  emptiness(state, { results, confidence }, nearest) {
    const chance = confidence && confidence.similarity <= confidence.null_similarity;
    const element = h("div", { class: "nothing" },
      h("p", {}, !results.length
        ? "No photo resembles it at all."
        : chance ? "No photo resembles it more than photos of different things resemble each other." : "No photo stands out from the others."),
      h("p", {}, this.advice(state)),
      state.mirrored ? null : this.mirroring(state),
      results.length
        ? h("button", { type: "button", onclick: (event) => {
          event.target.replaceWith(h("p", { class: "quiet" }, "What comes nearest, though it is probably something else:"));
          element.after(...nearest());
        } }, "Show what comes nearest anyway")
        : null);
    return element;
  }

  // What may help a search that found nothing depends on the size of its box.
  advice(state) {
    const { box, ...source } = state.views[0];
    const photo = this.page.known.get(source.key != null ? `k:${source.key}` : `u:${source.upload}`);
    if (box && Math.min(box[2] - box[0], box[3] - box[1]) < TINY) {
      return `The box has only ${Math.round(box[2] - box[0])} × ${Math.round(box[3] - box[1])} pixels, too few to recognise anything. ` +
        "Draw a larger box, or search with a photo that was taken closer.";
    }
    const share = box && photo ? ((box[2] - box[0]) * (box[3] - box[1])) / (photo.width * photo.height) : 1;
    return share < LARGE ? "Another photo of the object may help, sharper or from another side."
      : box ? "A box that fits the object closely may help, or another photo of it."
        : "A box round the object alone may help, or another photo of it.";
  }

  card(one, place, doubtful) {
    const { state } = this.page;
    const { box } = one;
    const aspect = state.sheet && box ? (box[2] - box[0]) / (box[3] - box[1]) : one.width / one.height;
    const grade = GRADES[gradeOf(one)];
    const words = [`rank ${place}`, grade ? grade.label : doubtful ? "probably something else" : null, grade && pointsOf(one)].filter(Boolean);
    return h("li", { class: `card${doubtful ? " doubtful" : ""}`, style: { "--aspect": aspect }, "data-key": one.key },
      h("a", { class: "look", "data-local": true, href: address({ ...state, why: one.key }),
        "aria-label": `Look closer at ${one.key}, ${words.join(", ")}` },
      state.sheet && box ? sheet(one) : photo(one, { side: 320, ...marks(one) })),
      h("div", { class: "about" },
        this.ticks.box(one),
        h("h3", {}, h("span", { class: "rank" }, place), " ", named(one.key)),
        grade ? h("span", { class: "grade", title: grade.meaning(one) }, h("span", { class: grade.kind }, grade.mark),
          pointsOf(one) ? h("span", { class: "points" }, ` ${pointsOf(one)}`) : null) : null),
      one.date ? h("p", { class: "quiet date" }, one.date.slice(0, 10)) : null,
      copies(one),
      h("div", { class: "marks" },
        h("button", { type: "button", onclick: () => this.mark("views", one.key, box), "aria-label": `Also this: ${one.key}` }, "Also this"),
        h("button", { type: "button", onclick: () => this.mark("negatives", one.key, box), "aria-label": `Not this: ${one.key}` }, "Not this")));
  }

  // A photo that the query was taken from: no finding, and of no rank.
  ownCard(one) {
    const { state } = this.page;
    return h("li", { class: "card own", style: { "--aspect": one.width / one.height }, "data-key": one.key },
      h("a", { class: "look", "data-local": true, href: address({ ...state, why: one.key }), "aria-label": `Look closer at ${one.key}, your own photo` },
        photo(one, { side: 320, ...marks(one) })),
      h("div", { class: "about" }, this.ticks.box(one), h("h3", {}, named(one.key))),
      one.date ? h("p", { class: "quiet date" }, one.date.slice(0, 10)) : null,
      copies(one),
      h("p", { class: "quiet" }, "In the query"));
  }

  // The part that matched is what is marked: the rest of the photo is something else.
  mark(list, key, box) {
    say(list === "views" ? `${key} is now part of the query.` : `Searching without what is in ${key}.`);
    this.page.go({ [list]: [...this.page.state[list], { key, box }], why: null });
  }

  // A photo is marked the same in each column: as the search for the object judges it, which alone verifies.
  showCompared(state, answers) {
    const found = answers.map((answer) => othersOf(answer, state.views));
    const [regional, ...others] = found.map((results) => new Set(results.map((one) => one.key)));
    const judged = new Map(found[0].map((one) => [one.key, gradeOf(one)]));
    const alone = [...regional].filter((key) => judged.get(key) !== "not likely" && others.every((set) => !set.has(key)));
    const columns = Object.entries(METHODS).map(([method, label], at) => {
      const own = at === 0 ? alone : [];
      return h("section", { class: "column", "aria-label": label },
        h("h3", { title: PAPER_NAMES[method] }, label),
        h("ol", { role: "list" }, found[at].map((one, place) => {
          const name = judged.get(one.key) ?? "not likely";
          const grade = GRADES[name];
          return h("li", { class: `${own.includes(one.key) ? "only" : ""} ${name === "not likely" ? "doubtful" : ""}`, "data-key": one.key },
            h("a", { class: "look", "data-local": true, href: address({ ...state, compare: false, method: "regional", why: one.key }),
              "aria-label": `Look closer at ${one.key}, rank ${place + 1}, ${grade?.label ?? "probably something else"}${own.includes(one.key) ? ", only here" : ""}` },
            photo(one, { side: 320 })),
            h("span", { class: "rank", "aria-hidden": "true" }, place + 1),
            grade ? h("span", { class: `stamp ${grade.kind}`, title: grade.meaning(one), "aria-hidden": "true" }, grade.sign) : null,
            own.includes(one.key) ? h("span", { class: "badge", "aria-hidden": "true" }, "only here") : null);
        })));
    });
    const matches = matchesOf(answers[0], state.views).length;
    const words = !matches ? "Nothing certain in any column"
      : alone.length ? `${counted(alone.length, "match", "matches")} in the first column only` : "Each column has every match";
    say(`${words}.`);
    this.found.replaceChildren(...this.head(state, words),
      h("p", { class: "quiet legend" }, "✓ is sure, ◐ shares a part, ~ is likely; pale photos are probably something else."),
      h("div", { class: "columns" }, columns));
  }
}

const pointsOf = ({ inliers }) => (inliers == null ? "" : counted(inliers, "point"));

const sentence = (words) => (words.endsWith(":") ? words : `${words}.`);

// Where nothing is certain, the nearest photos are there to be judged: those of the first row are not pale.
function brightenFirstRow(gallery) {
  const cards = [...gallery.querySelectorAll(".doubtful")];
  for (const card of cards.filter((one) => one.offsetTop === cards[0].offsetTop)) card.classList.remove("doubtful");
}

// What a download holds: the matches of the photo that was searched with.
function fileName({ views: [{ key }] }) {
  return key == null ? "found" : `found with ${key.slice(key.lastIndexOf("/") + 1).replace(/\.[^.]*$/, "")}`;
}

const uncheckedWords = ({ n_unchecked: count }) =>
  (count ? `${counted(count, "photo")} ${count === 1 ? "was" : "were"} not checked` : "Not every photo was checked");

function line(sure) {
  return h("li", { class: "line" },
    h("p", {}, h("strong", {}, "Below this line: probably something else")),
    h("details", {},
      h("summary", {}, "Why the line is here"),
      h("p", {}, sure
          ? "Above it stand the photos in which points of the query were found again in the same arrangement, and those whose score " +
            "is near theirs: the object seen from another side is reached from photo to photo, where no points match."
          : "Here the likeness to the query falls steeply, below half of what the best photo has. On photos whose contents are known " +
            "this line is right more often than not. It is no proof: look at a few photos below it.")));
}
