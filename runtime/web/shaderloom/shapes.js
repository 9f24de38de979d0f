/** @import { DataType, Dimension, SizeRange } from "../shaderloom.js" */
/** @import { Value } from "./feeds.js" */

import { holdsElements, isBuffer } from "./feeds.js";
import { elementCount } from "./sizes.js";

/**
 * Values of symbols: the sizes of dynamic dimensions.
 *
 * @typedef {Record<string, number>} Symbols
 * @typedef {Record<string, number | undefined>} PartialSymbols Those that the feeds do not settle are undefined.
 */

/**
 * Return the values of symbols with which feeds fit the shapes of a plan's inputs, or null if they do not.
 *
 * Shapes that the caller gave come first. A feed without a shape fits by its number of elements, which also settles one
 * symbol that is unknown and occurs once.
 *
 * @param {Record<string, Dimension[]>} shapes @param {Record<string, Value>} feeds
 * @param {Record<string, DataType>} dtypes @returns {PartialSymbols | null}
 */
export function bindShapes(shapes, feeds, dtypes) {
  /** @type {PartialSymbols} */
  const symbols = Object.create(null); // a name may be __proto__
  const names = Object.keys(shapes);
  for (const name of names) {
    const { dims } = feeds[name];
    if (dims && !bindDims(shapes[name], dims, symbols)) return null;
  }
  let unsettled = names.filter((name) => !feeds[name].dims);
  for (let progress = true; progress && unsettled.length; ) {
    progress = false;
    for (const name of unsettled) {
      const fits = bindCount(shapes[name], feeds[name].data, dtypes[name], symbols);
      if (fits === undefined) continue;
      if (!fits) return null;
      unsettled = unsettled.filter((other) => other !== name);
      progress = true;
    }
  }
  for (const dim of unsettled.flatMap((name) => shapes[name])) {
    if (typeof dim === "string") symbols[dim] ??= undefined;
  }
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
  const settled = elementCount(sizes.filter((size) => size !== undefined));
  const unknown = shape.filter((_, axis) => sizes[axis] === undefined);
  if (unknown.length === 0) return holdsElements(data, settled, dtype);
  if (unknown.length > 1 || isBuffer(data) || settled === 0) return undefined;
  if (data.length % settled) return false;
  symbols[unknown[0]] = data.length / settled;
  return true;
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
