// Which photos a search is confined to, by folder and date; in which order they are shown; and only the parts that matched.

import * as api from "./api.js";
import { complain, h } from "./dom.js";
import { missing } from "./photo.js";
import { METHODS } from "./state.js";

let folders = null;

const isFiltered = ({ below, since, until, sort }) => Boolean(below || since || until || sort === "date");

export function filters(page, state) {
  const go = (change) => page.go(change, { replace: true });
  const folder = h("select", { id: "below", onchange: () => go({ below: folder.value }) },
    h("option", { value: "" }, "All folders"),
    state.below ? h("option", { value: state.below, selected: true }, state.below) : null);
  fill(folder, state.below);
  const day = (name, label) => h("span", {},
    h("label", { for: name }, label),
    h("input", { id: name, type: "date", value: full(state[name]), onchange: (event) => go({ [name]: event.target.value }) }));
  const order = h("select", { id: "sort", onchange: () => go({ sort: order.value }) },
    h("option", { value: "score" }, "best first"),
    h("option", { value: "date", selected: state.sort === "date" }, "by date"));
  return h("div", { class: "confined", role: "group", "aria-label": "Filter and sort" },
    h("span", {}, h("label", { for: "below" }, "Folder"), folder),
    day("since", "From"), day("until", "To"),
    h("span", {}, h("label", { for: "sort" }, "Order"), order));
}

// What differs from a search of all photos for the object, in one line with a way back; nothing where nothing does.
export function chips(page, state) {
  const said = [
    state.compare ? "Side by side" : state.method === "regional" ? null : METHODS[state.method],
    state.below ? `in ${state.below}` : null,
    state.since ? `from ${state.since}` : null,
    state.until ? `to ${state.until}` : null,
    state.sort === "date" ? "by date" : null,
    state.mirrored ? "mirrored too" : null,
  ].filter(Boolean);
  if (!said.length) return null;
  return h("p", { class: "chips" }, said.map((words) => h("span", { class: "chip" }, words)),
    h("button", { type: "button", onclick: () => page.go(
      { below: "", since: "", until: "", sort: "score", method: "regional", compare: false, mirrored: false }, { replace: isFiltered(state) }) }, isFiltered(state) ? "Show all" : `Back to ${METHODS.regional}`));
}

// The collection has changed, and maybe its folders.
export function forgetFolders() {
  folders = null;
}

// A year or a month alone is shown as its first day.
const full = (date) => (date ? `${date}-01-01`.slice(0, 10) : "");

async function fill(select, chosen) {
  try {
    folders ??= (await api.folders()).folders;
    select.append(...folders.filter((one) => one.folder !== chosen).map((one) => h("option", { value: one.folder }, `${one.folder} (${one.photos})`)));
  } catch (error) {
    complain(error.message);
  }
}

// The part of a photo that matched.
export function sheet(one) {
  const [x0, y0, x1, y1] = one.box;
  return h("div", { class: "photo", style: { "aspect-ratio": (x1 - x0) / (y1 - y0), "--aspect": (x1 - x0) / (y1 - y0) } },
    h("img", { src: api.picture(one, 320, { box: one.box, version: one.version }), alt: "", loading: "lazy", decoding: "async", onerror: missing }));
}
