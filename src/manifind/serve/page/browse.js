// The whole collection. Only the rows in sight are in the page, however many there are.

import * as api from "./api.js";
import { complain, counted, h, say } from "./dom.js";
import { picture } from "./api.js";
import { missing } from "./photo.js";

const STRETCH = 200; // photos fetched at once
const SPARE = 3; // rows beyond those in sight

export class Browse {
  constructor(page) {
    this.page = page;
    this.scrolled = () => this.shown && requestAnimationFrame(() => this.draw());
  }

  leave() {
    removeEventListener("scroll", this.scrolled);
    removeEventListener("resize", this.scrolled);
    this.abort?.abort();
    this.shown = false;
  }

  show(main, state) {
    const filter = JSON.stringify([state.folder, state.contains, state.add]);
    if (this.shown && this.filter === filter && this.grid.isConnected) return;
    this.filter = filter;
    if (!this.shown || !this.grid?.isConnected) {
      this.shown = true;
      this.build(main, state);
      addEventListener("scroll", this.scrolled, { passive: true });
      addEventListener("resize", this.scrolled);
    }
    this.title.textContent = state.add ? "Choose another photo of the same object" : "The collection";
    this.contains.value = state.contains;
    this.load(state);
  }

  // The collection has changed: its photos and folders are asked for again.
  again() {
    this.folder.length = 1;
    this.fillFolders(this.page.state.folder);
    this.load(this.page.state);
  }

