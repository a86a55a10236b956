// Before there is an index: choose a folder of this machine, and watch its index grow.

import { stageWords } from "./build_progress.js";
import { byId, complain, counted, h, say } from "./dom.js";

const main = byId("main");
async function asked(address, body) {
  const answer = await fetch(address, body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  // The service of the index has taken over, which does not know these addresses.
  if (answer.status === 404 && address === "/api/start") location.replace("/");
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

async function look() {
  try {
    const told = await asked("/api/start");
    if (told.building) grow(told.building);
    else if (told.picks) await pick(chosen, told.error ?? "");
    else if (told.error) complain(told.error);
    else main.replaceChildren(h("p", { class: "lead" }, "The index is made by whoever started the service."));
    if (told.building) setTimeout(look, 500);
  } catch (error) {
    complain(error.message);
    setTimeout(look, 2000);
  }
}

let chosen = ""; // the folder that was chosen, to go on from where its index could not be made

// Show a folder, and what was wrong with the one before.
async function pick(path, problem = "") {
  let told;
  try {
    told = await asked(`/api/start/folders?${new URLSearchParams({ path })}`);
  } catch (error) {
    complain(error.message);
    return;
  }
  complain(problem);
  const into = (name) => (told.path.endsWith("/") ? told.path : `${told.path}/`) + name;
  const photos = told.photos ? `${counted(told.photos, "photo")} seen in it` : "No photo lies directly in it; folders below it count too";
  main.replaceChildren(...[
    h("h1", {}, "Which photos?"),
    h("p", { class: "lead" }, "Choose the folder that holds them. They stay where they are, nothing leaves this machine, and the index is kept beside the folder."),
    h("p", { class: "path" }, told.path),
    h("p", { class: "quiet" }, photos + (told.indexed ? "; it has an index already" : "")),
    h("div", { class: "tools" },
      h("button", { type: "button", class: "primary", onclick: () => begin(told.path) }, told.indexed ? "Open it" : "Use this folder"),
      told.parent ? h("button", { type: "button", onclick: () => pick(told.parent) }, "One folder up") : null),
    h("ul", { class: "folders", "aria-label": `Folders in ${told.path}` }, told.folders.map((name) =>
      h("li", {}, h("button", { type: "button", onclick: () => pick(into(name)) }, name)))),
  ]);
}

async function begin(folder) {
  chosen = folder;
  try {
    await asked("/api/start", { folder });
    look();
  } catch (error) {
    complain(error.message);
  }
}

function grow({ folder, stage, done, total, seconds_left: left }) {
  if (!main.querySelector("progress")) {
    main.replaceChildren(
      h("h1", {}, "Making the index"),
      h("p", { class: "path" }, folder),
      h("p", { class: "lead", id: "stage" }),
      h("progress", { max: 1, value: 0, "aria-label": "How far it is" }),
      h("p", { class: "quiet" }, "The search opens here as soon as a dozen photos are processed. If it is interrupted, it goes on from where it was."));
  }
  const bar = main.querySelector("progress");
  bar.value = total ? done / total : 0;
  const words = stageWords(stage, done, total, left);
  byId("stage").textContent = words;
  if (done === total) say(words);
}

look();
