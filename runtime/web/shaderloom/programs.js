// Programs of bundles: loaded where a manifest has some.

/** @import * as api from "../shaderloom.js" */
/** @import { Buffers } from "./buffers.js" */
/** @import { BoundCall, Calls } from "./calls.js" */
/** @import { Value } from "./feeds.js" */
/** @import { DeviceGuard } from "./guard.js" */
/** @import { Output, OutputCopies, Source } from "./outputs.js" */
/** @import { PlanKeys, Plans } from "./plans.js" */
/** @import { Symbols } from "./shapes.js" */

import { tensorUsage, writeArray } from "./buffers.js";
import { encodeRun, encodeStates } from "./calls.js";
import { elementBytes, typedArray } from "./dtypes.js";
import { ShaderloomError } from "./errors.js";
import { isBuffer, requireShape } from "./feeds.js";
import { contentOf } from "./outputs.js";
import { stepsOf } from "./program_relations.js";
import { rangeViolation } from "./shapes.js";
import { bufferSize, elementCount, evaluate, shapeOf } from "./sizes.js";

export { checkPrograms, stageUses } from "./program_relations.js";

/** A value of a run: elements on the host or in a buffer.
 *  @typedef {{ data: api.TypedArray | GPUBuffer, dtype: api.DataType, dims: readonly number[] }} ProgramValue
 *  @typedef {(calls: BoundCall[], symbols: Symbols) => Promise<void>} TimeCalls
 *  @typedef {{ program: api.Program, values: Map<string, ProgramValue>, sizes: Symbols, signal?: AbortSignal,
 *    time?: TimeCalls }} ProgramRun The values and sizes that are there. */

/** Return the keys of the stages of a program. @param {api.Step[]} steps @returns {PlanKeys[]} */
export const stagesOf = (steps) => [...stepsOf(steps)].flatMap((step) =>
  step.kind === "stage" ? { key: step.plan, software: step.software } : []);

/** Run programs: one at a time, since each depends on values that it reads back. */
export class ProgramRunner {
  #guard;
  #buffers;
  #calls;
  #copies;
  #plans;
  /** The run before. @type {Promise<unknown>} */
  #turn = Promise.resolve();

  /** @param {DeviceGuard} guard @param {Buffers} buffers @param {Calls} calls @param {OutputCopies} copies
   *  @param {Plans} plans */
  constructor(guard, buffers, calls, copies, plans) {
    this.#guard = guard;
    this.#buffers = buffers;
    this.#calls = calls;
    this.#copies = copies;
    this.#plans = plans;
  }

