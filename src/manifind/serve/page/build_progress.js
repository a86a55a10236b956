// What becomes of the collection while the page is open: its index is made, photos are new, another page changed it.

import * as api from "./api.js";
import { byId, complain, counted, h, say } from "./dom.js";

const OFTEN = 1500; // milliseconds between two looks while an index is made
const SELDOM = 5000; // the same while nothing happens
const STAGES = {
  files: "Looking at the files",
  photos: "Looking at the photos",
  features: "Looking at the photos once more",
  learning: "Learning from all of them",
  whitening: "Describing all of them by what was learnt",
  graph: "Linking the parts of all of them",
  writing: "Writing the index",
};

let now = null; // ends the wait before the next look

// Call `changed` when other photos can be searched than before.
export async function watchBuild(changed) {
  let photos = null;
  let generation = null;
  let building = false;
  for (;;) {
    let told = null;
    try {
      told = await api.building();
    } catch (error) {
      if (building) complain(error.message);
    }
    if (told) {
      if (told.error && (building || photos === null)) complain(`The index was not finished: ${told.error}`);
      const before = photos;
      if (told.building || building || generation !== told.generation) photos = (await api.collection().catch(() => ({ photos }))).photos;
      if (before !== null && (before !== photos || (generation !== null && generation !== told.generation))) changed();
      if (building && !told.building && !told.error) say("The index is up to date.");
      generation = told.generation;
      building = Boolean(told.building);
      show(told, photos);
    }
    await new Promise((done) => { now = done; setTimeout(done, building ? OFTEN : SELDOM); });
  }
}

function show({ building, pending }, photos) {
  const place = byId("growth");
  const words = pending && newPhotos(pending);
  place.hidden = !building && !words;
  if (building) showProgress(place, building, photos);
  else if (words && place.dataset.words !== words) {
    place.dataset.words = words;
    place.replaceChildren(h("p", {}, words), h("button", { type: "button", class: "primary", onclick: update }, "Bring up to date"));
    say(`${words}.`);
  }
}

async function update({ target: button }) {
  button.disabled = true;
  try {
    await api.update();
    now?.();
  } catch (error) {
    button.disabled = false;
    complain(error.message);
  }
}

// What has become of the folder since its index was made; nothing where nothing has.
export function newPhotos({ new: fresh, changed, moved, gone }) {
  return [
    fresh ? counted(fresh, "new photo") : null,
    changed ? `${changed.toLocaleString("en")} changed` : null,
    moved ? `${moved.toLocaleString("en")} renamed` : null,
    gone ? `${gone.toLocaleString("en")} gone` : null,
  ].filter(Boolean).join(", ");
}

function showProgress(place, { stage, done, total, seconds_left: left }, photos) {
  if (!place.querySelector("progress")) {
    delete place.dataset.words;
    place.replaceChildren(
      h("p", { id: "growth-words" }),
      h("progress", { max: 1, value: 0, "aria-label": "How far the index is" }),
      h("p", { class: "quiet", id: "growth-searched" }));
  }
  byId("growth-words").textContent = stageWords(stage, done, total, left);
  place.querySelector("progress").value = total ? done / total : 0;
  byId("growth-searched").textContent = `Searches look through the ${counted(photos, "photo")} that are there so far.`;
}

// How far a stage is. Only photos are counted: what other stages count says nothing to whoever waits.
export function stageWords(stage, done, total, left) {
  const words = STAGES[stage] ?? stage;
  const counts = stage === "photos" || stage === "features" ? `: ${done.toLocaleString("en")} of ${counted(total, "photo")}` : "";
  return words + counts + (left === null || left < 1 ? "" : `, about ${span(left)} left`);
}

function span(seconds) {
  if (seconds < 90) return counted(Math.ceil(seconds), "second");
  return seconds < 5400 ? counted(Math.round(seconds / 60), "minute") : counted(Math.round(seconds / 3600), "hour");
}
