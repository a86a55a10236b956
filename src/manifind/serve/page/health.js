// What is in the index, how its graph is, and what was passed over and why.

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
    h("ul", { class: "lead" }, [facts.graph.words, ...facts.health.words, facts.whitening.words].map((words) => h("li", {}, words))),
    h("dl", {}, Object.entries(NAMES).filter(([name]) => facts[name] !== undefined).flatMap(([name, label]) => [
      h("dt", {}, label), h("dd", {}, shown(name, facts[name]))])),
    h("h2", {}, "How it was made"),
    h("dl", {}, h("dt", {}, "Network"), h("dd", {}, `${facts.extractor.name}, ${facts.extractor.dimension} dimensions`)),
    h("details", {},
      h("summary", {}, "For engineers"),
      h("dl", {}, Object.entries(facts.manifold).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]))),
    ...listed("Passed over", "No file was passed over", skipped.filter((one) => !one.duplicate_of)),
    ...listed("Copies, shown with their twin", null, skipped.filter((one) => one.duplicate_of)),
  ].filter(Boolean);
}

function whatIsIn(photos, skipped) {
  const copies = skipped.filter((one) => one.duplicate_of).length;
  return [
    `${counted(photos, "photo")} can be searched`,
    copies ? `${counted(copies, "file is a copy", "files are copies")} of one of them` : null,
    skipped.length > copies ? `${counted(skipped.length - copies, "file was", "files were")} passed over (listed below)` : null,
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
