/** @import { DataType, Located, Plan, RunOptions, Tensor } from "../shaderloom.js" */
/** @import { Lookup } from "./calls.js" */
/** @import { Value } from "./feeds.js" */
/** @import { DeviceGuard } from "./guard.js" */
/** @import { Symbols } from "./shapes.js" */

import { tensorUsage, writeArray } from "./buffers.js";
import { elementBytes, typedArray } from "./dtypes.js";
import { requireInput, ShaderloomError } from "./errors.js";
import { isBuffer } from "./feeds.js";
import { bufferSize, elementCount, shapeOf } from "./sizes.js";

/** An output, and where it goes; one on the device has a buffer there.
 *  @typedef {{ name: string, dtype: DataType, dims: number[], bytes: number }} Output
 *  @typedef {Output & { location: keyof Located, buffer?: GPUBuffer }} Placed */

/** Where an output is: in the plan as base64, on the host as bytes, else in the buffer of a name.
 *  @typedef {{ constant: string | Uint8Array<ArrayBuffer> | undefined, buffer: string }} Source */

/** @type {(keyof Located)[]} */
const LOCATIONS = ["cpu", "gpu", "view"];

/** Staging buffers that wait for the next run. */
const CACHED_STAGING = 4;

/** Return the ports of `names`, or all. @template {{ name: string }} P @param {readonly P[]} ports
 *  @param {readonly string[]} [names] @throws {ShaderloomError} "input" for what is no list of names of ports */
export function selectPorts(ports, names) {
  if (!names) return ports;
  requireInput(Array.isArray(names), "outputs is a list of names");
  return names.map((name) => {
    const port = ports.find((each) => each.name === name);
    requireInput(port, `the model has no output '${name}'`);
    return port;
  });
}

/** @param {Plan} plan @param {Symbols} symbols @param {readonly string[]} [names] @returns {Output[]} */
export const selectOutputs = (plan, symbols, names) => selectPorts(plan.outputs, names).map(({ name, dtype, shape }) => {
  const dims = shapeOf({ name, shape }, symbols);
  return { name, dtype, dims, bytes: elementCount(dims) * elementBytes(dtype) };
});

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

/**
 * Return where each output goes, with the buffers of those that stay on the device: the caller's of `into`, that of a
 * state in place, or a new one.
 *
 * @param {GPUDevice} device @param {Output[]} outputs @param {Pick<RunOptions, "location" | "into">} options
 * @param {Map<string, GPUBuffer>} [begun] the fed buffers of states in place, by output @returns {Placed[]}
 * @throws {ShaderloomError} "input" for an unknown location, and for what is no buffer, too small or named twice
 */
export function placeOutputs(device, outputs, { location = "cpu", into = {} }, begun = new Map()) {
  const names = new Set(outputs.map(({ name }) => name));
  for (const name of [...Object.keys(into), ...(typeof location === "string" ? [] : Object.keys(location))]) {
    requireInput(names.has(name), `the run gives no output '${name}'`);
  }
  const taken = new Set();
  return outputs.map((output) => {
    const { name, bytes } = output;
    const target = Object.hasOwn(into, name) ? into[name] : undefined;
    const own = typeof location === "string" ? location : Object.hasOwn(location, name) ? location[name] : "cpu";
    requireInput(LOCATIONS.includes(own), `location is one of ${LOCATIONS.join(", ")}, not "${own}"`);
    requireInput(!target || isBuffer(target), `into['${name}'] is no GPUBuffer`);
    const size = bufferSize(bytes);
    requireInput(!target || target.size >= size, `'${name}' has ${size} bytes, the buffer for it ${target?.size}`);
    if (!target && own !== "gpu") return { ...output, location: own };
    const label = `output ${name}`.slice(0, 40);
    const buffer = target ?? begun.get(name) ?? device.createBuffer({ size, usage: tensorUsage(), label });
    requireInput(!taken.has(buffer), `the buffer for '${name}' is that of another output`);
    taken.add(buffer);
    return { ...output, location: "gpu", buffer };
  });
}

/** Return the fed buffers that outputs begin as, by output. @param {Plan} plan @param {Record<string, Value>} values
 *  @returns {Map<string, GPUBuffer>} */
