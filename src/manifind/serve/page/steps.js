// The rankings of one search, each in the place of the one before. Photos move only where nobody attends to them.

import { h } from "./dom.js";

const MOVE_MILLISECONDS = 250;

export class Steps {
  // `engaged` returns whether a photo was ticked or opened since the first ranking was shown.
  constructor(engaged) {
    this.engaged = engaged;
    this.waiting = null;
    this.shown = this.pointed = false;
    this.element = h("div", { class: "ranking" });
    for (const kind of ["pointermove", "pointerdown"]) this.element.addEventListener(kind, () => { this.pointed = true; });
    this.element.addEventListener("pointerleave", () => this.release());
  }

  get held() {
    const { element } = this;
    return this.shown && ((this.pointed && element.matches(":hover")) || element.contains(document.activeElement) || this.engaged());
  }

  // Show what `draw` returns: now, or once no photo is pointed at, focused, ticked or opened.
  offer(draw, before = null) {
    this.waiting = () => transition(this.element, draw, before ?? capture(this.element));
    this.release();
  }

  // A new search has begun: what waits is of an old one.
  drop() {
    this.waiting = null;
  }

  release() {
    if (this.waiting && !this.held) this.apply();
  }

  apply() {
    const show = this.waiting;
    if (!show) return;
    this.waiting = null;
    this.shown = true;
    show();
  }
}

// Where each photo is, and its image. Images are used again: none flickers.
export function capture(root) {
  return new Map([...root.querySelectorAll(".card")].map((card) =>
    [card.dataset.key, { place: card.getBoundingClientRect(), image: card.querySelector("img") }]));
}

function transition(element, draw, before) {
  element.replaceChildren(...draw());
  const moves = [];
  for (const card of element.querySelectorAll(".card")) {
    const old = before.get(card.dataset.key);
    const image = card.querySelector("img");
    if (old?.image?.naturalWidth && old.image.src === image?.src) image.replaceWith(old.image);
    if (old?.place) moves.push([card, old.place]);
  }
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const [card, from, to] of moves.map(([card, from]) => [card, from, card.getBoundingClientRect()])) {
    const [x, y] = [from.x - to.x, from.y - to.y];
    if (x || y) card.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }], { duration: MOVE_MILLISECONDS, easing: "ease-out" });
  }
}
