// The relations between the fields of a manifest: the checks of runtime/bundle/manifest_relations.py in the same order,
// by the same rules.

import { SCHEMA } from "./schema.js";
import { Refusal } from "./structure.js";

/** Bytes that share a hash. */
export const CHUNK = 4 << 20;

const FILE_NAME = /^[a-z0-9][a-z0-9._-]*(\/[a-z0-9][a-z0-9._-]*)?$/;
const OWN_FILES = ["manifest.json", "manifest.sha256"];

/** @typedef {(string | number)[]} Path */

/** The bytes of an element by its type. @type {Map<string | null, number>} */
export const BYTES = new Map(Object.entries(SCHEMA.dtypes));

/** @param {object} value */
export const sortedEntries = (value) =>
  Object.keys(value).sort().map((name) => [name, /** @type {any} */ (value)[name]]);

/** @param {any[]} items @returns {Map<string, any>} */
export const byName = (items) => new Map(items.map((item) => [item.name, item]));

/** @param {any} manifest @param {typeof import("./programs.js")} [programs] where it has some
 *  @throws {Refusal} for the first relation that does not hold */
export function checkManifest(manifest, programs) {
  for (const [name, { size, sha256 }] of sortedEntries(manifest.files)) {
    const path = ["files", name];
    if (name.length > 200 || !FILE_NAME.test(name) || OWN_FILES.includes(name)) {
      throw new Refusal("file name", "is a file that no bundle may have", path);
    }
    if (sha256.length !== Math.ceil(size / CHUNK)) {
      throw new Refusal("hashes", "has another number of hashes than chunks", path);
    }
  }
  requireUnique([...manifest.inputs, ...manifest.overridable], "inputs");
  requireUnique(manifest.outputs, "outputs");
  for (const [name, sizes] of sortedEntries(manifest.dynamic)) checkRange(sizes, ["dynamic", name]);
  const keys = checkPlans(manifest);
  if (programs) programs.checkPrograms(manifest, keys);
  else if (!manifest.plans.length) throw new Refusal("plans", "has neither a plan nor a program", ["plans"]);
  checkSamples(manifest);
  checkWeights(manifest);
}

/** @param {any[]} ports @param {string} field */
function requireUnique(ports, field) {
  if (new Set(ports.map(({ name }) => name)).size !== ports.length) {
    throw new Refusal("names", "has a name twice", [field]);
  }
}

/** @param {any} sizes @param {Path} path */
export function checkRange({ low, high, step }, path) {
  if (step < 1 || high < low || high - low > Number.MAX_SAFE_INTEGER || (high - low) % step) {
    throw new Refusal("range", "is no range: it has no size, or does not end with one", path);
  }
}

/** Check the plans that are no stages, and return their keys. @param {any} manifest @returns {Set<string>} */
function checkPlans(manifest) {
  const { plans, files } = manifest;
  const seen = new Set();
  for (const [index, record] of plans.entries()) {
    const path = ["plans", index];
    const keys = new Set([record.key, record.software ?? record.key]);
    for (const key of keys) if (seen.has(key)) throw new Refusal("plan twice", "is listed twice", path);
    for (const key of keys) seen.add(key);
    if (record.file !== `plan-${record.key}.json`) {
      throw new Refusal("plan file", `is not 'plan-${record.key}.json'`, [...path, "file"]);
    }
    for (const key of keys) requireListed(files, `plan-${key}.json`, path);
    checkShapes(manifest, record.shapes, path);
    if (record.rows) checkRows(manifest, record, [...path, "rows"]);
  }
  return seen;
}

/** Check that axes of rows are those of inputs of the plan, and of all outputs of the model.
 *  @param {any} manifest @param {any} record @param {Path} path */
function checkRows({ outputs }, { shapes, rows }, path) {
  const ranks = new Map(sortedEntries(shapes).map(([name, dims]) => [name, dims.length]));
  const allowed = new Map(outputs.map((/** @type {any} */ port) => [port.name, port.dims ? port.dims.length : 32]));
  for (const [field, axes] of Object.entries({ inputs: ranks, outputs: allowed })) {
    for (const [name, axis] of sortedEntries(rows[field])) {
      if (axis >= (axes.get(name) ?? 0)) throw new Refusal("rows", "is no axis of the plan", [...path, field, name]);
    }
  }
  if (!Object.keys(rows.inputs).length || Object.keys(rows.outputs).length < allowed.size) {
    throw new Refusal("rows", "has no axis of an input, or not of every output", path);
  }
}

/** Check that shapes are of inputs of the model, and their names dynamic dimensions.
 *  @param {any} manifest @param {any} shapes @param {Path} path */
export function checkShapes({ inputs, overridable, dynamic }, shapes, path) {
  const ports = byName([...inputs, ...overridable]);
  for (const [name, shape] of sortedEntries(shapes)) {
    const place = [...path, "shapes", name];
    const port = ports.get(name);
    if (!port) throw new Refusal("plan input", "is no input of the model", place);
    if (!BYTES.has(port.dtype)) throw new Refusal("plan dtype", "has no element type that a device holds", place);
    for (const dim of shape) {
      if (typeof dim === "string" && !Object.hasOwn(dynamic, dim)) {
        throw new Refusal("dimension", `has the dimension '${dim}', whose range is not there`, place);
      }
    }
  }
}

/** @param {any} files @param {string} name @param {Path} path */
export function requireListed(files, name, path) {
  if (!Object.hasOwn(files, name)) throw new Refusal("listed", `needs '${name}', which is not listed`, path);
}

/** @param {any} manifest */
function checkSamples({ plans, programs = [], samples, files }) {
  const keys = new Set([...plans, ...programs].map((record) => record.key));
  for (const [index, { plan, file, tolerance }] of samples.entries()) {
    const path = ["samples", index];
    if (!keys.has(plan)) throw new Refusal("sample plan", "is a sample without a plan", path);
    if (file !== `samples/${plan}.safetensors`) {
      throw new Refusal("sample file", `is not 'samples/${plan}.safetensors'`, [...path, "file"]);
    }
    requireListed(files, file, path);
    if (!(tolerance >= 0 && tolerance < 1)) {
      throw new Refusal("tolerance", "is not between 0 and 1", [...path, "tolerance"]);
    }
  }
}

/** Check that weights are made of ranges of listed files, none of which belongs to two. @param {any} manifest */
function checkWeights({ weights, files }) {
  /** @type {Map<string, [offset: number, length: number][]>} */
  const used = new Map();
  for (const [key, { bytes, parts }] of sortedEntries(weights)) {
    let total = 0;
    for (const [index, { file, offset, length }] of parts.entries()) {
      const path = ["weights", key, "parts", index];
      requireListed(files, file, path);
      if (offset % 16 || length % 16 || !length) {
        throw new Refusal("blocks", "is not made of whole blocks of 16 bytes", path);
      }
      if (offset + length > files[file].size) throw new Refusal("inside", "lies outside its file", path);
      total += length;
      const ranges = used.get(file) ?? [];
      ranges.push([offset, length]);
      used.set(file, ranges);
    }
    if (total !== bytes) throw new Refusal("weight bytes", "has another size than its parts", ["weights", key]);
  }
  for (const [file, ranges] of [...used].sort(([first], [second]) => (first < second ? -1 : 1))) {
    let end = 0;
    for (const [offset, length] of ranges.sort((first, second) => first[0] - second[0])) {
      if (offset < end) throw new Refusal("overlap", "has bytes that belong to two weights", ["files", file]);
      end = offset + length;
    }
  }
}
