// Boxes on a photo: drawn, moved and resized by mouse, touch and keyboard. All places are in pixels of the upright photo.
// A drag beside the boxes replaces one: the box that was drawn, moved or focused last. Only `add` makes them more.
// A touch without a drag, and some keys, are left to others: `touched` and `stepped` (proposals.js).

import { h } from "./dom.js";
import { missing } from "./photo.js";

const LEAST = 12; // pixels on the screen below which a drag draws no box
const STILL = 3; // pixels on the screen below which a drag is a click
const SMALL = 72; // pixels on the screen below which the handles of a box stand outside it
const HANDLE = 34; // pixels on the screen that the button beside a small box takes
const CORNERS = ["nw", "ne", "sw", "se"];

export class BoxEditor {
  constructor({ image, width, height, boxes, label, changed, touched, stepped }) {
    Object.assign(this, { width, height, changed, touched, stepped });
    this.boxes = boxes.map((box) => clipped(box, width, height));
    this.active = this.boxes.length - 1; // the box that the next drag replaces
    this.layer = h("div", { class: "layer" });
    this.element = h(
      "div",
      { class: "editor", style: { "aspect-ratio": `${width} / ${height}`, "--aspect": width / height } },
      h("img", { src: image, alt: label, draggable: "false", onerror: missing }),
      this.layer,
    );
    new ResizeObserver(() => this.boxes.forEach((_, at) => this.lay(at))).observe(this.layer);
    this.layer.addEventListener("pointerdown", (event) => this.press(event));
    this.layer.addEventListener("pointermove", (event) => this.drag(event));
    this.layer.addEventListener("pointerup", (event) => this.release(event));
    this.layer.addEventListener("pointercancel", (event) => this.release(event, true));
    this.draw();
  }

  // One more box, in the middle of the photo: moved from there, or replaced by the next drag.
  add() {
    const { width, height } = this;
    this.boxes.push([0.3 * width, 0.3 * height, 0.7 * width, 0.7 * height]);
    this.active = this.boxes.length - 1;
    this.draw();
    this.layer.lastElementChild.focus();
    this.changed(this.boxes);
  }

  // The way back from several boxes: the one that was used last stays.
  keepOne() {
    this.boxes = [this.boxes[this.active] ?? this.boxes[0]];
    this.active = 0;
    this.draw();
    this.layer.lastElementChild.focus();
    this.changed(this.boxes);
  }

  // A box in place of the one that was used last.
  put(box) {
    const at = Math.max(0, this.active);
    this.boxes[at] = clipped(box, this.width, this.height);
    this.active = at;
    this.draw();
    this.layer.children[at].focus({ preventScroll: true });
    this.changed(this.boxes);
  }

  // Pixels of the screen to one of the photo.
  scale() {
    return this.layer.getBoundingClientRect().width / this.width;
  }

  place(event) {
    // The layer has no border: its rectangle is the photo's.
    const frame = this.layer.getBoundingClientRect();
    return [
      (clamp((event.clientX - frame.left) / frame.width, 0, 1)) * this.width,
      (clamp((event.clientY - frame.top) / frame.height, 0, 1)) * this.height,
    ];
  }

  press(event) {
    if (event.button > 0 || this.held) return;
    event.preventDefault();
    const [x, y] = this.place(event);
    const element = event.target.closest(".box");
    const corner = event.target.dataset.corner;
    if (element && event.target.closest("button")) return;
    this.layer.setPointerCapture(event.pointerId);
    if (element) {
      const at = Number(element.dataset.at);
      this.held = { at, corner, x, y, from: [...this.boxes[at]] };
      element.focus();
    } else {
      const at = Math.max(0, this.active);
      this.held = { at, corner: "new", x, y, from: [x, y, x, y], drawn: false, before: this.boxes[at] };
    }
  }

  drag(event) {
    if (!this.held) return;
    const [x, y] = this.place(event);
    const { at, corner, from } = this.held;
    if (corner === "new") {
      if (!this.held.drawn) {
        this.boxes[at] = [...from];
        this.active = at;
        this.held.drawn = true;
        this.draw();
      }
      this.boxes[at] = ordered([from[0], from[1], x, y]);
    } else if (corner) {
      const [x0, y0, x1, y1] = from;
      this.boxes[at] = ordered([
        corner.includes("w") ? x : x0,
        corner.includes("n") ? y : y0,
        corner.includes("e") ? x : x1,
        corner.includes("s") ? y : y1,
      ]);
    } else {
      this.boxes[at] = moved(from, x - this.held.x, y - this.held.y, this.width, this.height);
    }
    this.lay(at);
  }

