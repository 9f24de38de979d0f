// Programs of bundles: loaded where a manifest has some.

/** @import * as api from "../shaderloom.js" */
/** @import { Plan } from "../shaderloom.js" */
/** @import { Buffers } from "./buffers.js" */
/** @import { Calls, Dispatch } from "./calls.js" */
/** @import { Value } from "./feeds.js" */
/** @import { DeviceGuard } from "./guard.js" */
/** @import { Output, OutputCopies, Source } from "./outputs.js" */
/** @import { Pacer, Turn } from "./pacing.js" */
/** @import { PlanKeys, Plans } from "./plans.js" */
/** @import { Symbols } from "./shapes.js" */

import { writeArray } from "./buffers.js";
import { encodeStates } from "./calls.js";
import { elementBytes, typedArray } from "./dtypes.js";
import { ShaderloomError } from "./errors.js";
import { isBuffer, requireShape } from "./feeds.js";
import { contentOf, placeOutputs, selectPorts } from "./outputs.js";
import { stepsOf } from "./program_relations.js";
import { rangeViolation } from "./shapes.js";
import { elementCount, evaluate, MOST_WORK, shapeOf } from "./sizes.js";

export { checkPrograms, stageUses } from "./program_relations.js";

/** A value of a run: elements on the host or in a buffer.
 *  @typedef {{ data: api.TypedArray | GPUBuffer, dtype: api.DataType, dims: readonly number[] }} ProgramValue
 *  @typedef {(turn: Turn, dispatches: Iterable<Dispatch>, symbols: Symbols) => Promise<void>} TimeCalls
 *  @typedef {{ program: api.Program, values: Map<string, ProgramValue>, sizes: Symbols, turn: Turn, signal?: AbortSignal,
 *    time?: TimeCalls, inPlace?: boolean, taken: Set<GPUBuffer>, work: { done: number } }} ProgramRun The values and sizes
 *    that are there, fed buffers to which outputs were written, and how many steps, iterations and dispatches there
 *    were. */

/** Return the keys of the stages of a program. @param {api.Step[]} steps @returns {PlanKeys[]} */
export const stagesOf = (steps) => [...stepsOf(steps)].flatMap((step) =>
  step.kind === "stage" ? { key: step.plan, software: step.software } : []);

/** Run programs: one at a time, since each depends on values that it reads back. */
export class ProgramRunner {
  #guard;
  #pacer;
  #buffers;
  #calls;
  #copies;
  #plans;
  /** Loops that ran, numbered. @type {Map<api.LoopStep, number>} */
  #loops = new Map();

  /** @param {DeviceGuard} guard @param {Pacer} pacer @param {Buffers} buffers @param {Calls} calls
   *  @param {OutputCopies} copies @param {Plans} plans */
  constructor(guard, pacer, buffers, calls, copies, plans) {
    this.#guard = guard;
    this.#pacer = pacer;
    this.#buffers = buffers;
    this.#calls = calls;
    this.#copies = copies;
    this.#plans = plans;
  }

  /**
   * Run a program once the runs before it have ended; `symbols` has the sizes of its dynamic dimensions.
   *
   * @param {api.Program} program @param {Symbols} symbols @param {Record<string, Value>} feeds
   * @param {readonly api.Port[]} ports the outputs of the model
   * @param {api.RunOptions & { time?: TimeCalls }} options @returns {Promise<Record<string, api.Tensor>>}
   * @throws {ShaderloomError} "input" for unknown outputs, shapes that do not fit and integers outside of their ranges,
   *   "bundle", "device"; and the signal's reason once it is aborted
   */
  async run(program, symbols, feeds, ports, { inPlace, ...options }) {
    const outputs = selectPorts(ports, options.outputs).map(({ name }) => name);
    const turn = await this.#pacer.turn(options.signal);
    try {
      return await this.#run(turn, program, symbols, feeds, { ...options, outputs, inPlace });
    } finally {
      turn.end();
    }
  }

