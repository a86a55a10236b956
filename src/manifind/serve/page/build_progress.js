// While the index is being made: how far it is. What is there so far is searched meanwhile.

import * as api from "./api.js";
import { byId, complain, counted, h, say } from "./dom.js";

const OFTEN = 1500; // milliseconds between two looks
const STAGES = { files: "Looking at the files", photos: "Extracting features", whitening: "Learning from all of them", graph: "Linking the parts of all of them" };

// `changed` is called when more photos can be searched, and at the end.
export async function watchBuild(changed) {
  const place = byId("growth");
  let photos = null;
  for (;;) {
    let told;
    try {
      told = await api.building();
    } catch (error) {
      complain(error.message);
      await new Promise((done) => setTimeout(done, 4 * OFTEN));
      continue;
    }
    if (told.error) complain(`The index was not finished: ${told.error}`);
    const { photos: now } = await api.collection();
    if (photos !== null && now !== photos) changed();
    if (!told.building) {
      if (!place.hidden) say("The index is finished.");
      place.hidden = true;
      return;
    }
    photos = now;
    show(place, told.building, now);
    await new Promise((done) => setTimeout(done, OFTEN));
  }
}

function show(place, { stage, done, total, seconds_left: left }, photos) {
  const words = `${STAGES[stage] ?? stage}: ${done.toLocaleString("en")} of ${counted(total, stage === "photos" ? "photo" : "step")}` +
    (left === null || left < 1 ? "" : left < 90 ? `, about ${Math.round(left)} seconds left` : `, about ${Math.round(left / 60)} minutes left`);
  if (place.hidden) {
    place.replaceChildren(
      h("p", { id: "growth-words" }),
      h("progress", { max: 1, value: 0, "aria-label": "How far the index is" }),
      h("p", { class: "quiet", id: "growth-searched" }));
    place.hidden = false;
  }
  byId("growth-words").textContent = words;
  place.querySelector("progress").value = total ? done / total : 0;
  byId("growth-searched").textContent = `Searches look through the ${counted(photos, "photo")} that are there so far.`;
}
