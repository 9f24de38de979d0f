// The relations between the fields of a plan, and of a plan and its manifest: the checks of
// runtime/bundle/plan_relations.py in the same order, by the same rules.

/** @import { Bounds } from "./bounds.js" */
/** @import { Path } from "./manifest_relations.js" */

import { boundsOf } from "./bounds.js";
import { byName, BYTES, checkRange, requireListed } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { bufferSize, elementCount, MOST_ITERATIONS, MOST_WORK, MOST_WORKGROUPS } from "./sizes.js";
import { Refusal } from "./structure.js";

const UNSETTLED = "is no output of the plan, or one twice";

/** The largest number of a problem, of 32 bits. */
const LARGEST_NUMBER = 2 ** 31 - 1;

/** @typedef {{ dtype: string | null, shape: any[] | null }} PortType Null where they are open.
 *  @typedef {{ inputs: Map<string, PortType>, outputs: Map<string, PortType>, ranges: Map<string, any> }} PlanUse */

/** @param {any} plan @param {any} manifest @param {string} key the plan's in the manifest
 *  @param {typeof import("./programs.js")} [programs] where the manifest has some
 *  @throws {Refusal} for the first relation that does not hold */
export function checkPlan(plan, manifest, key, programs) {
  if (plan.key !== key) throw new Refusal("plan key", "is another plan's", ["key"]);
  new PlanCheck(plan, manifest, [...planUses(manifest, key), ...(programs?.stageUses(manifest, key) ?? [])]).run();
}

/** Return what the manifest asks of a plan that is the whole model.
 *  @param {any} manifest @param {string} key @returns {PlanUse[]} */
function planUses(manifest, key) {
  const { plans, outputs, dynamic } = manifest;
  const records = plans.filter((/** @type {any} */ item) => item.key === key || item.software === key);
  return records.map((/** @type {any} */ { shapes }) => ({
    inputs: new Map(fedTypes(manifest, shapes)),
    outputs: new Map(outputs.map((/** @type {any} */ { name, dtype }) => [name, { dtype, shape: null }])),
    ranges: new Map(Object.entries(dynamic)),
  }));
}

/** Return the types of what is fed, for shapes by name. @param {any} manifest @param {Record<string, any[]>} shapes
 *  @returns {[string, PortType][]} */
export function fedTypes({ inputs, overridable }, shapes) {
  const ports = byName([...inputs, ...overridable]);
  return Object.entries(shapes).map(([name, shape]) => [name, { dtype: ports.get(name)?.dtype, shape }]);
}

/** The checks of one plan. */
class PlanCheck {
  /** @type {Map<string, Bounds>} */
  #symbols = new Map();
  /** The sizes of all buffers that the plan may name. @type {Map<string, Bounds>} */
  #buffers = new Map();
  /** Outputs that begin as an input. @type {Set<string>} */
  #begun = new Set();
  /** Buffers that calls bind. @type {Set<string>} */
  #bound = new Set();
  #plan;
  #manifest;
  #uses;

  /** @param {any} plan @param {any} manifest @param {PlanUse[]} uses */
  constructor(plan, manifest, uses) {
    this.#plan = plan;
    this.#manifest = manifest;
    this.#uses = uses;
  }

  run() {
    const { arenas, symbols, problems } = this.#plan;
    this.#checkSymbols();
    this.#checkPorts("inputs", "input");
    this.#checkPorts("outputs", "output");
    this.#checkSignature();
    for (const [index, size] of arenas.entries()) {
      this.#buffers.set(`arena:${index}`, padded(this.#size(size, ["arenas", index])));
    }
    this.#checkWeights();
    if (symbols.length) this.#buffers.set("symbols", padded([4 * symbols.length, 4 * symbols.length]));
    for (const [index, problem] of problems.entries()) {
      if (problem.some((/** @type {number} */ number) => Math.abs(number) > LARGEST_NUMBER)) {
        throw new Refusal("problem", "has a number of more than 32 bits", ["problems", index]);
      }
      this.#buffers.set(`problem:${index}`, padded([4 * problem.length, 4 * problem.length]));
    }
    this.#checkKernels();
    this.#checkStates();
    this.#checkCalls();
    this.#checkOutputs();
    this.#checkFacts();
  }

  /** @param {any} value @param {Path} path */
  #size(value, path) {
    return sizeBounds(value, this.#symbols, path);
  }

