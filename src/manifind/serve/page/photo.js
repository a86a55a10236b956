// A photo with regions outlined, or with a heat map of the regions' shares.

import { picture } from "./api.js";
import { complain, h, svg } from "./dom.js";

const TRIES = 3;

// Why a picture did not come: the service says it in a sentence, which stands in its place. If it is only busy, again.
export async function missing({ target: image }) {
  const tried = Number(image.dataset.tried ?? 0);
  const why = await fetch(image.src).catch(() => null);
  if (why?.ok || (why?.status === 503 && tried < TRIES)) {
    image.dataset.tried = tried + 1;
    setTimeout(() => { image.src = image.src; }, why.ok ? 0 : 1000 * Number(why.headers.get("Retry-After") ?? 1));
    return;
  }
  const body = await why?.json().catch(() => null);
  image.parentElement?.classList.add("gone");
  // What is wrong with all photos is said once, above them.
  if (body?.code === "no-folder") complain(body.error);
  const words = body?.code === "no-folder" ? "not there" : body?.error ?? "The service does not answer.";
  image.after(h("span", { class: "gone-why" }, words));
}

export function photo(source, { side = 320, alt = "", boxes = [], corners = [], kind = "found", lazy = true, overlays = [] } = {}) {
  const { width, height, version } = source;
  return h(
    "div",
    { class: "photo", style: { "aspect-ratio": `${width} / ${height}`, "--aspect": width / height } },
    h("img", {
      src: picture(source, side, { version }),
      alt,
      width,
      height,
      loading: lazy ? "lazy" : null,
      decoding: "async",
      onerror: missing,
    }),
    overlays,
    boxes.length || corners.length ? outlines(width, height, boxes, kind, corners) : null,
  );
}

// What is drawn in a result: the outline of the object, or of the part that is shared, or else the one box.
export function marks(one) {
  if (one.outline) return { corners: [one.outline, ...one.other_outlines] };
  if (one.part) return { corners: [one.part], kind: "shared" };
  return { boxes: one.box ? [one.box] : [] };
}

export function outlines(width, height, boxes, kind, corners = []) {
  return svg(
    "svg",
    { class: `outlines ${kind}`, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    boxes.map(([x0, y0, x1, y1], place) =>
      svg("rect", { x: x0, y: y0, width: x1 - x0, height: y1 - y0, class: place ? "lesser" : "best" })),
    corners.map((outline) => svg("polygon", { points: seenPart(outline, width, height).map((corner) => corner.join(",")).join(" ") })),
  );
}

// The part of an outline that lies in the photo: one that goes beyond it is closed along the border.
function seenPart(outline, width, height) {
  const depths = [([x]) => x, ([x]) => width - x, ([, y]) => y, ([, y]) => height - y];
  return depths.reduce((left, depth) => left.flatMap((here, at) => {
    const before = left.at(at - 1);
    const [from, to] = [depth(before), depth(here)];
    const border = before.map((value, axis) => value + ((here[axis] - value) * from) / (from - to));
    return [...(from < 0 !== to < 0 ? [border] : []), ...(to < 0 ? [] : [here])];
  }), outline);
}

// The share of a region is spread evenly over its box; what lies in many strong regions glows.
export function heat(width, height, regions) {
  const scale = 96 / Math.max(width, height);
  const columns = Math.max(1, Math.round(width * scale));
  const rows = Math.max(1, Math.round(height * scale));
  const sums = new Float32Array(columns * rows);
  for (const { box: [x0, y0, x1, y1], share } of regions) {
    const [left, right] = [Math.round(x0 * scale), Math.round(x1 * scale)];
    const [top, bottom] = [Math.round(y0 * scale), Math.round(y1 * scale)];
    const each = share / Math.max(1, (right - left) * (bottom - top));
    for (let y = Math.max(0, top); y < Math.min(rows, bottom); y += 1) {
      for (let x = Math.max(0, left); x < Math.min(columns, right); x += 1) sums[y * columns + x] += each;
    }
  }
  soften(sums, columns, rows);
  const most = sums.reduce((a, b) => Math.max(a, b), 0) || 1;
  const least = sums.reduce((a, b) => Math.min(a, b), most);
  const canvas = h("canvas", { class: "heat", width: columns, height: rows, role: "img",
    "aria-label": "Heat map: how much each part of the photo contributes to its score" });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  sums.forEach((value, at) => {
    const part = most > least ? ((value - least) / (most - least)) ** 1.4 : 1;
    pixels.data.set([...glow(part), 175 - 70 * part], 4 * at);
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}

// Boxes have edges and objects do not: average each cell with those around it, twice.
function soften(sums, columns, rows) {
  const reach = Math.round(Math.max(columns, rows) / 24);
  for (const [count, length, step, along] of [[rows, columns, columns, 1], [columns, rows, 1, columns]].flatMap((one) => [one, one])) {
    for (let row = 0; row < count; row += 1) {
      const line = Float32Array.from({ length }, (_, i) => sums[row * step + i * along]);
      for (let i = 0; i < length; i += 1) {
        let total = 0;
        for (let j = -reach; j <= reach; j += 1) total += line[Math.min(length - 1, Math.max(0, i + j))];
        sums[row * step + i * along] = total / (2 * reach + 1);
      }
    }
  }
}

// From near black through red to pale yellow, of rising lightness: what contributes little lies in the dark.
function glow(part) {
  const stops = [[12, 10, 34], [92, 20, 84], [196, 48, 60], [248, 140, 46], [255, 226, 120]];
  const at = Math.min(0.9999, Math.max(0, part)) * (stops.length - 1);
  const low = stops[Math.floor(at)];
  const high = stops[Math.floor(at) + 1];
  return low.map((value, i) => Math.round(value + (high[i] - value) * (at % 1)));
}
