/** @import { DataType, Dimension, Feeds, Manifest, Program, SizeRange } from "../shaderloom.js" */
/** @import { Value } from "./tensors.js" */

import { ensure } from "./errors.js";
import { elementCount, formatShape, holdsElements, isBuffer, normaliseFeed } from "./tensors.js";

/**
 * Values of symbols: the sizes of dynamic dimensions.
 *
 * @typedef {Record<string, number>} Symbols
 * @typedef {Record<string, number | undefined>} PartialSymbols Those that the feeds do not settle are undefined.
 */

/** The plan or, behind the plans, the program that fits feeds; its symbols, and the feeds normalised.
 *  @typedef {{ index: number, program?: Program, symbols: Symbols, values: Record<string, Value> }} Match */

/** Return what a bundle takes: the shapes of each plan and program, and what finds the first that fits feeds.
 *  @param {Manifest} manifest */
export function signatureOf({ inputs, overridable, dynamic, plans, programs = [] }) {
  const ports = [...inputs, ...overridable];
  /** @type {Record<string, DataType>} */
  const dtypes = Object.fromEntries(ports.map(({ name, dtype }) => [name, dtype]));
  const names = ports.map(({ name }) => name).join(", ");
  const shapes = [...plans, ...programs].map((record) => record.shapes);
  const compiled = shapes.map((each) => textOf(each, formatShape)).join("; ");

  /** @param {Feeds} feeds @returns {Match}
   *  @throws {ShaderloomError} "input" if a feed is missing, no plan fits, or several do */
  function match(feeds) {
    ensure("input", Object(feeds) === feeds, "feeds is no object");
    /** @type {Record<string, Value>} */
    const values = Object.create(null); // a name may be __proto__
    for (const [name, feed] of Object.entries(feeds)) {
      ensure("input", Object.hasOwn(dtypes, name), `the model has no input '${name}'; it has ${names}`);
      values[name] = normaliseFeed(name, feed, dtypes[name]);
    }
    const lacking = shapes.map((each) => Object.keys(each).filter((name) => !(name in values)));
    ensure("input", lacking.some(({ length }) => !length), `the feeds lack ${lacking[0].join(", ")}`);
    const count = Object.keys(values).length;
    const fitting = [];
    /** @type {Set<string>} */
    const violations = new Set();
    for (const [at, each] of shapes.entries()) {
      const isFed = !lacking[at].length && Object.keys(each).length === count;
      const bound = isFed && bindShapes(each, values, dtypes);
      const violation = bound && rangeViolation(bound, dynamic);
      if (violation) violations.add(violation);
      else if (bound) fitting.push({ index: at, symbols: bound });
    }
    const why = [...violations].map((text) => ` (${text})`).join("");
    const asked = `the bundle was not compiled for ${textOf(values, describeSize)}`;
    ensure("input", fitting.length, `${asked}; it was for ${compiled}${why}`);
    const [{ index, symbols }] = fitting;
    const isSettled = isComplete(symbols) && (fitting.length === 1 || Object.values(values).every(({ dims }) => dims));
    ensure("input", isSettled, `the sizes of the feeds do not say which shapes are meant (${compiled}): give {data, dims}`);
    return { index, program: programs[index - plans.length], symbols: /** @type {Symbols} */ (symbols), values };
  }

  return { shapes, match };
}

/** @template T @param {Record<string, T>} items @param {(item: T) => string} format */
const textOf = (items, format) => Object.entries(items).map(([name, item]) => `${name}=${format(item)}`).join(" ");

/** @param {PartialSymbols} symbols */
const isComplete = (symbols) => !Object.values(symbols).includes(undefined);

/** @param {Value} value */
function describeSize({ data, dims }) {
  if (dims) return formatShape(dims);
  return isBuffer(data) ? `${data.size} bytes` : `${data.length} elements`;
}

/**
 * Return the values of symbols with which feeds fit the shapes of a plan's inputs, or null if they do not.
 *
 * Shapes that the caller gave come first. A feed without a shape fits by its number of elements, which also settles one
 * symbol that is unknown and occurs once.
 *
 * @param {Record<string, Dimension[]>} shapes @param {Record<string, Value>} feeds
 * @param {Record<string, DataType>} dtypes @returns {PartialSymbols | null}
 */
function bindShapes(shapes, feeds, dtypes) {
  /** @type {PartialSymbols} */
  const symbols = Object.create(null); // a name may be __proto__
  const names = Object.keys(shapes);
  let open = [...names.filter((name) => feeds[name].dims), ...names.filter((name) => !feeds[name].dims)];
  for (let before = Infinity; open.length < before; ) {
    before = open.length;
    for (const name of open) {
      const { data, dims } = feeds[name];
      const fits = dims ? bindDims(shapes[name], dims, symbols) : bindCount(shapes[name], data, dtypes[name], symbols);
      if (fits === false) return null;
      if (fits) open = open.filter((other) => other !== name);
    }
  }
  for (const dim of open.flatMap((name) => shapes[name])) if (typeof dim === "string") symbols[dim] ??= undefined;
  return symbols;
}

/** Settle symbols by a shape that the caller gave, and return whether it fits.
 *  @param {Dimension[]} shape @param {readonly number[]} dims @param {PartialSymbols} symbols */
function bindDims(shape, dims, symbols) {
  if (dims.length !== shape.length) return false;
  for (const [axis, dim] of shape.entries()) {
    if (typeof dim === "string") symbols[dim] ??= dims[axis];
    if (dims[axis] !== (typeof dim === "string" ? symbols[dim] : dim)) return false;
  }
  return true;
}

/** Settle at most one symbol by a number of elements, and return whether it fits; undefined where that is open yet.
 *  @param {Dimension[]} shape @param {Value["data"]} data @param {DataType} dtype @param {PartialSymbols} symbols */
function bindCount(shape, data, dtype, symbols) {
  const sizes = shape.map((dim) => (typeof dim === "string" ? symbols[dim] : dim));
  const settled = elementCount(sizes.map((size) => size ?? 1));
  const [unknown, ...others] = shape.filter((_, axis) => sizes[axis] === undefined);
  if (unknown === undefined) return holdsElements(data, settled, dtype);
  if (others.length || isBuffer(data) || settled === 0) return undefined;
  symbols[unknown] = data.length / settled;
  return data.length % settled === 0;
}

/** Return what is wrong with a symbol's value, or undefined if all are in their ranges.
 *  @param {PartialSymbols} symbols @param {Record<string, SizeRange>} ranges */
export function rangeViolation(symbols, ranges) {
  for (const [name, value] of Object.entries(symbols)) {
    const { low, high, step } = ranges[name];
    if (value !== undefined && (value < low || value > high || (value - low) % step)) {
      return `'${name}' is ${value}; it was declared ${low} to ${high}${step > 1 ? ` in steps of ${step}` : ""}`;
    }
  }
}
