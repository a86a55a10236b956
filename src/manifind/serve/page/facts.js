// What is known of the file of a result: where it lies, when it was taken and by what; and ways to look at it closer.

import * as api from "./api.js";
import { Lightbox } from "./lightbox.js";
import { complain, h, say } from "./dom.js";

const fetched = new Map(); // what a file says does not change while the page is open

async function told(key) {
  if (!fetched.has(key)) fetched.set(key, await api.facts(key));
  return fetched.get(key);
}

export function facts(answer) {
  const list = h("dl", { class: "facts" });
  const copy = h("button", { type: "button", disabled: true }, "Copy path");
  const section = h("section", { class: "file", "aria-label": "The file" },
    h("div", { class: "tools" },
      h("button", { type: "button", onclick: () => new Lightbox(answer).open() }, "Zoom in"),
      h("a", { class: "button", href: api.original(answer.key), target: "_blank", rel: "noopener" }, api.moment(answer.key) === null ? "Open the original" : "Open the film"),
      copy),
    list);
  fill(answer, list, copy, section);
  return section;
}

async function fill(answer, list, copy, section) {
  let known;
  try {
    known = await told(answer.key);
  } catch (error) {
    list.append(h("dt", {}, "File"), h("dd", {}, error.message));
    return;
  }
  const path = known.path ?? known.key;
  const rows = {
    Path: path,
    Taken: known.taken ? moment(known.taken) : `not known; the file is dated ${moment(known.changed)}`,
    Camera: known.camera && [known.camera, known.lens].filter(Boolean).join(", "),
    Size: `${answer.width} × ${answer.height}, ${weight(known.bytes)}`,
  };
  list.append(...Object.entries(rows).filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  if (known.canvas) {
    list.append(h("dt", {}, "Published as"), h("dd", {}, h("a", { href: known.canvas, target: "_blank", rel: "noopener noreferrer" }, known.label || known.canvas)));
  }
  if (known.duplicates.length) {
    section.append(h("div", { class: "others" },
      h("span", { class: "quiet" }, "The same file is also at"), h("ul", { class: "copies" }, known.duplicates.map((key) => h("li", {}, key)))));
  }
  copy.disabled = false;
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(path);
      say("The path is copied.");
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy path"; }, 1500);
    } catch {
      complain(`The browser does not let the page copy; the path is ${path}`);
    }
  });
}

const moment = (text) => text.replace("T", " ").replace(/\+00:00$/, " UTC");
const weight = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);