  /** Return what `work` resolves to, which begins once the works before it have ended. @template T
   *  @param {() => Promise<T>} work @returns {Promise<T>} */
  inTurn(work) {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => {});
    return result;
  }

  /**
   * Run a program; `symbols` has the sizes of its dynamic dimensions.
   *
   * @template {keyof api.Located} Location
   * @param {api.Program} program @param {Symbols} symbols @param {Record<string, Value>} feeds
   * @param {{ location: Location, outputs: readonly string[], signal?: AbortSignal, time?: TimeCalls }} options
   * @returns {Promise<Record<string, api.Located[Location]>>}
   * @throws {ShaderloomError} "input" for shapes that do not fit and integers outside of their ranges, "bundle",
   *   "device"; and the signal's reason once it is aborted
   */
  async run(program, symbols, feeds, { location, outputs, signal, time }) {
    /** @type {Map<string, ProgramValue>} */
    const values = new Map();
    for (const [name, shape] of Object.entries(program.shapes)) {
      const { dtype, data, dims = shapeOf({ name, shape }, symbols) } = feeds[name];
      values.set(name, { dtype, data, dims });
    }
    /** @type {Symbols} */
    const sizes = Object.assign(Object.create(null), symbols);
    /** @type {ProgramRun} */
    const run = { program, values, sizes, signal, time };
    await this.#runSteps(run, program.steps);
    return this.#deliver(outputs.map((name) => [name, valueAt(values, name)]), location);
  }

  /** Run steps to the end of their block. @param {ProgramRun} run @param {api.Step[]} steps */
  async #runSteps(run, steps) {
    const { program, values, sizes, signal } = run;
    for (let index = 0; index < steps.length; index++) {
      this.#guard.check();
      signal?.throwIfAborted();
      const step = steps[index];
      if (step.kind === "stage") await this.#runStage(run, step);
      else if (step.kind === "alias") values.set(step.value, valueAt(values, step.source));
      else if (step.kind === "refuse") throw new ShaderloomError("input", step.reason);
      else if (step.kind === "loop") await this.#runLoop(run, step);
      else if (step.kind === "branch") {
        await this.#runSteps(run, await this.#isTrue(values, step.condition) ? step.true : step.false);
      } else {
        const elements = await this.#read(valueAt(values, step.value));
        for (const [at, symbol] of step.symbols.entries()) sizes[symbol] = elements[at];
        requireRanges(program, sizes, step.symbols);
      }
    }
  }

  /** @param {Map<string, ProgramValue>} values @param {string} name */
  async #isTrue(values, name) {
    const [element] = await this.#read(valueAt(values, name));
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
      await this.#guard.watch("a loop", async () => {
        for (const [at, stacked] of step.stacked.entries()) {
          values.set(stacked.result, this.#stacked(rows[at], stacked, sizes));
        }
      });
    } finally {
      for (const buffer of rows.flat()) buffer.destroy(); // what was submitted still completes
    }
  }

  /** Return what a loop carries out of its last iteration; collect its rows. @param {ProgramRun} run
   *  @param {api.LoopStep} step @param {GPUBuffer[][]} rows @returns {Promise<ProgramValue[]>} */
  async #iterate(run, step, rows) {
    const { program, values, sizes } = run;
    const { count, symbol, condition, going } = step;
    const most = count === null ? Infinity : evaluate(count, sizes);
    let carried = step.carried.map(({ initial }) => valueAt(values, initial));
    let goesOn = condition === null || await this.#isTrue(values, condition);
    let number = 0;
    /** @param {number} iterations */
    const note = (iterations) => {
      if (symbol === null) return;
      sizes[symbol] = iterations;
      requireRanges(program, sizes, [symbol]);
    };
    for (; goesOn && number < most; number++) {
      if (symbol !== null && number >= program.ranges[symbol].high) note(number + 1);
      const inner = new Map(values);
      const iteration = new BigInt64Array([BigInt(number)]);
      inner.set(step.iteration, { dtype: "int64", dims: [], data: iteration });
      for (const [at, { name }] of step.carried.entries()) inner.set(name, carried[at]);
      await this.#runSteps({ ...run, values: inner }, step.steps);
      await this.#guard.watch("a loop", async () => {
        // Copies, since the next iteration writes to the buffers of this one; of two that alternate one is read.
        carried = step.carried.map(({ name, next }) => {
          const value = valueAt(inner, next);
          const data = this.#buffers.allocate(`loop ${name} ${number % 2}`, bytesOf(value));
          this.#copy(value, data);
          return { ...value, data };
        });
        for (const [at, { row }] of step.stacked.entries()) {
          const value = valueAt(inner, row);
          const size = bufferSize(bytesOf(value));
          rows[at].push(this.#guard.device.createBuffer({ size, usage: tensorUsage(), label: "row" }));
          this.#copy(value, /** @type {GPUBuffer} */ (rows[at].at(-1)));
        }
      });
      goesOn = going === null || await this.#isTrue(inner, going);
    }
    note(number);
    return carried;
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

  /** Return rows, which are whole words, along a new first axis. @param {GPUBuffer[]} rows
   *  @param {api.LoopStep["stacked"][number]} stacked @param {Symbols} sizes @returns {ProgramValue} */
  #stacked(rows, { row, result, dtype, shape }, sizes) {
    const dims = shapeOf({ name: row, shape }, sizes);
    const bytes = bytesOf({ dtype, dims });
    const buffer = this.#buffers.allocate(`stacked ${result}`, bytes * rows.length);
    const encoder = this.#guard.device.createCommandEncoder();
    for (const [at, source] of rows.entries()) {
      if (bytes) encoder.copyBufferToBuffer(source, 0, buffer, at * bytes, bytes);
    }
    this.#guard.device.queue.submit([encoder.finish()]);
    return { dtype, dims: [rows.length, ...dims], data: buffer };
  }

  /** @param {ProgramRun} run @param {api.StageStep} step */
  async #runStage({ values, sizes, time }, step) {
    const loaded = await this.#plans.get({ key: step.plan, software: step.software });
    const { plan, sources } = loaded;
    const { device } = this.#guard;
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
    await this.#guard.watch("a stage", async () => {
      const { calls, lookup } = this.#calls.bind(loaded, symbols, feeds);
      const encoder = device.createCommandEncoder();
      if (time) encodeStates(encoder, plan, symbols, lookup);
      else encodeRun(encoder, plan, symbols, calls, lookup);
      device.queue.submit([encoder.finish()]);
      for (const port of plan.outputs) {
        const { name, dtype } = port;
        const content = contentOf(sources.get(name), lookup);
        const data = isBuffer(content) ? content : typedArray(dtype, content.buffer);
        values.set(name, { dtype, dims: shapeOf(port, symbols), data });
      }
      await time?.(calls, symbols);
    });
  }

  /** Return the elements of a value as numbers. @param {ProgramValue} value @returns {Promise<number[]>} */
  async #read(value) {
    const { read } = await this.#deliver([["read", value]], "cpu");
    return Array.from(/** @type {ArrayLike<number | bigint>} */ (read.data), Number);
  }

  /** Return values as a caller gets them, in arrays and buffers of its own. @template {keyof api.Located} Location
   *  @param {[name: string, value: ProgramValue][]} values @param {Location} location
   *  @returns {Promise<Record<string, api.Located[Location]>>} */
  #deliver(values, location) {
    const { device } = this.#guard;
    return this.#guard.watch("reading results", () => {
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
      const encoder = device.createCommandEncoder();
      const lookup = (/** @type {string} */ name) => buffers.get(name);
      const read = location === "gpu"
        ? this.#copies.toBuffers(encoder, sources, outputs, lookup, [])
        : this.#copies.toHost(encoder, sources, outputs, lookup);
      device.queue.submit([encoder.finish()]);
      return /** @type {Promise<Record<string, api.Located[Location]>>} */ (read());
    });
  }
}

/** Return the bytes of a value's elements. @param {Pick<ProgramValue, "dtype" | "dims">} value */
const bytesOf = ({ dtype, dims }) => elementCount(dims) * elementBytes(dtype);

/** @param {api.Program} program @param {Symbols} sizes @param {string[]} symbols
 *  @throws {ShaderloomError} "input" for the size of a symbol that is outside of its range */
function requireRanges(program, sizes, symbols) {
  const violation = rangeViolation(Object.fromEntries(symbols.map((symbol) => [symbol, sizes[symbol]])), program.ranges);
  if (violation) throw new ShaderloomError("input", violation);
}

/** Return a value that is there, as the manifest was checked. @param {Map<string, ProgramValue>} values
 *  @param {string} name */
const valueAt = (values, name) => /** @type {ProgramValue} */ (values.get(name));
