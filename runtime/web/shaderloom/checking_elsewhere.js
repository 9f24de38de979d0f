// Checks of JSON that is too large for a page's own thread, by a worker: loaded where there is some.

import { Refusal } from "./structure.js";

/**
 * The bytes of a manifest that is to be checked, or was, and of a plan that is.
 *
 * @typedef {Uint8Array<ArrayBuffer>} Bytes
 * @typedef {{ manifest: Bytes, plan?: { content: Bytes, key: string } }} Question
 * @typedef {{ refusal?: { rule: string, reason: string, path: (string | number)[] }, fault?: string }} Answer
 */

/** Return whether a worker found a content right; false, too, where none runs: in pages without its file, and by policies
 *  that forbid it. @param {Question} question @throws {Refusal} for what is not right */
export async function isRight(question) {
  /** @type {Worker | undefined} */
  let worker;
  /** @type {Answer} */
  const answer = await new Promise((resolve) => {
    try {
      worker = new Worker(new URL("./checking_worker.js", import.meta.url), { type: "module" });
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = () => resolve({ fault: "it did not start" });
      worker.postMessage(question);
    } catch (error) {
      resolve({ fault: String(error) });
    }
  });
  worker?.terminate();
  if (answer.refusal) throw new Refusal(answer.refusal.rule, answer.refusal.reason, answer.refusal.path);
  return answer.fault === undefined;
}