  /** @param {Turn} turn @param {api.Program} program @param {Symbols} symbols @param {Record<string, Value>} feeds
   *  @param {api.RunOptions & { outputs: readonly string[], time?: TimeCalls }} options
   *  @returns {Promise<Record<string, api.Tensor>>} */
  async #run(turn, program, symbols, feeds, { outputs, inPlace, signal, time, ...places }) {
    /** @type {Map<string, ProgramValue>} */
    const values = new Map();
    for (const [name, shape] of Object.entries(program.shapes)) {
      const { dtype, data, dims = shapeOf({ name, shape }, symbols) } = feeds[name];
      values.set(name, { dtype, data, dims });
    }
    /** @type {Symbols} */
    const sizes = Object.assign(Object.create(null), symbols);
    /** @type {ProgramRun} */
    const run = { program, values, sizes, turn, signal, time, inPlace, taken: new Set(), work: { done: 0 } };
    await this.#runSteps(run, program.steps);
    return this.#deliver(turn, outputs.map((name) => [name, valueAt(values, name)]), places, run.taken);
  }

  /** Run steps to the end of their block. @param {ProgramRun} run @param {api.Step[]} steps */
  async #runSteps(run, steps) {
    const { program, values, sizes, turn, signal } = run;
    for (let index = 0; index < steps.length; index++) {
      this.#guard.check();
      signal?.throwIfAborted();
      const step = steps[index];
      countWork(run, 1, step);
      if (step.kind === "stage") await this.#runStage(run, step, steps.slice(index + 1));
      else if (step.kind === "alias") values.set(step.value, valueAt(values, step.source));
      else if (step.kind === "refuse") throw new ShaderloomError("input", step.reason);
      else if (step.kind === "loop") await this.#runLoop(run, step);
      else if (step.kind === "branch") {
        await this.#runSteps(run, await this.#isTrue(turn, values, step.condition) ? step.true : step.false);
      } else if (step.kind === "compare") {
        const [left, right] = [evaluate(step.left, sizes), evaluate(step.right, sizes)];
        await this.#runSteps(run, (step.test === "less" ? left < right : left === right) ? step.true : step.false);
      } else {
        const elements = await this.#read(turn, valueAt(values, step.value));
        for (const [at, symbol] of step.symbols.entries()) sizes[symbol] = elements[at];
        requireRanges(program, sizes, step.symbols);
        for (const symbol of step.symbols) sizes[symbol] -= Math.min(program.ranges[symbol].low, 0);
      }
    }
  }

  /** @param {Turn} turn @param {Map<string, ProgramValue>} values @param {string} name */
  async #isTrue(turn, values, name) {
    const [element] = await this.#read(turn, valueAt(values, name));
    return Boolean(element);
  }

  /** Run the iterations of a loop; what it carries, and its rows, stay on the device.
   *  @param {ProgramRun} run @param {api.LoopStep} step */
  async #runLoop(run, step) {
    const { values, sizes } = run;
    /** @type {GPUBuffer[][]} */
    const rows = step.stacked.map(() => []);
    try {
      const carried = await this.#iterate(run, step, rows);
      for (const [at, { result }] of step.carried.entries()) if (result !== null) values.set(result, carried[at]);
      await run.turn.submit("a loop", (encoder) => {
        for (const [at, stacked] of step.stacked.entries()) {
          values.set(stacked.result, this.#stacked(encoder, rows[at], stacked, sizes));
        }
        return { work: copyWork(step.stacked.map(({ result }) => valueAt(values, result))), finish: nothing };
      });
    } finally {
      for (const [at, stacked] of rows.entries()) {
        for (const number of stacked.keys()) this.#buffers.free(this.#rowName(step, at, number));
      }
    }
  }

  /** Return what a loop carries out of its last iteration; collect its rows. @param {ProgramRun} run
   *  @param {api.LoopStep} step @param {GPUBuffer[][]} rows @returns {Promise<ProgramValue[]>} */
  async #iterate(run, step, rows) {
    const { program, values, sizes, turn } = run;
    const { count, symbol, condition, going } = step;
    const most = count === null ? Infinity : evaluate(count, sizes);
    if (count !== null && condition === null && going === null) this.#requireRoom(step, sizes, most);
    const own = this.#ordinal(step);
    let carried = step.carried.map(({ initial }) => valueAt(values, initial));
    let goesOn = condition === null || await this.#isTrue(turn, values, condition);
    let number = 0;
    /** @param {number} iterations */
    const note = (iterations) => {
      if (symbol === null) return;
      sizes[symbol] = iterations;
      requireRanges(program, sizes, [symbol]);
    };
    /** Set the symbols of what is carried. */
    const noteSizes = () => {
      for (const [at, { symbols = [] }] of step.carried.entries()) {
        for (const [axis, own] of symbols.entries()) {
          if (own === null) continue;
          sizes[own] = carried[at].dims[axis];
          requireRanges(program, sizes, [own]);
        }
      }
    };
    noteSizes();
    for (; goesOn && number < most; number++) {
      countWork(run, 1, step);
      this.#requireRoom(step, sizes, number + 1);
      if (symbol !== null && number >= program.ranges[symbol].high) note(number + 1);
      const inner = new Map(values);
      const iteration = new BigInt64Array([BigInt(number)]);
      inner.set(step.iteration, { dtype: "int64", dims: [], data: iteration });
      for (const [at, { name }] of step.carried.entries()) inner.set(name, carried[at]);
      await this.#runSteps({ ...run, values: inner, inPlace: false }, step.steps);
      await turn.submit("a loop", () => {
        // Copies, since the next iteration writes to the buffers of this one; of two that alternate one is read.
        carried = step.carried.map(({ name, next }) => {
          const value = valueAt(inner, next);
          const data = this.#buffers.allocate(`loop ${own} ${name} ${number % 2}`, bytesOf(value));
          this.#copy(value, data);
          return { ...value, data };
        });
        const stacked = step.stacked.map(({ row }) => valueAt(inner, row));
        for (const [at, value] of stacked.entries()) {
          rows[at].push(this.#buffers.create(this.#rowName(step, at, number), bytesOf(value)));
          this.#copy(value, /** @type {GPUBuffer} */ (rows[at].at(-1)));
        }
        return { work: copyWork([...carried, ...stacked]), finish: nothing };
      });
      goesOn = going === null || await this.#isTrue(turn, inner, going);
      noteSizes();
    }
    note(number);
    return carried;
  }

  /** Return a number for a loop: another one may carry values of the same names. @param {api.LoopStep} step */
  #ordinal(step) {
    const ordinal = this.#loops.get(step) ?? this.#loops.size;
    this.#loops.set(step, ordinal);
    return ordinal;
  }

  /** @param {api.LoopStep} step @param {number} at @param {number} number */
  #rowName(step, at, number) {
    return `loop ${this.#ordinal(step)} row ${at} ${number} of '${step.stacked[at].result}'`;
  }

  /** @param {api.LoopStep} step @param {Symbols} sizes @param {number} iterations
   *  @throws {ShaderloomError} "device" for rows that no buffer holds */
  #requireRoom({ stacked }, sizes, iterations) {
    for (const { row, result, dtype, shape } of stacked) {
      const dims = [iterations, ...shapeOf({ name: row, shape }, sizes)];
      const [bytes, { maxBufferSize }] = [bytesOf({ dtype, dims }), this.#guard.device.limits];
      if (bytes <= maxBufferSize) continue;
      const text = `'${result}' has ${bytes} bytes with ${iterations} iterations; a buffer of the device may have ${maxBufferSize}`;
      throw new ShaderloomError("device", text);
    }
  }

  /** Copy the elements of a value to the start of a buffer. @param {ProgramValue} value @param {GPUBuffer} buffer */
  #copy(value, buffer) {
    const { device } = this.#guard;
    if (!isBuffer(value.data)) writeArray(device, buffer, value.data);
    else if (bytesOf(value)) {
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(value.data, 0, buffer, 0, Math.ceil(bytesOf(value) / 4) * 4);
      device.queue.submit([encoder.finish()]);
    }
  }

  /** Return rows, which are whole words, along a new first axis. @param {GPUCommandEncoder} encoder
   *  @param {GPUBuffer[]} rows @param {api.LoopStep["stacked"][number]} stacked @param {Symbols} sizes
   *  @returns {ProgramValue} */
  #stacked(encoder, rows, { row, result, dtype, shape }, sizes) {
    const dims = shapeOf({ name: row, shape }, sizes);
    const bytes = bytesOf({ dtype, dims });
    const buffer = this.#buffers.allocate(`stacked ${result}`, bytes * rows.length);
    for (const [at, source] of rows.entries()) {
      if (bytes) encoder.copyBufferToBuffer(source, 0, buffer, at * bytes, bytes);
    }
    return { dtype, dims: [rows.length, ...dims], data: buffer };
  }

  /** @param {ProgramRun} run @param {api.StageStep} step @param {api.Step[]} later the steps behind it */
  async #runStage(run, step, later) {
    const { values, sizes, turn, time } = run;
    const loaded = await this.#plans.get({ key: step.plan, software: step.software });
    const { plan, sources } = loaded;
    /** @type {Symbols} */
    const symbols = Object.create(null);
    for (const { name } of plan.symbols) symbols[name] = sizes[name];
    /** @type {Record<string, ProgramValue>} */
    const feeds = Object.create(null);
    for (const port of plan.inputs) {
      const { name, dtype } = port;
      const rows = { dtype, dims: shapeOf(port, symbols), data: new Uint8Array(0) };
      feeds[name] = Object.hasOwn(step.sizes, name) ? rows : valueAt(values, name);
      requireShape(port, symbols, feeds[name]);
    }
    countWork(run, dispatchCount(plan, symbols), step);
    /** @type {Iterable<Dispatch>} */
    let dispatches = [];
    await turn.submit("a stage", (encoder) => {
      const bound = this.#calls.bind(loaded, symbols, feeds, takenBuffers(run, plan, later));
      encodeStates(encoder, plan, symbols, bound.lookup);
      for (const port of plan.outputs) {
        const { name, dtype } = port;
        const content = contentOf(sources.get(name), bound.lookup);
        const data = isBuffer(content) ? content : typedArray(dtype, content.buffer);
        values.set(name, { dtype, dims: shapeOf(port, symbols), data });
      }
      dispatches = bound.dispatches;
      return { dispatches: time ? [] : dispatches, finish: nothing };
    });
    await time?.(turn, dispatches, symbols);
  }

  /** Return the elements of a value as numbers. @param {Turn} turn @param {ProgramValue} value
   *  @returns {Promise<number[]>} */
  async #read(turn, value) {
    const { read } = await this.#deliver(turn, [["read", value]], {});
    return Array.from(/** @type {ArrayLike<number | bigint>} */ (/** @type {api.CpuTensor} */ (read).data), Number);
  }

  /** Return values as a caller gets them, in arrays and buffers of its own, or in fed buffers that were `taken`.
   *  @param {Turn} turn @param {[name: string, value: ProgramValue][]} values @param {Pick<api.RunOptions, "location" | "into">} places
   *  @param {Set<GPUBuffer>} [taken] @returns {Promise<Record<string, api.Tensor>>} */
  #deliver(turn, values, places, taken = new Set()) {
    const { device } = this.#guard;
    return turn.submit("reading results", () => {
      /** @type {Output[]} */
      const outputs = [];
      /** @type {Map<string, Source>} */
      const sources = new Map();
      /** @type {Map<string, GPUBuffer>} */
      const buffers = new Map();
      for (const [name, { data, dtype, dims }] of values) {
        outputs.push({ name, dtype, dims: [...dims], bytes: bytesOf({ dtype, dims }) });
        if (isBuffer(data)) buffers.set(name, data);
        const bytes = isBuffer(data) ? undefined : new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice();
        sources.set(name, { constant: bytes, buffer: name });
      }
      const lookup = (/** @type {string} */ name) => buffers.get(name);
      const begun = new Map([...buffers].filter(([, buffer]) => taken.has(buffer)));
      const placed = placeOutputs(device, outputs, places, begun);
      return { finish: (encoder) => this.#copies.deliver(encoder, sources, placed, lookup) };
    });
  }
}

