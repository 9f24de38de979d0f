// The buffers of a session, and the outputs that are in them.

/** @import { DataType, Located, Plan, RunOptions, Tensor, TypedArray } from "../shaderloom.js" */
/** @import { Lookup } from "./calls.js" */
/** @import { DeviceGuard } from "./device.js" */
/** @import { Bounds } from "./manifest_relations.js" */
/** @import { Value } from "./tensors.js" */

import { ensure } from "./errors.js";
import { byteBounds, sizeBounds } from "./manifest_relations.js";
import { own } from "./structure.js";
import { bufferSize, isBuffer, tensorBytes, typedArray } from "./tensors.js";

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

/** An output, and where it goes; one on the device has a buffer there.
 *  @typedef {{ name: string, dtype: DataType, dims: readonly number[] }} Output
 *  @typedef {Output & { dims: number[], bytes: number, location: keyof Located, buffer?: GPUBuffer }} Placed */

/** What an output is: elements, or what is in a buffer.
 *  @typedef {GPUBuffer | TypedArray & { slice(): TypedArray & { buffer: ArrayBuffer } }} Content */

/** Where an output is: bytes, or the name of a buffer of the plan. @typedef {Uint8Array | string} Source */

/** @type {(keyof Located)[]} */
const LOCATIONS = ["cpu", "gpu", "view"];

/** Staging buffers that wait for the next run. */
const CACHED_STAGING = 4;

/** Return the ports of `names`, or all. @template {{ name: string }} P @param {readonly P[]} ports
 *  @param {readonly string[]} [names] @throws {ShaderloomError} "input" for what is no list of names of ports */
export function selectPorts(ports, names) {
  if (!names) return ports;
  ensure("input", Array.isArray(names), "outputs is a list of names");
  return names.map((name) => {
    const port = ports.find((each) => each.name === name);
    ensure("input", port, `the model has no output '${name}'`);
    return port;
  });
}

/** Return the source of each output by its buffer: aliases lead to an input, a weight or another output.
 *  @param {Plan} plan */
export function outputSources({ outputs, constants, aliases }) {
  /** @type {Map<string, Source>} Each link of a chain is followed once. */
  const sources = new Map(constants.map(({ output, data }) =>
    [`output:${output}`, Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0))]));
  const direct = new Map(aliases.map(({ output, source }) => [`output:${output}`, source]));
  for (const { name } of outputs) {
    const chain = [];
    /** @type {string | undefined} */
    let buffer = `output:${name}`;
    for (; buffer !== undefined && !sources.has(buffer); buffer = direct.get(buffer)) chain.push(buffer);
    const source = sources.get(buffer ?? "") ?? /** @type {string} */ (chain.at(-1));
    for (const link of chain) sources.set(link, source);
  }
  return sources;
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
  const [locations, common] = typeof location === "string" ? [{}, location] : [location, "cpu"];
  for (const name of Object.keys({ ...into, ...locations })) {
    ensure("input", outputs.some((output) => output.name === name), `the run gives no output '${name}'`);
  }
  const taken = new Set();
  return outputs.map(({ name, dtype, dims }) => {
    const output = { name, dtype, dims: [...dims], bytes: tensorBytes({ dtype, dims }) };
    const target = own(into, name);
    const place = /** @type {keyof Located} */ (own(locations, name) ?? common);
    ensure("input", LOCATIONS.includes(place), `location is one of ${LOCATIONS.join(", ")}, not "${place}"`);
    ensure("input", !target || isBuffer(target), `into['${name}'] is no GPUBuffer`);
    const size = bufferSize(output.bytes);
    ensure("input", !target || target.size >= size, `'${name}' has ${size} bytes, the buffer for it ${target?.size}`);
    if (!target && place !== "gpu") return { ...output, location: place };
    const label = name.slice(0, 40);
    const buffer = target ?? begun.get(name) ?? device.createBuffer({ size, usage: tensorUsage(), label });
    ensure("input", !taken.has(buffer), `the buffer for '${name}' is that of another output`);
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
    const target = `output:${name}`;
    if (!buffer || sources.get(target) !== target) continue;
    ensure("input", buffer.usage & GPUBufferUsage.STORAGE, `the buffer for '${name}' lacks the usage STORAGE`);
    written.set(target, buffer);
  }
  return written;
}

