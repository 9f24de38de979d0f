/** @import { Call, Plan, PlanPort } from "../shaderloom.js" */
/** @import { Buffers } from "./buffers.js" */
/** @import { CompiledKernel, LoadedPlan } from "./plans.js" */
/** @import { Symbols, Value } from "./tensors.js" */

import { copyBuffer, writeArray } from "./buffers.js";
import { ensure } from "./errors.js";
import { bufferSize, elementCount, evaluate, isBuffer, MOST_WORK, MOST_WORKGROUPS, shapeOf, tensorBytes } from "./tensors.js";

/**
 * @typedef {{ call: Call, compiled: CompiledKernel, grid: number[], work: number, group?: GPUBindGroup }} SizedCall
 * @typedef {{ calls: SizedCall[], count?: number }} SizedCommand Calls, and how often they repeat.
 * @typedef {Required<SizedCall> & { offset?: number }} Dispatch One of a call, with where the number of its iteration is.
 * @typedef {(name: string) => GPUBuffer} Lookup The buffer of a name in a plan.
 */

/** Bytes from one number to the next in the buffer "iteration": the alignment of dynamic offsets. */
const ITERATION_STRIDE = 256;

/** Combinations of sizes whose calls are cached, for each plan. */
const CACHED_SIZES = 8;

/** What prepares the calls of a session. @typedef {ReturnType<typeof callsOn>} Calls */

