// The query on one side, what was found on the other.

import * as api from "./api.js";
import { BoxEditor } from "./boxes.js";
import { copies } from "./duplicates.js";
import { complain, counted, h, named, say } from "./dom.js";
import { marks, photo } from "./photo.js";
import { Selection } from "./selection.js";
import { filters, sheet } from "./filters.js";
import { Steps, capture } from "./steps.js";
import { METHODS, PAPER_NAMES, address, sameSource, sources, tenths, viewText, viewsOf, within } from "./state.js";

const FIRST = 60;
const MORE = 120;
const SIDE_BY_SIDE = 15;
const SCORE = "How much of the query's weight reached this photo, from part to part. It ranks the photos of one search; " +
  "scores of different searches do not compare.";
const NO_DEADLINE = 3600; // seconds; the service allows less
const SETTLES = 50; // milliseconds after which a box counts as settled; a search that it makes stale is cancelled
const SETTLES_SLOWLY = 700; // the same while keys are being pressed

export class Search {
  constructor(page) {
    this.page = page;
    this.active = 0;
    this.top = FIRST;
    this.asked = null;
    this.answer = null;
    this.steps = null;
    this.ticks = new Selection(page);
    this.query = h("section", { class: "query", "aria-label": "What to look for" });
    this.found = h("section", { class: "results", "aria-label": "Results" });
    this.element = h("div", { class: "desk" }, this.query, this.found);
  }

