// The relations between the fields of a plan, and of a plan and its manifest: the checks of
// runtime/bundle/plan_relations.py in the same order, by the same rules.

/** @import { Bounds, PortType } from "./shape_relations.js" */

import { requireListed } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { boundsOf, byName, byteBounds, checkRange, fedTypes, isSameType, sizeBounds } from "./shape_relations.js";
import { bufferSize, elementCount, MOST_ITERATIONS, MOST_WORK, MOST_WORKGROUPS } from "./sizes.js";
import { each, own, rule, within } from "./structure.js";

/** The largest number of a problem, of 32 bits. */
const LARGEST_NUMBER = 2 ** 31 - 1;

/** What a manifest asks of a plan. @typedef {{ inputs: Map<string, PortType>, outputs: Map<string, PortType>,
 *  ranges: Map<string, any> }} PlanUse */

/** @param {any} plan @param {any} manifest @param {string} key the plan's in the manifest
 *  @param {typeof import("./programs.js")} [programs] where the manifest has some
 *  @throws {import("./structure.js").Refusal} for the first relation that does not hold */
export function checkPlan(plan, manifest, key, programs) {
  rule("plan key", plan.key === key, "is another plan's", "key");
  new PlanCheck(plan, manifest, [...planUses(manifest, key), ...(programs?.stageUses(manifest, key) ?? [])]).run();
}

/** Return what the manifest asks of a plan that is the whole model.
 *  @param {any} manifest @param {string} key @returns {PlanUse[]} */
function planUses(manifest, key) {
  const { plans, outputs, dynamic } = manifest;
  const records = plans.filter((/** @type {any} */ item) => item.key === key || item.software === key);
  return records.map((/** @type {any} */ record) => ({
    inputs: new Map(fedTypes(manifest, record)),
    outputs: new Map(outputs.map((/** @type {any} */ { name, dtype }) => [name, { dtype, shape: null }])),
    ranges: new Map(Object.entries(dynamic)),
  }));
}

