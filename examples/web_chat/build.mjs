// Build the page: node build.mjs REPOSITORY FOLDER, with esbuild and the page's packages from REPOSITORY/build/node.

import { copyFile, mkdir, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

const [repository, folder] = process.argv.slice(2);
const tools = join(repository, "build", "node");
const page = join(repository, "examples", "web_chat", "page");
const web = join(repository, "runtime", "web");
const { build } = createRequire(join(tools, "package.json"))("esbuild");

await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
const workers = ["checking_worker.js", "hashing_worker.js"].map((name) => join(web, "shaderloom", name));
await build({
  entryPoints: [join(page, "app.js"), join(page, "words_worker.js"), ...workers],
  outdir: folder, entryNames: "[name]", bundle: true, splitting: true, format: "esm", target: "es2022", minify: true,
  alias: { "@shaderloom/runtime": join(web, "shaderloom.js"), "@shaderloom/runtime/generate": join(web, "generate.js") },
  nodePaths: [join(tools, "node_modules")], legalComments: "eof", logLevel: "warning",
});
for (const name of ["index.html", "style.css"]) await copyFile(join(page, name), join(folder, name));
