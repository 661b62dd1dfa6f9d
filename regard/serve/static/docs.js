// The API for people to read: what /openapi.json says, as text.

import { element } from "./look/dom.js";
import { get } from "./api.js";

const host = document.getElementById("docs");

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" | ");
  if (schema.type === "array") return `[${schema.items ? typeOf(schema.items) : ""}]`;
  return schema.type ?? "any";
}

function fields(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const first = field.default === undefined ? "" : JSON.stringify(field.default);
    const cells = [name, typeOf(field), first, field.description ?? ""];
    return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
  });
  const head = ["field", "type", "default", ""].map((text) => element("th", { scope: "col" }, text));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

async function open() {
  const said = await get("/openapi.json");
  const parts = [element("h1", {}, `${said.info.title} ${said.info.version}`), element("p", {}, said.info.summary)];
  for (const [path, methods] of Object.entries(said.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      parts.push(element("h2", {}, `${method.toUpperCase()} ${path}`), element("p", {}, route.description ?? ""));
      const body = route.requestBody?.content["application/json"].schema.$ref?.split("/").pop();
      if (body) parts.push(fields(said.components.schemas[body]));
    }
  }
  host.replaceChildren(...parts);
}

open().catch((error) => host.replaceChildren(element("p", { class: "st-wrong", role: "alert" }, error.message)));
