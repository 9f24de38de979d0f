// What sessions on one device share: pipelines by their shader, and weights by their content.

/** @import { Manifest } from "../shaderloom.js" */

import { deferred } from "./aborting.js";
import { CHUNK } from "./manifest_relations.js";

/** Pipelines, layouts and weights on a device, for as long as a session has it. */
export class SharedDevice {
  /** By accesses and hash of the shader. @type {Map<string, Promise<GPUComputePipeline>>} */
  pipelines = new Map();
  /** By accesses. @type {Map<string, GPUBindGroupLayout>} */
  layouts = new Map();
  /** Complete ones by content. @type {Map<string, { buffer: GPUBuffer, users: number }>} */
  #weights = new Map();
  /** Weights that a session uploads, and the end of that. @type {Map<string, Promise<void>>} */
  #pending = new Map();
  #users = 0;
  #device;

  /** @param {GPUDevice} device */
  constructor(device) {
    this.#device = device;
  }

  /** Return what is shared on a device, with one more user. @param {GPUDevice} device */
  static on(device) {
    const shared = sharedDevices.get(device) ?? new SharedDevice(device);
    sharedDevices.set(device, shared);
    shared.#users++;
    return shared;
  }

  /** Forget what is shared once nobody uses it. */
  leave() {
    this.#users--;
    if (!this.#users) sharedDevices.delete(this.#device);
  }

  /** Wait until no other session uploads any of these weights, then announce the upload of those that are missing.
   *  Return the function to call at its end. @param {string[]} contents */
  async announce(contents) {
    for (;;) {
      const pending = contents.flatMap((content) => this.#pending.get(content) ?? []);
      if (!pending.length) break;
      await Promise.all(pending);
    }
    const missing = contents.filter((content) => !this.#weights.has(content));
    const [ended, end] = deferred();
    for (const content of missing) this.#pending.set(content, ended);
    return () => {
      for (const content of missing) this.#pending.delete(content);
      end();
    };
  }

  /** Return the buffer with a content and the function that gives it back; it is destroyed after its last user.
   *  @param {string} content @param {GPUBuffer} [complete] the caller's, which is shared from now on */
  weight(content, complete) {
    const weight = this.#weights.get(content) ?? (complete && { buffer: complete, users: 0 });
    if (!weight) return undefined;
    this.#weights.set(content, weight);
    weight.users++;
    const release = () => {
      weight.users--;
      if (weight.users) return;
      weight.buffer.destroy();
      this.#weights.delete(content);
    };
    return { buffer: weight.buffer, release };
  }
}

/** @type {WeakMap<GPUDevice, SharedDevice>} */
const sharedDevices = new WeakMap();

/** Return a text for each weight's name in plans that says its bytes: the hashes of the chunks in which they are, and
 *  where they begin there. @param {Manifest} manifest @returns {Map<string, string>} */
export function contentsOf({ weights, files }) {
  return new Map(Object.entries(weights).map(([key, { parts }]) => [`weight:${key}`, parts.map(({ file, offset, length }) => {
    const first = Math.floor(offset / CHUNK);
    const hashes = files[file].sha256.slice(first, Math.ceil((offset + length) / CHUNK));
    return [offset % CHUNK, length, ...hashes].join();
  }).join(";")]));
}
