// A worker that checks JSON which is too large for a page's own thread.

import { checkManifest } from "./manifest_relations.js";
import { checkPlan } from "./plan_relations.js";
import * as programs from "./programs.js";
import { parse, readJson, Refusal } from "./structure.js";

/** @param {MessageEvent<import("./checking.js").Question>} event */
globalThis.onmessage = ({ data: { manifest, plan } }) => {
  try {
    const read = plan ? parse(manifest) : readJson(manifest, "manifest");
    const needed = read.programs?.length ? programs : undefined;
    if (plan) checkPlan(readJson(plan.content, "plan"), read, plan.key, needed);
    else checkManifest(read, needed);
    postMessage({});
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    postMessage({ refusal: [error.rule, error.message, error.path] });
  }
};
