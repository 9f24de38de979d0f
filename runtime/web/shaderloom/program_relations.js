// The relations between the fields of a program: the checks of runtime/bundle/program_relations.py in the same order,
// by the same rules.

/** @import { PlanUse } from "./plan_relations.js" */
/** @import { Bounds, PortType } from "./manifest_relations.js" */

import { byName, byteBounds, checkRange, checkShapes, fedTypes, fits, isSameType, requireListed, sizeBounds } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { each, own, rule, within } from "./structure.js";
import { elementCount, MOST_ITERATIONS, MOST_WORK } from "./tensors.js";

/** Element types of integers that a run may read. */
const INTEGERS = ["int32", "int64", "uint8", "int8", "uint16", "int16", "uint32", "uint64"];

/** The types of the number of an iteration, and of the condition on which a loop goes on. */
const NUMBER = { dtype: "int64", shape: [] };
const CONDITION = { dtype: "bool", shape: [] };

/** The fields with the steps inside of a step, by its kind. @type {Record<string, string[]>} */
const INNER = { branch: ["true", "false"], compare: ["true", "false"], loop: ["steps"] };

/** Kinds of steps that no other step follows. */
const LAST = ["branch", "compare", "refuse"];

/** @param {any} manifest @param {Set<string>} planKeys those of its plans that are no stages: no stage and no program
 *  may have one of them @throws {import("./structure.js").Refusal} for the first relation that does not hold */
export function checkPrograms(manifest, planKeys) {
  const seen = new Set(planKeys);
  let total = 0;
  each(manifest, "programs", (program) => {
    rule("plan twice", !seen.has(program.key), "is listed twice");
    seen.add(program.key);
    for (const _ of stepsOf(program.steps)) total++;
    rule("steps", total <= SCHEMA.steps, `has more than ${SCHEMA.steps} steps with the programs before it`);
    checkProgram(manifest, program, planKeys);
  });
}

/** Yield all steps, those inside of branches and loops too. @param {any[]} steps @returns {Generator<any>} */
export function* stepsOf(steps) {
  for (const step of steps) {
    yield step;
    for (const name of INNER[step.kind] ?? []) yield* stepsOf(step[name]);
  }
}

/** Return what the stages with the plan of a key ask of it. @param {any} manifest @param {string} key
 *  @returns {PlanUse[]} */
export function stageUses(manifest, key) {
  return manifest.programs.flatMap((/** @type {any} */ program) => {
    const integers = Object.entries(program.ranges).map(([name, range]) => [name, sizesOf(range)]);
    const ranges = new Map([...Object.entries(manifest.dynamic), .../** @type {[string, any][]} */ (integers)]);
    /** @type {PlanUse[]} */
    const uses = [];
    checkProgram(manifest, program, new Set(), (step, values) => {
      if (![step.plan, step.software].includes(key)) return;
      const inputs = new Map(step.inputs.map((/** @type {string} */ name) => [name, values.get(name)]));
      for (const [port, symbol] of Object.entries(step.sizes)) inputs.set(port, { dtype: "uint8", shape: [symbol, 0] });
      uses.push({ inputs, outputs: byName(step.outputs), ranges });
    });
    return uses;
  });
}

/** Return the range of the sizes of a symbol that stands for integers: without what is below 0. @param {any} integers */
function sizesOf({ low, high, step }) {
  const below = Math.min(low, 0);
  return { low: low - below, high: high - below, step };
}

/** Items by name, of which the newest can be forgotten. @template Item @extends {Map<string, Item>} */
class Scope extends Map {
  /** @type {string[]} */
  #names = [];

  /** @override @param {string} name @param {Item} item */
  set(name, item) {
    if (!this.has(name)) this.#names.push(name);
    return super.set(name, item);
  }

