// The relations between the fields of a program: the checks of runtime/bundle/program_relations.py in the same order,
// by the same rules.

/** @import { PlanUse } from "./plan_relations.js" */
/** @import { Bounds, PortType } from "./shape_relations.js" */

import { requireListed } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { byName, byteBounds, checkRange, checkShapes, fedTypes, isSameType, sizeBounds } from "./shape_relations.js";
import { MOST_ITERATIONS, MOST_WORK } from "./sizes.js";
import { each, own, rule, within } from "./structure.js";

/** Element types of integers that a run may read. */
const INTEGERS = ["int32", "int64", "uint8", "int8", "uint16", "int16", "uint32", "uint64"];

/** The types of the number of an iteration, and of the condition on which a loop goes on. */
const NUMBER = { dtype: "int64", shape: [] };
const CONDITION = { dtype: "bool", shape: [] };

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
    new ProgramCheck(manifest, program, planKeys).run();
  });
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
  return manifest.programs.flatMap((/** @type {any} */ program) => {
    const integers = Object.entries(program.ranges).map(([name, range]) => [name, sizesOf(range)]);
    const ranges = new Map([...Object.entries(manifest.dynamic), .../** @type {[string, any][]} */ (integers)]);
    /** @type {PlanUse[]} */
    const uses = [];
    for (const [step, types] of typed(program.steps, new Scope(fedTypes(manifest, program)))) {
      if (step.kind !== "stage" || ![step.plan, step.software].includes(key)) continue;
      const inputs = new Map(step.inputs.map((/** @type {string} */ name) => [name, types.get(name)]));
      for (const [port, symbol] of Object.entries(step.sizes)) inputs.set(port, { dtype: "uint8", shape: [symbol, 0] });
      uses.push({ inputs, outputs: byName(step.outputs), ranges });
    }
    return uses;
  });
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
 *  @param {PortType} type @param {any} value */
