/** @import { Plan, TypedArray } from "../shaderloom.js" */
/** @import { Bounds } from "./shape_relations.js" */

import { ensure } from "./errors.js";
import { byteBounds, sizeBounds } from "./shape_relations.js";
import { bufferSize } from "./sizes.js";

/** Return the usage of a tensor's buffer. A function, because pages without WebGPU import this module, too. */
export const tensorUsage = () => GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;

/** Hold the buffers of a session by name: weights, inputs, outputs, arenas, symbols. Plans share them. */
export class Buffers {
  #device;
  #most;
  #total = 0;
  /** @type {Map<string, GPUBuffer>} */
  #buffers = new Map();
  /** What gives back the buffers that other sessions share. @type {Map<string, () => void>} */
  #releases = new Map();
  /** Memory waits for the first plans. @type {Promise<unknown> | undefined} */
  ready;
  /** Called when a buffer takes the place of a smaller one. */
  onReplace = () => {};

  /** @param {GPUDevice} device @param {number} most bytes in all */
  constructor(device, most) {
    this.#device = device;
    this.#most = most;
  }

  /** Return the buffer of a name, or undefined. @param {string} name */
  get(name) {
    return this.#buffers.get(name);
  }

  /** Make a buffer for `bytes` of content. @param {string} name @param {number} bytes @param {number} [usage]
   *  @throws {ShaderloomError} "device" for more than its limit, which may be more than WebGPU can be asked for */
  create(name, bytes, usage = tensorUsage()) {
    const size = bufferSize(bytes);
    this.#total = this.#with(name, size, this.#total);
    const buffer = this.#device.createBuffer({ size, usage, label: name.slice(0, 40) });
    this.#buffers.set(name, buffer);
    return buffer;
  }

  /** Use a buffer under a name until `release` gives it back. @param {string} name
   *  @param {{ buffer: GPUBuffer, release: () => void }} shared @throws {ShaderloomError} "device" for more than it may have */
  share(name, { buffer, release }) {
    if (this.#buffers.get(name) !== buffer) {
      this.free(name);
      this.#total = this.#with(name, buffer.size, this.#total);
    }
    this.#buffers.set(name, buffer);
    this.#releases.set(name, release);
  }

  /** @param {string} name */
  isShared(name) {
    return this.#releases.has(name);
  }

  /** Refuse a plan that takes more memory than there may be, whatever the sizes of a run.
   *  @param {Plan} plan @param {number} weights their bytes @throws {ShaderloomError} "device" */
  requireRoom({ arenas, inputs, outputs, symbols }, weights) {
    const ranges = new Map(symbols.map(({ name, low, high }) => [name, /** @type {Bounds} */ ([low, high])]));
    for (const port of [...inputs, ...outputs]) this.#with(port.name, byteBounds(port, ranges)[0], 0);
    let total = weights;
    for (const [index, size] of arenas.entries()) total = this.#with(`arena:${index}`, sizeBounds(size, ranges)[0], total);
  }

  /** Return the bytes of a buffer and of those beside it. @param {string} name @param {number} size
   *  @param {number} beside @throws {ShaderloomError} "device" for more than there may be */
  #with(name, size, beside) {
    const { maxBufferSize } = this.#device.limits;
    ensure("device", size <= maxBufferSize, `'${name}' has ${size} bytes; a buffer of the device may have ${maxBufferSize}`);
    const fits = beside + size <= this.#most;
    ensure("device", fits, `'${name}' needs ${size} bytes beside ${beside}; maxDeviceBytes is ${this.#most}`);
    return beside + size;
  }

  /** Return the buffer of a name, at least `bytes` large: a smaller one is replaced.
   *  @param {string} name @param {number} bytes @param {number} [usage] */
  allocate(name, bytes, usage) {
    const present = this.#buffers.get(name);
    if (present && present.size >= bufferSize(bytes)) return present;
    if (present) {
      this.free(name);
      this.onReplace();
    }
    return this.create(name, bytes, usage);
  }

  /** Return the buffer of a name once numbers are in it, each an int32, which kernels read as uniform.
   *  @param {string} name @param {Int32Array | number[]} numbers */
  writeUniform(name, numbers) {
    const { UNIFORM, COPY_DST } = GPUBufferUsage;
    const buffer = this.allocate(name, 4 * numbers.length, UNIFORM | COPY_DST);
    writeArray(this.#device, buffer, Int32Array.from(numbers));
    return buffer;
  }

  /** Destroy a buffer; submitted work completes. @param {string} name */
  free(name) {
    const buffer = this.#buffers.get(name);
    this.#total -= buffer?.size ?? 0;
    buffer?.destroy();
    this.#buffers.delete(name);
  }

  destroy() {
    for (const [name, buffer] of this.#buffers) (this.#releases.get(name) ?? (() => buffer.destroy()))();
    this.#buffers.clear();
  }
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