  build(main, state) {
    this.title = h("h1", {});
    this.contains = h("input", { type: "search", id: "contains", placeholder: "part of a file name", value: state.contains,
      oninput: () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.page.go({ contains: this.contains.value.trim() }, { replace: true }), 250); } });
    this.folder = h("select", { id: "folder", onchange: () => this.page.go({ folder: this.folder.value }) }, h("option", { value: "" }, "All folders"));
    this.count = h("p", { class: "count", role: "status" });
    this.none = h("div", { class: "nothing", hidden: true });
    this.grid = h("div", { class: "grid", role: "list", "aria-label": "Photos of the collection", onkeydown: (event) => this.keys(event) });
    main.replaceChildren(h("section", { class: "browse" }, this.title,
      h("div", { class: "filters" },
        h("label", { for: "contains" }, "Name"), this.contains,
        h("label", { for: "folder" }, "Folder"), this.folder,
        this.count),
      this.none,
      this.grid));
    this.fillFolders(state.folder);
  }

  async fillFolders(chosen) {
    try {
      const { folders } = await api.folders();
      this.folder.append(...folders.map((one) => h("option", { value: one.folder, selected: one.folder === chosen }, `${one.folder} (${one.photos})`)));
      this.folder.closest("section").classList.toggle("flat", !folders.length);
    } catch (error) {
      complain(error.message);
    }
  }

  async load(state) {
    this.abort?.abort();
    this.abort = new AbortController();
    this.photos = new Map();
    this.asked = new Set();
    this.focused = 0;
    this.total = 0;
    this.grid.replaceChildren();
    await this.fetch(0, state);
    this.draw();
  }

  async fetch(stretch, state = this.page.state) {
    if (this.asked.has(stretch)) return;
    this.asked.add(stretch);
    const { photos, asked } = this;
    try {
      const answer = await api.photos(state.folder, state.contains, stretch * STRETCH, STRETCH, this.abort.signal);
      if (photos !== this.photos) return;
      answer.photos.forEach((one, at) => photos.set(stretch * STRETCH + at, one));
      this.page.learn(answer.photos);
      this.total = answer.total;
      this.tell(state);
      this.draw();
    } catch (error) {
      asked.delete(stretch);
      if (error.name !== "AbortError") complain(error.message);
    }
  }

  // How many photos are shown, or that nothing is called so.
  async tell({ folder, contains }) {
    const { photos } = this;
    const where = folder ? ` in ${folder}` : "";
    if (!this.total) {
      this.count.textContent = "0 photos";
      const words = contains ? `No photo${where} has “${contains}” in its name.` : `No photo lies${where || " here"}.`;
      this.none.replaceChildren(h("p", {}, words), h("button", { type: "button", onclick: () => this.page.go({ contains: "", folder: "" }) }, "Show all photos"));
      this.none.hidden = false;
      say(words);
      return;
    }
    this.none.hidden = true;
    this.count.textContent = counted(this.total, "photo");
    if (!contains && !folder) return;
    const all = await api.collection().catch(() => null);
    if (all && photos === this.photos) this.count.textContent = `${this.total.toLocaleString("en")} of ${counted(all.photos, "photo")}`;
  }

  measure() {
    const width = this.grid.clientWidth;
    const gap = 6;
    const columns = Math.max(2, Math.round(width / (width < 600 ? 120 : 180)));
    const cell = (width - gap * (columns - 1)) / columns;
    return { columns, cell, row: cell * 0.75 + gap, gap };
  }

  draw() {
    if (!this.grid.isConnected) return;
    const { columns, cell, row, gap } = this.measure();
    const rows = Math.ceil(this.total / columns);
    this.grid.style.height = `${Math.max(0, rows * row - gap)}px`;
    const top = -this.grid.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / row) - SPARE) * columns;
    const last = Math.min(this.total, (Math.ceil((top + innerHeight) / row) + SPARE) * columns);
    for (let stretch = Math.floor(first / STRETCH); stretch * STRETCH < last; stretch += 1) this.fetch(stretch);
    const there = new Map([...this.grid.children].map((element) => [Number(element.dataset.at), element]));
    for (const [at, element] of there) {
      if ((at < first || at >= last) && !element.contains(document.activeElement)) element.remove();
    }
    for (let at = first; at < last; at += 1) {
      const one = this.photos.get(at);
      if (!one) continue;
      const element = there.get(at) ?? this.cell(one, at);
      element.style.width = `${cell}px`;
      element.style.height = `${cell * 0.75}px`;
      element.style.transform = `translate(${(at % columns) * (cell + gap)}px, ${Math.floor(at / columns) * row}px)`;
      if (!there.has(at)) this.grid.append(element);
    }
  }

  cell(one, at) {
    return h("div", { class: "cell", role: "listitem", "data-at": at },
      h("button", { type: "button", tabindex: at === this.focused ? "0" : "-1", title: one.key,
        "aria-label": `Search with ${one.key}, ${at + 1} of ${this.total}`,
        onfocus: () => this.focus(at),
        onclick: () => this.page.take({ key: one.key }, { add: this.page.state.add }) },
      h("img", { src: picture(one, 320, { version: one.version }), alt: "", decoding: "async", width: one.width, height: one.height, onerror: missing }),
      h("span", {}, one.key)));
  }

  button(at) {
    return this.grid.querySelector(`[data-at="${at}"] button`);
  }

  focus(at) {
    this.button(this.focused)?.setAttribute("tabindex", "-1");
    this.focused = at;
    this.button(at)?.setAttribute("tabindex", "0");
  }

  keys(event) {
    const { columns, row } = this.measure();
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -5 * columns, PageDown: 5 * columns }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? this.total - 1 : by === undefined ? null : this.focused + by;
    if (to === null || to < 0 || to >= this.total) return;
    event.preventDefault();
    const top = this.grid.getBoundingClientRect().top + scrollY + Math.floor(to / columns) * row;
    if (top < scrollY + 80 || top + row > scrollY + innerHeight) scrollTo(0, top - innerHeight / 2);
    this.draw();
    const reach = (tries) => {
      const button = this.button(to);
      if (button) button.focus({ preventScroll: true });
      else if (tries) setTimeout(() => { this.draw(); reach(tries - 1); }, 60);
    };
    reach(20);
  }
}
