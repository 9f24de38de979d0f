// The relations between the fields of a manifest, and those of sizes that it has of plans and programs alike: the checks of
// runtime/bundle/manifest_relations.py and shape_relations.py in the same order, by the same rules.

/** The least and the largest value of a size. @typedef {[low: number, high: number]} Bounds */
/** @typedef {{ get(name: string): Bounds | undefined }} SymbolBounds */
/** Null where they are open. @typedef {{ dtype: string | null, shape: any[] | null }} PortType */

import { SCHEMA } from "./schema.js";
import { each, own, rule, within } from "./structure.js";
import { OPERATORS } from "./tensors.js";

/** Bytes that share a hash. */
export const CHUNK = 4 << 20;

const FILE_NAME = /^[a-z0-9][a-z0-9._-]*(\/[a-z0-9][a-z0-9._-]*)?$/;
const OWN_FILES = ["manifest.json", "manifest.sha256"];

/** @param {any} manifest @param {typeof import("./programs.js")} [programs] where it has some
 *  @throws {import("./structure.js").Refusal} for the first relation that does not hold */
export function checkManifest(manifest, programs) {
  each(manifest, "files", ({ size, sha256 }, name) => {
    rule("file name", name.length <= 200 && FILE_NAME.test(name) && !OWN_FILES.includes(name),
      "is a file that no bundle may have");
    rule("hashes", sha256.length === Math.ceil(size / CHUNK), "has another number of hashes than chunks");
  });
  requireUnique([...manifest.inputs, ...manifest.overridable], "inputs");
  requireUnique(manifest.outputs, "outputs");
  each(manifest, "dynamic", checkRange);
  const keys = checkPlans(manifest);
  rule("plans", programs || manifest.plans.length, "has neither a plan nor a program", "plans");
  programs?.checkPrograms(manifest, keys);
  checkSamples(manifest);
  checkWeights(manifest);
}

/** @param {any[]} ports @param {string} field */
function requireUnique(ports, field) {
  rule("names", byName(ports).size === ports.length, "has a name twice", field);
}

/** Check the plans that are no stages, and return their keys. @param {any} manifest @returns {Set<string>} */
function checkPlans(manifest) {
  const seen = new Set();
  each(manifest, "plans", (record) => {
    const keys = new Set([record.key, record.software ?? record.key]);
    for (const key of keys) rule("plan twice", !seen.has(key), "is listed twice");
    for (const key of keys) seen.add(key);
    rule("plan file", record.file === `plan-${record.key}.json`, `is not 'plan-${record.key}.json'`, "file");
    for (const key of keys) requireListed(manifest, `plan-${key}.json`);
    checkShapes(manifest, record);
    if (record.rows) within("rows", (rows) => checkRows(manifest, record, rows), record.rows);
  });
  return seen;
}

/** Check that axes of rows are those of inputs of the plan, and of all outputs of the model.
 *  @param {any} manifest @param {any} record @param {any} rows */
function checkRows({ outputs }, { shapes }, rows) {
  /** @type {Map<string, any>} */
  const ranks = new Map(outputs.map((/** @type {any} */ { name, dims }) => [name, dims ? dims.length : 32]));
  const reason = "is no axis of the plan";
  each(rows, "inputs", (axis, name) => rule("rows", axis < own(shapes, name)?.length, reason));
  each(rows, "outputs", (axis, name) => rule("rows", axis < ranks.get(name), reason));
  rule("rows", Object.keys(rows.inputs).length && Object.keys(rows.outputs).length === ranks.size,
    "has no axis of an input, or not of every output");
}

/** @param {any} manifest @param {string} name @returns {{ size: number }} */
export function requireListed({ files }, name) {
  rule("listed", own(files, name), `needs '${name}', which is not listed`);
  return files[name];
}

/** @param {any} manifest */
function checkSamples(manifest) {
  const keys = new Set([...manifest.plans, ...(manifest.programs ?? [])].map(({ key }) => key));
  each(manifest, "samples", ({ plan, file, tolerance }) => {
    rule("sample plan", keys.has(plan), "is a sample without a plan");
    rule("sample file", file === `samples/${plan}.safetensors`, `is not 'samples/${plan}.safetensors'`, "file");
    requireListed(manifest, file);
    rule("tolerance", tolerance >= 0 && tolerance < 1, "is not between 0 and 1", "tolerance");
  });
}

/** Check that weights are made of ranges of listed files, none of which belongs to two. @param {any} manifest */
function checkWeights(manifest) {
  /** @type {Record<string, { offset: number, length: number }[]>} */
  const files = Object.create(null);
  each(manifest, "weights", (weight) => {
    let total = 0;
    each(weight, "parts", ({ file, offset, length }) => {
      const { size } = requireListed(manifest, file);
      rule("blocks", length && offset % 16 === 0 && length % 16 === 0, "is not made of whole blocks of 16 bytes");
      rule("inside", offset + length <= size, "lies outside its file");
      total += length;
      files[file] ??= [];
      files[file].push({ offset, length });
    });
    rule("weight bytes", total === weight.bytes, "has another size than its parts");
  });
  each({ files }, "files", (parts) => {
    let end = 0;
    for (const { offset, length } of parts.sort((/** @type {any} */ one, /** @type {any} */ two) => one.offset - two.offset)) {
      rule("overlap", offset >= end, "has bytes that belong to two weights");
      end = offset + length;
    }
  });
}

