// Programs of bundles: loaded where a manifest has some.

/** @import * as api from "../shaderloom.js" */
/** @import { Attachment } from "./session.js" */
/** @import { Dispatch } from "./calls.js" */
/** @import { Content } from "./buffers.js" */
/** @import { Turn } from "./pacing.js" */
/** @import { PlanKeys } from "./plans.js" */
/** @import { Match, Symbols } from "./tensors.js" */

import { contentOf, copyBuffer, placeOutputs, selectPorts, writeArray } from "./buffers.js";
import { ensure } from "./errors.js";
import { stepsOf } from "./program_relations.js";
import {
  evaluate, isBuffer, MOST_WORK, rangeViolation, requireShape, shapeOf, tensorBytes, typedArray,
} from "./tensors.js";

export { checkPrograms, stageUses } from "./program_relations.js";

/** A value of a run: elements on the host or in a buffer.
 *  @typedef {{ data: api.TypedArray | GPUBuffer, dtype: api.DataType, dims: readonly number[] }} ProgramValue
 *  @typedef {Map<string, ProgramValue>} Values Those that are there, by name.
 *  @typedef {(turn: Turn, dispatches: Iterable<Dispatch>, symbols: Symbols) => Promise<void>} TimeCalls
 *  @typedef {api.RunOptions & { time?: TimeCalls }} Options */

/** Return the keys of the stages of a program. @param {api.Step[]} steps @returns {PlanKeys[]} */
export const stagesOf = (steps) => [...stepsOf(steps)].flatMap((step) =>
  step.kind === "stage" ? { key: step.plan, software: step.software } : []);

/**
 * Run the program that fits feeds once the runs before it have ended. No other run takes place meanwhile, since each
 * depends on values that it reads back.
 *
 * @param {Attachment} on @param {Required<Match>} match @param {readonly api.Port[]} ports the outputs of the model
 * @param {Options} options
 * @returns {Promise<Record<string, api.Tensor>>}
 * @throws {ShaderloomError} "input" for unknown outputs, shapes that do not fit and integers outside of their ranges,
 *   "bundle", "device"; and the signal's reason once it is aborted
 */
export async function runProgram(on, match, ports, options) {
  const outputs = selectPorts(ports, options.outputs);
  return on.pacer.inTurn(options.signal, (turn) => runInTurn(on, turn, match, outputs, options));
}

/** @param {Attachment} on @param {Turn} turn @param {Required<Match>} match @param {readonly api.Port[]} outputs
 *  @param {Options} options @returns {Promise<Record<string, api.Tensor>>} */
