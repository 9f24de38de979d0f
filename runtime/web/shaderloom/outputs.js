/** @import { CpuTensor, DataType, GpuTensor, Plan } from "../shaderloom.js" */
/** @import { Lookup } from "./calls.js" */
/** @import { DeviceGuard } from "./guard.js" */
/** @import { Symbols } from "./shapes.js" */

import { tensorUsage, writeArray } from "./buffers.js";
import { elementBytes, typedArray } from "./dtypes.js";
import { ShaderloomError } from "./errors.js";
import { isBuffer } from "./feeds.js";
import { bufferSize, elementCount, evaluate } from "./sizes.js";

/** @typedef {{ name: string, dtype: DataType, dims: number[], bytes: number }} Output */

/** Staging buffers that wait for the next run. */
const CACHED_STAGING = 4;

/** Return the outputs of a run, those of `names` or all. @param {Plan} plan @param {Symbols} symbols
 *  @param {readonly string[]} [names] @returns {Output[]} @throws {ShaderloomError} "input" for an unknown name */
export function selectOutputs(plan, symbols, names = plan.outputs.map((port) => port.name)) {
  return names.map((name) => {
    const port = plan.outputs.find((candidate) => candidate.name === name);
    if (!port) throw new ShaderloomError("input", `the model has no output '${name}'`);
    const dims = port.shape.map((dim) => evaluate(dim, symbols));
    return { name, dtype: port.dtype, dims, bytes: elementCount(dims) * elementBytes(port.dtype) };
  });
}

/** Copy the outputs of runs to where the caller wants them. */
export class OutputCopies {
  #guard;
  /** @type {GPUBuffer[]} */
  #staging = [];

  /** @param {DeviceGuard} guard */
  constructor(guard) {
    this.#guard = guard;
  }

  /** Encode copies into new buffers, which the caller destroys, and return a function that gives them.
   *  @param {GPUCommandEncoder} encoder @param {Plan} plan @param {Output[]} outputs @param {Lookup} lookup
   *  @returns {() => Promise<Record<string, GpuTensor>>} */
  toBuffers(encoder, plan, outputs, lookup) {
    const { device } = this.#guard;
    const tensors = outputs.map(({ name, dtype, dims, bytes }) => {
      const label = `output ${name}`.slice(0, 40);
      const buffer = device.createBuffer({ size: bufferSize(bytes), usage: tensorUsage(), label });
      const source = findSource(plan, `output:${name}`, lookup);
      if (isBuffer(source)) encoder.copyBufferToBuffer(source, 0, buffer, 0, wholeWords(bytes));
      else writeArray(device, buffer, source);
      return [name, { dtype, dims, buffer }];
    });
    return async () => Object.fromEntries(tensors);
  }

  /** Encode copies into a staging buffer, and return a function that reads them once the commands are submitted.
   *  @param {GPUCommandEncoder} encoder @param {Plan} plan @param {Output[]} outputs @param {Lookup} lookup
   *  @returns {() => Promise<Record<string, CpuTensor>>} */
  toHost(encoder, plan, outputs, lookup) {
    let total = 0;
    const copies = outputs.map((output) => {
      const copy = { ...output, source: findSource(plan, `output:${output.name}`, lookup), offset: total };
      total += bufferSize(output.bytes);
      return copy;
    });
    const staging = copies.some(({ source }) => isBuffer(source)) ? this.#takeStaging(total) : null;
    for (const { source, bytes, offset } of copies) {
      if (staging && isBuffer(source)) encoder.copyBufferToBuffer(source, 0, staging, offset, wholeWords(bytes));
    }
    return async () => {
      await staging?.mapAsync(GPUMapMode.READ, 0, total);
      const mapped = staging?.getMappedRange(0, total) ?? new ArrayBuffer(0);
      const tensors = copies.map(({ name, dtype, dims, bytes, source, offset }) => {
        const content = isBuffer(source) ? mapped.slice(offset, offset + bytes) : source.buffer;
        return [name, { dtype, dims, data: typedArray(dtype, content) }];
      });
      if (staging) this.#returnStaging(staging);
      return Object.fromEntries(tensors);
    };
  }

  destroy() {
    for (const buffer of this.#staging) buffer.destroy();
  }

  /** @param {number} size */
  #takeStaging(size) {
    const index = this.#staging.findIndex((buffer) => buffer.size >= size);
    if (index >= 0) return this.#staging.splice(index, 1)[0];
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    return this.#guard.device.createBuffer({ size, usage, label: "staging" });
  }

  /** @param {GPUBuffer} buffer */
  #returnStaging(buffer) {
    buffer.unmap();
    if (this.#guard.closed || this.#staging.length >= CACHED_STAGING) buffer.destroy();
    else this.#staging.push(buffer);
  }
}

/** A copy is of whole words. @param {number} bytes */
const wholeWords = (bytes) => Math.ceil(bytes / 4) * 4;

/** Return the bytes of a constant output, or the buffer of any other: an alias leads to an input, output or weight.
 *  @param {Plan} plan @param {string} name @param {Lookup} lookup @returns {GPUBuffer | Uint8Array<ArrayBuffer>}
 *  @throws {ShaderloomError} "bundle" for an undefined buffer, "input" for a fed one that cannot be copied */
function findSource(plan, name, lookup) {
  const constant = plan.constants.find(({ output }) => `output:${output}` === name);
  if (constant) return Uint8Array.from(atob(constant.data), (letter) => letter.charCodeAt(0));
  const alias = plan.aliases.find(({ output }) => `output:${output}` === name);
  if (alias) return findSource(plan, alias.source, lookup);
  const buffer = lookup(name);
  if (!buffer) throw new ShaderloomError("bundle", `an output is '${name}', which the plan does not define`);
  if (!(buffer.usage & GPUBufferUsage.COPY_SRC)) {
    throw new ShaderloomError("input", `an output equals '${name}': its GPUBuffer lacks the usage COPY_SRC`);
  }
  return buffer;
}
