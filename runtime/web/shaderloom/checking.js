/** @import { Manifest, Plan } from "../shaderloom.js" */

import { checkManifest } from "./manifest_relations.js";
import { checkPlan } from "./plan_relations.js";
import { parse, readJson, Refusal } from "./structure.js";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes @typedef {typeof import("./programs.js")} Programs */

/**
 * The bytes of a manifest that is to be checked, or was, and of a plan that is.
 *
 * @typedef {{ manifest: Bytes, plan?: { content: Bytes, key: string } }} Question
 * @typedef {{ refusal?: [rule: string, reason: string, path: (string | number)[]] }} Answer
 */

/** Bytes that a page's own thread hashes, or checks as JSON, in some milliseconds. */
export const MOST_HERE = 2 ** 20;

/** Return the manifest in bytes once it is right, and what runs its programs. @param {Bytes} content @param {string} [file]
 *  @param {(manifest: Manifest) => void} [check] what else must be right
 *  @returns {Promise<{ manifest: Manifest, programs?: Programs, content: Bytes }>} @throws {import("./errors.js").ShaderloomError} "bundle" */
export async function readManifest(content, file = "manifest.json", check = undefined) {
  return reported(file, async () => {
    const isChecked = await isCheckedElsewhere(content, { manifest: content });
    const manifest = isChecked ? parse(content) : readJson(content, "manifest");
    const programs = manifest.programs?.length ? await import("./programs.js") : undefined;
    if (!isChecked) checkManifest(manifest, programs);
    check?.(manifest);
    return { manifest, programs, content };
  });
}

/** Return the plan in bytes once it is right. @param {string} file @param {Bytes} content @param {string} key
 *  @param {{ manifest: Manifest, content: Bytes, programs?: Programs }} bundle @returns {Promise<Plan>}
 *  @throws {import("./errors.js").ShaderloomError} "bundle" */
export async function readPlan(file, content, key, bundle) {
  return reported(file, async () => {
    if (await isCheckedElsewhere(content, { manifest: bundle.content, plan: { content, key } })) return parse(content);
    const plan = readJson(content, "plan");
    checkPlan(plan, bundle.manifest, key, bundle.programs);
    return plan;
  });
}

/** Return what `read` gives; a refusal is the error of the file. @template T @param {string} file
 *  @param {() => Promise<T>} read @throws {import("./errors.js").ShaderloomError} "bundle" */
async function reported(file, read) {
  try {
    return await read();
  } catch (error) {
    throw error instanceof Refusal ? error.of(file) : error;
  }
}

/** Return whether a worker found a large content right; false, too, where none runs: in pages without its file, and by
 *  policies that forbid it. @param {Bytes} content @param {Question} question @throws {Refusal} for what is not right */
async function isCheckedElsewhere(content, question) {
  if (content.length <= MOST_HERE || typeof Worker === "undefined") return false;
  /** @type {Worker | undefined} */
  let worker;
  const answer = await /** @type {Promise<Answer | undefined>} */ (new Promise((resolve) => {
    try {
      worker = new Worker(new URL("./checking_worker.js", import.meta.url), { type: "module" });
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = () => resolve(undefined);
      worker.postMessage(question);
    } catch {
      resolve(undefined);
    }
  }));
  worker?.terminate();
  if (answer?.refusal) throw new Refusal(...answer.refusal);
  return Boolean(answer);
}
