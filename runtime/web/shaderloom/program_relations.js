// The relations between the fields of a program: the checks of runtime/bundle/program_relations.py in the same order,
// by the same rules.

/** @import { Bounds } from "./bounds.js" */
/** @import { Path } from "./manifest_relations.js" */
/** @import { PlanUse, PortType } from "./plan_relations.js" */

import { byName, BYTES, checkRange, checkShapes, requireListed, sortedEntries } from "./manifest_relations.js";
import { byteBounds, fedTypes, isSameShape, sizeBounds } from "./plan_relations.js";
import { SCHEMA } from "./schema.js";
import { MOST_ITERATIONS, MOST_WORK } from "./sizes.js";
import { Refusal } from "./structure.js";

/** Element types of integers that a run may read. */
const INTEGERS = ["int32", "int64", "uint8", "int8", "uint16", "int16", "uint32", "uint64"];

/** The type of the number of an iteration. @type {PortType} */
const NUMBER = { dtype: "int64", shape: [] };

/** Kinds of steps that no other step follows. */
const LAST = ["branch", "compare", "refuse"];

/** @param {any} manifest @param {Set<string>} planKeys those of its plans that are no stages: no stage and no program
 *  may have one of them @throws {Refusal} for the first relation that does not hold */
export function checkPrograms(manifest, planKeys) {
  const seen = new Set(planKeys);
  let total = 0;
  for (const [index, program] of manifest.programs.entries()) {
    const path = ["programs", index];
    if (seen.has(program.key)) throw new Refusal("plan twice", "is listed twice", path);
    seen.add(program.key);
    for (const _ of stepsOf(program.steps)) total++;
    if (total > SCHEMA.steps) {
      throw new Refusal("steps", `has more than ${SCHEMA.steps} steps with the programs before it`, path);
    }
    new ProgramCheck(manifest, program, planKeys).run(path);
  }
}

/** Yield all steps, those inside of branches and loops too. @param {any[]} steps @returns {Generator<any>} */
export function* stepsOf(steps) {
  for (const step of steps) {
    yield step;
    for (const name of ["true", "false", "steps"]) if (Object.hasOwn(step, name)) yield* stepsOf(step[name]);
  }
}

/** Return what the stages with the plan of a key ask of it. @param {any} manifest @param {string} key
 *  @returns {PlanUse[]} */
export function stageUses(manifest, key) {
  /** @type {PlanUse[]} */
  const uses = [];
  for (const program of manifest.programs) {
    for (const [step, types] of typed(program.steps, new Scope(fedTypes(manifest, program.shapes)))) {
      if (step.kind !== "stage" || (step.plan !== key && step.software !== key)) continue;
      const sizes = Object.entries(step.sizes).map(([port, symbol]) =>
        /** @type {[string, PortType]} */ ([port, { dtype: "uint8", shape: [symbol, 0] }]));
      uses.push({
        inputs: new Map([...step.inputs.map((/** @type {string} */ name) => [name, types.get(name)]), ...sizes]),
        outputs: byName(step.outputs),
        ranges: new Map([...Object.entries(manifest.dynamic),
          ...Object.entries(program.ranges).map(([name, range]) => /** @type {[string, any]} */ ([name, sizesOf(range)]))]),
      });
    }
  }
  return uses;
}

/** Return the range of the sizes of a symbol that stands for integers: without what is below 0. @param {any} integers */
function sizesOf({ low, high, step }) {
  const below = Math.min(low, 0);
  return { low: low - below, high: high - below, step };
}

/** Yield the steps of a checked program, each with the types of the values that are there before it.
 *  @param {any[]} steps @param {Scope<PortType>} types @returns {Generator<[any, Scope<PortType>]>} */
function* typed(steps, types) {
  const before = types.size;
  for (const step of steps) {
    yield [step, types];
    if (["branch", "compare"].includes(step.kind)) {
      yield* typed(step.true, types);
      yield* typed(step.false, types);
    } else if (step.kind === "loop") {
      const inside = types.size;
      types.set(step.iteration, NUMBER);
      for (const each of step.carried) types.set(each.name, carriedType(each, types));
      yield* typed(step.steps, types);
      types.forget(inside);
      for (const [name, type] of loopResults(step, types)) types.set(name, type);
    } else if (step.kind === "stage") {
      for (const port of step.outputs) types.set(port.name, port);
    } else if (step.kind === "alias") types.set(step.value, /** @type {PortType} */ (types.get(step.source)));
  }
  types.forget(before);
}

