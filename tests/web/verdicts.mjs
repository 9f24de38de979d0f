// The verdicts of the JavaScript runner on manifests and plans: a JSON line {manifest, plan, key, own} on standard input,
// with files in base64 and, for a further model, the bundle's manifest; a line {rule, path} on standard output. The rule is
// null where all is well, and "foreign" for an error of another kind; milliseconds are of processor time. For a line {wgsl}
// it is {excess}: by what a shader is beyond the guard's bounds, or "". tests/support/verdicts.py asks.

import { createInterface } from "node:readline";
import { ShaderloomError } from "../../runtime/web/shaderloom/errors.js";
import { requireBounded } from "../../runtime/web/shaderloom/expansion.js";
import { checkFurther, checkManifest } from "../../runtime/web/shaderloom/manifest_relations.js";
import { checkPlan } from "../../runtime/web/shaderloom/plan_relations.js";
import * as programs from "../../runtime/web/shaderloom/programs.js";
import { readJson, Refusal } from "../../runtime/web/shaderloom/structure.js";

const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));

function verdict({ manifest, plan, key, own }) {
  let file = "manifest";
  try {
    const read = readJson(bytes(manifest), "manifest");
    const needed = read.programs?.length ? programs : undefined;
    checkManifest(read, needed);
    if (own) checkFurther(read, own);
    if (plan === null) return { rule: null, path: [] };
    file = "plan";
    checkPlan(readJson(bytes(plan), "plan"), read, key, needed);
    return { rule: null, path: [] };
  } catch (error) {
    if (error instanceof Refusal) return { rule: error.rule, path: [file, ...error.path] };
    return { rule: "foreign", path: [file, String(error?.stack)] };
  }
}

function excessOf(wgsl) {
  try {
    requireBounded(wgsl, "it");
    return "";
  } catch (error) {
    return error instanceof ShaderloomError && error.kind === "bundle" ? error.message.slice(3) : String(error?.stack);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  const before = process.cpuUsage();
  const answer = "wgsl" in question ? { excess: excessOf(question.wgsl) } : verdict(question);
  const { user, system } = process.cpuUsage(before);
  console.log(JSON.stringify({ ...answer, milliseconds: (user + system) / 1000 }));
}
