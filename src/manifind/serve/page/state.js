// The whole state of a search is in the address: it can be shared, reloaded, and gone back to.
//
//   ?q=k:KEY@x0,y0,x1,y1   a photo of the collection, or a part of it; again for more of the same object
//   &q=u:UPLOAD            an uploaded photo
//   &negatives=k:KEY@…           what is not meant
//   &method=global         how to search; &compare=1 for three ways side by side
//   &expand=0              what verified photos show of the object does not join the query
//   &mirrored=1            the mirrored object is looked for too
//   &why=KEY               the result that is looked at closely
//   &below=FOLDER&since=2019-07&until=2020&sort=date   which photos, and in which order; &sheet=1 for the parts alone
//   &tab=browse&folder=…&contains=…

// What each way of searching is called, and how the paper calls it.
export const METHODS = {
  regional: "The object",
  global: "The whole scene",
  plain: "Look-alikes",
};

export const PAPER_NAMES = {
  regional: "Regional diffusion",
  global: "Global diffusion",
  plain: "Similarity of global descriptors",
};

// Four numbers; null where it is something else.
function corners(text) {
  const parts = text.split(",");
  if (text.length > 200 || parts.length !== 4 || !parts.every((part) => /^[-+.\de]+$/i.test(part))) return null;
  const numbers = parts.map(Number);
  return numbers.every(Number.isFinite) ? numbers : null;
}

// A box as an address writes it. What is searched is rounded likewise, so that the address leads back to the same search.
export const tenths = (box) => box.map((corner) => Number(corner.toFixed(1)));

export function viewText(view) {
  const box = view.box ? `@${tenths(view.box).join(",")}` : "";
  return `${view.key != null ? `k:${view.key}` : `u:${view.upload}`}${box}`;
}

export function textView(text) {
  const at = text.lastIndexOf("@");
  const box = at > 2 ? corners(text.slice(at + 1)) : null; // without a box, what stands behind an @ belongs to the key
  const name = text.slice(2, box ? at : undefined);
  if (text.startsWith("k:")) return { key: name, box };
  if (text.startsWith("u:")) return { upload: name, box };
  return null;
}

const date = (text) => (/^\d{4}(-\d\d(-\d\d)?)?$/.test(text ?? "") ? text : "");

// What a search is confined to, its order, and whether it is asked once more, as the service takes it.
export function within({ below, since, until, sort, expand, mirrored }) {
  const said = { folder: below, since, until, sort: sort === "date" ? sort : "", mirrored };
  const given = Object.fromEntries(Object.entries(said).filter(([, value]) => value));
  return expand ? given : { ...given, expand };
}

export function readState(address = location.search) {
  const words = new URLSearchParams(address);
  const views = (name) => words.getAll(name).map(textView).filter(Boolean);
  const method = words.get("method") ?? "regional";
  return {
    tab: words.get("tab") ?? "search",
    views: views("q"),
    negatives: views("negatives"),
    method: method in METHODS ? method : "regional",
    compare: words.has("compare"),
    expand: words.get("expand") !== "0",
    mirrored: words.has("mirrored"),
    why: words.get("why"),
    folder: words.get("folder") ?? "",
    contains: words.get("contains") ?? "",
    add: words.has("add"),
    set: words.get("set"),
    below: words.get("below") ?? "",
    since: date(words.get("since")),
    until: date(words.get("until")),
    sort: words.get("sort") === "date" ? "date" : "score",
    sheet: words.has("sheet"),
  };
}

export function address(state) {
  const words = new URLSearchParams();
  if (state.tab !== "search") words.set("tab", state.tab);
  for (const view of state.views) words.append("q", viewText(view));
  for (const view of state.negatives) words.append("negatives", viewText(view));
  if (state.method !== "regional") words.set("method", state.method);
  if (state.compare) words.set("compare", "1");
  if (!state.expand) words.set("expand", "0");
  if (state.mirrored) words.set("mirrored", "1");
  if (state.why) words.set("why", state.why);
  if (state.folder) words.set("folder", state.folder);
  if (state.contains) words.set("contains", state.contains);
  if (state.add) words.set("add", "1");
  if (state.below) words.set("below", state.below);
  if (state.since) words.set("since", state.since);
  if (state.until) words.set("until", state.until);
  if (state.sort === "date") words.set("sort", "date");
  if (state.sheet) words.set("sheet", "1");
  if (state.set && state.tab === "sets") words.set("set", state.set);
  // Commas, slashes and the like read better as they are, and are allowed in a query.
  const text = words.toString().replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%40/g, "@").replace(/%2F/g, "/");
  return text ? `/?${text}` : "/";
}

export const sameSource = (a, b) => (a.key ?? null) === (b.key ?? null) && (a.upload ?? null) === (b.upload ?? null);

// The photos of a query, each with its boxes: what the editor works on.
export function sources(views) {
  const found = [];
  for (const view of views) {
    let source = found.find((one) => sameSource(one, view));
    if (!source) found.push((source = { key: view.key, upload: view.upload, boxes: [] }));
    if (view.box) source.boxes.push(view.box);
  }
  return found;
}

export function viewsOf(found) {
  return found.flatMap(({ key, upload, boxes }) =>
    (boxes.length ? boxes : [null]).map((box) => (key != null ? { key, box } : { upload, box })),
  );
}