/** Check that a manifest's files are the bundle's own. @param {any} manifest @param {any} bundle its manifest
 *  @throws {import("./structure.js").Refusal} */
export function checkFurther(manifest, bundle) {
  each(manifest, "files", ({ size, sha256 }, name) => {
    const listed = own(bundle.files, name);
    rule("further file", listed?.size === size && isSame(listed.sha256, sha256), "is listed otherwise in 'manifest.json'");
  });
}

/** @param {any} sizes */
export function checkRange({ low, high, step }) {
  const more = high - low;
  const isRange = step >= 1 && more >= 0 && more <= Number.MAX_SAFE_INTEGER && more % step === 0;
  rule("range", isRange, "is no range: it has no size, or does not end with one");
}

/** Check that the shapes of a plan or a program are of inputs of the model, and their names dynamic dimensions.
 *  @param {any} manifest @param {any} record */
export function checkShapes(manifest, record) {
  const ports = inputsOf(manifest);
  each(record, "shapes", (shape, name) => {
    const port = ports.get(name);
    rule("plan input", port, "is no input of the model");
    rule("plan dtype", SCHEMA.dtypes[port.dtype], "has no element type that a device holds");
    for (const dim of shape) {
      const isKnown = typeof dim !== "string" || own(manifest.dynamic, dim);
      rule("dimension", isKnown, `has the dimension '${dim}', whose range is not there`);
    }
  });
}

/** @param {any[]} items @returns {Map<string, any>} */
export const byName = (items) => new Map(items.map((item) => [item.name, item]));

/** @param {any} manifest */
const inputsOf = ({ inputs, overridable }) => byName([...inputs, ...overridable]);

/** Return the types of what is fed, for the shapes of a plan or a program. @param {any} manifest @param {any} record
 *  @returns {[string, PortType][]} */
export function fedTypes(manifest, { shapes }) {
  const ports = inputsOf(manifest);
  return Object.keys(shapes).map((name) => [name, { dtype: ports.get(name).dtype, shape: shapes[name] }]);
}

/** Return whether two values are written alike. @param {any} one @param {any} other */
const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Return whether two ports have the same element type and shape. @param {any} one @param {any} other */
export const isSameType = (one, other) => one.dtype === other.dtype && isSame(one.shape, other.shape);

/** Return whether a value has a type, of which an element type, a shape and an axis may be open: null.
 *  @param {PortType} type @param {any} value */
export function fits({ dtype, shape }, value) {
  const sizes = shape?.map((size, axis) => size ?? value.shape[axis]);
  return isSameType({ dtype: dtype ?? value.dtype, shape: sizes ?? value.shape }, value);
}

/** Return bounds of a size whose structure was checked, or undefined if it, or a part, may be 2 to the power of 53: none
 *  that a run computes is beyond what a number counts exactly.
 *  @param {any} value @param {SymbolBounds} symbols @returns {Bounds | undefined} */
export function boundsOf(value, symbols) {
  if (typeof value === "number") return [value, value];
  if (typeof value === "string") {
    const bounds = symbols.get(value);
    rule("symbol", bounds, `depends on '${value}', which is no symbol of the plan`);
    return bounds;
  }
  const [operator, ...operands] = value;
  /** @type {(Bounds | undefined)[]} */
  const parts = operands.map((/** @type {any} */ operand) => boundsOf(operand, symbols));
  return parts.reduce((left, right) => left && right && combine(operator, left, right));
}

/** Return bounds of what an operator makes of two sizes, of which the second one of a quotient or a remainder is known.
 *  @param {string} operator @param {Bounds} left @param {Bounds} right @returns {Bounds | undefined} */
function combine(operator, [first, last], [least, most]) {
  const apply = /** @type {(left: number, right: number) => number} */ (OPERATORS.get(operator));
  if (operator === "%" && first !== last) return [0, least - 1];
  const ends = [apply(first, least), apply(first, most), apply(last, least), apply(last, most)];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  return Math.max(-low, high) > Number.MAX_SAFE_INTEGER ? undefined : [low, high];
}

/** Return the bounds of a size, which must not be negative for all values of the symbols unless it is signed.
 *  @param {any} value @param {SymbolBounds} symbols @param {boolean} [isSigned] @returns {Bounds} */
export function sizeBounds(value, symbols, isSigned = false) {
  const bounds = boundsOf(value, symbols);
  rule("overflow", bounds, "may be as large as 2 to the power of 53");
  rule("negative", bounds[1] >= 0 || isSigned, "is negative");
  return bounds;
}

/** Return the bounds of the bytes of a tensor's elements, of which none may be too many to count, beside a size 0 too.
 *  @param {PortType} port @param {SymbolBounds} symbols @returns {Bounds} */
export function byteBounds(port, symbols) {
  const itemsize = SCHEMA.dtypes[/** @type {string} */ (port.dtype)];
  let [low, high, counted] = [itemsize, itemsize, itemsize];
  each(port, "shape", (dim) => {
    const [least, most] = sizeBounds(dim, symbols);
    [low, high, counted] = [low * Math.max(least, 0), high * most, counted * Math.max(most, 1)];
  });
  rule("overflow", counted <= Number.MAX_SAFE_INTEGER, "has 2 to the power of 53 bytes or more");
  return [low, high];
}
