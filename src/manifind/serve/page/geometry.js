// What geometry saw: the points that match in the query and a result, and the one photo laid on the other.

import * as api from "./api.js";
import { counted, h, say, svg } from "./dom.js";

const SIDE = 1280;
const GAP = 0.03; // between two photos side by side, in parts of their height
const VIEWS = 8; // of a query, that the service compares at once

// A section that fills itself when the service has answered; `outlined` is told where the object is, if it is there, and
// `grade` returns what the search knows of the result.
export function matches(views, about, result, signal, outlined, mirrored, grade = () => null) {
  const section = h("section", { class: "matches", "aria-label": "Matching points" },
    h("h3", {}, "Is it this very thing?"), h("p", { class: "quiet" }, "Looking for matching points …"));
  api.geometry(views.slice(0, VIEWS), result.key, signal, mirrored).then((found) => {
    const query = about(views[found.view]);
    if (signal.aborted) return;
    section.replaceChildren(h("h3", {}, "Is it this very thing?"), ...seen(found, query, views[found.view].box, result, grade()));
    if (!found.verified || grade() === "shares a part") return;
    outlined(outlineOf(found.transform, views[found.view].box ?? [0, 0, query.width, query.height]));
    say(`${counted(found.inliers, "point")} of the query match in it.`);
  }).catch((error) => {
    if (error.name !== "AbortError") section.replaceChildren(h("p", { class: "quiet" }, error.message));
  });
  return section;
}

// Where a map takes the corners of a box.
function outlineOf([[a, b, c], [d, e, f], [g, i, j]], [x0, y0, x1, y1]) {
  return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]].map(([x, y]) => {
    const depth = g * x + i * y + j;
    return [(a * x + b * y + c) / depth, (d * x + e * y + f) / depth];
  });
}

function seen(found, query, box, result, grade) {
  if (!found.verified) {
    return [h("p", { class: "quiet" }, found.verified === null
      ? "The query has too little texture for geometry to say anything."
      : "Too few points of the query were found again in this photo in the same arrangement: it was reached by likeness alone.")];
  }
  return [
    grade === "shares a part"
      ? h("p", {}, h("strong", { class: "part" }, "It shares a part. "), `${pointsFound(found)} The rest does not agree: it may be another thing with the same part.`)
      : h("p", {}, h("strong", { class: "sure" }, "Sure. "), pointsFound(found)),
    h("div", { class: "seen" }, sideBySide(query, result, found.points), laid(query, box, result, found.transform)),
  ];
}

const pointsFound = ({ inliers, mirrored }) =>
  `${counted(inliers, "point")} of the query ${inliers === 1 ? "was" : "were"} found again in this photo, in the same arrangement${mirrored ? ", mirrored" : ""}.`;

// Both at one height, a line from each point to its match; through all colours from top to foot, to tell them apart.
function sideBySide(query, result, points) {
  const { width, height } = query;
  const by = height / result.height;
  const across = width + GAP * height;
  const sorted = [...points].sort((a, b) => a[1] - b[1]);
  return h("figure", {},
    svg("svg", { class: "lines", viewBox: `0 0 ${across + result.width * by} ${height}`, role: "img",
      "aria-label": `${counted(points.length, "line")} from points of the query to the same points of the result` },
    svg("image", { href: api.picture(query, SIDE, { version: query.version }), width, height, preserveAspectRatio: "none" }),
    svg("image", { href: api.picture(result, SIDE, { version: result.version }), x: across, width: result.width * by, height, preserveAspectRatio: "none" }),
    sorted.map(([x, y, u, v], turn) => {
      const colour = `hsl(${Math.round((300 * turn) / Math.max(1, sorted.length - 1))} 90% 55%)`;
      const [x2, y2, r] = [across + u * by, v * by, height / 160];
      return svg("g", { stroke: colour, fill: colour },
        svg("line", { x1: x, y1: y, x2, y2 }), svg("circle", { cx: x, cy: y, r }), svg("circle", { cx: x2, cy: y2, r }));
    })),
    h("figcaption", {}, "The points that match"));
}

// The query's box, warped by the map onto the result; a slider fades from the one to the other.
function laid(query, box, result, map) {
  const small = Math.min(1, SIDE / Math.max(query.width, query.height));
  const [x0, y0, x1, y1] = (box ?? [0, 0, query.width, query.height]).map((corner) => corner * small);
  const [width, height] = [query.width * small, query.height * small];
  const over = h("img", { class: "over", src: api.picture(query, SIDE, { version: query.version }), alt: "",
    style: { width: `${width}px`, height: `${height}px`, opacity: 0.5,
      "clip-path": `inset(${y0}px ${width - x1}px ${height - y1}px ${x0}px)` } });
  const frame = h("div", { class: "photo", style: { "aspect-ratio": `${result.width} / ${result.height}`, "--aspect": result.width / result.height } },
    h("img", { src: api.picture(result, SIDE, { version: result.version }), alt: `The query laid on ${result.key}` }), over);
  new ResizeObserver(() => {
    over.style.transform = `scale(${frame.clientWidth / result.width}) ${matrix(map, small)}`;
  }).observe(frame);
  return h("figure", {}, frame,
    h("figcaption", {}, h("label", { class: "fade" }, h("span", {}, "The result"),
      h("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": "How much of the query is seen",
        oninput: (event) => { over.style.opacity = event.target.value / 100; } }),
      h("span", {}, "The query laid on it"))));
}

// A map of the plane as CSS writes it, for a picture of the query that is smaller than the photo.
function matrix([[a, b, c], [d, e, f], [g, i, j]], small) {
  return `matrix3d(${[a / small, d / small, 0, g / small, b / small, e / small, 0, i / small, 0, 0, 1, 0, c, f, 0, j].join(",")})`;
}

// One link of a chain after the other: strong where geometry joins the two photos, weak where they merely look alike.
export async function confirm(links, views, arrows, signal, mirrored) {
  for (const [at, { source, target, similarity }] of links.entries()) {
    if (source.key === target.key) continue;
    const view = source.key === null ? views[source.view] : { key: source.key, box: source.box };
    if (!view) continue;
    const found = await api.geometry([view], target.key, signal, mirrored).catch(() => null);
    if (signal.aborted) return;
    if (!found || found.verified === null) continue;
    const words = found.verified
      ? `${counted(found.inliers, "point")} match`
      : "they merely look alike";
    arrows[at].classList.add(found.verified ? "strong" : "weak");
    arrows[at].setAttribute("aria-label", `similarity ${similarity.toFixed(2)}, ${words}`);
    if (!found.verified) arrows[at].firstElementChild.textContent = "⇢";
    arrows[at].title = words;
    arrows[at].append(h("small", { "aria-hidden": "true" }, found.verified ? words : "only alike"));
  }
}
