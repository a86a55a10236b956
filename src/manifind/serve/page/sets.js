// Sets of found photos: looked through, judged, exported; and what the search of a set finds since.

import * as api from "./api.js";
import { complain, counted, h, named, say } from "./dom.js";
import { photo } from "./photo.js";
import { address, readState } from "./state.js";

const VERDICTS = { yes: "Yes", no: "No", unsure: "Unsure" };

export async function showSets(page) {
  const { main, state } = page;
  const section = h("section", { class: "sets" });
  main.replaceChildren(section);
  try {
    if (state.set) await showOne(page, section, state.set);
    else await showAll(section);
  } catch (error) {
    complain(error.message);
  }
}

const link = (name) => address({ ...readState(""), tab: "sets", set: name });

async function showAll(section) {
  const { sets } = await api.sets();
  section.append(
    h("h1", {}, "Sets"),
    sets.length
      ? h("ul", { class: "set-list" }, sets.map((one) => h("li", {},
        h("a", { "data-local": true, href: link(one.name) }, one.name),
        h("span", { class: "quiet" }, [
          ...Object.keys(VERDICTS).filter((verdict) => one[verdict]).map((verdict) => `${one[verdict]} ${verdict}`),
          one.search ? "with its search" : null].filter(Boolean).join(", ") || "no photo"))))
      : h("p", { class: "lead" }, "No set yet. Search for something, tick the photos that show it, and keep them under a name."));
}

async function showOne(page, section, name) {
  const one = await api.set(name);
  const again = (change) => api.changeSet({ name, ...change }).then(() => showSets(page)).catch((error) => complain(error.message));
  const yes = one.photos.filter((photo) => photo.verdict === "yes" && photo.there).length;
  section.append(
    h("p", {}, h("a", { "data-local": true, href: link(null) }, "All sets")),
    h("h1", {}, one.name),
    h("p", { class: "count" }, `${counted(one.photos.length, "photo")}, ${yes} of them with a yes; made ${one.made.slice(0, 10)}`),
    h("div", { class: "tools" },
      one.search ? h("a", { class: "button", "data-local": true, href: searchOf(one.search) }, "Search again") : null,
      h("a", { class: "button", href: api.setDownload("zip", name), download: `${name}.zip` }, "Photos (zip)"),
      h("a", { class: "button", href: api.setDownload("csv", name), download: `${name}.csv` }, "CSV"),
      h("a", { class: "button", href: api.setDownload("xmp.zip", name), download: `${name} sidecars.zip`,
        title: "Keywords for digiKam and darktable, and for raw files in Lightroom: unpack them beside the photos" }, "Sidecars (XMP)"),
      h("button", { type: "button", onclick: (event) => confirmDelete(event.target, () =>
        api.changeSet({ name, delete: true }).then(() => page.go({ set: null })).catch((error) => complain(error.message))) }, "Delete the set")));
  const fresh = h("div", { class: "news" });
  section.append(fresh, h("ul", { class: "gallery" }, one.photos.map((photo) => card(photo, again)), h("li", { class: "filler", "aria-hidden": "true" })));
  if (one.search) showNews(fresh, name, again);
}

const searchOf = ({ views, negatives, method }) => address({
  ...readState(""), method, views: views.map(([key, box]) => ({ key, box })), negatives: negatives.map(([key, box]) => ({ key, box })) });

// Nothing is lost by one click that was not meant.
function confirmDelete(button, then) {
  if (button.dataset.sure) {
    then();
    return;
  }
  button.dataset.sure = "1";
  button.textContent = "Really delete it? The photos stay";
}

function card(one, again) {
  const picture = one.there
    ? photo(one, { side: 320, boxes: one.box ? [one.box] : [], alt: one.key })
    : h("div", { class: "photo gone" }, h("span", { class: "gone-why" }, "The collection does not have it any more."));
  return h("li", { class: `card verdict-${one.verdict}`, style: { "--aspect": one.there ? one.width / one.height : 1.33 }, "data-key": one.key },
    one.there ? h("a", { class: "look", "data-local": true, href: address({ ...readState(""), views: [{ key: one.key, box: one.box }] }),
      "aria-label": `Search with ${one.key}` }, picture) : picture,
    h("div", { class: "about" }, named(one.key)),
    h("div", { class: "marks", role: "group", "aria-label": `Does ${one.key} show it?` },
      Object.entries(VERDICTS).map(([verdict, label]) => h("button", { type: "button", "aria-pressed": String(one.verdict === verdict), disabled: !one.there,
        onclick: () => again({ add: [{ key: one.key }], verdict }) }, label)),
      h("button", { type: "button", "aria-label": `Take ${one.key} out`, onclick: () => again({ take: [one.key] }) }, "Take out")));
}

async function showNews(place, name, again) {
  place.append(h("p", { class: "quiet", role: "status" }, "Looking for what is new …"));
  try {
    const { news } = await api.news(name);
    const words = news.length ? `${counted(news.length, "new photo")} since it was kept` : "Nothing new since it was kept";
    say(words);
    place.replaceChildren(...[
      h("h2", {}, words),
      news.length ? h("ul", { class: "gallery" }, news.map((one) => h("li", { class: "card", style: { "--aspect": one.width / one.height }, "data-key": one.key },
        photo(one, { side: 320, boxes: one.box ? [one.box] : [], alt: one.key }),
        h("div", { class: "about" }, named(one.key)),
        h("div", { class: "marks" }, Object.entries(VERDICTS).map(([verdict, label]) =>
          h("button", { type: "button", "aria-label": `${label}: ${one.key}`, onclick: () => again({ add: [{ key: one.key, box: one.box }], verdict }) }, label))))),
      h("li", { class: "filler", "aria-hidden": "true" })) : null,
      news.length ? h("h2", {}, "In the set") : null,
    ].filter(Boolean));
  } catch (error) {
    place.replaceChildren(h("p", { class: "note" }, error.message));
  }
}
