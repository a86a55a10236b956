// The page: one state, read from the address, shown by one of its sections.

import * as api from "./api.js";
import { Browse } from "./browse.js";
import { Detail } from "./detail.js";
import { byId, complain, counted, h, say } from "./dom.js";
import { watchBuild } from "./build_progress.js";
import { forgetFolders } from "./filters.js";
import { showHealth } from "./health.js";
import { showRepeats } from "./repeats.js";
import { Search } from "./search.js";
import { showSets } from "./sets.js";
import { address, readState, sameSource } from "./state.js";

class Page {
  constructor() {
    this.main = byId("main");
    this.known = new Map(); // what is known of photos: size and version, by source
    this.state = readState();
    this.search = new Search(this);
    this.browse = new Browse(this);
    this.detail = new Detail(this);
    addEventListener("popstate", () => this.show(readState()));
    document.addEventListener("click", (event) => this.follow(event));
    this.listenForPhotos();
    this.greet();
    this.show(this.state);
    watchBuild(() => this.grown()).catch((error) => complain(error.message));
  }

  // Change the state; the address follows, and what was before can be gone back to.
  go(changes, { replace = false } = {}) {
    const state = { ...this.state, ...changes };
    const to = address(state);
    if (to !== address(this.state)) history[replace ? "replaceState" : "pushState"](null, "", to);
    this.show(state);
  }

  show(state) {
    const before = this.state;
    this.state = state;
    complain("");
    for (const link of document.querySelectorAll("[data-tab]")) {
      if (link.dataset.tab === state.tab) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      // The other sections keep the search, so that one can come back to it.
      link.href = address({ ...state, tab: link.dataset.tab, why: null, add: false, set: null });
    }
    if (state.tab !== "browse") this.browse.leave();
    if (state.tab === "browse") this.browse.show(this.main, state);
    else if (state.tab === "health") showHealth(this.main);
    else if (state.tab === "repeats") showRepeats(this.main);
    else if (state.tab === "sets") showSets(this);
    else this.search.show(this.main, state);
    this.detail.show(state.tab === "search" ? state.why : null);
    if (before.tab !== state.tab) scrollTo(0, 0);
    const names = { browse: "Browse", repeats: "What repeats", sets: "Sets", health: "Health" };
    document.title = `${names[state.tab] ?? (state.views.length ? "Results" : "Search")} · manifind`;
  }

  follow(event) {
    const link = event.target.closest("a[data-local]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const to = new URL(link.href);
    if (link.classList.contains("name")) this.search.forget();
    if (to.search !== location.search) history.pushState(null, "", to.pathname + to.search);
    this.show(readState(to.search));
  }

  async about(source) {
    const name = source.key != null ? `k:${source.key}` : `u:${source.upload}`;
    if (!this.known.has(name)) {
      const found = source.key != null ? await api.photo(source.key) : await api.uploaded(source.upload);
      this.known.set(name, found);
    }
    const { width, height, version } = this.known.get(name);
    return { key: source.key, upload: source.upload, width, height, version };
  }

  learn(photos) {
    for (const one of photos) this.known.set(`k:${one.key}`, one);
  }

  // A photo becomes the query, or part of it.
  take(source, { add = false } = {}) {
    const views = add ? [...this.state.views] : [];
    if (!views.some((view) => sameSource(view, source))) views.push({ ...source, box: null });
    this.search.active = views.findIndex((view) => sameSource(view, source));
    this.go({ tab: "search", views, negatives: add ? this.state.negatives : [], expand: !add || this.state.expand, why: null, add: false, folder: "", contains: "" });
  }

  async upload(file, add = false) {
    say("Reading the photo …");
    try {
      const { upload, width, height } = await api.upload(file);
      this.known.set(`u:${upload}`, { upload, width, height });
      this.take({ upload }, { add });
    } catch (error) {
      say("");
      complain(error.message);
    }
  }

  listenForPhotos() {
    const input = byId("file");
    input.addEventListener("change", () => {
      if (input.files[0]) this.upload(input.files[0], input.dataset.add === "1");
      input.value = "";
    });
    addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
      if (file) this.upload(file);
    });
    const drop = byId("drop");
    let over = 0;
    const carries = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    addEventListener("dragenter", (event) => { if (carries(event)) { over += 1; drop.hidden = false; } });
    addEventListener("dragleave", (event) => { if (carries(event) && (over -= 1) <= 0) { over = 0; drop.hidden = true; } });
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      over = 0;
      drop.hidden = true;
      const file = event.dataTransfer.files[0];
      if (file) this.upload(file);
    });
  }

  choose(add = false) {
    const input = byId("file");
    input.dataset.add = add ? "1" : "";
    input.click();
  }

  // More photos can be searched: what is shown is asked for again.
  grown() {
    this.greet();
    forgetFolders();
    this.known.clear();
    if (this.state.tab === "search") this.search.again();
    else if (this.state.tab === "browse") this.browse.again();
    else this.show(this.state);
  }

  async greet() {
    try {
      const { name, photos } = await api.collection();
      byId("collection").replaceChildren(h("span", {}, name.replace(/\.manifind$/, "")), ` · ${counted(photos, "photo")}`);
    } catch (error) {
      complain(error.message);
    }
  }
}

new Page();
