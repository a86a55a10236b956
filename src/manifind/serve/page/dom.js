// Elements in few words. Text is always text: nothing here takes HTML, and nothing in it stays unseen.

import { visible } from "./text.js";

const READ = new Set(["title", "alt", "aria-label"]); // attributes that people read, or hear

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, to] of Object.entries(value)) element.style.setProperty(property, to);
    else element.setAttribute(name, value === true ? "" : READ.has(name) ? visible(value) : value);
  }
  const there = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...there.map((child) => (child instanceof Node ? child : visible(child))));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function say(text) {
  byId("said").textContent = visible(text);
}

export function complain(text) {
  const problem = byId("problem");
  if (text && !problem.hidden && problem.firstElementChild?.textContent === visible(text)) return; // said once is enough
  problem.hidden = !text;
  problem.replaceChildren();
  if (text) {
    problem.append(h("p", {}, text), h("button", { type: "button", class: "quiet", onclick: () => complain("") }, "Dismiss"));
  }
}

export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

// The key of a photo, of which the file's name is the last to be cut short: photos of one folder begin alike.
export function named(key) {
  const at = key.lastIndexOf("/") + 1;
  return h("span", { class: "key", title: key },
    at ? h("span", { class: "key-folder" }, key.slice(0, at)) : null, h("span", {}, key.slice(at)));
}