  #checkSymbols() {
    const { symbols, inputs } = this.#plan;
    for (const [index, symbol] of symbols.entries()) {
      const { name, low, high, step } = symbol;
      const path = ["symbols", index];
      checkRange(symbol, path);
      if (Math.floor(high / step) > LARGEST_NUMBER) throw new Refusal("range", "has sizes of more than 32 bits", path);
      if (this.#symbols.has(name)) throw new Refusal("names", "is a symbol twice", path);
      for (const { ranges } of this.#uses) {
        const declared = ranges.get(name);
        if (declared?.low !== low || declared.high !== high || declared.step !== step) {
          throw new Refusal("symbol range", "has another range in the manifest", path);
        }
      }
      this.#symbols.set(name, [low, high]);
    }
    const dims = new Set(inputs.flatMap((/** @type {any} */ port) => port.shape));
    for (const [index, { name }] of symbols.entries()) {
      if (!dims.has(name)) throw new Refusal("unfed symbol", "is a dimension of no input", ["symbols", index]);
    }
  }

  /** @param {"inputs" | "outputs"} field @param {string} kind */
  #checkPorts(field, kind) {
    for (const [index, { name, dtype, shape }] of this.#plan[field].entries()) {
      const buffer = `${kind}:${name}`;
      if (this.#buffers.has(buffer)) throw new Refusal("names", "is a name twice", [field, index]);
      this.#buffers.set(buffer, padded(byteBounds({ dtype, shape }, this.#symbols, [field, index])));
    }
  }

  /** Check that inputs and outputs are those of the manifest. */
  #checkSignature() {
    for (const use of this.#uses) {
      for (const field of /** @type {const} */ (["inputs", "outputs"])) {
        if (!haveNames(this.#plan[field], [...use[field].keys()])) {
          throw new Refusal("signature", `has other ${field} than the manifest says`, [field]);
        }
        for (const [index, port] of this.#plan[field].entries()) {
          const { dtype, shape } = /** @type {PortType} */ (use[field].get(port.name));
          if (![null, port.dtype].includes(dtype) || (shape && !isSameShape(port.shape, shape))) {
            throw new Refusal("signature", "has another type or shape than the manifest says", [field, index]);
          }
        }
      }
    }
  }

  #checkWeights() {
    const stored = this.#manifest.weights;
    for (const [index, { key, bytes }] of this.#plan.weights.entries()) {
      const path = ["weights", index];
      if (this.#buffers.has(`weight:${key}`)) throw new Refusal("names", "is a weight twice", path);
      if (!Object.hasOwn(stored, key) || stored[key].bytes !== bytes) {
        throw new Refusal("weight", "is not a weight of the manifest, or has another size there", path);
      }
      this.#buffers.set(`weight:${key}`, [bytes, bytes]);
    }
  }