/** The checks of one plan. */
class PlanCheck {
  /** @type {Map<string, Bounds>} */
  #symbols = new Map();
  /** The sizes of all buffers that the plan may name. @type {Map<string, Bounds>} */
  #buffers = new Map();
  /** Where outputs are otherwise than in buffers of their own, "" for no buffer. @type {Map<string, string>} */
  #settled = new Map();
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
    const plan = this.#plan;
    this.#checkSymbols();
    each(plan, "inputs", (port) => this.#addPort(`input:${port.name}`, port));
    each(plan, "outputs", (port) => this.#addPort(`output:${port.name}`, port));
    for (const use of this.#uses) this.#checkSignature(use);
    each(plan, "arenas", (size, index) => this.#addBuffer(`arena:${index}`, this.#size(size)));
    each(plan, "weights", (weight) => this.#addWeight(weight));
    if (this.#symbols.size) this.#addNumbers("symbols", plan.symbols);
    each(plan, "problems", (problem, index) => {
      const fits = problem.every((/** @type {number} */ number) => Math.abs(number) <= LARGEST_NUMBER);
      rule("problem", fits, "has a number of more than 32 bits");
      this.#addNumbers(`problem:${index}`, problem);
    });
    this.#checkKernels();
    this.#checkStates();
    this.#checkCommands();
    this.#checkOutputs();
    this.#checkFacts();
  }

  /** @param {any} value */
  #size(value) {
    return sizeBounds(value, this.#symbols);
  }

  /** @param {any} owner @param {string} field */
  #sizeOf(owner, field) {
    return within(field, (value) => this.#size(value), owner[field]);
  }

  /** Check the symbols of a number that no run depends on. @param {any} value */
  #checkNames(value) {
    boundsOf(value, this.#symbols);
  }

  #checkSymbols() {
    each(this.#plan, "symbols", ({ name, ...range }) => {
      const { low, high, step } = range;
      checkRange(range);
      rule("range", Math.floor(high / step) <= LARGEST_NUMBER, "has sizes of more than 32 bits");
      rule("names", !this.#symbols.has(name), "is a symbol twice");
      for (const { ranges } of this.#uses) {
        const { low: least, high: most, step: apart } = ranges.get(name) ?? {};
        rule("symbol range", least === low && most === high && apart === step, "has another range in the manifest");
      }
      this.#symbols.set(name, [low, high]);
    });
    const dims = new Set(this.#plan.inputs.flatMap((/** @type {any} */ port) => port.shape));
    each(this.#plan, "symbols", ({ name }) => rule("unfed symbol", dims.has(name), "is a dimension of no input"));
  }

  /** @param {string} name @param {Bounds} bytes */
  #addBuffer(name, [low, high]) {
    this.#buffers.set(name, [bufferSize(low), bufferSize(high)]);
  }

  /** @param {string} name @param {any[]} numbers */
  #addNumbers(name, { length }) {
    this.#addBuffer(name, [4 * length, 4 * length]);
  }

  /** @param {string} name @param {any} port */
  #addPort(name, port) {
    rule("names", !this.#buffers.has(name), "is a name twice");
    this.#addBuffer(name, byteBounds(port, this.#symbols));
  }

  /** @param {any} weight */
  #addWeight({ key, bytes }) {
    const name = `weight:${key}`;
    rule("names", !this.#buffers.has(name), "is a weight twice");
    const stored = own(this.#manifest.weights, key);
    rule("weight", stored?.bytes === bytes, "is not a weight of the manifest, or has another size there");
    this.#buffers.set(name, [bytes, bytes]);
  }

  /** Check that inputs and outputs are those of the manifest. @param {PlanUse} use */
  #checkSignature(use) {
    for (const field of /** @type {const} */ (["inputs", "outputs"])) {
      const names = new Set(this.#plan[field].map((/** @type {any} */ { name }) => name));
      const isWhole = names.size === use[field].size && [...names].every((name) => use[field].has(name));
      rule("signature", isWhole, `has other ${field} than the manifest says`, field);
      each(this.#plan, field, (port) => {
        const { dtype, shape } = /** @type {PortType} */ (use[field].get(port.name));
        const fits = isSameType({ dtype: dtype ?? port.dtype, shape: shape ?? port.shape }, port);
        rule("signature", fits, "has another type or shape than the manifest says");
      });
    }
  }

  #checkKernels() {
    const seen = new Set();
    each(this.#plan, "kernels", ({ key, workgroup }) => {
      rule("names", !seen.has(key), "is a kernel twice");
      seen.add(key);
      const { size } = requireListed(this.#manifest, `shaders/${key}.wgsl`);
      rule("shader", size <= SCHEMA.bytes.shader, `has a shader of ${size} bytes`);
      rule("workgroup", Math.min(...workgroup) >= 1, "has no invocations", "workgroup");
    });
  }

  /** Note where an output is. @param {string} output @param {string} [source] */
  #settle(output, source = "") {
    const isOpen = this.#buffers.has(`output:${output}`) && !this.#settled.has(output);
    rule("output", isOpen, "is no output of the plan, or one twice");
    this.#settled.set(output, source);
  }

  /** Check the outputs that begin as inputs; no call and no alias may read such an input. */
  #checkStates() {
    const [fed, computed] = [this.#plan.inputs, this.#plan.outputs].map(byName);
    each(this.#plan, "states", ({ output, input }) => {
      this.#settle(output);
      const isFree = this.#buffers.delete(`input:${input}`);
      rule("state", isFree, "begins as no input of the plan, or as one that another is");
      rule("state", isSameType(computed.get(output), fed.get(input)), "has another type or shape than its input");
    });
  }

  #checkCommands() {
    const kernels = new Map(this.#plan.kernels.map((/** @type {any} */ kernel) => [kernel.key, kernel]));
    let dispatches = 0;
    each(this.#plan, "commands", (command) => {
      dispatches += command.calls.length * this.#checkIterations(command);
      rule("work", dispatches <= MOST_WORK, "has too many dispatches");
      each(command, "calls", (call) => this.#checkCall(call, kernels.get(call.kernel)));
    });
  }

  /** Return how often a command runs at least; make the buffer of a repeated one. @param {any} command */
  #checkIterations(command) {
    this.#buffers.delete("iteration");
    if (command.kind !== "repeat") return 1;
    const [low, high] = this.#sizeOf(command, "count");
    rule("iterations", high <= MOST_ITERATIONS, `has more than ${MOST_ITERATIONS} iterations`, "count");
    this.#buffers.set("iteration", [16, 16]);
    return Math.max(low, 0);
  }

