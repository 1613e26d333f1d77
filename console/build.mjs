// Builds the page into a folder: node build.mjs [dist]
//
// The same sources and packages give the same bytes: `cargo xtask console --check` relies on it.

import { build, transform } from "esbuild";
import postcss from "postcss";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
process.chdir(here);
const out = path.resolve(process.argv[2] ?? "dist");

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });

/**
 * Imports from PatternFly's packages become imports of the one module that has the component, so
 * that style sheets of other components stay out.
 */
const onlyWhatIsUsed = {
  name: "only-what-is-used",
  async setup(build) {
    const modules = {};
    for (const name of ["@patternfly/react-core", "@patternfly/react-table"]) {
      const table = path.join("node_modules", name, "dist/dynamic-modules.json");
      modules[name] = JSON.parse(await readFile(table, "utf8"));
    }
    const imports = /import \{([^}]*)\} from "(@patternfly\/react-(?:core|table))";/g;
    build.onLoad({ filter: /\/src\/.*\.tsx$/ }, async ({ path: file }) => ({
      loader: "tsx",
      contents: (await readFile(file, "utf8")).replace(imports, (_, names, name) =>
        names
          .split(",")
          .map((one) => one.trim())
          .filter(Boolean)
          .map((one) => {
            const module = modules[name][one].replace("dist/dynamic", "dist/esm");
            return `import { ${one} } from "${name}/${module}";`;
          })
          .join(" "),
      ),
    }));
  },
};

const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: { strake: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022", "chrome109", "firefox115", "safari16"],
  jsx: "automatic",
  outdir: out,
  metafile: true,
  legalComments: "none",
  charset: "utf8",
  define: { "process.env.NODE_ENV": '"production"' },
  loader: { ".woff2": "empty", ".woff": "empty", ".ttf": "empty", ".png": "empty", ".svg": "empty" },
  logLevel: "warning",
  plugins: [onlyWhatIsUsed],
});

// Rules for classes that the page does not have, other themes than light and dark, and custom
// properties that nothing reads go; so do fonts, since the page has those of the reader's system.
const css = path.join(out, "strake.css");
const script = await readFile(path.join(out, "strake.js"), "utf8");
const words = new Set(script.match(/[\w-]+/g));
const OTHER_THEMES = /pf-v6-theme-(high-contrast|felt|glass|redhat)/;

/** What a selector says outside of the parentheses of `:not()`, `:is()` and the like. */
function outside(selector) {
  let depth = 0;
  let text = "";
  for (const sign of selector) {
    if (sign === "(") depth += 1;
    if (depth === 0) text += sign;
    if (sign === ")") depth -= 1;
  }
  return text;
}

function isUsed(selector) {
  if (OTHER_THEMES.test(selector) && !/:not\(/.test(selector)) return false;
  const classes = outside(selector).match(/\.[a-zA-Z_][\w-]*/g) ?? [];
  return classes.every((name) => words.has(name.slice(1)));
}

const sheet = postcss.parse(await readFile(css, "utf8"));
sheet.walkAtRules("font-face", (rule) => rule.remove());
sheet.walkRules((rule) => {
  if (rule.parent.type === "atrule" && /keyframes$/.test(rule.parent.name)) return;
  const used = rule.selectors.filter(isUsed);
  if (used.length === 0) rule.remove();
  else rule.selectors = used;
});
for (let before = 0, now = 1; before !== now; ) {
  before = now;
  const read = new Set(sheet.toString().match(/(?<=var\(\s*)--[\w-]+/g));
  now = 0;
  sheet.walkDecls(/^--/, (declaration) => {
    if (read.has(declaration.prop) || words.has(declaration.prop)) now += 1;
    else declaration.remove();
  });
}
sheet.walkRules((rule) => {
  if (rule.nodes.length === 0) rule.remove();
});
sheet.walkAtRules((rule) => {
  if (rule.nodes?.length === 0) rule.remove();
});
const text = sheet.toString();
await writeFile(css, (await transform(text, { loader: "css", minify: true })).code);

await cp("static", out, { recursive: true });

// Licences of what is in the bundle.
const packages = new Set();
for (const input of Object.keys(metafile.inputs)) {
  const name = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1];
  if (name) packages.add(name);
}
const texts = [];
for (const name of [...packages].sort()) {
  const folder = path.join("node_modules", name);
  const { version, license } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((one) => /^licen[cs]e/i.test(one));
  const own = file ? (await readFile(path.join(folder, file), "utf8")).trim() : "";
  texts.push(`${name} ${version} (${license})\n\n${own || `Licence: ${license}`}\n`);
}
await writeFile(path.join(out, "LICENSES.txt"), texts.join(`\n${"-".repeat(72)}\n\n`));
