// Results that somebody ticked: one by one, a range with Shift, or all above the line; then kept as a named set.
// The bar with what can be done with them lies over the foot of the window, so that no photo moves.

import * as api from "./api.js";
import { complain, counted, h, say } from "./dom.js";
import { address } from "./state.js";

export class Selection {
  constructor(page) {
    this.page = page;
    this.chosen = new Set();
    this.results = [];
    this.boxes = new Map();
    this.element = h("div", { class: "ticked" });
  }

  // A new answer: what is ticked and still there stays ticked.
  begin(answer, matches) {
    this.results = answer.results;
    this.matches = matches.map((one) => one.key);
    this.boxes.clear();
    this.last = null;
    this.chosen = new Set(this.results.map((one) => one.key).filter((key) => this.chosen.has(key)));
    this.draw();
  }

  box(one) {
    const box = h("input", { type: "checkbox", class: "tick", "aria-label": `Tick ${one.key}`, checked: this.chosen.has(one.key),
      onclick: (event) => this.tick(one.key, event.target.checked, event.shiftKey) });
    this.boxes.set(one.key, box);
    return box;
  }

  tick(key, on, range) {
    const keys = this.results.map((one) => one.key);
    const [from, to] = [keys.indexOf(range && this.last ? this.last : key), keys.indexOf(key)].sort((a, b) => a - b);
    this.set(keys.slice(from, to + 1), on);
    this.last = key;
  }

  set(keys, on) {
    for (const key of keys) {
      if (on) this.chosen.add(key);
      else this.chosen.delete(key);
      const box = this.boxes.get(key);
      if (box) box.checked = on;
    }
    this.draw();
  }

  // A button that ticks what is above the line.
  all() {
    const above = this.matches;
    if (!above.length) return null;
    return h("p", { class: "tick-all" },
      h("button", { type: "button", onclick: () => this.set(above, true) },
        above.length === 1 ? "Tick the one above the line" : `Tick all ${above.length} above the line`),
      h("span", { class: "quiet" }, "Ticked photos can be kept as a set."));
  }

  draw() {
    const count = this.chosen.size;
    const named = this.element.querySelector("#set-name")?.value ?? "";
    const focused = document.activeElement?.id === "set-name";
    const name = h("input", { id: "set-name", type: "text", list: "set-names", placeholder: "name of a set", maxlength: 200, value: named,
      "aria-label": "Name of the set", onkeydown: (event) => { if (event.key === "Enter") this.keep(name.value); } });
    this.element.hidden = !count;
    this.element.replaceChildren(...[
      count ? h("span", { class: "quiet", role: "status" }, `${counted(count, "photo")} ticked`) : null,
      count ? h("button", { type: "button", onclick: () => this.set([...this.chosen], false) }, "Tick none") : null,
      count ? name : null,
      count ? h("datalist", { id: "set-names" }, (this.names ?? []).map((one) => h("option", { value: one }))) : null,
      count ? h("button", { type: "button", class: "primary", onclick: () => this.keep(name.value) }, "Keep as a set") : null,
    ].filter(Boolean));
    if (focused) name.focus();
    if (count && !this.names) this.learn();
  }

  async learn() {
    this.names = [];
    this.names = (await api.sets().catch(() => ({ sets: [] }))).sets.map((one) => one.name);
    this.draw();
  }

  async keep(name) {
    if (!name.trim()) {
      complain("The set has no name; write one beside the button.");
      return;
    }
    const { state } = this.page;
    const add = this.results.filter((one) => this.chosen.has(one.key)).map((one) => ({ key: one.key, box: one.box }));
    const own = [...state.views, ...state.negatives].every((view) => view.key != null);
    const seen = [...this.matches, ...state.views.map((view) => view.key)];
    const search = own ? { views: state.views, negatives: state.negatives, method: state.method, seen } : null;
    try {
      const kept = await api.changeSet({ name: name.trim(), add, search });
      complain("");
      this.names = null;
      this.chosen.clear();
      for (const box of this.boxes.values()) box.checked = false;
      this.draw();
      say(`${counted(add.length, "photo")} kept in ${kept.name}.`);
      this.element.hidden = false;
      this.element.append(h("span", { class: "kept" }, `Kept ${counted(add.length, "photo")} in `,
        h("a", { "data-local": true, href: address({ ...state, tab: "sets", set: kept.name, why: null }) }, kept.name)));
    } catch (error) {
      complain(error.message);
    }
  }
}
