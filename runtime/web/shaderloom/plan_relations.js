// The relations between the fields of a plan, and of a plan and its manifest: the checks of
// runtime/bundle/plan_relations.py in the same order, by the same rules.

/** @import { Bounds, PortType } from "./manifest_relations.js" */

import { boundsOf, byName, byteBounds, checkRange, fedTypes, fits, isSameType, requireListed, sizeBounds } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { each, own, rule, within } from "./structure.js";
import { bufferSize, elementCount, MOST_ITERATIONS, MOST_WORK, MOST_WORKGROUPS } from "./tensors.js";

/** The largest number of a problem, of 32 bits. */
const LARGEST_NUMBER = 2 ** 31 - 1;

/** The buffers that a call may bind with each access. @type {Record<string, RegExp>} */
const ACCESSIBLE = {
  read: /^(input|output|arena|weight):/, read_write: /^(output|arena):/, uniform: /^(symbols$|problem:)/,
  iteration: /^iteration$/,
};

/** What a manifest asks of a plan. @typedef {{ inputs: Map<string, PortType>, outputs: Map<string, PortType>,
 *  ranges: Map<string, any> }} PlanUse */

/** Return what the manifest asks of a plan that is the whole model.
 *  @param {any} manifest @param {string} key @returns {PlanUse[]} */
function planUses(manifest, key) {
  const { plans, outputs, dynamic } = manifest;
  const isUsed = (/** @type {any} */ record) => record.key === key || record.software === key;
  return plans.filter(isUsed).map((/** @type {any} */ record) => ({
    inputs: new Map(fedTypes(manifest, record)),
    outputs: new Map(outputs.map((/** @type {any} */ { name, dtype }) => [name, { dtype, shape: null }])),
    ranges: new Map(Object.entries(dynamic)),
  }));
}

/** @param {any} one @param {any} other */
const isSameRange = (one, other) => ["low", "high", "step"].every((field) => one?.[field] === other[field]);

/** @param {any} plan @param {any} manifest @param {string} key the plan's in the manifest
 *  @param {typeof import("./programs.js")} [programs] where the manifest has some
 *  @throws {import("./structure.js").Refusal} for the first relation that does not hold */
