// What is in the index, how its graph is, and which files were skipped and why.

import * as api from "./api.js";
import { complain, counted, h } from "./dom.js";

const NAMES = {
  photos: "Photos",
  regions: "Regions",
  edges: "Links between regions",
  edges_a_region: "Links of a region",
  isolated_regions: "Regions without a link",
  generation: "Generation",
  bytes: "On disk",
  made_by: "Made by",
};

export async function showHealth(main) {
  const section = h("section", { class: "health" }, h("h1", {}, "Health of the index"));
  main.replaceChildren(section);
  try {
    section.append(...about(await api.info()));
  } catch (error) {
    complain(error.message);
  }
}

function about(facts) {
  const { skipped = [] } = facts;
  return [
    facts.photos_folder_is_there ? null : h("p", { class: "note" }, "The folder of the photos is not there: searches still rank, but show no photo. Is its disk connected?"),
    h("p", { class: "lead" }, whatIsIn(facts.photos, skipped)),
    h("ul", { class: "lead" }, inWords(facts).map((words) => h("li", {}, words))),
    h("details", {},
      h("summary", {}, "For engineers"),
      h("ul", {}, [facts.graph.words, ...facts.health.words, facts.whitening.words].map((words) => h("li", {}, words))),
      h("dl", {}, Object.entries(NAMES).filter(([name]) => facts[name] !== undefined).flatMap(([name, label]) => [
        h("dt", {}, label), h("dd", {}, shown(name, facts[name]))]),
      h("dt", {}, "Network"), h("dd", {}, `${facts.extractor.name}, ${facts.extractor.dimension} dimensions`)),
      h("dl", {}, Object.entries(facts.manifold).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]))),
    ...listed("Skipped", "No file was skipped", skipped.filter((one) => !one.duplicate_of)),
    ...listed("Copies, shown with their twin", null, skipped.filter((one) => one.duplicate_of)),
  ].filter(Boolean);
}

// What the figures mean for whoever searches.
function inWords({ bytes, health }) {
  const [together, alone] = [health.largest_component / health.regions, health.isolated_regions / health.regions];
  return [
    together > 0.9 ? "A search can follow an object from any photo to nearly all others."
      : together > 0.5 ? "A search can follow an object through most of the photos."
        : "The photos fall into groups that have little in common; an object is followed within its group.",
    alone > 0.2 ? `${Math.round(100 * alone)} % of all parts of photos resemble no other: what they show is found only where it looks much the same.` : null,
    bytes ? `The index takes ${shown("bytes", bytes)} on disk.` : null,
  ].filter(Boolean);
}

function whatIsIn(photos, skipped) {
  const copies = skipped.filter((one) => one.duplicate_of).length;
  return [
    `${counted(photos, "photo")} can be searched`,
    copies ? `${counted(copies, "file is a copy", "files are copies")} of one of them` : null,
    skipped.length > copies ? `${counted(skipped.length - copies, "file was", "files were")} skipped (listed below)` : null,
  ].filter(Boolean).join("; ") + ".";
}

function listed(heading, none, files) {
  if (!files.length) return none ? [h("h2", {}, none)] : [];
  return [
    h("h2", {}, `${heading}: ${counted(files.length, "file")}`),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "File"), h("th", { scope: "col" }, "Why"))),
      h("tbody", {}, files.slice(0, 500).map((one) => h("tr", {}, h("td", {}, one.key), h("td", {}, one.reason))))),
  ];
}

function shown(name, value) {
  if (name === "bytes") return `${(value / 1e6).toFixed(1)} MB`;
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(1);
  return String(value);
}