  release(event, cancelled = false) {
    if (!this.held) return;
    const { at, corner, from, drawn, before } = this.held;
    this.held = null;
    const scale = this.scale();
    const box = this.boxes[at];
    if (corner === "new" && !drawn) {
      if (!cancelled) this.touched(this.place(event));
      return;
    }
    const small = (box[2] - box[0]) * scale < LEAST || (box[3] - box[1]) * scale < LEAST;
    if (cancelled || small) {
      if (corner !== "new") this.boxes[at] = from;
      else if (before) this.boxes[at] = before;
      else this.boxes.splice(at, 1);
      this.active = Math.min(this.active, this.boxes.length - 1);
      this.draw();
      const place = this.place(event);
      const still = Math.hypot(place[0] - from[0], place[1] - from[1]) * scale < STILL;
      if (!cancelled && corner === "new" && still) this.touched(place);
      return;
    }
    this.draw();
    this.layer.children[at]?.focus({ preventScroll: true });
    if (String(box) !== String(from)) this.changed(this.boxes);
    else if (!corner) this.touched(this.place(event), { inside: true });
  }

  keys(event, at) {
    const step = (event.ctrlKey ? 0.002 : 0.02) * Math.max(this.width, this.height);
    const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    const [x0, y0, x1, y1] = this.boxes[at];
    if (by && event.shiftKey) {
      this.boxes[at] = clipped(
        [x0, y0, Math.max(x0 + step, x1 + by[0]), Math.max(y0 + step, y1 + by[1])], this.width, this.height);
    } else if (by) {
      this.boxes[at] = moved(this.boxes[at], ...by, this.width, this.height);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.active = at;
      this.touched([(x0 + x1) / 2, (y0 + y1) / 2]);
      return;
    } else if (event.key === "+" || event.key === "-") {
      event.preventDefault();
      this.active = at;
      this.stepped(event.key === "+" ? 1 : -1);
      return;
    } else if (event.key === "Delete" || event.key === "Backspace") {
      event.preventDefault();
      this.remove(at);
      return;
    } else {
      return;
    }
    event.preventDefault();
    this.lay(at);
    this.changed(this.boxes, { slowly: true });
  }

  remove(at) {
    this.boxes.splice(at, 1);
    this.active = this.boxes.length - 1;
    this.draw();
    (this.layer.children[Math.min(at, this.boxes.length - 1)] ?? this.element.parentElement.querySelector("button"))?.focus();
    this.changed(this.boxes);
  }

  draw() {
    this.layer.replaceChildren(...this.boxes.map((_, at) => this.shape(at)));
    this.boxes.forEach((_, at) => this.lay(at));
  }

  shape(at) {
    return h(
      "div",
      {
        class: "box",
        role: "group",
        tabindex: "0",
        "data-at": at,
        "aria-roledescription": "box",
        "aria-describedby": "box-help",
        onfocus: () => { this.active = at; },
        onkeydown: (event) => event.target === event.currentTarget && this.keys(event, at),
      },
      CORNERS.map((corner) => h("span", { class: `corner ${corner}`, "data-corner": corner })),
      h("button", { type: "button", class: "remove", "aria-label": `Remove box ${at + 1}`, onclick: () => this.remove(at) }, "×"),
    );
  }

  lay(at) {
    const element = this.layer.children[at];
    const [x0, y0, x1, y1] = this.boxes[at];
    const percent = (part, whole) => `${(100 * part) / whole}%`;
    element.style.left = percent(x0, this.width);
    element.style.top = percent(y0, this.height);
    element.style.width = percent(x1 - x0, this.width);
    element.style.height = percent(y1 - y0, this.height);
    const frame = this.layer.getBoundingClientRect();
    const [across, down] = [frame.width / this.width, frame.height / this.height];
    const small = frame.width > 0 && Math.min((x1 - x0) * across, (y1 - y0) * down) < SMALL;
    element.classList.toggle("small", small);
    // A small box would be covered by its button, which stands at the corner that has room beside it.
    element.classList.toggle("at-left", small && frame.width - x1 * across < HANDLE && x0 * across >= HANDLE);
    element.classList.toggle("at-foot", small && y0 * down < HANDLE);
    const shown = [x0, y0, x1 - x0, y1 - y0].map(Math.round);
    element.setAttribute(
      "aria-label", `Box ${at + 1} of ${this.boxes.length}: left ${shown[0]}, top ${shown[1]}, ${shown[2]} by ${shown[3]} pixels`);
  }
}

const clamp = (value, least, most) => Math.min(most, Math.max(least, value));
const ordered = ([a, b, c, d]) => [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)];

function clipped(box, width, height) {
  const [x0, y0, x1, y1] = ordered(box);
  return [clamp(x0, 0, width), clamp(y0, 0, height), clamp(x1, 0, width), clamp(y1, 0, height)];
}

function moved([x0, y0, x1, y1], x, y, width, height) {
  const dx = clamp(x, -x0, width - x1);
  const dy = clamp(y, -y0, height - y1);
  return [x0 + dx, y0 + dy, x1 + dx, y1 + dy];
}