function fits({ dtype, shape }, value) {
  const sizes = shape?.map((size, axis) => size ?? value.shape[axis]);
  return isSameType({ dtype: dtype ?? value.dtype, shape: sizes ?? value.shape }, value);
}

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
    this.#values = new Scope(fedTypes(manifest, program));
  }

  run() {
    const { dynamic, outputs } = this.#manifest;
    const { shapes } = this.#program;
    checkShapes(this.#manifest, this.#program);
    each(this.#program, "ranges", (range, name) => {
      rule("names", !Object.hasOwn(dynamic, name), "is a dynamic dimension, too");
      checkRange(range);
    });
    for (const dim of Object.values(shapes).flat()) {
      if (typeof dim === "string") this.#symbols.set(dim, [dynamic[dim].low, dynamic[dim].high]);
    }
    const results = outputs.map((/** @type {any} */ { name, dtype }) => [name, { dtype, shape: null }]);
    this.#checkSteps(this.#program, "steps", results);
  }

  /** Check the steps of a field to the end of their block, where `results` are values of these types; afterwards only
   *  what was there before them is there. Return how many steps they carry out at least.
   *  @param {any} owner @param {string} field @param {[string, PortType][]} results @returns {number} */
  #checkSteps(owner, field, results) {
    const [values, symbols] = [this.#values.size, this.#symbols.size];
    const steps = owner[field];
    let least = 0;
    each(owner, field, (step, index) => {
      rule("last step", !LAST.includes(step.kind) || index + 1 === steps.length, "is not the last step");
      least += this.#checkStep(step, results) + 1;
      rule("work", least <= MOST_WORK, `ends what carries out more than ${MOST_WORK} steps in each run`);
    });
    if (!LAST.includes(steps.at(-1)?.kind)) {
      for (const [name, type] of results) {
        const value = this.#values.get(name);
        rule("result", value && fits(type, value), `ends without '${name}', or with one of another type`, field);
      }
    }
    this.#values.forget(values);
    this.#symbols.forget(symbols);
    return least;
  }

  /** Check a step, and return how many others it carries out at least. @param {any} step
   *  @param {[string, PortType][]} results of the block @returns {number} */
  #checkStep(step, results) {
    switch (step.kind) {
      case "branch": case "compare":
        this.#checkDecision(step);
        return Math.min(...["true", "false"].map((side) => this.#checkSteps(step, side, results)));
      case "loop": return this.#checkLoop(step);
      case "stage": this.#checkStage(step); break;
      case "alias": {
        const type = within("source", (name) => this.#require(name), step.source);
        this.#define(step, "value", type);
        break;
      }
      case "read":
        this.#requireRead(step, "value", step.symbols.length, INTEGERS);
        each(step, "symbols", (symbol) => this.#defineSymbol(symbol, -Infinity));
    }
    return 0;
  }

  /** Check what a step decides by: a condition, or sizes, which may be negative here. @param {any} step */
  #checkDecision(step) {
    if (step.kind === "branch") this.#requireRead(step, "condition", 1, ["bool"]);
    else for (const name of ["left", "right"]) within(name, (size) => sizeBounds(size, this.#symbols, true), step[name]);
  }

  /** @param {string} symbol @param {number} [least] @returns {number} its upper bound */
  #defineSymbol(symbol, least = 0) {
    const range = own(this.#program.ranges, symbol);
    const isNew = range && !this.#symbols.get(symbol) && range.low >= least;
    rule("read symbol", isNew, "has no range, or is read twice");
    const { low, high } = sizesOf(range);
    this.#symbols.set(symbol, [low, high]);
    return high;
  }

  /** Check a loop: how often it runs, what it carries and gives, and its body. Return how many iterations and steps it
   *  carries out at least. @param {any} step @returns {number} */
  #checkLoop(step) {
    const { count, symbol, condition, going } = step;
    const isOpen = condition !== null || going !== null;
    const reason = `has more than ${MOST_ITERATIONS} iterations`;
    rule("loop", count !== null || symbol !== null, "has no bound of its iterations");
    const [low, high] = within("count", () => (count === null ? [0, 0] : sizeBounds(count, this.#symbols)), count);
    rule("iterations", high <= MOST_ITERATIONS, reason, "count");
    rule("loop", symbol !== null || !isOpen, "has a number of iterations that only a symbol can have");
    if (condition !== null) this.#requireRead(step, "condition", 1, ["bool"]);
    each(step, "carried", ({ initial }) => within("initial", (name) => this.#require(name), initial));
    const inside = this.#values.size;
    this.#define(step, "iteration", NUMBER);
    const results = this.#resultsOf(step);
    each(step, "carried", (carried) => {
      if (carried.symbols) each(carried, "symbols", (name) => name !== null && this.#defineSymbol(name));
      byteBounds(/** @type {PortType} */ (this.#values.get(carried.name)), this.#symbols);
    });
    const work = 1 + this.#checkSteps(step, "steps", results);
    this.#values.forget(inside);
    if (symbol !== null) {
      const most = within("symbol", () => this.#defineSymbol(symbol), symbol);
      rule("iterations", most <= MOST_ITERATIONS, reason, "symbol");
    }
    for (const [name, type] of loopResults(step, this.#values)) this.#defineNew(name, type);
    return isOpen ? 0 : Math.max(low, 0) * work;
  }

  /** Define what a loop carries, and return what the end of its body must have: one type for each name.
   *  @param {any} step @returns {[string, PortType][]} */
  #resultsOf(step) {
    /** @type {Map<string, PortType>} */
    const results = new Map();
    /** @param {string} name @param {PortType} type @returns {boolean} whether the name stands for this type alone */
    const expect = (name, type) => {
      const present = results.get(name) ?? type;
      results.set(name, present);
      return isSameType(present, type);
    };
    each(step, "carried", (carried) => {
      const { dtype, shape } = /** @type {{ dtype: string, shape: any[] }} */ (this.#values.get(carried.initial));
      const symbols = carried.symbols ?? shape.map(() => null);
      rule("carried", symbols.length === shape.length, "has symbols of another number of axes", "symbols");
      this.#define(carried, "name", carriedType(carried, this.#values));
      const following = { dtype, shape: shape.map((size, axis) => (symbols[axis] === null ? size : null)) };
      rule("carried", expect(carried.next, following), "is carried as values of two types", "next");
    });
    each(step, "stacked", ({ row, dtype, shape }) => {
      byteBounds({ dtype, shape: [...shape, MOST_ITERATIONS] }, this.#symbols);
      rule("row", SCHEMA.dtypes[dtype] % 4 === 0, "is not made of whole words");
      rule("row", expect(row, { dtype, shape }), "has another type than what is carried");
    });
    const isCondition = step.going === null || expect(step.going, CONDITION);
    rule("loop", isCondition, "goes on by a value of another type than bool", "going");
    return [...results];
  }

  /** @param {any} step */
  #checkStage(step) {
    for (const key of [step.plan, step.software ?? step.plan]) {
      rule("plan twice", !this.#planKeys.has(key), "is a plan of its own, too");
      requireListed(this.#manifest, `plan-${key}.json`);
    }
    each(step, "inputs", (name) => this.#require(name));
    each(step, "sizes", (symbol, port) => {
      const isSize = this.#symbols.get(symbol) && !this.#values.get(port);
      rule("size", isSize, "is of no symbol that is there, or a value, too");
    });
    each(step, "outputs", (port) => {
      byteBounds(port, this.#symbols);
      this.#defineNew(port.name, port);
    });
  }

  /** @param {string} name */
  #require(name) {
    const value = this.#values.get(name);
    rule("value", value, "is no value that is there");
    return value;
  }

  /** Check that a field names a value that is there, with a number of elements of one of these types, whatever the run.
   *  @param {any} step @param {string} field @param {number} count @param {string[]} dtypes */
  #requireRead(step, field, count, dtypes) {
    const { dtype, shape } = within(field, (name) => this.#require(name), step[field]);
    let elements = 1;
    for (const size of shape ?? []) {
      elements = typeof size === "number" && elements * size <= SCHEMA.reads ? elements * size : -1;
    }
    const fits = dtypes.includes(dtype ?? "") && elements === count;
    rule("read", fits, "has another type, or another number of elements, than what is read", field);
  }

  /** @param {any} owner @param {string} field @param {PortType} type */
  #define(owner, field, type) {
    within(field, (name) => this.#defineNew(name, type), owner[field]);
  }

  /** @param {string} name @param {PortType} type */
  #defineNew(name, type) {
    rule("value twice", !this.#values.get(name), "is there already");
    this.#values.set(name, type);
  }
}
