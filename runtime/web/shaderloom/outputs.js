/** @import { CpuTensor, DataType, GpuTensor, Plan } from "../shaderloom.js" */
/** @import { Lookup } from "./calls.js" */
/** @import { DeviceGuard } from "./guard.js" */
/** @import { Symbols } from "./shapes.js" */

import { tensorUsage, writeArray } from "./buffers.js";
import { elementBytes, typedArray } from "./dtypes.js";
import { ShaderloomError } from "./errors.js";
import { isBuffer } from "./feeds.js";
import { bufferSize, elementCount, shapeOf } from "./sizes.js";

/** @typedef {{ name: string, dtype: DataType, dims: number[], bytes: number }} Output */

/** Where an output is: in the plan as base64, on the host as bytes, else in the buffer of a name.
 *  @typedef {{ constant: string | Uint8Array<ArrayBuffer> | undefined, buffer: string }} Source */

/** Staging buffers that wait for the next run. */
const CACHED_STAGING = 4;

/** Return the outputs of a run, those of `names` or all. @param {Plan} plan @param {Symbols} symbols
 *  @param {readonly string[]} [names] @returns {Output[]} @throws {ShaderloomError} "input" for an unknown name */
export function selectOutputs(plan, symbols, names = plan.outputs.map((port) => port.name)) {
  const ports = new Map(plan.outputs.map((port) => [port.name, port]));
  return names.map((name) => {
    const port = ports.get(name);
    if (!port) throw new ShaderloomError("input", `the model has no output '${name}'`);
    const dims = shapeOf(port, symbols);
    return { name, dtype: port.dtype, dims, bytes: elementCount(dims) * elementBytes(port.dtype) };
  });
}

/** Return the source of each output by its name: aliases lead to an input, a weight or another output.
 *  @param {Plan} plan @returns {Map<string, Source>} */
export function outputSources({ outputs, constants, aliases }) {
  const direct = new Map(aliases.map(({ output, source }) => [`output:${output}`, source]));
  const constantOf = new Map(constants.map(({ output, data }) => [`output:${output}`, data]));
  /** @type {Map<string, Source>} By buffer, so that each link of a chain is followed once. */
  const sources = new Map();
  for (const { name } of outputs) {
    const chain = [];
    let buffer = `output:${name}`;
    for (let next = direct.get(buffer); next !== undefined && !sources.has(buffer); next = direct.get(buffer)) {
      chain.push(buffer);
      buffer = next;
    }
    const source = sources.get(buffer) ?? { constant: constantOf.get(buffer), buffer };
    for (const link of [...chain, buffer]) sources.set(link, source);
  }
  return new Map(outputs.map(({ name }) => [name, /** @type {Source} */ (sources.get(`output:${name}`))]));
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

  /** Encode copies into new buffers, which the caller destroys, and return a function that gives them; those of
   *  `states` that were written in place are the buffers that the caller fed.
   *  @param {GPUCommandEncoder} encoder @param {Map<string, Source>} sources @param {Output[]} outputs
   *  @param {Lookup} lookup @param {Plan["states"]} states
   *  @returns {() => Promise<Record<string, GpuTensor>>} */
  toBuffers(encoder, sources, outputs, lookup, states) {
    const { device } = this.#guard;
    const begun = new Map(states.map(({ output, input }) => [output, `input:${input}`]));
    const tensors = outputs.map(({ name, dtype, dims, bytes }) => {
      const fed = begun.has(name) ? lookup(/** @type {string} */ (begun.get(name))) : undefined;
      if (fed && fed === lookup(`output:${name}`)) return [name, { dtype, dims, buffer: fed }];
      const label = `output ${name}`.slice(0, 40);
      const buffer = device.createBuffer({ size: bufferSize(bytes), usage: tensorUsage(), label });
      const source = contentOf(sources.get(name), lookup);
      if (isBuffer(source)) encoder.copyBufferToBuffer(source, 0, buffer, 0, wholeWords(bytes));
      else writeArray(device, buffer, source);
      return [name, { dtype, dims, buffer }];
    });
    return async () => Object.fromEntries(tensors);
  }

  /** Encode copies into a staging buffer, and return a function that reads them once the commands are submitted.
   *  @param {GPUCommandEncoder} encoder @param {Map<string, Source>} sources @param {Output[]} outputs
   *  @param {Lookup} lookup
   *  @returns {() => Promise<Record<string, CpuTensor>>} */
  toHost(encoder, sources, outputs, lookup) {
    let total = 0;
    const copies = outputs.map((output) => {
      const copy = { ...output, source: contentOf(sources.get(output.name), lookup), offset: total };
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

/** Return the bytes of a constant, or the buffer. @param {Source | undefined} source @param {Lookup} lookup
 *  @returns {GPUBuffer | Uint8Array<ArrayBuffer>}
 *  @throws {ShaderloomError} "bundle" for an undefined buffer, "input" for a fed one that cannot be copied */
export function contentOf(source, lookup) {
  const constant = source?.constant;
  if (typeof constant === "string") return Uint8Array.from(atob(constant), (letter) => letter.charCodeAt(0));
  if (constant) return constant;
  const name = source?.buffer ?? "";
  const buffer = lookup(name);
  if (!buffer) throw new ShaderloomError("bundle", `an output is '${name}', which the plan does not define`);
  if (!(buffer.usage & GPUBufferUsage.COPY_SRC)) {
    throw new ShaderloomError("input", `an output equals '${name}': its GPUBuffer lacks the usage COPY_SRC`);
  }
  return buffer;
}
