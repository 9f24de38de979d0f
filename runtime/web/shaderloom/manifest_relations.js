// The relations between the fields of a manifest: the checks of runtime/bundle/manifest_relations.py in the same order,
// by the same rules.

import { checkRange, checkShapes, isSame } from "./shape_relations.js";
import { each, own, rule, within } from "./structure.js";

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
  rule("names", new Set(ports.map(({ name }) => name)).size === ports.length, "has a name twice", field);
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
