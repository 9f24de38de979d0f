// Programs of bundles: loaded where a manifest has some.

/** @import * as api from "../shaderloom.js" */
/** @import { BoundCall, Calls } from "./calls.js" */
/** @import { Value } from "./feeds.js" */
/** @import { DeviceGuard } from "./guard.js" */
/** @import { Output, OutputCopies, Source } from "./outputs.js" */
/** @import { PlanKeys, Plans } from "./plans.js" */
/** @import { Symbols } from "./shapes.js" */

import { encodeRun, encodeStates } from "./calls.js";
import { elementBytes, typedArray } from "./dtypes.js";
import { ShaderloomError } from "./errors.js";
import { isBuffer, requireShape } from "./feeds.js";
import { contentOf } from "./outputs.js";
import { stepsOf } from "./program_relations.js";
import { rangeViolation } from "./shapes.js";
import { elementCount, shapeOf } from "./sizes.js";

export { checkPrograms, stageUses } from "./program_relations.js";

/** A value of a run: elements on the host or in a buffer.
 *  @typedef {{ data: api.TypedArray | GPUBuffer, dtype: api.DataType, dims: readonly number[] }} ProgramValue
 *  @typedef {(calls: BoundCall[], symbols: Symbols) => Promise<void>} TimeCalls */

/** Return the keys of the stages of a program. @param {api.Step[]} steps @returns {PlanKeys[]} */
export const stagesOf = (steps) => [...stepsOf(steps)].flatMap((step) =>
  step.kind === "stage" ? { key: step.plan, software: step.software } : []);

/** Run programs: one at a time, since each depends on values that it reads back. */
export class ProgramRunner {
  #guard;
  #calls;
  #copies;
  #plans;
  /** The run before. @type {Promise<unknown>} */
  #turn = Promise.resolve();

  /** @param {DeviceGuard} guard @param {Calls} calls @param {OutputCopies} copies @param {Plans} plans */
  constructor(guard, calls, copies, plans) {
    this.#guard = guard;
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
    for (let steps = program.steps, index = 0; index < steps.length; index++) {
      this.#guard.check();
      signal?.throwIfAborted();
      const step = steps[index];
      if (step.kind === "stage") await this.#runStage(step, values, sizes, time);
      else if (step.kind === "alias") values.set(step.value, valueAt(values, step.source));
      else if (step.kind === "refuse") throw new ShaderloomError("input", step.reason);
      else if (step.kind === "branch") {
        const [taken] = await this.#read(valueAt(values, step.condition));
        steps = taken ? step.true : step.false;
        index = -1;
      } else {
        const elements = await this.#read(valueAt(values, step.value));
        for (const [at, symbol] of step.symbols.entries()) sizes[symbol] = elements[at];
        const read = Object.fromEntries(step.symbols.map((symbol) => [symbol, sizes[symbol]]));
        const violation = rangeViolation(read, program.ranges);
        if (violation) throw new ShaderloomError("input", violation);
      }
    }
    return this.#deliver(outputs.map((name) => [name, valueAt(values, name)]), location);
  }

  /** @param {api.StageStep} step @param {Map<string, ProgramValue>} values @param {Symbols} sizes
   *  @param {TimeCalls} [time] */
  async #runStage(step, values, sizes, time) {
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
        outputs.push({ name, dtype, dims: [...dims], bytes: elementCount(dims) * elementBytes(dtype) });
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

/** Return a value that is there, as the manifest was checked. @param {Map<string, ProgramValue>} values
 *  @param {string} name */
const valueAt = (values, name) => /** @type {ProgramValue} */ (values.get(name));
