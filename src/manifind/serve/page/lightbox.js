// One photo, as large as the window: zoomed by wheel, pinch, buttons or keys, and moved by dragging.

import * as api from "./api.js";
import { h, say } from "./dom.js";
import { outlines } from "./photo.js";

const MOST = 16; // times the size that fits the window
const STEP = 1.35;
const SHARPER = 1.3; // from here on the original is shown in place of the picture that fits a window

export class Lightbox {
  constructor(photo) {
    this.photo = photo;
    this.scale = 1;
    this.x = this.y = 0; // where the middle of the photo is, in pixels of the window from the window's middle
    this.pointers = new Map();
    this.image = h("img", { src: api.picture(photo, 2048, { version: photo.version }), alt: `The photo: ${photo.key}`, draggable: "false" });
    this.sheet = h("div", { class: "lightbox-sheet" }, this.image,
      this.drawn());
    this.stage = h("div", { class: "lightbox-stage", tabindex: "0", role: "application",
      "aria-label": "The photo. Plus and minus zoom, arrow keys move, 0 shows all of it." }, this.sheet);
    this.percent = h("output", { class: "quiet" });
    this.dialog = h("dialog", { class: "lightbox", "aria-label": `Looking closely at ${photo.key}` }, this.stage,
      h("div", { class: "lightbox-tools" },
        h("button", { type: "button", "aria-label": "Zoom out", onclick: () => this.zoom(1 / STEP) }, "−"),
        this.percent,
        h("button", { type: "button", "aria-label": "Zoom in", onclick: () => this.zoom(STEP) }, "+"),
        h("button", { type: "button", onclick: () => this.fit() }, "All of it"),
        photo.outlined || photo.box ? h("button", { type: "button", onclick: () => this.show(round(photo)) }, "The object") : null,
        h("button", { type: "button", class: "full", onclick: () => this.fullScreen() }, "Full screen"),
        h("button", { type: "button", "aria-label": "Close", onclick: () => this.dialog.close() }, "×")));
    this.listen();
  }

  // The same outline as on the result, else its box.
  drawn() {
    const { width, height, box, outlined } = this.photo;
    if (outlined) return outlines(width, height, [], "found", [outlined]);
    return box ? outlines(width, height, [box], "found") : null;
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.stage.focus();
    this.fit();
  }

  listen() {
    const { stage } = this;
    this.resized = () => this.lay();
    addEventListener("resize", this.resized);
    this.dialog.addEventListener("close", () => {
      removeEventListener("resize", this.resized);
      this.dialog.remove();
    });
    stage.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / (event.ctrlKey ? 100 : 400)), this.place(event));
    }, { passive: false });
    stage.addEventListener("dblclick", (event) => (this.scale > 1.01 ? this.fit() : this.zoom(3, this.place(event))));
    stage.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      stage.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.place(event));
    });
    stage.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
    this.dialog.addEventListener("keydown", (event) => this.key(event));
  }

  // Where an event is, from the middle of the stage.
  place(event) {
    const frame = this.stage.getBoundingClientRect();
    return [event.clientX - frame.left - frame.width / 2, event.clientY - frame.top - frame.height / 2];
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = this.place(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    if (other) { // two fingers
      const apart = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1;
      this.zoom(apart(now) / apart(before), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
    } else {
      this.x += now[0] - before[0];
      this.y += now[1] - before[1];
      this.lay();
    }
  }

  key(event) {
    if (event.target.closest("button") && (event.key === " " || event.key === "Enter")) return;
    const by = { ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 80], ArrowDown: [0, -80] }[event.key];
    if (by) {
      this.x += by[0];
      this.y += by[1];
      this.lay();
    } else if (event.key === "+" || event.key === "=") this.zoom(STEP);
    else if (event.key === "-") this.zoom(1 / STEP);
    else if (event.key === "0") this.fit();
    else if (event.key === "f") this.fullScreen();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  zoom(factor, at = [0, 0]) {
    const scale = Math.min(MOST, Math.max(1, this.scale * factor));
    const ratio = scale / this.scale;
    // What is under the pointer stays there.
    this.x = at[0] + (this.x - at[0]) * ratio;
    this.y = at[1] + (this.y - at[1]) * ratio;
    this.scale = scale;
    if (scale > SHARPER) this.sharpen();
    this.lay();
  }

  fit() {
    this.scale = 1;
    this.x = this.y = 0;
    this.lay();
  }

  // Bring a box to the middle of the window.
  show([x0, y0, x1, y1]) {
    const { width, height } = this.photo;
    const [across, down] = this.size();
    this.scale = Math.min(MOST, Math.max(1, 0.85 * Math.min(
      (this.stage.clientWidth * width) / (across * (x1 - x0)), (this.stage.clientHeight * height) / (down * (y1 - y0)))));
    this.x = (0.5 - (x0 + x1) / 2 / width) * across * this.scale;
    this.y = (0.5 - (y0 + y1) / 2 / height) * down * this.scale;
    this.sharpen();
    this.lay();
  }

  // How large the photo is where it fits the stage.
  size() {
    const { width, height } = this.photo;
    const fit = Math.min(this.stage.clientWidth / width, this.stage.clientHeight / height);
    return [width * fit, height * fit];
  }

  lay() {
    const [width, height] = this.size();
    const least = (length, room) => Math.max(0, (length * this.scale - room) / 2);
    const clamp = (value, most) => Math.min(most, Math.max(-most, value));
    this.x = clamp(this.x, least(width, this.stage.clientWidth));
    this.y = clamp(this.y, least(height, this.stage.clientHeight));
    this.sheet.style.width = `${width}px`;
    this.sheet.style.height = `${height}px`;
    this.sheet.style.setProperty("--scale", this.scale);
    this.sheet.style.transform = `translate(-50%, -50%) translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
    this.percent.textContent = `${Math.round((100 * this.scale * width) / this.photo.width)} %`;
  }

  // The original has every pixel; where the browser cannot show it, the picture stays.
  sharpen() {
    if (this.sharper) return;
    this.sharper = h("img", { src: api.moment(this.photo.key) === null ? api.original(this.photo.key) : api.picture(this.photo, 2048, { version: this.photo.version }), alt: "" });
    this.sharper.decode().then(() => {
      const { naturalWidth, naturalHeight } = this.sharper;
      if (Math.abs(naturalWidth * this.photo.height - naturalHeight * this.photo.width) > naturalWidth + naturalHeight) return;
      this.image.src = this.sharper.src;
    }).catch(() => {});
  }

  async fullScreen() {
    try {
      if (document.fullscreenElement) await document.exitFullscreen();
      else await this.dialog.requestFullscreen();
      this.lay();
    } catch {
      say("The browser does not allow full screen.");
    }
  }
}

// The box round what is outlined, as far as it lies in the photo.
function round({ outlined, box, width, height }) {
  if (!outlined) return box;
  const [across, down] = [0, 1].map((axis) => outlined.map((corner) => Math.min([width, height][axis], Math.max(0, corner[axis]))));
  return [Math.min(...across), Math.min(...down), Math.max(...across), Math.max(...down)];
}
