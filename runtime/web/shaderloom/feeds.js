/** @import { DataType, Feed, PlanPort, TypedArray } from "../shaderloom.js" */

import { arrayNames, elementBytes } from "./dtypes.js";
import { ensure } from "./errors.js";
import { bufferSize, elementCount, formatShape, shapeOf } from "./sizes.js";

/** A feed normalised; `dims` is undefined where the caller gave none.
 *  @typedef {{ data: TypedArray | GPUBuffer, dtype: DataType, dims?: readonly number[] }} Value */

/** @param {unknown} value @returns {value is GPUBuffer} */
export const isBuffer = (value) => typeof GPUBuffer !== "undefined" && value instanceof GPUBuffer;

/** Return whether an array has, or a buffer has room for, a number of elements.
 *  @param {Value["data"]} data @param {number} elements @param {DataType} dtype */
export function holdsElements(data, elements, dtype) {
  return isBuffer(data) ? data.size >= bufferSize(elements * elementBytes(dtype)) : data.length === elements;
}

/** Return the bytes of a port's elements. @param {PlanPort} port @param {Record<string, number>} symbols */
export const portBytes = (port, symbols) => elementCount(shapeOf(port, symbols)) * elementBytes(port.dtype);

/** @param {PlanPort} port @param {Record<string, number>} symbols
 *  @param {Value} value @throws {ShaderloomError} "input" for a value that is not of the port's shape */
export function requireShape(port, symbols, { data, dims }) {
  const wanted = shapeOf(port, symbols);
  const text = formatShape(wanted);
  const fits = holdsElements(data, elementCount(wanted), port.dtype) && formatShape(dims ?? wanted) === text;
  ensure("input", fits, `'${port.name}' is not of shape ${text}`);
}

/**
 * Return the feed of the input `name` normalised.
 *
 * @param {string} name @param {Feed} feed @param {DataType} dtype @returns {Value}
 * @throws {ShaderloomError} "input" for a buffer of other usage, and for arrays of another type or length
 */
export function normaliseFeed(name, feed, dtype) {
  const { data, dims } = unwrap(feed);
  if (isBuffer(data)) {
    ensure("input", data.usage & GPUBufferUsage.STORAGE, `'${name}': the GPUBuffer lacks the usage STORAGE`);
    return { data, dtype, dims };
  }
  const arrays = arrayNames(dtype);
  const type = (data ?? feed)?.constructor?.name ?? typeof feed;
  const fits = ArrayBuffer.isView(data) && arrays.includes(type);
  ensure("input", fits, `'${name}' is ${dtype}: give ${arrays.join(" or ")}, not ${type}`);
  const { length } = data;
  if (dims) ensure("input", elementCount(dims) === length, `'${name}' has ${length} elements, which is not ${formatShape(dims)}`);
  return { data, dtype, dims };
}

/** Return the data and the shape of a feed, each undefined where it has none. @param {Feed | undefined} feed
 *  @returns {Partial<Value>} */
function unwrap(feed) {
  if (isBuffer(feed) || ArrayBuffer.isView(feed)) return { data: feed };
  const { data, buffer, dims } = /** @type {Partial<Value> & { buffer?: GPUBuffer }} */ (feed ?? {});
  return { data: data ?? buffer, dims };
}