/** Prepare the calls of runs: sizes, buffers, bind groups. @param {GPUDevice} device @param {Buffers} buffers */
export function callsOn(device, buffers) {
  /** By plan and by values of symbols. @type {Map<Plan, Map<string, SizedCommand[]>>} */
  const cache = new Map();
  /** Bind groups that serve all values of symbols. @type {WeakMap<Call, GPUBindGroup>} */
  let shared = new WeakMap();
  buffers.hooks.onReplace = () => {
    cache.clear();
    shared = new WeakMap();
  };

  /**
   * Allocate the buffers of a run, write its feeds, encode the copies with which outputs begin, and return its dispatches,
   * which are made as they are asked for, and the lookup of its buffers.
   *
   * @param {GPUCommandEncoder} encoder @param {LoadedPlan} loaded @param {Symbols} symbols
   * @param {Record<string, Value>} values
   * @param {Map<string, GPUBuffer>} [written] buffers of the caller's for outputs, by the names of these in the plan
   * @returns {{ dispatches: Iterable<Dispatch>, lookup: Lookup }}
   * @throws {ShaderloomError} "bundle" for a call that does not fit the plan, "device" for more than the device allows,
   *   "input" for a fed buffer that cannot be copied, or is written beside
   */
  function bind(encoder, { plan, kernels }, symbols, values, written = new Map()) {
    const held = bytesOf(plan, symbols);
    /** @type {Map<string, GPUBuffer>} */
    const callers = new Map();
    for (const { name } of plan.inputs) {
      const { data } = values[name];
      if (isBuffer(data)) callers.set(`input:${name}`, data);
      else writeArray(device, buffers.allocate(`input:${name}`, data.byteLength), data);
    }
    checkAliases(plan, held);
    requireDistinct(plan, callers, written);
    for (const [name, buffer] of written) callers.set(name, buffer);
    for (const [name, bytes] of held) if (name.startsWith("output:") && !callers.has(name)) buffers.allocate(name, bytes);
    for (const [index, size] of plan.arenas.entries()) buffers.allocate(`arena:${index}`, evaluate(size, symbols));
    const sizes = plan.symbols.map(({ name, step }) => Math.floor(symbols[name] / step));
    const uniforms = `symbols ${plan.key}`; // each plan has symbols of its own
    if (sizes.length) buffers.writeUniform(uniforms, sizes);
    /** @type {Lookup} */
    const lookup = (name) => {
      const [kind, number] = name.split(":");
      const own = name === "symbols" ? uniforms : name;
      if (kind !== "problem") return callers.get(name) ?? /** @type {GPUBuffer} */ (buffers.get(own));
      const label = `${name} ${plan.key}`;
      return buffers.get(label) ?? buffers.writeUniform(label, plan.problems[Number(number)]);
    };
    for (const { output, input } of plan.states) {
      const bytes = /** @type {number} */ (held.get(`input:${input}`));
      copyBuffer(encoder, lookup(`input:${input}`), lookup(`output:${output}`), bytes, `'${input}' is copied`);
    }
    const commands = sized(plan, kernels, symbols, sizes.join());
    writeIterations(Math.max(0, ...commands.map(({ count }) => count ?? 0)));
    const dispatches = dispatchesOf(commands, (sized) => {
      const isOwn = !sized.call.ranges.some(({ buffer }) => callers.has(buffer));
      if (isOwn && sized.group) return sized;
      const group = groupOf(sized, symbols, lookup, held, isOwn);
      if (isOwn) sized.group = group;
      return { ...sized, group };
    });
    return { dispatches, lookup };
  }

  /** Make the buffer with the number of each iteration. @param {number} count */
  function writeIterations(count) {
    if (count * ITERATION_STRIDE <= (buffers.get("iteration")?.size ?? 0)) return;
    const numbers = new Int32Array((count * ITERATION_STRIDE) / 4);
    for (let number = 0; number < count; number++) numbers[(number * ITERATION_STRIDE) / 4] = number;
    buffers.writeUniform("iteration", numbers);
  }

  /** Return the calls of a plan that have work, by command, cached by the values of symbols.
   *  @param {Plan} plan @param {LoadedPlan["kernels"]} kernels @param {Symbols} symbols @param {string} key */
  function sized(plan, kernels, symbols, key) {
    /** @type {Map<string, SizedCommand[]>} */
    const bySizes = cache.get(plan) ?? new Map();
    cache.set(plan, bySizes);
    const cached = bySizes.get(key);
    if (cached) return cached;
    const most = device.limits.maxComputeWorkgroupsPerDimension;
    let dispatches = 0;
    const commands = plan.commands.map((command) => {
      const count = command.kind === "repeat" ? evaluate(command.count, symbols) : undefined;
      const times = count ?? 1;
      ensure("bundle", times >= 0, `the plan repeats a command ${count} times`);
      const calls = command.calls.flatMap((call) => {
        const grid = call.grid.map((size) => evaluate(size, symbols));
        if (grid.includes(0)) return [];
        const text = `kernel ${call.kernel.slice(0, 12)} has ${grid.join(" x ")} workgroups`;
        ensure("bundle", Math.min(...grid) > 0 && elementCount(grid) <= MOST_WORKGROUPS, text);
        ensure("device", Math.max(...grid) <= most, `${text}; the device allows ${most} an axis`);
        const compiled = /** @type {CompiledKernel} */ (kernels.get(call.kernel)); // the plan was checked
        return [{ call, compiled, grid, work: workOf(call, compiled, grid, symbols) }];
      });
      dispatches += calls.length * times;
      return { calls, count };
    });
    ensure("bundle", dispatches <= MOST_WORK, `a run has over ${MOST_WORK} dispatches`);
    bySizes.set(key, commands);
    const [oldest] = bySizes.keys();
    if (bySizes.size > CACHED_SIZES) bySizes.delete(oldest);
    return commands;
  }

  /** Return the bind group of a call. One that serves all values of symbols is shared: a range of open size from the
   *  start of a buffer of the session's, which holds one tensor alone, gets the whole buffer where all are the session's.
   *  @param {SizedCall} sized @param {Symbols} symbols @param {Lookup} lookup @param {Map<string, number>} held
   *  @param {boolean} isOwn whether all buffers are the session's */
  function groupOf({ call, compiled }, symbols, lookup, held, isOwn) {
    let isShared = isOwn;
    const entries = call.ranges.map((range, binding) => {
      const buffer = lookup(range.buffer);
      const [offset, size] = [evaluate(range.offset, symbols), evaluate(range.size, symbols)];
      const room = bufferSize(held.get(range.buffer) ?? buffer.size);
      const isInside = size > 0 && offset >= 0 && offset + size <= room;
      ensure("bundle", isInside, `kernel ${call.kernel.slice(0, 12)} binds bytes ${offset} to ${offset + size} of ` +
        `'${range.buffer}', which has ${room}`);
      const isOpen = typeof range.offset !== "number" || typeof range.size !== "number";
      const isWhole = isOwn && isOpen && range.offset === 0 &&
        buffer.size <= device.limits.maxStorageBufferBindingSize;
      isShared &&= isWhole || !isOpen;
      return { binding, resource: isWhole ? { buffer } : { buffer, offset, size } };
    });
    const present = isShared ? shared.get(call) : undefined;
    const group = present ?? device.createBindGroup({ layout: compiled.layout, entries });
    if (isShared) shared.set(call, group);
    return group;
  }

  return { bind };
}