  forget() {
    this.active = 0;
    this.top = FIRST;
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
    });
    const strip = await this.strip(all);
    if (this.shown !== shown) return;
    const parts = [
      h("h2", {}, "Looking for"),
      (this.hint = h("div", { class: "quiet hint" }, this.hintParts(source.boxes))),
      this.editor.element,
      h("p", { id: "box-help", class: "unseen" },
        "Arrow keys move the box, Shift with an arrow resizes it, Control takes small steps, Delete removes it."),
      h("p", { class: "caption" }, source.key ?? "Uploaded photo", h("span", {}, `${about.width} × ${about.height}`)),
      this.tools(all),
      strip,
      this.rejected(state.negatives),
    ];
    this.query.replaceChildren(...parts.filter(Boolean));
  }

  // What a drag does now; with several boxes, what they mean and the way back to one.
  hintParts(boxes) {
    if (!boxes.length) return [h("p", {}, "The whole photo is searched for. Draw a box round the object.")];
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
        : h("button", { type: "button", onclick: () => this.page.go({ views: [], negatives: [], why: null, compare: false, expand: true, method: "regional" }) }, "Start over"));
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
    const asked = JSON.stringify([query, this.top, state.sheet]);
    if (asked === this.asked) {
      this.steps?.release();
      return;
    }
    this.asked = asked;
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
      this.found.replaceChildren(this.bar(state), h("p", { class: "nothing" }, error.message));
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
  }

  // -- what was found ------------------------------------------------------------------------------------------------

  bar(state) {
    const choices = [...Object.entries(METHODS), ["compare", "Side by side"]];
    const chosen = state.compare ? "compare" : state.method;
    return h("div", { class: "bar" },
      h("fieldset", { class: "methods" },
        h("legend", { class: "unseen" }, "How to search"),
        choices.map(([name, label]) => h("label", { class: name === chosen ? "chosen" : null, title: PAPER_NAMES[name] ?? "All three at once" },
          h("input", { type: "radio", name: "method", value: name, checked: name === chosen,
            onchange: () => this.page.go(name === "compare" ? { compare: true } : { compare: false, method: name }) }),
          label))));
  }

  // Those above the line, and all: whoever wants the object does not want what stands below.
  downloads(state, answer) {
    const all = answer.results.length;
    const likely = answer.n_matches || all;
    const group = (top, label) => h("span", { class: "downloads", role: "group", "aria-label": `Download ${label}` },
      h("span", { class: "quiet" }, `Download ${label}:`),
      ["zip", "csv", "json"].map((kind) =>
        h("a", { href: api.download(kind, state, top), download: `${kind === "zip" ? "photos" : "results"}.${kind}` },
          { json: "JSON", csv: "CSV", zip: "Photos (zip)" }[kind])));
    if (all === 1) return group(1, "it");
    return h("div", { class: "taken" },
      likely < all ? group(likely, `the ${likely}`) : null,
      group(this.top, likely < all ? `all ${all}` : `the ${all}`));
  }

  // Lay out what stays while the steps of a search come.
  begin(state, before = null) {
    const { why } = state;
    this.tickedAtFirst = null;
    this.before = before ?? new Map([...capture(this.found)].map(([key, { image }]) => [key, { image }])); // another query's move nowhere
    this.topBar = this.bar(state);
    this.status = h("div", { class: "status" }, h("p", { class: "count" }, "Checking …"));
    this.steps = new Steps(() => this.ticks.chosen.size > this.tickedAtFirst || (this.page.state.why && this.page.state.why !== why));
    this.found.replaceChildren(this.topBar, filters(this.page, state), this.status, this.steps.element);
    this.found.classList.remove("stale");
  }

  progress({ checked, total }) {
    this.status?.querySelector(".count")?.replaceChildren(`Checking ${checked} of ${total} …`);
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
    const words = summary(answer);
    const unchecked = answer.complete ? "" : ` ${uncheckedWords(answer)}.`;
    if (!steps.waiting) {
      say(`${words}.${unchecked}`);
      return;
    }
    say(`${words}.${unchecked} Their order has changed.`);
    this.status.replaceChildren(
      h("p", { class: "count" }, `${words}. `),
      h("button", { type: "button", onclick: () => steps.apply() }, "Show the new order"));
  }

  // A ranking that is not verified yet says nothing of an empty collection.
  rankingParts(state, answer) {
    if (answer.n_matches === 0) return [];
    this.showDownloads(state, answer, "unready");
    return [this.ticks.element, this.gallery(state, answer)];
  }

  // Downloads are of the last result; before it, their place is kept.
  showDownloads(state, answer, kind = null) {
    this.topBar.querySelector(".offered")?.remove();
    if (answer) this.topBar.append(h("div", { class: `offered ${kind ?? ""}` }, this.downloads(state, answer)));
  }

  gallery(state, answer) {
    const likely = answer.n_matches ?? answer.results.length;
    const verified = answer.results.filter((one) => one.verified).length;
    this.ticks.begin(answer, likely);
    const gallery = h("ol", { class: "gallery" });
    answer.results.forEach((one, at) => {
      if (at === likely && likely && state.sort !== "date") gallery.append(line(answer.confidence, nothingElse(state, answer), verified));
      gallery.append(this.card(one, one.rank > likely));
    });
    gallery.append(h("li", { class: "filler", "aria-hidden": "true" }));
    return gallery;
  }

  foundParts(state, answer) {
    const { results, confidence } = answer;
    const gallery = this.gallery(state, answer);
    if (!results.length || answer.n_matches === 0) {
      this.status.replaceChildren();
      this.showDownloads(state, null);
      return [this.unchecked(answer), this.emptiness(results, confidence, () => {
        this.showDownloads(state, answer);
        return gallery;
      })].filter(Boolean);
    }
    const milliseconds = Math.round(Object.values(answer.milliseconds).reduce((sum, one) => sum + one, 0));
    const verified = results.filter((one) => one.verified).length;
    this.showDownloads(state, answer);
    this.status.replaceChildren(
      h("p", { class: "count" }, `${summary(answer)}, in ${milliseconds} ms `, this.teaching(state, verified)));
    return [
      this.unchecked(answer),
      nothingElse(state, answer)
        ? h("p", { class: "note" }, "Besides the photo that you searched with, nothing in this collection seems to match.") : null,
      this.ticks.element,
      gallery,
      results.length === this.top && this.top < 1000
        ? h("button", { type: "button", class: "more", onclick: () => {
          this.top = Math.min(1000, this.top + MORE);
          this.ask(this.page.state);
        } }, "Show more") : null,
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
      h("p", { class: "quiet" }, "This searches again from the start, for as long as the service allows."));
  }

  // What verified photos show of the object may join the query, which is then answered once more.
  teaching(state, sure) {
    if (!sure) return null;
    return h("button", { type: "button", class: "teach", "aria-pressed": String(state.expand),
      title: "What the verified photos show of the object joins the query, which is answered once more",
      onclick: () => this.page.go({ expand: !state.expand }) },
    state.expand ? "Verified photos teach the query" : "Let the verified photos teach the query");
  }

  emptiness(results, confidence, nearest) {
    const element = h("div", { class: "nothing" },
      h("h2", {}, "Nothing in this collection matches"),
      confidence && confidence.similarity <= confidence.null_similarity
        ? h("p", {}, `No photo resembles it more (${confidence.similarity.toFixed(2)}) than photos of different things resemble ` +
          `each other by chance (${confidence.null_similarity.toFixed(2)}). ` +
          "A smaller box that holds the object alone may help, or another photo of it.")
        : h("p", {}, results.length
          ? "No photo stands out from the others. A smaller box that holds the object alone may help, or another photo of it."
          : "No photo has a score above zero."),
      results.length
        ? h("button", { type: "button", onclick: (event) => {
          event.target.replaceWith(h("p", { class: "quiet" }, "What comes nearest, though it is probably something else:"));
          element.after(nearest());
        } }, "Show what comes nearest anyway")
        : null);
    return element;
  }

  card(one, doubtful) {
    const { state } = this.page;
    const marked = state.views.some((view) => view.key === one.key);
    const box = one.box;
    const aspect = state.sheet && box ? (box[2] - box[0]) / (box[3] - box[1]) : one.width / one.height;
    return h("li", { class: `card${doubtful ? " doubtful" : ""}`, style: { "--aspect": aspect }, "data-key": one.key },
      h("a", { class: "look", "data-local": true, href: address({ ...state, why: one.key }),
        title: one.verified ? `${counted(one.inliers, "point")} of the query were found again in it, in the same arrangement` : null,
        "aria-label": `Rank ${one.rank}: ${one.key}, ${one.verified ? "verified, " : ""}score ${one.score.toFixed(3)}. Look closer` },
      state.sheet && box ? sheet(one) : photo(one, { side: 320, ...marks(one) })),
      h("div", { class: "about" },
        this.ticks.box(one),
        h("span", { class: "rank" }, one.rank),
        named(one.key),
        one.verified ? h("span", { class: "sure", title: one.expanded ? "Only a second pass reached it, whose query verified photos had joined" : null }, one.expanded ? "✓ verified, by way of others" : "✓ verified") : null,
        h("span", { class: "score", title: `Score: ${SCORE}` }, one.score.toFixed(3))),
      one.date ? h("p", { class: "quiet date" }, one.date.slice(0, 10)) : null,
      copies(one),
      h("div", { class: "marks" },
        marked
          ? h("span", { class: "quiet" }, "In the query")
          : [
            h("button", { type: "button", onclick: () => this.mark("views", one.key, box), "aria-label": `Also this: ${one.key}` }, "Also this"),
            h("button", { type: "button", onclick: () => this.mark("negatives", one.key, box), "aria-label": `Not this: ${one.key}` }, "Not this"),
          ]));
  }

  // The part that matched is what is marked: the rest of the photo is something else.
  mark(list, key, box) {
    say(list === "views" ? `${key} is now part of the query.` : `Searching without what is in ${key}.`);
    this.page.go({ [list]: [...this.page.state[list], { key, box }], why: null });
  }

  showCompared(state, answers) {
    const of = (answer) => new Set(answer.results.map((one) => one.key));
    const [regional, ...others] = answers.map(of);
    const columns = Object.entries(METHODS).map(([method, label], at) => {
      const own = at === 0 ? [...regional].filter((key) => others.every((set) => !set.has(key))) : [];
      return h("section", { class: "column", "aria-label": label },
        h("h3", { title: PAPER_NAMES[method] }, label),
        h("ol", {}, answers[at].results.map((one) => h("li", { class: own.includes(one.key) ? "only" : null, "data-key": one.key },
          h("a", { class: "look", "data-local": true, href: address({ ...state, compare: false, method: "regional", why: one.key }),
            "aria-label": `Rank ${one.rank}: ${one.key}${own.includes(one.key) ? ", found in this way only" : ""}` },
          photo(one, { side: 320, ...marks(one) })),
          h("span", { class: "rank" }, one.rank),
          own.includes(one.key) ? h("span", { class: "badge" }, "only here") : null))));
    });
    const count = [...regional].filter((key) => others.every((set) => !set.has(key))).length;
    const words = `Of the first ${answers[0].results.length} found by their parts, ${count} are not among the first ${SIDE_BY_SIDE} of the other two ways.`;
    say(words);
    this.found.replaceChildren(this.bar(state), h("p", { class: "count" }, words), h("div", { class: "columns" }, columns));
  }
}

