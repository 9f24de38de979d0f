// Build the npm package of the browser runner: node build.mjs REPOSITORY FOLDER, with esbuild to import from
// REPOSITORY/build/node.

import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const [repository, folder] = process.argv.slice(2);
const web = join(repository, "runtime", "web");
const { build } = createRequire(join(repository, "build", "node", "package.json"))("esbuild");

const entries = ["shaderloom.js", "generate.js"].map((name) => join(web, name));
const inner = (await readdir(join(web, "shaderloom"))).filter((name) => name.endsWith(".js"));
const BANNER = { js: "/*! Shaderloom, MIT licence: runs shader bundles with WebGPU */" };

/** Build one form of the runner. @param {import("esbuild").BuildOptions} options */
const form = (options) => build({
  entryPoints: [entries[0]], bundle: true, banner: BANNER, target: "es2022", logLevel: "warning", ...options,
});

/** Leaves types and descriptions out: the package's declarations have them.
 *  @type {import("esbuild").Plugin} */
const plain = {
  name: "plain",
  setup: ({ onLoad }) => onLoad({ filter: /\.js$/ }, async ({ path }) => {
    const code = (await readFile(path, "utf8")).replace(/\/\*\* (?:(?!\*\/).)*\*\/\s?|\/\*\*\n(?:(?!\*\/).)*\*\/\n/gs, "");
    return { contents: entries.includes(path) ? `${BANNER.js}\n${code}` : code };
  }),
};

/** Write a module without esbuild's marks of what has no effects, which bundlers see themselves.
 *  @param {import("esbuild").OutputFile} file */
async function withoutHints({ path, text }) {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text.replaceAll("/* @__PURE__ */ ", ""));
}

await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
// Beside each form, which starts them for large files.
const workers = ["checking_worker.js", "hashing_worker.js"].map((name) => join(web, "shaderloom", name));
await Promise.all([
  // For bundlers, which leave to later what a page may never need, such as programs and profiles: the modules as they are.
  form({
    entryPoints: [...entries, ...inner.map((name) => join(web, "shaderloom", name))], outdir: join(folder, "modules"),
    tsconfigRaw: {}, // whose "strict" would write "use strict"
    bundle: false, banner: {}, plugins: [plain], write: false,
  }).then(({ outputFiles = [] }) => Promise.all(outputFiles.map(withoutHints))),
  // For pages without a build: one file, as a module or with the global `shaderloom`.
  form({ outfile: join(folder, "shaderloom.min.js"), format: "esm", minify: true, sourcemap: true }),
  form({
    outfile: join(folder, "shaderloom.global.js"), format: "iife", globalName: "shaderloom", minify: true, sourcemap: true,
    banner: { js: `${BANNER.js}\nvar shaderloomScript = globalThis.document?.currentScript?.src ?? globalThis.location?.href;` },
    define: { "import.meta.url": "shaderloomScript" },
  }),
  form({ entryPoints: workers, outdir: folder, format: "esm", minify: true }),
]);

const version = /__version__ = "(.+)"/.exec(await readFile(join(repository, "shaderloom", "version.py"), "utf8"))?.[1];
const described = JSON.parse(await readFile(join(repository, "tools", "npm", "package.json"), "utf8"));
await writeFile(join(folder, "package.json"), `${JSON.stringify({ ...described, version }, null, 2)}\n`);
await copyFile(join(repository, "tools", "npm", "README.md"), join(folder, "README.md"));
await copyFile(join(repository, "LICENSE"), join(folder, "LICENSE"));
for (const name of ["shaderloom.d.ts", "generate.d.ts"]) await copyFile(join(web, name), join(folder, name));