/** Return the bytes of what a plan's buffers hold: what lies behind that in buffers of the caller's is not the plan's.
 *  @param {Plan} plan @param {Symbols} symbols @returns {Map<string, number>} */
function bytesOf({ inputs, outputs, weights }, symbols) {
  /** @param {string} kind @returns {(port: PlanPort) => [string, number]} */
  const sized = (kind) => (port) =>
    [`${kind}:${port.name}`, tensorBytes({ dtype: port.dtype, dims: shapeOf(port, symbols) })];
  const stored = weights.map(({ key, bytes }) => /** @type {[string, number]} */ ([`weight:${key}`, bytes]));
  return new Map([...inputs.map(sized("input")), ...outputs.map(sized("output")), ...stored]);
}

/** @param {Plan} plan @param {Map<string, number>} held bytes by buffer
 *  @throws {ShaderloomError} "bundle" for an output that is larger than what it is an alias of */
function checkAliases({ aliases }, held) {
  for (const { output, source } of aliases) {
    const [needed, present] = [`output:${output}`, source].map((name) => bufferSize(held.get(name) ?? 0));
    ensure("bundle", needed <= present, `'${output}' has ${needed} bytes, '${source}', its source, ${present}`);
  }
}

/** Check that a buffer which a run writes is fed once, as what the output begins with, or not at all.
 *  @param {Plan} plan @param {Map<string, GPUBuffer>} fed @param {Map<string, GPUBuffer>} written
 *  @throws {ShaderloomError} "input" for one that is fed beside */
function requireDistinct({ states }, fed, written) {
  for (const [output, buffer] of written) {
    for (const [input, other] of fed) {
      const fits = other !== buffer
        || states.some((state) => `output:${state.output}` === output && `input:${state.input}` === input);
      ensure("input", fits, `'${input.slice(6)}': its GPUBuffer is written, with '${output.slice(7)}', and fed`);
    }
  }
}

/** Make the dispatches of commands. @param {SizedCommand[]} commands @param {(call: SizedCall) => SizedCall} bound
 *  @returns {Generator<Dispatch>} */
function* dispatchesOf(commands, bound) {
  for (const { calls, count } of commands) {
    /** @type {Dispatch[]} */
    const ready = [];
    for (let number = 0; number < (count ?? 1); number++) {
      for (const [index, call] of calls.entries()) {
        ready[index] ??= /** @type {Dispatch} */ (bound(call));
        yield count === undefined ? ready[index] : { ...ready[index], offset: number * ITERATION_STRIDE };
      }
    }
  }
}

/** Return about how many operations a call takes: those of the compiler, a byte for eight, an invocation for sixteen.
 *  @param {Call} call @param {CompiledKernel} compiled @param {number[]} grid @param {Symbols} symbols */
function workOf({ flops, bytes }, { kernel }, grid, symbols) {
  const invocations = elementCount(grid) * elementCount(kernel.workgroup);
  return Math.max(evaluate(flops, symbols), 0) + 8 * Math.max(evaluate(bytes, symbols), 0) + 16 * invocations;
}