/** Return what a loop defines, with its types. @param {any} step @param {Scope<PortType>} types
 *  @returns {[string, PortType][]} */
function loopResults({ carried, stacked, count, symbol }, types) {
  const results = carried.filter((/** @type {any} */ { result }) => result !== null);
  return [
    ...results.map((/** @type {any} */ each) => [each.result, carriedType(each, types)]),
    ...stacked.map((/** @type {any} */ { result, dtype, shape }) => [result, { dtype, shape: [symbol ?? count, ...shape] }]),
  ];
}

/** Return the type of a carried value: that of the initial one, with symbols for the axes that change.
 *  @param {any} carried @param {Scope<PortType>} types */
function carriedType({ initial, symbols = [] }, types) {
  const { dtype, shape } = /** @type {{ dtype: string, shape: any[] }} */ (types.get(initial));
  return { dtype, shape: shape.map((size, axis) => symbols[axis] ?? size) };
}

/** Return whether a value has a type, of which an element type, a shape and an axis may be open: null.
 *  @param {any} type @param {any} value */
const fits = ({ dtype, shape }, value) => [null, value.dtype].includes(dtype) && (!shape
  || shape.length === value.shape.length && shape.every((/** @type {any} */ size, /** @type {number} */ axis) =>
    size === null || isSameShape([size], [value.shape[axis]])));

/** Items by name, of which the newest can be forgotten. @template Item */
class Scope {
  /** @type {Map<string, Item>} */
  #items = new Map();
  /** @type {string[]} */
  #names = [];

  /** @param {[string, Item][]} items */
  constructor(items = []) {
    for (const [name, item] of items) this.set(name, item);
  }

  get size() {
    return this.#names.length;
  }

  /** @param {string} name */
  get(name) {
    return this.#items.get(name);
  }

