// What /openapi.json says of the service, for people: each address, what it takes and what it answers.

import { byId, h } from "./dom.js";

const main = byId("main");
const ORDER = ["search", "browse", "sets", "service"];

try {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`The service answered ${answer.status}.`);
  show(await answer.json());
} catch (error) {
  main.replaceChildren(h("p", {}, error.message));
}

function show(api) {
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, ...operation, tag: operation.tags?.[0] ?? "service" })));
  const tags = [...new Set([...ORDER, ...operations.map((one) => one.tag)])].filter((tag) => operations.some((one) => one.tag === tag));
  const seen = new Set();
  main.replaceChildren(
    h("h1", {}, `${api.info.title} ${api.info.version}`),
    h("p", { class: "lead" }, api.info.description),
    h("p", { class: "quiet" }, "Every error is {\"error\": \"one sentence\"}. In Python, manifind.Client asks these addresses."),
    ...tags.flatMap((tag) => [
      h("h2", {}, tag[0].toUpperCase() + tag.slice(1)),
      ...operations.filter((one) => one.tag === tag).map((one) => operation(one, api, seen))]),
    h("h2", {}, "What is sent and answered"),
    ...shapes(api, seen));
}

function operation(one, api, seen) {
  const body = Object.entries(one.requestBody?.content ?? {});
  const answer = Object.entries(one.responses?.["200"]?.content ?? {});
  return h("details", { class: "operation", id: one.operationId },
    h("summary", {}, h("code", { class: `method ${one.method}` }, one.method.toUpperCase()), " ", h("code", {}, one.path),
      h("span", {}, one.description ?? one.summary ?? "")),
    one.parameters?.length
      ? h("table", {}, h("thead", {}, h("tr", {}, ["Parameter", "Type", "Meaning"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, one.parameters.map((parameter) => h("tr", {},
          h("td", {}, h("code", {}, parameter.name), parameter.required ? " (needed)" : ""),
          h("td", {}, typed(parameter.schema, seen)), h("td", {}, parameter.description ?? "")))))
      : null,
    body.length ? h("p", {}, "Takes ", list(body, seen), one.requestBody.description ? `. ${one.requestBody.description}` : null) : null,
    answer.length ? h("p", {}, "Answers ", list(answer, seen)) : null);
}

function list(contents, seen) {
  return contents.flatMap(([kind, { schema }], at) => [at ? ", " : null, h("code", {}, kind), ...(schema ? [" ", typed(schema, seen)] : [])]);
}

// A type in words; what has a name leads to where it is described.
function typed(schema, seen) {
  if (!schema) return "anything";
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    seen.add(name);
    return h("a", { href: `#shape-${name}` }, name);
  }
  const parts = schema.anyOf ?? schema.oneOf;
  if (parts) return h("span", {}, parts.flatMap((part, at) => [at ? " or " : null, typed(part, seen)]));
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return h("span", {}, "list of ", typed(schema.items, seen));
  const limits = [
    schema.minimum !== undefined ? `from ${schema.minimum}` : null, schema.maximum !== undefined ? `to ${schema.maximum}` : null,
    schema.default !== undefined && schema.default !== null ? `${JSON.stringify(schema.default)} by default` : null].filter(Boolean).join(" ");
  return `${schema.format === "binary" ? "bytes" : schema.type ?? "anything"}${limits ? `, ${limits}` : ""}`;
}

// All that is named, and all that those name in turn.
function shapes(api, seen) {
  const made = new Map();
  for (let name; (name = [...seen].find((one) => !made.has(one))); ) {
    const schema = api.components.schemas[name] ?? {};
    const needed = new Set(schema.required ?? []);
    made.set(name, h("section", { id: `shape-${name}`, class: "shape" },
      h("h3", {}, name),
      schema.description ? h("p", { class: "quiet" }, schema.description) : null,
      h("table", {}, h("thead", {}, h("tr", {}, ["Field", "Type", "Meaning"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, Object.entries(schema.properties ?? {}).map(([property, value]) => h("tr", {},
        h("td", {}, h("code", {}, property), needed.has(property) ? "" : " (may be left out)"),
        h("td", {}, typed(value, seen)), h("td", {}, value.description ?? "")))))));
  }
  return [...made].sort(([a], [b]) => a.localeCompare(b)).map(([, element]) => element);
}
