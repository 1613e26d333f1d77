// Makes src/api.d.ts of the daemon's OpenAPI document, so that the type check of the page fails
// where the page and the API differ.
//
//   curl --unix-socket /run/strake/api.sock http://strake/openapi.json | node types.mjs
//
// It knows what the document has: objects, lists, maps, references, unions, and plain types.

import { pathToFileURL } from "node:url";

const reference = (ref) => ref.split("/").pop();

function type(schema, depth) {
  if (schema === true || schema === undefined) return "unknown";
  if (schema.$ref) return reference(schema.$ref);
  const union = schema.anyOf ?? schema.oneOf;
  if (union) return union.map((one) => type(one, depth)).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.type)) {
    return schema.type.map((name) => type({ ...schema, type: name }, depth)).join(" | ");
  }
  switch (schema.type) {
    case "string":
    case "boolean":
    case "null":
      return schema.type;
    case "integer":
    case "number":
      return "number";
    case "array": {
      const items = type(schema.items, depth);
      return items.includes("|") ? `(${items})[]` : `${items}[]`;
    }
    case "object":
      if (schema.properties) return object(schema, depth);
      return `Record<string, ${type(schema.additionalProperties, depth)}>`;
    default:
      return "unknown";
  }
}

function object(schema, depth = 0) {
  const indent = "  ".repeat(depth + 1);
  const required = new Set(schema.required ?? []);
  const lines = Object.entries(schema.properties).map(([name, property]) => {
    const mark = required.has(name) ? "" : "?";
    return `${indent}${name}${mark}: ${type(property, depth + 1)};`;
  });
  return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
}

export function types(document) {
  const schemas = Object.entries(document.components.schemas).sort(([a], [b]) => (a < b ? -1 : 1));
  const all = schemas.map(([name, schema]) =>
    schema.properties
      ? `export interface ${name} ${object(schema)}`
      : `export type ${name} = ${type(schema, 0)};`,
  );
  return `// Made by types.mjs of the daemon's OpenAPI document.\n\n${all.join("\n\n")}\n`;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  let text = "";
  for await (const part of process.stdin) text += part;
  process.stdout.write(types(JSON.parse(text)));
}
