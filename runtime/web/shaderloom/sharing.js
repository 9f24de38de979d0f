// What sessions on one device share: pipelines by their shader, and weights by their content.

import { deferred } from "./errors.js";

/** What sessions share. @typedef {ReturnType<typeof newShared>} SharedDevice */

/** Pipelines, layouts and weights on a device, for as long as a session has it. @param {GPUDevice} device */
function newShared(device) {
  /** By accesses and hash of the shader. @type {Map<string, Promise<GPUComputePipeline>>} */
  const pipelines = new Map();
  /** By accesses. @type {Map<string, GPUBindGroupLayout>} */
  const layouts = new Map();
  /** Complete ones by content. @type {Map<string, { buffer: GPUBuffer, users: number }>} */
  const weights = new Map();
  /** Weights that a session uploads, and the end of that. @type {Map<string, Promise<void>>} */
  const uploads = new Map();
  let users = 0;

  const join = () => void users++;

  /** Forget what is shared once nobody uses it. */
  function leave() {
    users--;
    if (!users) sharedDevices.delete(device);
  }

  /** Wait until no other session uploads any of these weights, then announce the upload of those that are missing.
   *  Return the function to call at its end. @param {string[]} contents */
  async function announce(contents) {
    for (;;) {
      const pending = contents.flatMap((content) => uploads.get(content) ?? []);
      if (!pending.length) break;
      await Promise.all(pending);
    }
    const missing = contents.filter((content) => !weights.has(content));
    const [ended, end] = deferred();
    for (const content of missing) uploads.set(content, ended);
    return () => {
      for (const content of missing) uploads.delete(content);
      end();
    };
  }

  /** Return the buffer with a content and the function that gives it back; it is destroyed after its last user.
   *  @param {string} content @param {GPUBuffer} [complete] the caller's, which is shared from now on */
  function weight(content, complete) {
    const weight = weights.get(content) ?? (complete && { buffer: complete, users: 0 });
    if (!weight) return undefined;
    weights.set(content, weight);
    weight.users++;
    const release = () => {
      weight.users--;
      if (weight.users) return;
      weight.buffer.destroy();
      weights.delete(content);
    };
    return { buffer: weight.buffer, release };
  }

  return { pipelines, layouts, join, leave, announce, weight };
}

/** Return what is shared on a device, with one more user. @param {GPUDevice} device */
export function sharedOn(device) {
  const shared = sharedDevices.get(device) ?? newShared(device);
  sharedDevices.set(device, shared);
  shared.join();
  return shared;
}

/** @type {WeakMap<GPUDevice, SharedDevice>} */
const sharedDevices = new WeakMap();
