// What occurs in several photos, found without any query: each object in a row, one click from a search for it.

import * as api from "./api.js";
import { complain, counted, h, say } from "./dom.js";
import { missing } from "./photo.js";
import { address, readState } from "./state.js";

const FIRST = 30;
const MORE = 60;
const IN_A_ROW = 14; // crops of an object

export async function showRepeats(main, top = FIRST) {
  const section = h("section", { class: "repeats" },
    h("h1", {}, "What repeats in this collection"),
    h("p", { class: "lead" }, "Things that occur in several photos, found without being asked for. Choose one to search for it everywhere."));
  const waiting = h("p", { class: "quiet", role: "status" }, "Looking through all photos …");
  section.append(waiting);
  main.replaceChildren(section);
  let found;
  try {
    found = await api.repeats(top);
  } catch (error) {
    waiting.remove();
    complain(error.message);
    return;
  }
  if (!section.isConnected) return;
  waiting.remove();
  const words = found.objects.length ? counted(found.found, "thing occurs", "things occur") : "Nothing occurs";
  section.append(h("p", { class: "count" }, `${words} in three or more photos`));
  say(`${words} in three or more photos.`);
  section.append(h("ol", { class: "objects" }, found.objects.map(object)));
  if (found.objects.length < found.found) {
    section.append(h("button", { type: "button", class: "more", onclick: () => showRepeats(main, top + MORE) }, "Show more"));
  }
  if (found.near_duplicates.length) section.append(alike(found.near_duplicates));
}

const aspect = ([x0, y0, x1, y1]) => (x1 - x0) / (y1 - y0);

// The search keeps nothing of another one.
const searchFor = (views) => address({ ...readState(""), views });

function object(one) {
  const more = one.photos - IN_A_ROW;
  const [first] = one.occurrences;
  return h("li", {},
    h("div", { class: "object-head" },
      h("h2", {}, `In ${counted(one.photos, "photo")}`),
      one.verified ? h("span", { class: one.confirmed ? "sure" : "likely",
        title: `Points of the first photo were found again in ${counted(one.verified, "other")}, in the same arrangement` },
      `${one.confirmed ? "✓ " : ""}${one.verified + 1} of ${one.photos} confirmed`) : null,
      h("a", { class: "button", "data-local": true, href: searchFor([{ key: first.key, box: first.box }]),
        "aria-label": `Search for it: object ${one.rank}, in ${counted(one.photos, "photo")}` }, "Search for it")),
    h("ul", { class: "crops" },
      one.occurrences.slice(0, IN_A_ROW).map((seen) => h("li", {},
        h("a", { "data-local": true, href: searchFor([{ key: seen.key, box: seen.box }]), title: seen.key, "aria-label": `Search with ${seen.key}` },
          h("img", { src: api.picture(seen, 160, { box: seen.box }), alt: "", style: { "aspect-ratio": aspect(seen.box) }, loading: "lazy", decoding: "async", onerror: missing })))),
      more > 0 ? h("li", { class: "rest quiet" }, `and ${more} more`) : null));
}

function alike(sets) {
  const photos = sets.reduce((sum, keys) => sum + keys.length, 0);
  return h("details", { class: "alike" },
    h("summary", {}, `Near-duplicates and bursts: ${counted(photos, "photo")} in ${counted(sets.length, "set")}, counted as one photo each`),
    h("ul", {}, sets.slice(0, 200).map((keys) => h("li", {},
      keys.slice(0, IN_A_ROW).map((key) => h("a", { "data-local": true, href: searchFor([{ key, box: null }]), title: key, "aria-label": `Search with ${key}` },
        h("img", { src: api.picture({ key }, 160), alt: "", loading: "lazy", decoding: "async", onerror: missing })))))));
}
