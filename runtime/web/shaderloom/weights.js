/** @import { Manifest, Progress } from "../shaderloom.js" */
/** @import { Buffers } from "./buffers.js" */
/** @import { BundleFiles } from "./files.js" */
/** @import { DeviceGuard } from "./guard.js" */

import { ShaderloomError } from "./errors.js";

/** A range of a weights' file, and its offset in a buffer.
 *  @typedef {{ buffer: GPUBuffer, target: number, begin: number, end: number }} Part */

/**
 * Upload the weights of a bundle into buffers named "weight:KEY", chunk by chunk.
 *
 * @param {BundleFiles} files @param {DeviceGuard} guard @param {Buffers} buffers
 * @param {(progress: Progress) => void} onProgress
 * @throws {ShaderloomError} "bundle" for files that do not hold the weights, or as the guard does
 */
export async function uploadWeights(files, guard, buffers, onProgress) {
  const parts = await guard.watch("allocating the weights", async () => allocate(files.manifest, buffers));
  const { queue } = guard.device;
  const total = Object.values(files.manifest.weights).reduce((sum, { bytes }) => sum + bytes, 0);
  let done = 0;
  onProgress({ stage: "weights", done, total });
  for (const [file, ranges] of parts) {
    await files.stream(file, async (chunk, offset) => {
      guard.check();
      for (const { buffer, target, begin, end } of ranges) {
        const first = Math.max(begin, offset);
        const last = Math.min(end, offset + chunk.length);
        if (first >= last) continue;
        queue.writeBuffer(buffer, target + first - begin, chunk, first - offset, last - first);
        done += last - first;
      }
      await queue.onSubmittedWorkDone(); // so that no more than a chunk waits in the browser's memory
      onProgress({ stage: "weights", done, total });
    });
  }
  guard.check();
  if (done !== total) {
    throw new ShaderloomError("bundle", `the weights' files hold ${done} bytes of weights instead of ${total}`);
  }
}

/** Make the buffers of all weights, and return what to write into them by file.
 *  @param {Manifest} manifest @param {Buffers} buffers @returns {Map<string, Part[]>} */
function allocate(manifest, buffers) {
  /** @type {Map<string, Part[]>} */
  const parts = new Map();
  for (const [key, weight] of Object.entries(manifest.weights)) {
    const buffer = buffers.create(`weight:${key}`, weight.bytes);
    let target = 0;
    for (const { file, offset, length } of weight.parts) {
      const ranges = parts.get(file) ?? [];
      ranges.push({ buffer, target, begin: offset, end: offset + length });
      parts.set(file, ranges);
      target += length;
    }
    if (target !== weight.bytes) {
      throw new ShaderloomError("bundle", `the parts of weight ${key} are not ${weight.bytes} bytes`);
    }
  }
  return parts;
}