export const begunBuffers = ({ states }, values) => new Map(states.flatMap(({ output, input }) => {
  const { data } = values[input];
  return isBuffer(data) ? [[output, data]] : [];
}));

/** Return the buffers that the calls of a plan write outputs to, by the names of these in the plan: those of the caller's
 *  where an output is not an alias, and those of states in place.
 *  @param {Map<string, Source>} sources @param {Placed[]} placed @param {Map<string, GPUBuffer>} begun */
export function writtenBuffers(sources, placed, begun) {
  const written = new Map([...begun].map(([name, buffer]) => [`output:${name}`, buffer]));
  for (const { name, buffer } of placed) {
    const source = sources.get(name);
    if (!buffer || source?.constant !== undefined || source?.buffer !== `output:${name}`) continue;
    requireInput(buffer.usage & GPUBufferUsage.STORAGE, `the buffer for '${name}' lacks the usage STORAGE`);
    written.set(`output:${name}`, buffer);
  }
  return written;
}

/** Give the outputs of runs to the caller. */
export class OutputCopies {
  #guard;
  /** @type {GPUBuffer[]} */
  #staging = [];

  /** @param {DeviceGuard} guard */
  constructor(guard) {
    this.#guard = guard;
  }

  /** Encode the copies that outputs need: to a staging buffer for those that the host reads, and to their buffers for
   *  those of the device that no call wrote there. Return a function that gives them once the commands are submitted.
   *  @param {GPUCommandEncoder} encoder @param {Map<string, Source>} sources @param {Placed[]} outputs
   *  @param {Lookup} lookup @returns {() => Promise<Record<string, Tensor>>} */
  deliver(encoder, sources, outputs, lookup) {
    const { device } = this.#guard;
    let total = 0;
    const copies = outputs.map((output) => {
      const source = contentOf(sources.get(output.name), lookup, output.buffer);
      const offset = output.buffer ? 0 : total;
      if (!output.buffer && isBuffer(source)) total += bufferSize(output.bytes);
      return { ...output, source, offset };
    });
    const staging = total ? this.#takeStaging(total) : null;
    for (const { source, buffer = staging, bytes, offset } of copies) {
      if (!buffer || source === buffer) continue;
      if (isBuffer(source)) encoder.copyBufferToBuffer(source, 0, buffer, offset, wholeWords(bytes));
      else if (buffer !== staging) writeArray(device, buffer, source);
    }
    return async () => {
      await staging?.mapAsync(GPUMapMode.READ, 0, total);
      const mapped = staging?.getMappedRange(0, total) ?? new ArrayBuffer(0);
      const views = new Set(copies.flatMap(({ name, location, source }) =>
        location === "view" && isBuffer(source) ? [name] : []));
      /** @param {string} [name] */
      const release = (name = "") => {
        if (staging && (views.delete(name) || !name) && !views.size) this.#returnStaging(staging);
      };
      const tensors = copies.map(({ name, dtype, dims, bytes, source, offset, location, buffer }) => {
        if (buffer) return [name, { dtype, dims, buffer }];
        const isView = views.has(name);
        const content = !isBuffer(source) ? source.buffer : isView ? mapped : mapped.slice(offset, offset + bytes);
        const data = isView ? typedArray(dtype, content, offset, bytes) : typedArray(dtype, content);
        return [name, location === "view" ? { dtype, dims, data, release: () => release(name) } : { dtype, dims, data }];
      });
      release();
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
 *  @param {GPUBuffer} [target] where it has to be @returns {GPUBuffer | Uint8Array<ArrayBuffer>}
 *  @throws {ShaderloomError} "bundle" for an undefined buffer, "input" for a fed one that cannot be copied */
export function contentOf(source, lookup, target) {
  const constant = source?.constant;
  if (typeof constant === "string") return Uint8Array.from(atob(constant), (letter) => letter.charCodeAt(0));
  if (constant) return constant;
  const name = source?.buffer ?? "";
  const buffer = lookup(name);
  if (!buffer) throw new ShaderloomError("bundle", `an output is '${name}', which the plan does not define`);
  const fits = buffer === target || buffer.usage & GPUBufferUsage.COPY_SRC;
  requireInput(fits, `an output equals '${name}': its GPUBuffer lacks the usage COPY_SRC`);
  return buffer;
}