async function runInTurn({ guard, buffers, plans, calls, copies }, turn, match, outputs, options) {
  const { program } = match;
  /** The sizes that are there. @type {Symbols} */
  const sizes = Object.assign(Object.create(null), match.symbols);
  /** All steps: loops are told by their numbers among these, as another one may carry values of the same names. */
  const numbered = [...stepsOf(program.steps)];
  /** Fed buffers to which outputs were written. @type {Set<unknown>} */
  const taken = new Set();
  /** How many steps, iterations and dispatches there were. */
  let work = 0;

  /** Run steps to the end of their block. @param {api.Step[]} steps @param {Values} values
   *  @param {unknown} [inPlace] truthy where outputs may be written to feeds */
  async function runSteps(steps, values, inPlace) {
    for (const [index, step] of steps.entries()) {
      guard.check();
      options.signal?.throwIfAborted();
      countWork(1, step);
      await carryOut[step.kind](step, values, inPlace ? steps.slice(index + 1) : undefined);
    }
  }

  /** What steps do, by kind; `later` are those behind a step, where outputs may be written to feeds.
   *  @type {Record<string, (step: any, values: Values, later?: api.Step[]) => unknown>} */
  const carryOut = {
    stage: runStage,
    loop: runLoop,
    alias: ({ value, source }, values) => values.set(value, valueAt(values, source)),
    refuse: ({ reason }) => ensure("input", false, reason),
    branch: async (step, values, later) =>
      runSteps(await isTrue(values, step.condition) ? step.true : step.false, values, later),
    compare(step, values, later) {
      const [left, right] = [step.left, step.right].map((size) => evaluate(size, sizes));
      const holds = step.test === "less" ? left < right : left === right;
      return runSteps(holds ? step.true : step.false, values, later);
    },
    async read({ value, symbols }, values) {
      const elements = await readElements(valueAt(values, value));
      for (const [at, symbol] of symbols.entries()) setSize(symbol, elements[at]);
      for (const symbol of symbols) sizes[symbol] -= Math.min(program.ranges[symbol].low, 0);
    },
  };

  /** Count steps, iterations and dispatches. @param {number} number @param {any} step the one that they are of
   *  @throws {ShaderloomError} "input" for more than a run may have */
  function countWork(number, step) {
    work += number;
    const { kind, outputs, iteration, value, condition, test, reason, plan } = step;
    const subject = outputs?.[0]?.name ?? iteration ?? value ?? condition ?? test ?? reason ?? plan;
    ensure("input", work <= MOST_WORK, `a run carries out at most ${MOST_WORK} steps and dispatches; ` +
      `this one has more with its ${kind} of '${subject}'`);
  }

  /** Set the size of a symbol. @param {string} symbol @param {number} size
   *  @throws {ShaderloomError} "input" for one that is outside of its range */
  function setSize(symbol, size) {
    sizes[symbol] = size;
    const violation = rangeViolation({ [symbol]: size }, program.ranges);
    ensure("input", !violation, violation ?? "");
  }

  /** @param {Values} values @param {string} name */
  const isTrue = async (values, name) => Boolean((await readElements(valueAt(values, name)))[0]);

  /** Run the iterations of a loop; what it carries, and its rows, stay on the device.
   *  @param {api.LoopStep} step @param {Values} values */
  async function runLoop(step, values) {
    const own = numbered.indexOf(step);
    /** @type {GPUBuffer[][]} */
    const rows = step.stacked.map(() => []);
    /** @param {number} at @param {number} number */
    const rowName = (at, number) => `loop ${own} row ${at} ${number} of '${step.stacked[at].result}'`;
    /** @param {ProgramValue[]} carried @param {Values} inner @param {number} number the iteration's */
    const keep = (carried, inner, number) => turn.submit("a loop", (encoder) => {
      // Copies, since the next iteration writes to the buffers of this one; of two that alternate one is read.
      for (const [at, { name, next }] of step.carried.entries()) {
        const value = valueAt(inner, next);
        const data = buffers.allocate(`loop ${own} ${name} ${number % 2}`, tensorBytes(value));
        carried[at] = copied(encoder, value, data);
      }
      const stacked = step.stacked.map(({ row }) => valueAt(inner, row));
      for (const [at, value] of stacked.entries()) {
        const row = buffers.create(rowName(at, number), tensorBytes(value));
        rows[at].push(row);
        copied(encoder, value, row);
      }
      return { work: copyWork([...carried, ...stacked]) };
    });
    try {
      const carried = await iterate(step, values, keep);
      for (const [at, { result }] of step.carried.entries()) if (result !== null) values.set(result, carried[at]);
      await turn.submit("a loop", (encoder) => {
        const results = step.stacked.map((stacked, at) => stackRows(encoder, rows[at], stacked));
        for (const [at, { result }] of step.stacked.entries()) values.set(result, results[at]);
        return { work: copyWork(results) };
      });
    } finally {
      for (const [at, stacked] of rows.entries()) for (const number of stacked.keys()) buffers.free(rowName(at, number));
    }
  }

  /** Return what a loop carries out of its last iteration. @param {api.LoopStep} step @param {Values} values
   *  @param {(carried: ProgramValue[], inner: Values, number: number) => Promise<void>} keep takes what an iteration gives
   *  @returns {Promise<ProgramValue[]>} */
  async function iterate(step, values, keep) {
    const { count, symbol, condition, going } = step;
    const most = count === null ? Infinity : evaluate(count, sizes);
    if (count !== null && condition === null && going === null) requireRoom(step, most);
    const carried = step.carried.map(({ initial }) => valueAt(values, initial));
    let goesOn = condition === null || await isTrue(values, condition);
    let number = 0;
    for (; ; number++) {
      for (const [at, { symbols = [] }] of step.carried.entries()) {
        for (const [axis, own] of symbols.entries()) if (own !== null) setSize(own, carried[at].dims[axis]);
      }
      if (!goesOn || number >= most) break;
      countWork(1, step);
      requireRoom(step, number + 1);
      if (symbol !== null && number >= program.ranges[symbol].high) setSize(symbol, number + 1);
      const inner = new Map(values);
      inner.set(step.iteration, { dtype: "int64", dims: [], data: BigInt64Array.of(BigInt(number)) });
      for (const [at, { name }] of step.carried.entries()) inner.set(name, carried[at]);
      await runSteps(step.steps, inner);
      await keep(carried, inner, number);
      goesOn = going === null || await isTrue(inner, going);
    }
    if (symbol !== null) setSize(symbol, number);
    return carried;
  }

  /** @param {api.LoopStep} step @param {number} iterations
   *  @throws {ShaderloomError} "device" for rows that no buffer holds */
  function requireRoom({ stacked }, iterations) {
    const { maxBufferSize: most } = guard.device.limits;
    for (const { row, result, dtype, shape } of stacked) {
      const bytes = tensorBytes({ dtype, dims: [iterations, ...shapeOf({ name: row, shape }, sizes)] });
      ensure("device", bytes <= most,
        `'${result}' has ${bytes} bytes with ${iterations} iterations; a buffer of the device may have ${most}`);
    }
  }

  /** Return a value whose elements are copied to the start of a buffer. @param {GPUCommandEncoder} encoder
   *  @param {ProgramValue} value @param {GPUBuffer} data @returns {ProgramValue} */
  function copied(encoder, value, data) {
    if (isBuffer(value.data)) copyBuffer(encoder, value.data, data, tensorBytes(value), "a loop copies what is fed");
    else writeArray(guard.device, data, value.data);
    return { ...value, data };
  }

  /** Return rows, which are whole words, along a new first axis. @param {GPUCommandEncoder} encoder
   *  @param {GPUBuffer[]} rows @param {api.LoopStep["stacked"][number]} stacked @returns {ProgramValue} */
  function stackRows(encoder, rows, { row, result, dtype, shape }) {
    const dims = shapeOf({ name: row, shape }, sizes);
    const bytes = tensorBytes({ dtype, dims });
    const data = buffers.allocate(`stacked ${result}`, bytes * rows.length);
    for (const [at, source] of rows.entries()) copyBuffer(encoder, source, data, bytes, "a row is copied", at * bytes);
    return { dtype, dims: [rows.length, ...dims], data };
  }

  /** @param {api.StageStep} step @param {Values} values @param {api.Step[]} [later] the steps behind it, where outputs may
   *  be written to feeds */
  async function runStage(step, values, later) {
    const loaded = await plans.get({ key: step.plan, software: step.software });
    const { plan, sources } = loaded;
    /** @type {Record<string, ProgramValue>} */
    const feeds = Object.create(null);
    for (const port of plan.inputs) {
      const { name, dtype } = port;
      const rows = { dtype, dims: shapeOf(port, sizes), data: new Uint8Array(0) };
      feeds[name] = Object.hasOwn(step.sizes, name) ? rows : valueAt(values, name);
      requireShape(port, sizes, feeds[name]);
    }
    countWork(dispatchCount(plan, sizes), step);
    await turn.submit("a stage", (encoder) => {
      const written = later ? takenBuffers(plan, values, later) : undefined;
      const { dispatches, lookup } = calls.bind(encoder, loaded, sizes, feeds, written);
      for (const port of plan.outputs) {
        const { name, dtype } = port;
        const content = contentOf(sources, name, lookup);
        const data = isBuffer(content) ? content : typedArray(dtype, content.slice().buffer);
        values.set(name, { dtype, dims: shapeOf(port, sizes), data });
      }
      return { dispatches, symbols: sizes };
    }, options.time);
  }

  /** Return the buffers of feeds to which a stage writes the outputs that begin as these, by the names of these in the
   *  plan: where no step `later`, and no other value, has what is overwritten.
   *  @param {api.Plan} plan @param {Values} values @param {api.Step[]} later @returns {Map<string, GPUBuffer>} */
  function takenBuffers({ states }, values, later) {
    /** @type {Map<string, GPUBuffer>} */
    const written = new Map();
    for (const { output, input } of states) {
      const { data } = valueAt(values, input);
      const isShared = [...values].some(([name, value]) => name !== input && value.data === data);
      const isRead = [...stepsOf(later)].some((step) => READ_BY[step.kind]?.(step).includes(input));
      if (!isBuffer(data) || isShared || isRead || !Object.hasOwn(program.shapes, input)) continue;
      written.set(`output:${output}`, data);
      taken.add(data);
    }
    return written;
  }

  /** Return the elements of a value as numbers. @param {ProgramValue} value @returns {Promise<number[]>} */
  async function readElements(value) {
    const { read } = await deliver([["read", value]], {});
    return Array.from(/** @type {ArrayLike<number | bigint>} */ (/** @type {api.CpuTensor} */ (read).data), Number);
  }

  /** Return values as a caller gets them, in arrays and buffers of its own, or in fed buffers that were taken.
   *  @param {[name: string, value: ProgramValue][]} values @param {Pick<api.RunOptions, "location" | "into">} places
   *  @returns {Promise<Record<string, api.Tensor>>} */
  function deliver(values, places) {
    return turn.submit("reading results", () => {
      const contents = new Map(values.map(([name, { data }]) => [name, data]));
      const begun = /** @type {Map<string, GPUBuffer>} */ (new Map([...contents].filter(([, data]) => taken.has(data))));
      const placed = placeOutputs(guard.device, values.map(([name, value]) => ({ name, ...value })), places, begun);
      return { finish: (encoder) => copies.deliver(encoder, placed, (name) => /** @type {Content} */ (contents.get(name))) };
    });
  }

  /** @type {Values} */
  const outermost = new Map();
  for (const [name, shape] of Object.entries(program.shapes)) {
    const { dtype, data, dims = shapeOf({ name, shape }, match.symbols) } = match.values[name];
    outermost.set(name, { dtype, data, dims });
  }
  await runSteps(program.steps, outermost, options.inPlace);
  return deliver(outputs.map(({ name }) => [name, valueAt(outermost, name)]), options);
}

/** The values that steps read by kind, those of the steps inside of them aside.
 *  @type {Record<string, (step: any) => (string | null)[]>} */
const READ_BY = {
  stage: ({ inputs }) => inputs,
  read: ({ value }) => [value],
  alias: ({ source }) => [source],
  branch: ({ condition }) => [condition],
  loop: ({ condition, carried }) => [condition, ...carried.map((/** @type {any} */ { initial }) => initial)],
};

/** Return the work of copies, as calls estimate it. @param {ProgramValue[]} values */
const copyWork = (values) => 8 * values.reduce((sum, value) => sum + tensorBytes(value), 0);

/** Return how many dispatches a run of a plan has, empty ones included. @param {api.Plan} plan @param {Symbols} sizes */
const dispatchCount = ({ commands }, sizes) => commands.reduce((sum, command) =>
  sum + command.calls.length * (command.kind === "repeat" ? Math.max(evaluate(command.count, sizes), 0) : 1), 0);

/** Return a value that is there, as the manifest was checked. @param {Values} values @param {string} name */
const valueAt = (values, name) => /** @type {ProgramValue} */ (values.get(name));