// Whether nothing matches besides the photos that the query was taken from, which match themselves.
function nothingElse(state, answer) {
  const own = (one) => state.views.some((view) => view.key === one.key);
  return answer.n_matches !== null && !answer.results.some((one, at) => !own(one) && (one.verified || at < answer.n_matches));
}

function summary({ n_matches: matches, results }) {
  if (!results.length || matches === 0) return "Nothing in this collection matches";
  const verified = results.filter((one) => one.verified).length;
  return (matches === null ? counted(results.length, "photo") : counted(matches, "match", "matches")) + (verified ? `, ${verified} verified` : "");
}

const uncheckedWords = ({ n_unchecked: count }) =>
  (count ? `${counted(count, "photo")} ${count === 1 ? "was" : "were"} not checked` : "Not every photo was checked");

function line(confidence, nothing, sure) {
  return h("li", { class: "line" },
    h("p", {}, h("strong", {}, "Probably not below here")),
    h("details", {},
      h("summary", {}, "Why the line is here"),
      nothing
        ? h("p", {}, `Besides the query's own photo, none resembles it clearly more (${confidence.similarity.toFixed(2)}) than photos ` +
          `that have nothing in common do by chance (${confidence.null_similarity.toFixed(2)}), and no points of it were found again.`)
        : sure
          ? h("p", {}, "Above it stand the photos in which points of the query were found again in the same arrangement, and those whose score " +
            "is near theirs: the object seen from another side is reached from photo to photo, where no points match.")
          : h("p", {}, `Scores fall steeply behind the photos that show the object. Below here they are under ${confidence.cutoff.toFixed(4)}, ` +
          "half of what the best photo scores. On photos whose contents are known, this line is right more often than " +
          "not, but it is a measured habit of the scores, not a proof: look at a few below it.")));
}
