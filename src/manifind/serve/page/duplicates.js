// Files that are byte for byte the same as a photo, listed under it.

import { counted, h } from "./dom.js";

const SHOWN = 2;

export function copies(one) {
  const keys = one.duplicates ?? [];
  if (!keys.length) return null;
  const line = (key) => h("li", { title: key }, key);
  if (keys.length <= SHOWN) {
    return h("ul", { class: "copies", "aria-label": `${one.key} is also at` }, keys.map(line));
  }
  return h("details", { class: "copies" },
    h("summary", {}, `also at ${counted(keys.length, "other place")}`),
    h("ul", {}, keys.map(line)));
}