  #checkKernels() {
    const { files } = this.#manifest;
    const seen = new Set();
    for (const [index, { key, workgroup }] of this.#plan.kernels.entries()) {
      const path = ["kernels", index];
      if (seen.has(key)) throw new Refusal("names", "is a kernel twice", path);
      seen.add(key);
      const shader = `shaders/${key}.wgsl`;
      requireListed(files, shader, path);
      if (files[shader].size > SCHEMA.bytes.shader) {
        throw new Refusal("shader", `has a shader of ${files[shader].size} bytes`, path);
      }
      if (Math.min(...workgroup) < 1) throw new Refusal("workgroup", "has no invocations", [...path, "workgroup"]);
    }
  }

  /** Check the outputs that begin as inputs; no call and no alias may read such an input. */
  #checkStates() {
    const { inputs, outputs, states } = this.#plan;
    const [fed, computed] = [inputs, outputs].map(byName);
    for (const [index, { output, input }] of states.entries()) {
      const path = ["states", index];
      const [begun, read] = [computed.get(output), fed.get(input)];
      if (!begun || this.#begun.has(output)) throw new Refusal("output", UNSETTLED, path);
      this.#begun.add(output);
      if (!read || !this.#buffers.delete(`input:${input}`)) {
        throw new Refusal("state", "begins as no input of the plan, or as one that another is", path);
      }
      if (begun.dtype !== read.dtype || !isSameShape(begun.shape, read.shape)) {
        throw new Refusal("state", "has another type or shape than its input", path);
      }
    }
  }

  #checkCalls() {
    const kernels = new Map(this.#plan.kernels.map((/** @type {any} */ kernel) => [kernel.key, kernel]));
    let dispatches = 0;
    for (const [number, { kind, calls, count }] of this.#plan.commands.entries()) {
      dispatches += calls.length * this.#checkIterations(kind, count, number);
      if (dispatches > MOST_WORK) {
        throw new Refusal("work", "has too many dispatches", ["commands", number]);
      }
      for (const [index, call] of calls.entries()) {
        const path = ["commands", number, "calls", index];
        const kernel = kernels.get(call.kernel);
        if (!kernel) throw new Refusal("kernel", "names a kernel that the plan does not have", path);
        if (kernel.bindings.length !== call.ranges.length) {
          throw new Refusal("bindings", "has another number of ranges than its kernel of bindings", path);
        }
        /** @type {Bounds[]} */
        const grid = call.grid.map((/** @type {any} */ size, /** @type {number} */ axis) =>
          this.#size(size, [...path, "grid", axis]));
        if (elementCount(grid.map(([low]) => Math.max(low, 0))) > MOST_WORKGROUPS) {
          throw new Refusal("work", "has too many workgroups", [...path, "grid"]);
        }
        for (const name of ["flops", "bytes"]) boundsIn(call[name], this.#symbols, [...path, name]);
        const isEmpty = grid.some(([low, high]) => low === 0 && high === 0);
        for (const [at, range] of call.ranges.entries()) this.#checkSpan(range, isEmpty, [...path, "ranges", at]);
        checkAccesses(kernel, call, path);
      }
    }
  }

  /** Return how often a command runs at least; make the buffer of a repeated one.
   *  @param {string} kind @param {any} count @param {number} number */
  #checkIterations(kind, count, number) {
    this.#buffers.delete("iteration");
    if (kind !== "repeat") return 1;
    const path = ["commands", number, "count"];
    const [low, high] = this.#size(count, path);
    if (high > MOST_ITERATIONS) {
      throw new Refusal("iterations", `has more than ${MOST_ITERATIONS} iterations`, path);
    }
    this.#buffers.set("iteration", [16, 16]);
    return Math.max(low, 0);
  }

  /** @param {any} range @param {boolean} isEmpty @param {Path} path */
  #checkSpan(range, isEmpty, path) {
    const buffer = this.#buffers.get(range.buffer);
    if (!buffer) throw new Refusal("buffer", `binds '${range.buffer}', which the plan does not have`, path);
    this.#bound.add(range.buffer);
    const offset = this.#size(range.offset, [...path, "offset"]);
    const size = this.#size(range.size, [...path, "size"]);
    if (isEmpty) return;
    if (offset[0] + size[0] > buffer[1] || size[1] < 1) {
      throw new Refusal("inside", "lies outside its buffer, or is empty", path);
    }
    if (size[0] === size[1] && size[0] % 4) throw new Refusal("words", "is not made of whole words", path);
  }

  #checkOutputs() {
    const { constants, aliases } = this.#plan;
    const outputs = byName(this.#plan.outputs);
    /** @type {Map<string, string>} */
    const settled = new Map([...this.#begun].map((name) => [name, ""]));
    /** @param {string} output @param {string} source @param {Path} path */
    const settle = (output, source, path) => {
      if (!outputs.has(output) || settled.has(output)) throw new Refusal("output", UNSETTLED, path);
      settled.set(output, source);
    };
    for (const [index, { output, dtype, shape, data }] of constants.entries()) {
      const path = ["constants", index];
      settle(output, "", path);
      const port = outputs.get(output);
      if (dtype !== port.dtype || !isSameShape(shape, port.shape)) {
        throw new Refusal("constant", "has another type or shape than its output", path);
      }
      if (decodedBytes(data) !== elementCount(shape) * Number(BYTES.get(dtype))) {
        throw new Refusal("constant", "has another number of bytes than its shape", path);
      }
    }
    for (const [index, { output, source, size }] of aliases.entries()) {
      const path = ["aliases", index];
      settle(output, source, path);
      const held = this.#buffers.get(source);
      if (!held || !/^(input|output|weight):/.test(source)) {
        throw new Refusal("buffer", `is an alias of '${source}', which the plan does not have`, path);
      }
      const bytes = this.#size(size, [...path, "size"]);
      const needed = /** @type {Bounds} */ (this.#buffers.get(`output:${output}`));
      if (needed[0] > held[1] || bytes[0] > held[1]) {
        throw new Refusal("inside", "is larger than what it is an alias of", path);
      }
    }
    const ended = new Set();
    for (const [index, { output }] of aliases.entries()) {
      const chain = new Set();
      let source = `output:${output}`;
      while (source.startsWith("output:") && !ended.has(source)) {
        if (chain.has(source)) throw new Refusal("circle", "is an alias of itself", ["aliases", index]);
        chain.add(source);
        source = settled.get(source.slice(7)) ?? "";
      }
      for (const link of chain) ended.add(link);
    }
    for (const [field, items] of Object.entries({ constants, aliases })) {
      for (const [index, { output }] of items.entries()) {
        if (!this.#bound.has(`output:${output}`)) continue;
        throw new Refusal("output", "is a constant or an alias, and a call binds it", [field, index]);
      }
    }
  }

  /** Check that facts and notes are about calls and tensors that there are. */
  #checkFacts() {
    const { facts, notes, commands } = this.#plan;
    const calls = commands.flatMap((/** @type {any} */ command) => command.calls).length;
    for (const [index, { shape }] of facts.tensors.entries()) {
      for (const [axis, size] of shape.entries()) boundsIn(size, this.#symbols, ["facts", "tensors", index, "shape", axis]);
    }
    if (![0, calls].includes(facts.calls.length)) {
      throw new Refusal("facts", "has another number of calls than the plan", ["facts", "calls"]);
    }
    for (const [index, { operands, also, in_place }] of facts.calls.entries()) {
      if (Math.max(...operands, ...also, in_place ?? 0) >= facts.tensors.length) {
        throw new Refusal("facts", "names a tensor that is not there", ["facts", "calls", index]);
      }
    }
    if (![0, calls].includes(notes.calls.length)) {
      throw new Refusal("notes", "has another number of calls than the plan", ["notes", "calls"]);
    }
  }
}

/** @param {any} kernel @param {any} call @param {Path} path */
function checkAccesses({ bindings }, { ranges }, path) {
  /** @type {Map<string, string>} */
  const accesses = new Map();
  for (const [at, { access }] of bindings.entries()) {
    const { buffer } = ranges[at];
    const place = [...path, "ranges", at];
    if ((accesses.get(buffer) ?? access) !== access) throw new Refusal("access", "binds a buffer in two ways", place);
    accesses.set(buffer, access);
    if (access === "read_write" && !/^(output|arena):/.test(buffer)) {
      throw new Refusal("access", "writes to a buffer that is only read", place);
    }
    const isUniform = /^(symbols$|problem:)/.test(buffer);
    if ((access === "uniform") !== isUniform || (access === "iteration") !== (buffer === "iteration")) {
      throw new Refusal("access", "binds another buffer than symbols or a problem as uniform", place);
    }
  }
}

/** @param {Bounds} size @returns {Bounds} */
const padded = ([low, high]) => [bufferSize(low), bufferSize(high)];

/** @param {any} value @param {{ get(name: string): Bounds | undefined }} symbols @param {Path} path */
function boundsIn(value, symbols, path) {
  return boundsOf(value, symbols, (name) =>
    new Refusal("symbol", `depends on '${name}', which is no symbol of the plan`, path));
}

/** Return the bounds of a size, which must not be negative for all values of the symbols unless it is signed.
 *  @param {any} value @param {{ get(name: string): Bounds | undefined }} symbols @param {Path} path
 *  @param {boolean} [isSigned] @returns {Bounds} */
export function sizeBounds(value, symbols, path, isSigned = false) {
  const bounds = boundsIn(value, symbols, path);
  if (!bounds) throw new Refusal("overflow", "may be as large as 2 to the power of 53", path);
  if (bounds[1] < 0 && !isSigned) throw new Refusal("negative", "is negative", path);
  return bounds;
}

/** Return the bounds of the bytes of a tensor's elements, of which none may be too many to count, beside a size 0 too.
 *  @param {any} port @param {{ get(name: string): Bounds | undefined }} symbols @param {Path} path @returns {Bounds} */
export function byteBounds({ dtype, shape }, symbols, path) {
  const itemsize = BYTES.get(dtype) ?? 0;
  let [low, high, counted] = [itemsize, itemsize, itemsize];
  for (const [axis, dim] of shape.entries()) {
    const [least, most] = sizeBounds(dim, symbols, [...path, "shape", axis]);
    [low, high, counted] = [low * Math.max(least, 0), high * most, counted * Math.max(most, 1)];
  }
  if (counted > Number.MAX_SAFE_INTEGER) throw new Refusal("overflow", "has 2 to the power of 53 bytes or more", path);
  return [low, high];
}

/** Return the number of bytes of base64 data. @param {string} data */
const decodedBytes = (data) => (data.length / 4) * 3 - (data.endsWith("==") ? 2 : Number(data.endsWith("=")));

/** @param {any[]} ports @param {string[]} names */
function haveNames(ports, names) {
  const present = new Set(ports.map(({ name }) => name));
  return present.size === names.length && names.every((name) => present.has(name));
}

/** Return whether two shapes are written alike. @param {any[] | null} shape @param {any[] | null} other */
export const isSameShape = (shape, other) => JSON.stringify(shape) === JSON.stringify(other);
