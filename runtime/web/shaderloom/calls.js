/** @import { Call, Plan, PlanPort } from "../shaderloom.js" */
/** @import { Buffers } from "./buffers.js" */
/** @import { Value } from "./feeds.js" */
/** @import { CompiledKernel } from "./pipelines.js" */
/** @import { LoadedPlan } from "./plans.js" */
/** @import { Symbols } from "./shapes.js" */

import { writeArray } from "./buffers.js";
import { elementBytes } from "./dtypes.js";
import { requireInput, ShaderloomError } from "./errors.js";
import { isBuffer } from "./feeds.js";
import {
  bufferSize, elementCount, evaluate, ITERATION_STRIDE, MOST_ITERATIONS, MOST_WORK, MOST_WORKGROUPS, shapeOf,
} from "./sizes.js";

/**
 * @typedef {{ call: Call, compiled: CompiledKernel, grid: number[], work: number, group?: GPUBindGroup }} SizedCall
 * @typedef {{ calls: SizedCall[], count?: number }} SizedCommand Calls, and how often they repeat.
 * @typedef {Required<SizedCall> & { offset?: number }} Dispatch One of a call, with where the number of its iteration is.
 * @typedef {(name: string) => GPUBuffer | undefined} Lookup The buffer of a name in a plan.
 */

/** Combinations of sizes whose calls are cached, for each plan. */
const CACHED_SIZES = 8;

/** Prepare the calls of a run: sizes, buffers, bind groups. */
export class Calls {
  #device;
  #buffers;
  /** By plan and by values of symbols. @type {Map<Plan, Map<string, SizedCommand[]>>} */
  #cache = new Map();
  /** Bind groups that serve all values of symbols. @type {WeakMap<Call, GPUBindGroup>} */
  #shared = new WeakMap();

  /** @param {GPUDevice} device @param {Buffers} buffers */
  constructor(device, buffers) {
    this.#device = device;
    this.#buffers = buffers;
    buffers.onReplace = () => {
      this.#cache.clear();
      this.#shared = new WeakMap();
    };
  }

