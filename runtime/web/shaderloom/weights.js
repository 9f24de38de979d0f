// Weights on a device, and what else the sessions there share: pipelines by their shader, weights by their content.

/** @import { Manifest } from "../shaderloom.js" */
/** @import { Attachment } from "./session.js" */
/** @import { Buffers } from "./buffers.js" */

import { deferred } from "./errors.js";
import { CHUNK } from "./manifest_relations.js";

/** A range of a weights' file, and its offset in the buffer of a weight.
 *  @typedef {{ name: string, bytes: number, target: number, begin: number, end: number }} Part */

/** Return the bytes of all weights. @param {Manifest} manifest */
export const totalBytes = ({ weights }) => Object.values(weights).reduce((sum, { bytes }) => sum + bytes, 0);

/**
 * Upload the weights of a bundle into buffers named "weight:KEY", chunk by chunk; those that another session has on the
 * device are shared. A buffer is made when its first bytes have come and their hash is right, so a manifest alone takes
 * no memory.
 *
 * @param {Attachment} on @throws {ShaderloomError} "bundle" for files that are damaged, or as the guard does
 */
export async function uploadWeights(on) {
  const { files, guard, buffers, shared } = on;
  const contents = contentsOf(files.manifest);
  const end = await shared.announce([...contents.values()]);
  /** @param {boolean} complete whether all weights are there */
  const share = (complete) => {
    for (const [name, content] of contents) {
      const weight = !buffers.isShared(name) && shared.weight(content, complete ? buffers.get(name) : undefined);
      if (weight) buffers.share(name, weight);
    }
  };
  try {
    guard.check();
    share(false);
    await uploadMissing(on);
    share(true);
  } finally {
    end();
  }
}

/** @param {Attachment} on */
async function uploadMissing({ files, guard, buffers, onProgress }) {
  const { queue } = guard.device;
  const missing = partsOf(files.manifest, buffers);
  const total = totalBytes(files.manifest);
  let done = total - [...missing.values()].flat().reduce((sum, { begin, end }) => sum + end - begin, 0);
  for (const [file, parts] of missing) {
    const report = () => onProgress({ what: "weights", done, total, awaits: file });
    report();
    await files.stream(file, async (chunk, offset) => {
      await buffers.hooks.ready;
      await guard.watch("uploading the weights", async () => {
        for (const { name, bytes, target, begin, end } of parts) {
          const first = Math.max(begin, offset);
          const last = Math.min(end, offset + chunk.length);
          if (first >= last) continue;
          const buffer = buffers.get(name) ?? buffers.create(name, bytes);
          queue.writeBuffer(buffer, target + first - begin, chunk, first - offset, last - first);
          done += last - first;
        }
      });
      await queue.onSubmittedWorkDone(); // so that no more than a chunk waits in the browser's memory
      report();
    });
  }
  guard.check();
}

/** Return the parts of weights that are not there by their files. @param {Manifest} manifest @param {Buffers} buffers
 *  @returns {Map<string, Part[]>} */
function partsOf(manifest, buffers) {
  /** @type {Map<string, Part[]>} */
  const byFile = new Map();
  for (const [key, { bytes, parts }] of Object.entries(manifest.weights)) {
    const name = `weight:${key}`;
    let target = 0;
    for (const { file, offset, length } of buffers.get(name) ? [] : parts) {
      const ranges = byFile.get(file) ?? [];
      ranges.push({ name, bytes, target, begin: offset, end: offset + length });
      byFile.set(file, ranges);
      target += length;
    }
  }
  return byFile;
}

/** Return a text for each weight's name in plans that says its bytes: the hashes of the chunks in which they are, and
 *  where they begin there. @param {Manifest} manifest @returns {Map<string, string>} */
function contentsOf({ weights, files }) {
  return new Map(Object.entries(weights).map(([key, { parts }]) => [`weight:${key}`, parts.map(({ file, offset, length }) => {
    const first = Math.floor(offset / CHUNK);
    const hashes = files[file].sha256.slice(first, Math.ceil((offset + length) / CHUNK));
    return [offset % CHUNK, length, ...hashes].join();
  }).join(";")]));
}

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
