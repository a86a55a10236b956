// Boxes that the service proposes for a place that was touched: the likeliest first, then a larger and a smaller one.
// A second touch of the place, a key or a button takes the next. What is drawn afterwards is the user's own.

import * as api from "./api.js";
import { complain, h, say } from "./dom.js";

const NEAR = 24; // pixels on the screen within which a second touch means the same place

const area = ([x0, y0, x1, y1]) => (x1 - x0) * (y1 - y0);
const same = (one, other) => Boolean(one && other) && one.every((corner, i) => Math.abs(corner - other[i]) < 0.1);

export class Proposals {
  constructor({ source, editor, redraw }) {
    Object.assign(this, { source, editor, redraw });
    this.boxes = []; // as they were proposed
    this.dashed = null;
  }

  get current() {
    return this.boxes.find((box) => same(box, this.editor.boxes[this.editor.active])) ?? null;
  }

  // The next box by area, in one direction; undefined where there is none.
  neighbour(direction) {
    const sorted = [...this.boxes].sort((a, b) => area(a) - area(b));
    return this.current && sorted[sorted.indexOf(this.current) + direction];
  }

  async touch([x, y]) {
    const near = this.place && Math.hypot(x - this.place[0], y - this.place[1]) * this.editor.scale() <= NEAR;
    if (near && this.current && this.boxes.length > 1) {
      this.take(this.boxes[(this.boxes.indexOf(this.current) + 1) % this.boxes.length]);
      return;
    }
    const boxes = await this.ask([x, y]);
    if (!boxes) return; // another place was touched since
    this.boxes = boxes;
    if (boxes.length) this.take(boxes[0]);
    else say("No box is proposed here; draw one.");
  }

  async ask(place) {
    this.place = place;
    try {
      const { boxes } = await api.proposedBoxes(this.source, ...place);
      return this.place === place && this.editor.element.isConnected ? boxes : null;
    } catch (error) {
      if (this.place === place) complain(error.message);
      return null;
    }
  }

  take(box) {
    this.forgetDashed();
    this.editor.put(box);
    const sorted = [...this.boxes].sort((a, b) => area(a) - area(b));
    say(`Proposed box, ${sorted.indexOf(box) + 1} of ${sorted.length} by size.`);
  }

  step(direction) {
    const next = this.neighbour(direction);
    if (next) this.take(next);
    else say(this.current ? `No ${direction > 0 ? "larger" : "smaller"} box is proposed.` : "Press Enter for a proposed box.");
  }

  // A photo that was opened by touch begins with a dashed box round what lies in its middle; it is not searched for.
  async suggest() {
    const { width, height } = this.editor;
    const boxes = await this.ask([width / 2, height / 2]);
    if (!boxes?.length || this.editor.boxes.length) return;
    this.boxes = boxes;
    const [x0, y0, x1, y1] = boxes[0];
    const percent = (part, whole) => `${(100 * part) / whole}%`;
    this.dashed = h("div", { class: "suggested", "aria-hidden": "true",
      style: { left: percent(x0, width), top: percent(y0, height), width: percent(x1 - x0, width), height: percent(y1 - y0, height) } });
    this.editor.element.append(this.dashed);
    this.redraw();
  }

  forgetDashed() {
    this.dashed?.remove();
    this.dashed = null;
  }

  // What stands beside the photo: how to change a proposed box, or how to use the dashed one.
  controls() {
    if (this.dashed) {
      return h("button", { type: "button", onclick: () => this.take(this.boxes[0]) }, "Use the dashed box");
    }
    if (!this.current || this.boxes.length < 2) return null;
    const button = (text, direction) =>
      h("button", { type: "button", "aria-label": `${text} box`, disabled: !this.neighbour(direction), onclick: () => this.step(direction) }, text);
    return h("div", { class: "sizes", role: "group", "aria-label": "Proposed boxes" }, button("Smaller", -1), button("Larger", 1));
  }
}