/** Return the buffers of feeds to which a stage writes the outputs that begin as these, by the names of these in the
 *  plan: where no step `later`, and no other value, has what is overwritten. Add them to those of the run.
 *  @param {ProgramRun} run @param {Plan} plan @param {api.Step[]} later @returns {Map<string, GPUBuffer>} */
function takenBuffers({ program, values, inPlace, taken }, { states }, later) {
  /** @type {Map<string, GPUBuffer>} */
  const written = new Map();
  if (!inPlace) return written;
  for (const { output, input } of states) {
    const { data } = valueAt(values, input);
    const isShared = [...values].some(([name, value]) => name !== input && value.data === data);
    const isRead = [...stepsOf(later)].some((step) => readBy(step).includes(input));
    if (!isBuffer(data) || isShared || isRead || !Object.hasOwn(program.shapes, input)) continue;
    written.set(`output:${output}`, data);
    taken.add(data);
  }
  return written;
}

/** Return the values that a step reads, those of the steps inside of it aside. @param {api.Step} step @returns {string[]} */
function readBy(step) {
  if (step.kind === "stage") return step.inputs;
  if (step.kind === "read") return [step.value];
  if (step.kind === "alias") return [step.source];
  if (step.kind === "branch") return [step.condition];
  return step.kind === "loop" ? [step.condition ?? "", ...step.carried.map(({ initial }) => initial)] : [];
}

