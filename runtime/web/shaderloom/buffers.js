/** @import { Plan, TypedArray } from "../shaderloom.js" */
/** @import { Bounds } from "./shape_relations.js" */

import { ensure } from "./errors.js";
import { byteBounds, sizeBounds } from "./shape_relations.js";
import { bufferSize } from "./tensors.js";

/** Return the usage of a tensor's buffer. A function, because pages without WebGPU import this module, too. */
export const tensorUsage = () => GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;

/** The buffers of a session. @typedef {ReturnType<typeof buffersOn>} Buffers */

/** Hold the buffers of a session by name: weights, inputs, outputs, arenas, symbols. Plans share them.
 *  @param {GPUDevice} device @param {number} most bytes in all */
export function buffersOn(device, most) {
  let held = 0;
  /** @type {Map<string, GPUBuffer>} */
  const buffers = new Map();
  /** What gives back the buffers that other sessions share. @type {Map<string, () => void>} */
  const releases = new Map();
  /** What may be set: memory waits for the first plans, and a buffer that takes the place of a smaller one is told.
   *  @type {{ ready?: Promise<unknown>, onReplace(): void }} */
  const hooks = { onReplace() {} };

  /** Return the buffer of a name, or undefined. @param {string} name */
  const get = (name) => buffers.get(name);

  /** Make a buffer for `bytes` of content. @param {string} name @param {number} bytes @param {number} [usage]
   *  @throws {ShaderloomError} "device" for more than its limit, which may be more than WebGPU can be asked for */
  function create(name, bytes, usage = tensorUsage()) {
    const size = bufferSize(bytes);
    held = counted(name, size, held);
    const buffer = device.createBuffer({ size, usage, label: name.slice(0, 40) });
    buffers.set(name, buffer);
    return buffer;
  }

  /** Use a buffer under a name until `release` gives it back. @param {string} name
   *  @param {{ buffer: GPUBuffer, release: () => void }} shared @throws {ShaderloomError} "device" for more than it may have */
  function share(name, { buffer, release }) {
    if (buffers.get(name) !== buffer) {
      free(name);
      held = counted(name, buffer.size, held);
    }
    buffers.set(name, buffer);
    releases.set(name, release);
  }

  /** @param {string} name */
  const isShared = (name) => releases.has(name);

  /** Refuse a plan that takes more memory than there may be, whatever the sizes of a run.
   *  @param {Plan} plan @param {number} weights their bytes @throws {ShaderloomError} "device" */
  function requireRoom({ arenas, inputs, outputs, symbols }, weights) {
    const ranges = new Map(symbols.map(({ name, low, high }) => [name, /** @type {Bounds} */ ([low, high])]));
    for (const port of [...inputs, ...outputs]) counted(port.name, byteBounds(port, ranges)[0], 0);
    let total = weights;
    for (const [index, size] of arenas.entries()) total = counted(`arena:${index}`, sizeBounds(size, ranges)[0], total);
  }

  /** Return the bytes of a buffer and of those beside it. @param {string} name @param {number} size
   *  @param {number} beside @throws {ShaderloomError} "device" for more than there may be */
  function counted(name, size, beside) {
    const { maxBufferSize } = device.limits;
    ensure("device", size <= maxBufferSize, `'${name}' has ${size} bytes; a buffer of the device may have ${maxBufferSize}`);
    ensure("device", beside + size <= most, `'${name}' needs ${size} bytes beside ${beside}; maxDeviceBytes is ${most}`);
    return beside + size;
  }

  /** Return the buffer of a name, at least `bytes` large: a smaller one is replaced.
   *  @param {string} name @param {number} bytes @param {number} [usage] */
  function allocate(name, bytes, usage) {
    const present = buffers.get(name);
    if (present && present.size >= bufferSize(bytes)) return present;
    if (present) {
      free(name);
      hooks.onReplace();
    }
    return create(name, bytes, usage);
  }

  /** Return the buffer of a name once numbers are in it, each an int32, which kernels read as uniform.
   *  @param {string} name @param {Int32Array | number[]} numbers */
  function writeUniform(name, numbers) {
    const { UNIFORM, COPY_DST } = GPUBufferUsage;
    const buffer = allocate(name, 4 * numbers.length, UNIFORM | COPY_DST);
    writeArray(device, buffer, Int32Array.from(numbers));
    return buffer;
  }

  /** Destroy a buffer; submitted work completes. @param {string} name */
  function free(name) {
    const buffer = buffers.get(name);
    held -= buffer?.size ?? 0;
    buffer?.destroy();
    buffers.delete(name);
  }

  function destroy() {
    for (const [name, buffer] of buffers) (releases.get(name) ?? (() => buffer.destroy()))();
    buffers.clear();
  }

  return { hooks, get, create, share, isShared, requireRoom, allocate, writeUniform, free, destroy };
}

/** Write an array to the start of a buffer, filled up to whole words with zeros.
 *  @param {GPUDevice} device @param {GPUBuffer} buffer @param {TypedArray} data */
export function writeArray(device, buffer, data) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const words = bytes.length % 4 ? new Uint8Array(wholeWords(bytes.length)) : bytes;
  if (words !== bytes) words.set(bytes);
  device.queue.writeBuffer(buffer, 0, words);
}

/** @param {number} bytes */
const wholeWords = (bytes) => Math.ceil(bytes / 4) * 4;

/** Encode the copy of bytes, in whole words, from a buffer to another one. @param {GPUCommandEncoder} encoder
 *  @param {GPUBuffer} source @param {GPUBuffer} target @param {number} bytes @param {string} why @param {number} [offset]
 *  in the target @throws {ShaderloomError} "input" for a source, of the caller's, without the usage for it */
export function copyBuffer(encoder, source, target, bytes, why, offset = 0) {
  if (source === target || !bytes) return;
  ensure("input", source.usage & GPUBufferUsage.COPY_SRC, `${why}: its GPUBuffer lacks the usage COPY_SRC`);
  encoder.copyBufferToBuffer(source, 0, target, offset, wholeWords(bytes));
}