  /** @param {any} call @param {any} kernel */
  #checkCall(call, kernel) {
    rule("kernel", kernel, "names a kernel that the plan does not have");
    const { bindings } = kernel;
    rule("bindings", bindings.length === call.ranges.length, "has another number of ranges than its kernel of bindings");
    let [least, isEmpty] = [1, false];
    each(call, "grid", (size) => {
      const [low, high] = this.#size(size);
      least *= Math.max(low, 0);
      isEmpty ||= low === 0 && high === 0;
    });
    rule("work", least <= MOST_WORKGROUPS, "has too many workgroups", "grid");
    for (const name of ["flops", "bytes"]) within(name, (size) => this.#checkNames(size), call[name]);
    each(call, "ranges", (range) => this.#checkSpan(range, isEmpty));
    /** @type {Map<string, string>} */
    const accesses = new Map();
    each(call, "ranges", ({ buffer }, at) => {
      const { access } = bindings[at];
      rule("access", (accesses.get(buffer) ?? access) === access, "binds a buffer in two ways");
      accesses.set(buffer, access);
      checkAccess(buffer, access);
    });
  }

  /** @param {any} range @param {boolean} isEmpty */
  #checkSpan(range, isEmpty) {
    const buffer = this.#buffers.get(range.buffer);
    rule("buffer", buffer, `binds '${range.buffer}', which the plan does not have`);
    this.#bound.add(range.buffer);
    const [offset, size] = ["offset", "size"].map((field) => this.#sizeOf(range, field));
    if (isEmpty) return;
    rule("inside", offset[0] + size[0] <= buffer[1] && size[1] >= 1, "lies outside its buffer, or is empty");
    rule("words", size[0] !== size[1] || size[0] % 4 === 0, "is not made of whole words");
  }

  #checkOutputs() {
    const plan = this.#plan;
    const outputs = byName(plan.outputs);
    each(plan, "constants", (constant) => {
      const { output, dtype, shape, data } = constant;
      this.#settle(output);
      rule("constant", isSameType(constant, outputs.get(output)), "has another type or shape than its output");
      const bytes = elementCount(shape) * SCHEMA.dtypes[dtype];
      rule("constant", decodedBytes(data) === bytes, "has another number of bytes than its shape");
    });
    each(plan, "aliases", (alias) => {
      const { output, source } = alias;
      this.#settle(output, source);
      const held = /^(input|output|weight):/.test(source) && this.#buffers.get(source);
      rule("buffer", held, `is an alias of '${source}', which the plan does not have`);
      const bytes = this.#sizeOf(alias, "size");
      const needed = /** @type {Bounds} */ (this.#buffers.get(`output:${output}`));
      rule("inside", needed[0] <= held[1] && bytes[0] <= held[1], "is larger than what it is an alias of");
    });
    const ended = new Set();
    each(plan, "aliases", ({ output }) => {
      const chain = new Set();
      let source = `output:${output}`;
      while (source.startsWith("output:") && !ended.has(source)) {
        rule("circle", !chain.has(source), "is an alias of itself");
        chain.add(source);
        source = this.#settled.get(source.slice(7)) ?? "";
      }
      for (const link of chain) ended.add(link);
    });
    for (const field of ["constants", "aliases"]) {
      each(plan, field, ({ output }) =>
        rule("output", !this.#bound.has(`output:${output}`), "is a constant or an alias, and a call binds it"));
    }
  }

  /** Check that facts and notes are about calls and tensors that there are. */
  #checkFacts() {
    const { facts, notes, commands } = this.#plan;
    const count = commands.reduce((/** @type {number} */ sum, /** @type {any} */ { calls }) => sum + calls.length, 0);
    const isOfAll = (/** @type {any} */ { calls }) => [0, count].includes(calls.length);
    const reason = "has another number of calls than the plan";
    within("facts", () => {
      each(facts, "tensors", (tensor) => each(tensor, "shape", (size) => this.#checkNames(size)));
      rule("facts", isOfAll(facts), reason, "calls");
      each(facts, "calls", ({ operands, also, in_place }) => {
        const last = Math.max(...operands, ...also, in_place ?? 0);
        rule("facts", last < facts.tensors.length, "names a tensor that is not there");
      });
    }, facts);
    rule("notes", isOfAll(notes), reason, "notes", "calls");
  }
}

/** @param {string} buffer @param {string} access */
function checkAccess(buffer, access) {
  const isWritten = access === "read_write";
  rule("access", !isWritten || /^(output|arena):/.test(buffer), "writes to a buffer that is only read");
  const kind = /^(symbols$|problem:)/.test(buffer) ? "uniform" : buffer;
  const fits = ["uniform", "iteration"].every((each) => (access === each) === (kind === each));
  rule("access", fits, "binds another buffer than symbols or a problem as uniform");
}

/** Return the number of bytes of base64 data. @param {string} data */
const decodedBytes = (data) => (data.length / 4) * 3 - (data.endsWith("==") ? 2 : Number(data.endsWith("=")));