/** Return what an output of a plan is. @param {Map<string, Source>} sources @param {string} name @param {Lookup} lookup */
export function contentOf(sources, name, lookup) {
  const source = sources.get(`output:${name}`);
  return /** @type {Content} */ (typeof source === "string" ? lookup(source) : source);
}

/** What gives outputs to the caller. @typedef {ReturnType<typeof copiesOn>} OutputCopies */

/** Give the outputs of runs to the caller. @param {DeviceGuard} guard */
export function copiesOn(guard) {
  const { device } = guard;
  /** @type {GPUBuffer[]} */
  const idle = [];

  /** Encode the copies that outputs need: to a staging buffer for those that the host reads, and to their buffers for
   *  those of the device that no call wrote there. Return a function that gives them once the commands are submitted.
   *  @param {GPUCommandEncoder} encoder @param {Placed[]} outputs @param {(name: string) => Content} contentAt
   *  @returns {() => Promise<Record<string, Tensor>>} @throws {ShaderloomError} "input" for a fed buffer that cannot be copied */
  function deliver(encoder, outputs, contentAt) {
    let total = 0;
    const copies = outputs.map((output) => {
      const content = contentAt(output.name);
      const offset = output.buffer ? 0 : total;
      if (!output.buffer && isBuffer(content)) total += bufferSize(output.bytes);
      return { ...output, content, offset };
    });
    const staging = total ? takeStaging(total) : null;
    for (const { name, content, buffer = staging, bytes, offset } of copies) {
      if (!buffer || buffer === content) continue;
      ensure("input", buffer.usage & GPUBufferUsage.COPY_DST, `the buffer for '${name}' lacks the usage COPY_DST`);
      if (isBuffer(content)) copyBuffer(encoder, content, buffer, bytes, `the output '${name}' equals what is fed`, offset);
      else if (buffer !== staging) writeArray(device, buffer, content);
    }
    return async () => {
      await staging?.mapAsync(GPUMapMode.READ, 0, total);
      const mapped = staging?.getMappedRange(0, total) ?? new ArrayBuffer(0);
      const views = new Set(copies.flatMap(({ name, location, content }) =>
        (location === "view" && isBuffer(content) ? [name] : [])));
      /** @param {string} [name] */
      const release = (name = "") => {
        if (staging && (views.delete(name) || !name) && !views.size) returnStaging(staging);
      };
      const tensors = copies.map(({ name, dtype, dims, bytes, content, offset, location, buffer }) => {
        if (buffer) return [name, { dtype, dims, buffer }];
        const elements = isBuffer(content) ? new Uint8Array(mapped, offset, bytes) : content;
        const data = views.has(name) ? typedArray(dtype, mapped, offset, bytes) : typedArray(dtype, elements.slice().buffer);
        const tensor = { dtype, dims, data };
        return [name, location === "view" ? { ...tensor, release: () => release(name) } : tensor];
      });
      release();
      return Object.fromEntries(tensors);
    };
  }

  function destroy() {
    for (const buffer of idle) buffer.destroy();
  }

  /** @param {number} size */
  function takeStaging(size) {
    const index = idle.findIndex((buffer) => buffer.size >= size);
    if (index >= 0) return idle.splice(index, 1)[0];
    return device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST, label: "staging" });
  }

  /** @param {GPUBuffer} buffer */
  function returnStaging(buffer) {
    buffer.unmap();
    if (guard.isClosed() || idle.length >= CACHED_STAGING) buffer.destroy();
    else idle.push(buffer);
  }

  return { deliver, destroy };
}