  /** @param {string} name @param {Item} item */
  set(name, item) {
    if (!this.#items.has(name)) this.#names.push(name);
    this.#items.set(name, item);
  }

  /** Remove all but the first items. @param {number} before their number */
  forget(before) {
    while (this.#names.length > before) this.#items.delete(/** @type {string} */ (this.#names.pop()));
  }
}

/** The checks of one program, along its steps: which values and symbols are there. */
class ProgramCheck {
  #manifest;
  #program;
  #planKeys;
  /** Those that are there. @type {Scope<PortType>} */
  #values;
  /** Those that have a size. @type {Scope<Bounds>} */
  #symbols = new Scope();

  /** @param {any} manifest @param {any} program @param {Set<string>} planKeys */
  constructor(manifest, program, planKeys) {
    this.#manifest = manifest;
    this.#program = program;
    this.#planKeys = planKeys;
    this.#values = new Scope(fedTypes(manifest, program.shapes));
  }

  /** @param {Path} path */
  run(path) {
    const { dynamic } = this.#manifest;
    const { shapes, ranges, steps } = this.#program;
    const results = this.#manifest.outputs.map((/** @type {any} */ { name, dtype }) => [name, { dtype, shape: null }]);
    checkShapes(this.#manifest, shapes, path);
    for (const [name, sizes] of sortedEntries(ranges)) {
      if (Object.hasOwn(dynamic, name)) {
        throw new Refusal("names", "is a dynamic dimension, too", [...path, "ranges", name]);
      }
      checkRange(sizes, [...path, "ranges", name]);
    }
    for (const dim of Object.values(shapes).flat()) {
      if (typeof dim === "string") this.#symbols.set(dim, [dynamic[dim].low, dynamic[dim].high]);
    }
    this.#checkSteps(steps, results, [...path, "steps"]);
  }

  /** Check the steps to the end of their block, where `results` are values of these types; afterwards only what was
   *  there before them is there. Return how many steps they carry out at least.
   *  @param {any[]} steps @param {[string, PortType][]} results @param {Path} path @returns {number} */
  #checkSteps(steps, results, path) {
    const [values, symbols] = [this.#values.size, this.#symbols.size];
    let least = 0;
    for (const [index, step] of steps.entries()) {
      const place = [...path, index];
      if (LAST.includes(step.kind) && index + 1 < steps.length) {
        throw new Refusal("last step", "is not the last step", place);
      }
      if (["branch", "compare"].includes(step.kind)) {
        this.#checkDecision(step, place);
        least += Math.min(...["true", "false"].map((side) => this.#checkSteps(step[side], results, [...place, side])));
      } else if (step.kind === "loop") least += this.#checkLoop(step, place);
      else if (step.kind === "stage") this.#checkStage(step, place);
      else if (step.kind === "read") {
        this.#requireRead(step.value, step.symbols.length, INTEGERS, [...place, "value"]);
        for (const [at, symbol] of step.symbols.entries()) {
          this.#defineSymbol(symbol, [...place, "symbols", at], -Infinity);
        }
      } else if (step.kind === "alias") {
        this.#define(step.value, this.#require(step.source, [...place, "source"]), [...place, "value"]);
      }
      if (++least > MOST_WORK) {
        throw new Refusal("work", `ends what carries out more than ${MOST_WORK} steps in each run`, place);
      }
    }
    if (!LAST.includes(steps.at(-1)?.kind)) this.#checkResults(results, path);
    this.#values.forget(values);
    this.#symbols.forget(symbols);
    return least;
  }

  /** Check what a step decides by: a condition, or sizes, which may be negative here.
   *  @param {any} step @param {Path} path */
  #checkDecision(step, path) {
    if (step.kind === "branch") this.#requireRead(step.condition, 1, ["bool"], [...path, "condition"]);
    else for (const name of ["left", "right"]) sizeBounds(step[name], this.#symbols, [...path, name], true);
  }

  /** Return the upper bound of a symbol. @param {string} symbol @param {Path} path @param {number} least
   *  @returns {number} */
  #defineSymbol(symbol, path, least = 0) {
    const { ranges } = this.#program;
    if (!Object.hasOwn(ranges, symbol) || this.#symbols.get(symbol) || ranges[symbol].low < least) {
      throw new Refusal("read symbol", "has no range, or is read twice", path);
    }
    const { low, high } = sizesOf(ranges[symbol]);
    this.#symbols.set(symbol, [low, high]);
    return high;
  }

  /** @param {[string, PortType][]} results @param {Path} path */
  #checkResults(results, path) {
    for (const [name, type] of results) {
      const value = this.#values.get(name);
      if (!value || !fits(type, value)) {
        throw new Refusal("result", `ends without '${name}', or with one of another type`, path);
      }
    }
  }

  /** Check a loop: how often it runs, what it carries and gives, and its body. Return how many iterations and steps it
   *  carries out at least. @param {any} step @param {Path} path @returns {number} */
  #checkLoop(step, path) {
    const { count, symbol, condition, going, iteration, carried, stacked } = step;
    if (count === null && symbol === null) throw new Refusal("loop", "has no bound of its iterations", path);
    const [low, high] = count === null ? [0, 0] : sizeBounds(count, this.#symbols, [...path, "count"]);
    if (high > MOST_ITERATIONS) {
      throw new Refusal("iterations", `has more than ${MOST_ITERATIONS} iterations`, [...path, "count"]);
    }
    if (symbol === null && (condition !== null || going !== null)) {
      throw new Refusal("loop", "has a number of iterations that only a symbol can have", path);
    }
    if (condition !== null) this.#requireRead(condition, 1, ["bool"], [...path, "condition"]);
    for (const [at, { initial }] of carried.entries()) this.#require(initial, [...path, "carried", at, "initial"]);
    const inside = this.#values.size;
    this.#define(iteration, NUMBER, [...path, "iteration"]);
    /** @type {Map<string, PortType>} */
    const results = new Map();
    /** @param {string} name @param {PortType} type @returns {boolean} whether the name stands for this type alone */
    const expect = (name, type) => {
      const present = results.get(name) ?? type;
      results.set(name, present);
      return present.dtype === type.dtype && isSameShape(present.shape, type.shape);
    };
    for (const [at, each] of carried.entries()) {
      const { dtype, shape } = /** @type {{ dtype: string, shape: any[] }} */ (this.#values.get(each.initial));
      const { symbols = shape.map(() => null) } = each;
      if (symbols.length !== shape.length) {
        throw new Refusal("carried", "has symbols of another number of axes", [...path, "carried", at, "symbols"]);
      }
      this.#define(each.name, carriedType(each, this.#values), [...path, "carried", at, "name"]);
      if (!expect(each.next, { dtype, shape: shape.map((size, axis) => symbols[axis] === null ? size : null) })) {
        throw new Refusal("carried", "is carried as values of two types", [...path, "carried", at, "next"]);
      }
    }
    for (const [at, { row, dtype, shape }] of stacked.entries()) {
      const place = [...path, "stacked", at];
      byteBounds({ dtype, shape: [...shape, MOST_ITERATIONS] }, this.#symbols, place);
      if ((BYTES.get(dtype) ?? 0) % 4) throw new Refusal("row", "is not made of whole words", place);
      if (!expect(row, { dtype, shape })) throw new Refusal("row", "has another type than what is carried", place);
    }
    if (going !== null && !expect(going, { dtype: "bool", shape: [] })) {
      throw new Refusal("loop", "goes on by a value of another type than bool", [...path, "going"]);
    }
    for (const [at, { name, symbols = [] }] of carried.entries()) {
      for (const [axis, own] of symbols.entries()) {
        if (own !== null) this.#defineSymbol(own, [...path, "carried", at, "symbols", axis]);
      }
      byteBounds(/** @type {PortType} */ (this.#values.get(name)), this.#symbols, [...path, "carried", at]);
    }
    const work = 1 + this.#checkSteps(step.steps, [...results], [...path, "steps"]);
    this.#values.forget(inside);
    if (symbol !== null && this.#defineSymbol(symbol, [...path, "symbol"]) > MOST_ITERATIONS) {
      throw new Refusal("iterations", `has more than ${MOST_ITERATIONS} iterations`, [...path, "symbol"]);
    }
    for (const [name, type] of loopResults(step, this.#values)) this.#define(name, type, path);
    return condition === null && going === null ? Math.max(low, 0) * work : 0;
  }

  /** @param {any} step @param {Path} path */
  #checkStage(step, path) {
    for (const key of [step.plan, step.software ?? step.plan]) {
      if (this.#planKeys.has(key)) throw new Refusal("plan twice", "is a plan of its own, too", path);
      requireListed(this.#manifest.files, `plan-${key}.json`, path);
    }
    for (const [at, name] of step.inputs.entries()) this.#require(name, [...path, "inputs", at]);
    for (const [port, symbol] of sortedEntries(step.sizes)) {
      if (!this.#symbols.get(symbol) || this.#values.get(port)) {
        throw new Refusal("size", "is of no symbol that is there, or a value, too", [...path, "sizes", port]);
      }
    }
    for (const [at, port] of step.outputs.entries()) {
      const place = [...path, "outputs", at];
      byteBounds(port, this.#symbols, place);
      this.#define(port.name, port, place);
    }
  }

  /** @param {string} name @param {Path} path */
  #require(name, path) {
    const value = this.#values.get(name);
    if (!value) throw new Refusal("value", "is no value that is there", path);
    return value;
  }

  /** Check that a value that is there has a number of elements of one of these types, whatever the run.
   *  @param {string} name @param {number} count @param {string[]} dtypes @param {Path} path */
  #requireRead(name, count, dtypes, path) {
    const { dtype, shape } = this.#require(name, path);
    let elements = 1;
    for (const size of shape ?? []) {
      elements = typeof size === "number" && elements * size <= SCHEMA.reads ? elements * size : -1;
    }
    if (!dtypes.includes(dtype ?? "") || elements !== count) {
      throw new Refusal("read", "has another type, or another number of elements, than what is read", path);
    }
  }

  /** @param {string} name @param {PortType} type @param {Path} path */
  #define(name, type, path) {
    if (this.#values.get(name)) throw new Refusal("value twice", "is there already", path);
    this.#values.set(name, type);
  }
}