/** What ends the work of which nothing is waited for. */
const nothing = () => () => Promise.resolve();

/** Return the work of copies, as calls estimate it. @param {ProgramValue[]} values */
const copyWork = (values) => 8 * values.reduce((sum, value) => sum + bytesOf(value), 0);

/** Return the bytes of a value's elements. @param {Pick<ProgramValue, "dtype" | "dims">} value */
const bytesOf = ({ dtype, dims }) => elementCount(dims) * elementBytes(dtype);

/** Return how many dispatches a run of a plan has, empty ones included. @param {Plan} plan @param {Symbols} sizes */
const dispatchCount = ({ commands }, sizes) => commands.reduce((sum, command) =>
  sum + command.calls.length * (command.kind === "repeat" ? Math.max(evaluate(command.count, sizes), 0) : 1), 0);

/** Count steps, iterations and dispatches. @param {ProgramRun} run @param {number} number @param {any} step the one that
 *  they are of @throws {ShaderloomError} "input" for more than a run may have */
function countWork({ work }, number, step) {
  work.done += number;
  if (work.done <= MOST_WORK) return;
  const { kind, outputs: [output] = [], iteration, value, condition, test, reason, plan } = step;
  const text = `${kind} of '${output?.name ?? iteration ?? value ?? condition ?? test ?? reason ?? plan}'`;
  throw new ShaderloomError(
    "input", `a run carries out at most ${MOST_WORK} steps and dispatches; this one has more with its ${text}`);
}

/** @param {api.Program} program @param {Symbols} sizes @param {string[]} symbols
 *  @throws {ShaderloomError} "input" for the size of a symbol that is outside of its range */
function requireRanges(program, sizes, symbols) {
  const violation = rangeViolation(Object.fromEntries(symbols.map((symbol) => [symbol, sizes[symbol]])), program.ranges);
  if (violation) throw new ShaderloomError("input", violation);
}

/** Return a value that is there, as the manifest was checked. @param {Map<string, ProgramValue>} values
 *  @param {string} name */
const valueAt = (values, name) => /** @type {ProgramValue} */ (values.get(name));
