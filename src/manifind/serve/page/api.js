// The service behind the page: the same API that /openapi.json describes. No request goes anywhere else.

import { viewText, within } from "./state.js";

export class Refused extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

// The response to a request; a busy service is asked once more.
async function request(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The service does not answer; is it still running?", 0);
  }
  if (answer.status === 503 && !options.again) {
    const seconds = Number(answer.headers.get("Retry-After") ?? 1);
    await new Promise((done) => setTimeout(done, 1000 * seconds));
    return request(address, { ...options, again: true });
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(body.error ?? `The service answered ${answer.status}.`, answer.status);
}

const json = async (address, options) => (await request(address, options)).json().catch((error) => {
  if (error.name === "AbortError") throw error;
  return {};
});

const sent = (body, signal) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
  signal,
});

export const search = (views, negatives, method, top, signal, within = {}) =>
  json("/api/search", sent({ views, negatives, method, top, ...within }, signal));

// The steps of a search as they come: `{ result }`, or `{ progress: { checked, total } }`. The last result is the answer.
export async function* searchSteps(views, negatives, method, top, signal, within = {}) {
  const answer = await request("/api/search/stream", sent({ views, negatives, method, top, ...within }, signal));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError" || signal?.aborted) throw error;
      throw new Refused("The service broke off its answer; search again.", 0);
    });
    if (done) return;
    const lines = (text + value).split("\n");
    text = lines.pop();
    for (const line of lines) {
      const step = JSON.parse(line);
      if (step.error) throw new Refused(step.error, answer.status);
      yield step;
    }
  }
}

export const explain = (views, negatives, key, signal, mirrored = false) =>
  json("/api/explain", sent({ views, negatives, key, mirrored }, signal));

export const geometry = (views, key, signal, mirrored = false) => json("/api/geometry", sent({ views, key, mirrored }, signal));

export const upload = (file) =>
  json("/api/uploads", { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });

export const proposedBoxes = ({ key, upload: name }, x, y) =>
  json(`/api/boxes?${new URLSearchParams({ ...(key == null ? { upload: name } : { key }), x: x.toFixed(1), y: y.toFixed(1) })}`);
export const uploaded = (name) => json(`/api/uploads/${name}`);
export const photo = (key) => json(`/api/photo?${new URLSearchParams({ key })}`);
export const facts = (key) => json(`/api/photo/facts?${new URLSearchParams({ key })}`);
// When a frame of a film is shown, in seconds after the film begins; null for a photo.
export function moment(key) {
  const time = /#(?:(\d{1,3}):)?([0-5]\d):([0-5]\d\.\d)$/.exec(key);
  return time && 3600 * Number(time[1] ?? 0) + 60 * Number(time[2]) + Number(time[3]);
}

// The file of a photo; of a frame, the film at that moment.
export const original = (key) => `/api/original?${new URLSearchParams({ key })}${moment(key) === null ? "" : `#t=${moment(key)}`}`;
export const repeats = (top) => json(`/api/repeats?${new URLSearchParams({ top })}`);
export const sets = () => json("/api/sets");
export const set = (name) => json(`/api/set?${new URLSearchParams({ name })}`);
export const news = (name) => json(`/api/set/news?${new URLSearchParams({ name })}`);
export const changeSet = (change) => json("/api/set", sent(change));
export const setDownload = (kind, name) => `/api/set.${kind}?${new URLSearchParams({ name })}`;
export const building = () => json("/api/building");
export const update = () => json("/api/update", { method: "POST" });
export const collection = () => json("/api/collection");
export const info = () => json("/api/info");
export const folders = () => json("/api/folders");

export function photos(folder, contains, start, count, signal) {
  return json(`/api/photos?${new URLSearchParams({ folder, contains, start, count })}`, { signal });
}

export function picture(source, side, { box = null, version = null } = {}) {
  const words = new URLSearchParams();
  if (source.key != null) words.set("key", source.key);
  else words.set("upload", source.upload);
  if (box) words.set("box", box.map((corner) => corner.toFixed(1)).join(","));
  words.set("side", side);
  if (version ?? source.upload) words.set("version", version ?? source.upload);
  return `/api/picture?${words}`;
}

export function download(kind, state, top) {
  const words = new URLSearchParams();
  for (const view of state.views) words.append("q", viewText(view));
  for (const view of state.negatives) words.append("negatives", viewText(view));
  words.set("method", state.method);
  words.set("top", top);
  for (const [name, value] of Object.entries(within(state))) words.set(name, value);
  return `/api/search${kind === "json" ? "" : `.${kind}`}?${words}`;
}