export function checkPlan(plan, manifest, key, programs) {
  const uses = [...planUses(manifest, key), ...(programs?.stageUses(manifest, key) ?? [])];
  const [inputs, outputs] = [plan.inputs, plan.outputs].map(byName);
  /** @type {Map<string, Bounds>} */
  const symbols = new Map();
  /** The sizes of all buffers that the plan may name. @type {Map<string, Bounds>} */
  const buffers = new Map();
  /** Where outputs are that have no buffers of their own: undefined for no buffer. @type {Map<string, string | undefined>} */
  const settled = new Map();
  /** Buffers that calls bind. @type {Set<string>} */
  const bound = new Set();

  /** Return the bounds of a size. @param {any} size */
  const bounds = (size) => sizeBounds(size, symbols);

  /** Check the symbols of a number that no run depends on. @param {any} size */
  const checkNames = (size) => void boundsOf(size, symbols);

  function checkSymbols() {
    each(plan, "symbols", (symbol) => {
      const { name, low, high, step } = symbol;
      checkRange(symbol);
      rule("range", Math.floor(high / step) <= LARGEST_NUMBER, "has sizes of more than 32 bits");
      rule("names", !symbols.has(name), "is a symbol twice");
      const isDeclared = uses.every(({ ranges }) => isSameRange(ranges.get(name), symbol));
      rule("symbol range", isDeclared, "has another range in the manifest");
      symbols.set(name, [low, high]);
    });
    const dims = new Set(plan.inputs.flatMap((/** @type {any} */ port) => port.shape));
    each(plan, "symbols", ({ name }) => rule("unfed symbol", dims.has(name), "is a dimension of no input"));
  }

  /** @param {string} name @param {number} low bytes at least @param {number} [high] at most */
  function addBuffer(name, low, high = low) {
    buffers.set(name, [bufferSize(low), bufferSize(high)]);
  }

  /** @param {string} name @param {any} port */
  function addPort(name, port) {
    rule("names", !buffers.has(name), "is a name twice");
    addBuffer(name, ...byteBounds(port, symbols));
  }

  /** @param {any} weight */
  function addWeight({ key, bytes }) {
    const name = `weight:${key}`;
    rule("names", !buffers.has(name), "is a weight twice");
    rule("weight", own(manifest.weights, key)?.bytes === bytes, "is not a weight of the manifest, or has another size there");
    buffers.set(name, [bytes, bytes]);
  }

  /** Check that inputs and outputs are those of the manifest. @param {PlanUse} use */
  function checkSignature(use) {
    for (const field of /** @type {const} */ (["inputs", "outputs"])) {
      const [ports, wanted] = [plan[field], use[field]]; // names of ports are unique
      const isWhole = ports.length === wanted.size && ports.every((/** @type {any} */ { name }) => wanted.has(name));
      rule("signature", isWhole, `has other ${field} than the manifest says`, field);
      each(plan, field, (port) => {
        const type = /** @type {PortType} */ (wanted.get(port.name));
        rule("signature", fits(type, port), "has another type or shape than the manifest says");
      });
    }
  }

  function checkKernels() {
    const seen = new Set();
    each(plan, "kernels", ({ key, workgroup }) => {
      rule("names", !seen.has(key), "is a kernel twice");
      seen.add(key);
      const { size } = requireListed(manifest, `shaders/${key}.wgsl`);
      rule("shader", size <= SCHEMA.bytes.shader, `has a shader of ${size} bytes`);
      rule("workgroup", Math.min(...workgroup) >= 1, "has no invocations", "workgroup");
    });
  }

  /** Note where an output is. @param {string} output @param {string} [source] */
  function settle(output, source) {
    const name = `output:${output}`;
    rule("output", buffers.has(name) && !settled.has(name), "is no output of the plan, or one twice");
    settled.set(name, source);
  }

  /** Check the outputs that begin as inputs; no call and no alias may read such an input. */
  function checkStates() {
    each(plan, "states", ({ output, input }) => {
      settle(output);
      rule("state", buffers.delete(`input:${input}`), "begins as no input of the plan, or as one that another is");
      rule("state", isSameType(outputs.get(output), inputs.get(input)), "has another type or shape than its input");
    });
  }

  function checkCommands() {
    const kernels = new Map(plan.kernels.map((/** @type {any} */ kernel) => [kernel.key, kernel]));
    let dispatches = 0;
    each(plan, "commands", (command) => {
      dispatches += command.calls.length * checkIterations(command);
      rule("work", dispatches <= MOST_WORK, "has too many dispatches");
      each(command, "calls", (call) => checkCall(call, kernels.get(call.kernel)));
    });
  }

  /** Return how often a command runs at least; make the buffer of a repeated one. @param {any} command */
  function checkIterations(command) {
    buffers.delete("iteration");
    if (command.kind !== "repeat") return 1;
    const [low, high] = within("count", bounds, command.count);
    rule("iterations", high <= MOST_ITERATIONS, `has more than ${MOST_ITERATIONS} iterations`, "count");
    addBuffer("iteration", 4);
    return Math.max(low, 0);
  }

  /** @param {any} call @param {any} kernel */
  function checkCall(call, kernel) {
    rule("kernel", kernel, "names a kernel that the plan does not have");
    const { bindings } = kernel;
    rule("bindings", bindings.length === call.ranges.length, "has another number of ranges than its kernel of bindings");
    let [least, isEmpty] = [1, false];
    each(call, "grid", (size) => {
      const [low, high] = bounds(size);
      least *= Math.max(low, 0);
      isEmpty ||= low === 0 && high === 0;
    });
    rule("work", least <= MOST_WORKGROUPS, "has too many workgroups", "grid");
    for (const name of ["flops", "bytes"]) within(name, checkNames, call[name]);
    /** @type {Map<string, string>} */
    const accesses = new Map();
    each(call, "ranges", (range, at) => {
      checkSpan(range, isEmpty);
      const [{ buffer }, { access }] = [range, bindings[at]];
      rule("access", (accesses.get(buffer) ?? access) === access, "binds a buffer in two ways");
      accesses.set(buffer, access);
      rule("access", ACCESSIBLE[access].test(buffer), `gives '${buffer}' the access '${access}', which it may not have`);
    });
  }

  /** @param {any} range @param {boolean} isEmpty */
  function checkSpan(range, isEmpty) {
    const buffer = buffers.get(range.buffer);
    rule("buffer", buffer, `binds '${range.buffer}', which the plan does not have`);
    bound.add(range.buffer);
    const [offset, size] = ["offset", "size"].map((field) => within(field, bounds, range[field]));
    if (isEmpty) return;
    rule("inside", offset[0] + size[0] <= buffer[1] && size[1] >= 1, "lies outside its buffer, or is empty");
    rule("words", size[0] !== size[1] || size[0] % 4 === 0, "is not made of whole words");
  }

  function checkOutputs() {
    each(plan, "constants", (constant) => {
      const { output, dtype, shape, data } = constant;
      settle(output);
      rule("constant", isSameType(constant, outputs.get(output)), "has another type or shape than its output");
      const bytes = elementCount(shape) * SCHEMA.dtypes[dtype];
      rule("constant", decodedBytes(data) === bytes, "has another number of bytes than its shape");
    });
    each(plan, "aliases", (alias) => {
      const { output, source } = alias;
      settle(output, source);
      const held = /^(input|output|weight):/.test(source) && buffers.get(source);
      rule("buffer", held, `is an alias of '${source}', which the plan does not have`);
      const [bytes] = within("size", bounds, alias.size);
      const [needed] = /** @type {Bounds} */ (buffers.get(`output:${output}`));
      rule("inside", Math.max(needed, bytes) <= held[1], "is larger than what it is an alias of");
    });
    /** The alias from which a buffer was reached first, by its index. @type {Map<string, number>} */
    const reached = new Map();
    each(plan, "aliases", ({ output }, at) => {
      /** @type {string | undefined} */
      let source = `output:${output}`;
      for (; source && (reached.get(source) ?? at) === at; source = settled.get(source)) {
        rule("circle", !reached.has(source), "is an alias of itself");
        reached.set(source, at);
      }
    });
    for (const field of ["constants", "aliases"]) {
      each(plan, field, ({ output }) =>
        rule("output", !bound.has(`output:${output}`), "is a constant or an alias, and a call binds it"));
    }
  }

  /** Check that facts and notes are about calls and tensors that there are. */
  function checkFacts() {
    const { facts, notes, commands } = plan;
    const count = commands.reduce((/** @type {number} */ sum, /** @type {any} */ { calls }) => sum + calls.length, 0);
    const isOfAll = (/** @type {any} */ { calls }) => [0, count].includes(calls.length);
    const reason = "has another number of calls than the plan";
    within("facts", () => {
      each(facts, "tensors", (tensor) => each(tensor, "shape", checkNames));
      rule("facts", isOfAll(facts), reason, "calls");
      each(facts, "calls", ({ operands, also, in_place }) => {
        rule("facts", Math.max(...operands, ...also, in_place ?? 0) < facts.tensors.length, "names a tensor that is not there");
      });
    }, facts);
    rule("notes", isOfAll(notes), reason, "notes", "calls");
  }

  rule("plan key", plan.key === key, "is another plan's", "key");
  checkSymbols();
  each(plan, "inputs", (port) => addPort(`input:${port.name}`, port));
  each(plan, "outputs", (port) => addPort(`output:${port.name}`, port));
  for (const use of uses) checkSignature(use);
  each(plan, "arenas", (size, index) => addBuffer(`arena:${index}`, ...bounds(size)));
  each(plan, "weights", addWeight);
  if (symbols.size) addBuffer("symbols", 4 * symbols.size);
  each(plan, "problems", (problem, index) => {
    const areShort = problem.every((/** @type {number} */ number) => Math.abs(number) <= LARGEST_NUMBER);
    rule("problem", areShort, "has a number of more than 32 bits");
    addBuffer(`problem:${index}`, 4 * problem.length);
  });
  checkKernels();
  checkStates();
  checkCommands();
  checkOutputs();
  checkFacts();
}

/** Return the number of bytes of base64 data. @param {string} data */
const decodedBytes = (data) => (data.length / 4) * 3 - (data.endsWith("==") ? 2 : Number(data.endsWith("=")));