  /**
   * Allocate the buffers of a run, write its feeds, and return its dispatches, which are made as they are asked for, and
   * the lookup of its buffers.
   *
   * @param {LoadedPlan} loaded @param {Symbols} symbols @param {Record<string, Value>} values
   * @param {Map<string, GPUBuffer>} [written] buffers of the caller's for outputs, by the names of these in the plan
   * @returns {{ dispatches: Iterable<Dispatch>, lookup: Lookup }}
   * @throws {ShaderloomError} "bundle" for a call that does not fit the plan, "device" for more than the device allows
   */
  bind(loaded, symbols, values, written = new Map()) {
    const { plan } = loaded;
    const buffers = this.#buffers;
    /** @type {Map<string, GPUBuffer>} */
    const callers = new Map();
    for (const { name } of plan.inputs) {
      const { data } = values[name];
      if (isBuffer(data)) callers.set(`input:${name}`, data);
      else writeArray(this.#device, buffers.allocate(`input:${name}`, data.byteLength), data);
    }
    const rooms = roomsOf(plan, symbols);
    checkAliases(plan, rooms);
    requireDistinct(plan, callers, written);
    for (const [name, buffer] of written) callers.set(name, buffer);
    for (const port of plan.outputs) {
      const name = `output:${port.name}`;
      if (!callers.has(name)) buffers.allocate(name, portBytes(port, symbols));
    }
    for (const [index, size] of plan.arenas.entries()) buffers.allocate(`arena:${index}`, evaluate(size, symbols));
    const sizes = plan.symbols.map(({ name, step }) => Math.floor(symbols[name] / step));
    const uniforms = `symbols ${plan.key}`; // each plan has symbols of its own
    if (sizes.length) {
      const buffer = buffers.allocate(uniforms, 4 * sizes.length, GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
      this.#device.queue.writeBuffer(buffer, 0, new Int32Array(sizes));
    }
    /** @type {Lookup} */
    const lookup = (name) => {
      if (name.startsWith("problem:")) return this.#problem(plan, name);
      return callers.get(name) ?? buffers.get(name === "symbols" ? uniforms : name);
    };
    const commands = this.#sized(loaded, symbols, sizes.join());
    const counts = commands.flatMap(({ count }) => count ?? []);
    if (counts.length) this.#allocateIterations(Math.max(1, ...counts));
    /** @param {SizedCall} sized @returns {SizedCall} with its bind group: a cached one, unless a caller's buffer is in it */
    const bound = (sized) => {
      const isCallers = sized.call.ranges.some(({ buffer }) => callers.has(buffer));
      if (isCallers) return { ...sized, group: this.#group(sized, symbols, lookup, rooms, false).group };
      if (!sized.group) {
        const { group, isShared } = this.#group(sized, symbols, lookup, rooms, true, this.#shared.get(sized.call));
        if (isShared) this.#shared.set(sized.call, group);
        sized.group = group;
      }
      return sized;
    };
    return { dispatches: dispatchesOf(commands, bound), lookup };
  }

  /** Return the buffer with the numbers of a plan's `problem:N`. @param {Plan} plan @param {string} name */
  #problem(plan, name) {
    const label = `${name} ${plan.key}`;
    const present = this.#buffers.get(label);
    if (present) return present;
    const numbers = new Int32Array(plan.problems[Number(name.slice("problem:".length))]);
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const buffer = this.#buffers.create(label, numbers.byteLength, usage);
    writeArray(this.#device, buffer, numbers);
    return buffer;
  }

  /** Make the buffer with the number of each iteration. @param {number} count */
  #allocateIterations(count) {
    const present = this.#buffers.get("iteration");
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    if (this.#buffers.allocate("iteration", count * ITERATION_STRIDE, usage) === present) return;
    const numbers = new Int32Array((count * ITERATION_STRIDE) / 4);
    for (let number = 0; number < count; number++) numbers[(number * ITERATION_STRIDE) / 4] = number;
    writeArray(this.#device, /** @type {GPUBuffer} */ (this.#buffers.get("iteration")), numbers);
  }

  /** Return the calls of a plan that have work, by command, cached by the values of symbols.
   *  @param {LoadedPlan} loaded @param {Symbols} symbols @param {string} key */
  #sized({ plan, kernels }, symbols, key) {
    /** @type {Map<string, SizedCommand[]>} */
    const cache = this.#cache.get(plan) ?? new Map();
    this.#cache.set(plan, cache);
    const cached = cache.get(key);
    if (cached) return cached;
    const commands = plan.commands.map((command) => {
      /** @type {SizedCommand} */
      const sized = { calls: [] };
      if (command.kind === "repeat") sized.count = iterations(evaluate(command.count, symbols));
      for (const call of command.calls) {
        const grid = call.grid.map((size) => evaluate(size, symbols));
        if (grid.includes(0)) continue;
        const text = `kernel ${call.kernel.slice(0, 12)} has ${grid.join(" x ")} workgroups`;
        if (Math.min(...grid) < 0 || elementCount(grid) > MOST_WORKGROUPS) throw new ShaderloomError("bundle", text);
        const most = this.#device.limits.maxComputeWorkgroupsPerDimension;
        if (Math.max(...grid) > most) throw new ShaderloomError("device", `${text}; the device allows ${most} an axis`);
        const compiled = /** @type {CompiledKernel} */ (kernels.get(call.kernel)); // the plan was checked
        sized.calls.push({ call, compiled, grid, work: workOf(call, compiled, grid, symbols) });
      }
      return sized;
    });
    const dispatches = commands.reduce((sum, { calls, count = 1 }) => sum + calls.length * count, 0);
    if (dispatches > MOST_WORK) throw new ShaderloomError("bundle", `a run has over ${MOST_WORK} dispatches`);
    cache.set(key, commands);
    const [oldest] = cache.keys();
    if (cache.size > CACHED_SIZES) cache.delete(oldest);
    return commands;
  }

  /** Return the bind group of a call, and whether it serves all values of symbols: a range of open size from the start
   *  of a buffer of the session's, which holds one tensor alone, gets the whole buffer where all are the session's.
   *  `shared` is one that does.
   *  @param {SizedCall} sized @param {Symbols} symbols @param {Lookup} lookup @param {Map<string, number>} rooms
   *  @param {boolean} isOwn @param {GPUBindGroup} [shared] */
  #group({ call, compiled }, symbols, lookup, rooms, isOwn, shared) {
    let isShared = true;
    const entries = call.ranges.map((range, binding) => {
      const buffer = lookup(range.buffer);
      const [offset, size] = [evaluate(range.offset, symbols), evaluate(range.size, symbols)];
      const room = rooms.get(range.buffer) ?? buffer?.size ?? 0;
      if (!buffer || !(size > 0 && offset >= 0 && offset + size <= room)) {
        const bytes = `bytes ${offset} to ${offset + size} of '${range.buffer}', which has ${room}`;
        throw new ShaderloomError("bundle", `kernel ${call.kernel.slice(0, 12)} binds ${bytes}`);
      }
      const isOpen = typeof range.offset !== "number" || typeof range.size !== "number";
      const isWhole = isOwn && isOpen && range.offset === 0 &&
        buffer.size <= this.#device.limits.maxStorageBufferBindingSize;
      isShared &&= isWhole || !isOpen;
      return { binding, resource: isWhole ? { buffer } : { buffer, offset, size } };
    });
    return { group: shared ?? this.#device.createBindGroup({ layout: compiled.layout, entries }), isShared };
  }
}

/** Return the bytes of a port's elements. @param {PlanPort} port @param {Symbols} symbols */
const portBytes = (port, symbols) => elementCount(shapeOf(port, symbols)) * elementBytes(port.dtype);

/** Return the bytes of what a plan's buffers hold: what lies behind that in buffers of the caller's is not the plan's.
 *  @param {Plan} plan @param {Symbols} symbols @returns {Map<string, number>} */
function roomsOf({ inputs, outputs, weights }, symbols) {
  /** @param {string} kind @returns {(port: PlanPort) => [string, number]} */
  const sized = (kind) => (port) => [`${kind}:${port.name}`, bufferSize(portBytes(port, symbols))];
  const stored = weights.map(({ key, bytes }) => /** @type {[string, number]} */ ([`weight:${key}`, bytes]));
  return new Map([...inputs.map(sized("input")), ...outputs.map(sized("output")), ...stored]);
}

/** @param {Plan} plan @param {Map<string, number>} held bytes by buffer
 *  @throws {ShaderloomError} "bundle" for an output that is larger than what it is an alias of */
function checkAliases({ aliases }, held) {
  for (const { output, source } of aliases) {
    const [needed, present] = [held.get(`output:${output}`) ?? 0, held.get(source) ?? 0];
    if (needed > present) {
      throw new ShaderloomError("bundle", `'${output}' has ${needed} bytes, '${source}', its source, ${present}`);
    }
  }
}

/** Check that a buffer which a run writes is fed once, as what the output begins with, or not at all.
 *  @param {Plan} plan @param {Map<string, GPUBuffer>} fed @param {Map<string, GPUBuffer>} written
 *  @throws {ShaderloomError} "input" for one that is fed beside */
function requireDistinct({ states }, fed, written) {
  const begun = new Map(states.map(({ output, input }) => [`output:${output}`, `input:${input}`]));
  for (const [output, buffer] of written) {
    for (const [input, other] of fed) {
      const fits = other !== buffer || begun.get(output) === input;
      requireInput(fits, `'${input.slice(6)}': its GPUBuffer is written, with '${output.slice(7)}', and fed`);
    }
  }
}

/** Encode the copies with which outputs begin as inputs, but for those in place.
 *  @param {GPUCommandEncoder} encoder @param {Plan} plan @param {Symbols} symbols @param {Lookup} lookup
 *  @throws {ShaderloomError} "input" for a fed buffer that cannot be copied */
export function encodeStates(encoder, { inputs, states }, symbols, lookup) {
  const bytes = new Map(inputs.map((port) => [port.name, portBytes(port, symbols)]));
  for (const { output, input } of states) {
    const [source, target] = [lookup(`input:${input}`), lookup(`output:${output}`)];
    const size = Math.ceil((bytes.get(input) ?? 0) / 4) * 4;
    if (!source || !target || source === target || !size) continue;
    requireInput(source.usage & GPUBufferUsage.COPY_SRC, `'${input}' is copied: its GPUBuffer lacks the usage COPY_SRC`);
    encoder.copyBufferToBuffer(source, 0, target, 0, size);
  }
}

/** Make the dispatches of commands. @param {SizedCommand[]} commands @param {(call: SizedCall) => SizedCall} bound
 *  @returns {Generator<Dispatch>} */
function* dispatchesOf(commands, bound) {
  for (const { calls, count } of commands) {
    /** @type {SizedCall[]} */
    const ready = [];
    for (let number = 0; number < (count ?? 1); number++) {
      for (const [index, call] of calls.entries()) {
        if (!number) ready.push(bound(call));
        const dispatch = /** @type {Dispatch} */ (ready[index]);
        yield count === undefined ? dispatch : { ...dispatch, offset: number * ITERATION_STRIDE };
      }
    }
  }
}

/** Return about how many operations a call takes: those of the compiler, a byte for eight, an invocation for sixteen.
 *  @param {Call} call @param {CompiledKernel} compiled @param {number[]} grid @param {Symbols} symbols */
function workOf({ flops = 0, bytes = 0 }, { kernel }, grid, symbols) {
  const invocations = elementCount(grid) * elementCount(kernel.workgroup);
  return Math.max(evaluate(flops, symbols), 0) + 8 * Math.max(evaluate(bytes, symbols), 0) + 16 * invocations;
}

/** Return a number of iterations, checked. @param {number} count */
function iterations(count) {
  if (count >= 0 && count <= MOST_ITERATIONS) return count;
  throw new ShaderloomError("bundle", `the plan repeats a command ${count} times`);
}

/** Encode a dispatch into a pass. @param {GPUComputePassEncoder} pass @param {Dispatch} dispatch */
export function encodeCall(pass, { compiled, group, grid: [x, y, z], offset }) {
  pass.setPipeline(compiled.pipeline);
  pass.setBindGroup(0, group, offset === undefined ? [] : [offset]);
  pass.dispatchWorkgroups(x, y, z);
}
