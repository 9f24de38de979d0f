// The relations between the fields of a plan, and of a plan and its manifest: the checks of
// runtime/bundle/plan_relations.py in the same order, by the same rules.

/** @import { Bounds } from "./bounds.js" */
/** @import { Path } from "./manifest_relations.js" */

import { boundsOf } from "./bounds.js";
import { BYTES, checkRange, requireListed } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { bufferSize, MOST_ITERATIONS } from "./sizes.js";
import { Refusal } from "./structure.js";

/** The largest number of a problem, of 32 bits. */
const LARGEST_NUMBER = 2 ** 31 - 1;

/** @param {any} plan @param {any} manifest @param {string} key the plan's in the manifest
 *  @throws {Refusal} for the first relation that does not hold */
export function checkPlan(plan, manifest, key) {
  if (plan.key !== key) throw new Refusal("plan key", "is another plan's", ["key"]);
  const record = manifest.plans.find((/** @type {any} */ item) => item.key === key || item.software === key);
  new PlanCheck(plan, manifest, record).run();
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
  #record;

  /** @param {any} plan @param {any} manifest @param {any} record */
  constructor(plan, manifest, record) {
    this.#plan = plan;
    this.#manifest = manifest;
    this.#record = record;
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

  /** Return the bounds of a size, which must not be negative for all values of the symbols.
   *  @param {any} value @param {Path} path @returns {Bounds} */
  #size(value, path) {
    const bounds = this.#bounds(value, path);
    if (!bounds) throw new Refusal("overflow", "may be as large as 2 to the power of 53", path);
    if (bounds[1] < 0) throw new Refusal("negative", "is negative", path);
    return bounds;
  }

  /** @param {any} value @param {Path} path */
  #bounds(value, path) {
    const unknown = (/** @type {string} */ name) =>
      new Refusal("symbol", `depends on '${name}', which is no symbol of the plan`, path);
    return boundsOf(value, this.#symbols, unknown);
  }

  #checkSymbols() {
    const { symbols, inputs } = this.#plan;
    const { dynamic } = this.#manifest;
    for (const [index, symbol] of symbols.entries()) {
      const { name, low, high, step } = symbol;
      const path = ["symbols", index];
      checkRange(symbol, path);
      if (this.#symbols.has(name)) throw new Refusal("names", "is a symbol twice", path);
      const declared = Object.hasOwn(dynamic, name) ? dynamic[name] : {};
      if (declared.low !== low || declared.high !== high || declared.step !== step) {
        throw new Refusal("symbol range", "has another range in the manifest", path);
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
      const itemsize = BYTES.get(dtype) ?? 0;
      /** @type {Bounds | undefined} */
      let bytes = [itemsize, itemsize];
      for (const [axis, dim] of shape.entries()) {
        const size = this.#size(dim, [field, index, "shape", axis]);
        bytes &&= product(bytes, size);
      }
      if (!bytes) throw new Refusal("overflow", "has 2 to the power of 53 bytes or more", [field, index]);
      this.#buffers.set(buffer, padded(bytes));
    }
  }

  /** Check that inputs and outputs are those of the manifest. */
  #checkSignature() {
    const { inputs, outputs } = this.#plan;
    const { shapes } = this.#record;
    const fed = new Map([...this.#manifest.inputs, ...this.#manifest.overridable].map((port) => [port.name, port.dtype]));
    const declared = new Map(this.#manifest.outputs.map((/** @type {any} */ port) => [port.name, port.dtype]));
    if (!haveNames(inputs, Object.keys(shapes))) {
      throw new Refusal("signature", "has other inputs than the manifest says", ["inputs"]);
    }
    for (const [index, { name, dtype, shape }] of inputs.entries()) {
      if (fed.get(name) !== dtype || !isSameShape(shape, shapes[name])) {
        throw new Refusal("signature", "has another type or shape than the manifest says", ["inputs", index]);
      }
    }
    if (!haveNames(outputs, [...declared.keys()])) {
      throw new Refusal("signature", "has other outputs than the manifest says", ["outputs"]);
    }
    for (const [index, { name, dtype }] of outputs.entries()) {
      if (![null, dtype].includes(declared.get(name))) {
        throw new Refusal("signature", "has another type than the manifest says", ["outputs", index]);
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
    const [fed, computed] = [inputs, outputs].map((/** @type {any[]} */ ports) =>
      new Map(ports.map((port) => [port.name, port])));
    for (const [index, { output, input }] of states.entries()) {
      const path = ["states", index];
      const [begun, read] = [computed.get(output), fed.get(input)];
      if (!begun || this.#begun.has(output)) {
        throw new Refusal("output", "is no output of the plan, or one twice", path);
      }
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
    for (const [number, { kind, calls, count }] of this.#plan.commands.entries()) {
      this.#checkIterations(kind, count, number);
      for (const [index, call] of calls.entries()) {
        const path = ["commands", number, "calls", index];
        const kernel = kernels.get(call.kernel);
        if (!kernel) throw new Refusal("kernel", "names a kernel that the plan does not have", path);
        if (kernel.bindings.length !== call.ranges.length) {
          throw new Refusal("bindings", "has another number of ranges than its kernel of bindings", path);
        }
        const grid = call.grid.map((/** @type {any} */ size, /** @type {number} */ axis) =>
          this.#size(size, [...path, "grid", axis]));
        for (const name of ["flops", "bytes"]) this.#bounds(call[name], [...path, name]);
        const isEmpty = grid.some((/** @type {Bounds} */ [low, high]) => low === 0 && high === 0);
        for (const [at, range] of call.ranges.entries()) this.#checkSpan(range, isEmpty, [...path, "ranges", at]);
        checkAccesses(kernel, call, path);
      }
    }
  }

  /** Check the number of iterations of a command, and make the buffer of a repeated one.
   *  @param {string} kind @param {any} count @param {number} number */
  #checkIterations(kind, count, number) {
    this.#buffers.delete("iteration");
    if (kind !== "repeat") return;
    const path = ["commands", number, "count"];
    if (this.#size(count, path)[1] > MOST_ITERATIONS) {
      throw new Refusal("iterations", `has more than ${MOST_ITERATIONS} iterations`, path);
    }
    this.#buffers.set("iteration", [16, 16]);
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
    const outputs = new Map(this.#plan.outputs.map((/** @type {any} */ port) => [port.name, port]));
    /** @type {Map<string, string>} */
    const settled = new Map([...this.#begun].map((name) => [name, ""]));
    for (const [index, { output, dtype, shape, data }] of constants.entries()) {
      const path = ["constants", index];
      const port = outputs.get(output);
      if (!port || settled.has(output)) throw new Refusal("output", "is no output of the plan, or one twice", path);
      settled.set(output, "");
      if (dtype !== port.dtype || !isSameShape(shape, port.shape)) {
        throw new Refusal("constant", "has another type or shape than its output", path);
      }
      const bytes = shape.reduce((/** @type {number} */ total, /** @type {number} */ dim) => total * dim, BYTES.get(dtype));
      if (decodedBytes(data) !== bytes) {
        throw new Refusal("constant", "has another number of bytes than its shape", path);
      }
    }
    for (const [index, { output, source, size }] of aliases.entries()) {
      const path = ["aliases", index];
      if (!outputs.has(output) || settled.has(output)) {
        throw new Refusal("output", "is no output of the plan, or one twice", path);
      }
      settled.set(output, source);
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
    const calls = commands.reduce((/** @type {number} */ total, /** @type {any} */ command) =>
      total + command.calls.length, 0);
    for (const [index, { shape }] of facts.tensors.entries()) {
      for (const [axis, size] of shape.entries()) this.#bounds(size, ["facts", "tensors", index, "shape", axis]);
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

/** Return the bounds of a product of sizes from 0 up, or undefined if it may be too large.
 *  @param {Bounds} left @param {Bounds} right @returns {Bounds | undefined} */
function product(left, right) {
  const high = left[1] * right[1];
  return high > Number.MAX_SAFE_INTEGER ? undefined : [left[0] * Math.max(right[0], 0), high];
}

/** Return the number of bytes of base64 data. @param {string} data */
const decodedBytes = (data) => (data.length / 4) * 3 - (data.endsWith("==") ? 2 : Number(data.endsWith("=")));

/** @param {any[]} ports @param {string[]} names */
function haveNames(ports, names) {
  const present = new Set(ports.map(({ name }) => name));
  return present.size === new Set(names).size && names.every((name) => present.has(name));
}

/** Return whether two shapes are the same numbers and names. @param {any[]} shape @param {any[]} other */
const isSameShape = (shape, other) => shape.length === other.length && shape.every((dim, axis) => dim === other[axis]);
