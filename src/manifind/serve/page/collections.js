// Where the service has several collections: which of them a search is for. To the service, each is a folder.

import * as api from "./api.js";
import { complain, h } from "./dom.js";

let known = null;

export const collections = () => (known ??= api.collections());

export const refreshed = () => (known = api.collections());

export function chooser(page, state) {
  const place = h("div", { class: "choose", hidden: true });
  fill(place, page, state).catch((error) => complain(error.message));
  return place;
}

async function fill(place, page, state) {
  const { collections: all, several } = await collections();
  if (!several) return;
  const chosen = state.below.split("/")[0];
  const select = h("select", { id: "in", onchange: () => page.go({ below: select.value }) },
    h("option", { value: "" }, `all ${all.length} collections`),
    all.map(({ name, photos }) => h("option", { value: name, selected: name === chosen }, `${name} (${photos.toLocaleString("en")})`)));
  place.append(h("label", { for: "in" }, "Search in"), select);
  place.hidden = false;
}