  /** Remove all but the first items. @param {number} before their number */
  forget(before) {
    for (const name of this.#names.splice(before)) this.delete(name);
  }
}

/** Check a program along its steps: which values and symbols are there. Each stage is shown with the values before it.
 *  @param {any} manifest @param {any} program @param {Set<string>} planKeys
 *  @param {(step: any, values: Scope<PortType>) => void} [onStage] */
function checkProgram(manifest, program, planKeys, onStage) {
  const { dynamic, outputs } = manifest;
  /** @type {Scope<PortType>} */
  const values = new Scope();
  /** Those that have a size. @type {Scope<Bounds>} */
  const symbols = new Scope();

  /** Check the steps of a field to the end of their block, where `results` are values of these types; afterwards only
   *  what was there before them is there. Return how many steps they carry out at least.
   *  @param {any} owner @param {string} field @param {[string, PortType][]} results @returns {number} */
  function checkSteps(owner, field, results) {
    const before = [values.size, symbols.size];
    const steps = owner[field];
    let least = 0;
    each(owner, field, (step, index) => {
      rule("last step", !LAST.includes(step.kind) || index + 1 === steps.length, "is not the last step");
      least += 1 + checkStep(step, results);
      rule("work", least <= MOST_WORK, `ends what carries out more than ${MOST_WORK} steps in each run`);
    });
    for (const [name, type] of LAST.includes(steps.at(-1)?.kind) ? [] : results) {
      const value = values.get(name);
      rule("result", value && fits(type, value), `ends without '${name}', or with one of another type`, field);
    }
    values.forget(before[0]);
    symbols.forget(before[1]);
    return least;
  }

  /** Check a step, and return how many others it carries out at least. @param {any} step
   *  @param {[string, PortType][]} results of the block @returns {number} */
  function checkStep(step, results) {
    if (step.kind === "stage") checkStage(step);
    if (step.kind === "loop") return checkLoop(step);
    if (step.kind === "alias") define(step, "value", within("source", require, step.source));
    if (step.kind === "read") {
      requireRead(step, "value", step.symbols.length, INTEGERS);
      each(step, "symbols", (symbol) => defineSymbol(symbol, -Infinity));
    }
    if (step.kind === "branch") requireRead(step, "condition", 1, ["bool"]);
    if (step.kind === "compare") { // of sizes that may be negative
      for (const name of ["left", "right"]) within(name, (size) => sizeBounds(size, symbols, true), step[name]);
    }
    const sides = INNER[step.kind];
    return sides ? Math.min(...sides.map((side) => checkSteps(step, side, results))) : 0;
  }

  /** @param {any} step */
  function checkStage(step) {
    onStage?.(step, values);
    for (const key of [step.plan, step.software ?? step.plan]) {
      rule("plan twice", !planKeys.has(key), "is a plan of its own, too");
      requireListed(manifest, `plan-${key}.json`);
    }
    each(step, "inputs", require);
    each(step, "sizes", (symbol, port) => {
      rule("size", symbols.get(symbol) && !values.get(port), "is of no symbol that is there, or a value, too");
    });
    each(step, "outputs", (port) => {
      byteBounds(port, symbols);
      defineNew(port.name, port);
    });
  }

  /** Check a loop: how often it runs, what it carries and gives, and its body. Return how many iterations and steps it
   *  carries out at least. @param {any} step @returns {number} */
  function checkLoop(step) {
    const { count, symbol, condition, going, carried, stacked } = step;
    const isOpen = condition !== null || going !== null;
    const reason = `has more than ${MOST_ITERATIONS} iterations`;
    rule("loop", count !== null || symbol !== null, "has no bound of its iterations");
    const [low, high] = within("count", () => (count === null ? [0, 0] : sizeBounds(count, symbols)), count);
    rule("iterations", high <= MOST_ITERATIONS, reason, "count");
    rule("loop", symbol !== null || !isOpen, "has a number of iterations that only a symbol can have");
    if (condition !== null) requireRead(step, "condition", 1, ["bool"]);
    each(step, "carried", ({ initial }) => within("initial", require, initial));
    /** Those of what is carried: of initial values, with symbols for the axes that change. @type {PortType[]} */
    const types = carried.map(carriedType);
    const inside = values.size;
    define(step, "iteration", NUMBER);
    const expected = resultsOf(step, types);
    each(step, "carried", (value, at) => {
      if (value.symbols) each(value, "symbols", (name) => name !== null && defineSymbol(name));
      byteBounds(types[at], symbols);
    });
    const work = 1 + checkSteps(step, "steps", expected);
    values.forget(inside);
    if (symbol !== null) {
      const most = within("symbol", () => defineSymbol(symbol), symbol);
      rule("iterations", most <= MOST_ITERATIONS, reason, "symbol");
    }
    for (const [at, { result }] of carried.entries()) if (result !== null) defineNew(result, types[at]);
    for (const { result, dtype, shape } of stacked) defineNew(result, { dtype, shape: [symbol ?? count, ...shape] });
    return isOpen ? 0 : Math.max(low, 0) * work;
  }

  /** Define what a loop carries, and return what the end of its body must have: one type for each name.
   *  @param {any} step @param {PortType[]} types of what is carried @returns {[string, PortType][]} */
  function resultsOf(step, types) {
    /** @type {Map<string, PortType>} */
    const results = new Map();
    /** @param {string} name @param {PortType} type @returns {boolean} whether the name stands for this type alone */
    const expect = (name, type) => {
      const present = results.get(name) ?? type;
      results.set(name, present);
      return isSameType(present, type);
    };
    each(step, "carried", (carried, at) => {
      const { dtype, shape } = require(carried.initial);
      const changing = carried.symbols ?? shape.map(() => null);
      rule("carried", changing.length === shape.length, "has symbols of another number of axes", "symbols");
      define(carried, "name", types[at]);
      const sizes = shape.map((/** @type {any} */ size, /** @type {number} */ axis) => (changing[axis] === null ? size : null));
      rule("carried", expect(carried.next, { dtype, shape: sizes }), "is carried as values of two types", "next");
    });
    each(step, "stacked", ({ row, dtype, shape }) => {
      byteBounds({ dtype, shape: [...shape, MOST_ITERATIONS] }, symbols);
      rule("row", SCHEMA.dtypes[dtype] % 4 === 0, "is not made of whole words");
      rule("row", expect(row, { dtype, shape }), "has another type than what is carried");
    });
    const isBool = step.going === null || expect(step.going, CONDITION);
    rule("loop", isBool, "goes on by a value of another type than bool", "going");
    return [...results];
  }

  /** Return the type of a carried value: that of the initial one, with symbols for the axes that change.
   *  @param {any} carried @returns {PortType} */
  function carriedType({ initial, symbols: changing = [] }) {
    const { dtype, shape } = require(initial);
    return { dtype, shape: shape.map((/** @type {any} */ size, /** @type {number} */ axis) => changing[axis] ?? size) };
  }

  /** @param {string} symbol @param {number} [least] @returns {number} its upper bound */
  function defineSymbol(symbol, least = 0) {
    const range = own(program.ranges, symbol);
    rule("read symbol", range && !symbols.get(symbol) && range.low >= least, "has no range, or is read twice");
    const { low, high } = sizesOf(range);
    symbols.set(symbol, [low, high]);
    return high;
  }

  /** Return the type of a value that is there. @param {string} name @returns {any} */
  function require(name) {
    const value = values.get(name);
    rule("value", value, "is no value that is there");
    return value;
  }

  /** Check that a field names a value that is there, with a number of elements of one of these types, whatever the run.
   *  @param {any} step @param {string} field @param {number} count @param {string[]} dtypes */
  function requireRead(step, field, count, dtypes) {
    const { dtype, shape } = within(field, require, step[field]);
    const isFixed = shape.every((/** @type {any} */ size) => typeof size === "number") && elementCount(shape) === count;
    rule("read", isFixed && dtypes.includes(dtype), "has another type or number of elements than what is read", field);
  }

  /** @param {any} owner @param {string} field @param {PortType} type */
  const define = (owner, field, type) => within(field, (name) => defineNew(name, type), owner[field]);

  /** @param {string} name @param {PortType} type */
  function defineNew(name, type) {
    rule("value twice", !values.get(name), "is there already");
    values.set(name, type);
  }

  checkShapes(manifest, program);
  each(program, "ranges", (range, name) => {
    rule("names", !Object.hasOwn(dynamic, name), "is a dynamic dimension, too");
    checkRange(range);
  });
  for (const [name, type] of fedTypes(manifest, program)) values.set(name, type);
  for (const dim of Object.values(program.shapes).flat()) {
    if (typeof dim === "string") symbols.set(dim, [dynamic[dim].low, dynamic[dim].high]);
  }
  checkSteps(program, "steps", outputs.map((/** @type {any} */ { name, dtype }) => [name, { dtype, shape: null }]));
}
