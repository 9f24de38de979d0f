// Tensors: the sizes of their dimensions and buffers, their element types, and the values that are fed with the shapes
// that these fit.

/** @import * as api from "../shaderloom.js" */
/** @import { DataType, Dimension, Feed, Feeds, Manifest, PlanPort, Program, SizeRange, TypedArray } from "../shaderloom.js" */

import { ensure } from "./errors.js";
import { SCHEMA } from "./schema.js";

/** Iterations of a command of the kind "repeat", at most. */
export const MOST_ITERATIONS = 65536;

/** Dispatches and steps of a run, at most. */
export const MOST_WORK = 2 ** 22;

/** Workgroups of a dispatch, at most. */
export const MOST_WORKGROUPS = 2 ** 28;

/** Return the remainder with the sign of the divisor, exactly. @param {number} left @param {number} right */
function modulo(left, right) {
  const rest = left % right;
  return rest < 0 ? rest + right : rest;
}

/** What the operators of sizes do with two numbers; + and * may have more. A quotient is rounded down, exactly.
 *  @type {Map<string, (left: number, right: number) => number>} */
export const OPERATORS = new Map([
  ["+", (left, right) => left + right],
  ["*", (left, right) => left * right],
  ["//", (left, right) => (left - modulo(left, right)) / right],
  ["%", modulo],
  ["min", Math.min],
  ["max", Math.max],
]);

/**
 * Return the value of a size: a number, the name of a symbol, or [operator, operand, ...].
 *
 * @type {typeof api.evaluate}
 * @throws {ShaderloomError} "bundle" for an unknown operator
 */
export function evaluate(size, symbols) {
  if (typeof size === "number") return size;
  if (typeof size === "string") return symbols[size];
  const [operator, ...operands] = size;
  const combine = OPERATORS.get(String(operator));
  ensure("bundle", combine, `unknown operator '${operator}' in a dimension`);
  return operands.map((operand) => evaluate(operand, symbols)).reduce((left, right) => combine(left, right));
}

/** Return the number of elements of a shape. @param {readonly number[]} dims */
export const elementCount = (dims) => dims.reduce((product, size) => product * size, 1);

/** Return the numbers of a port's shape. @param {{ name: string, shape: api.Size[] }} port
 *  @param {Record<string, number>} symbols @throws {ShaderloomError} "bundle" for a negative one */
export function shapeOf({ name, shape }, symbols) {
  const dims = shape.map((dim) => evaluate(dim, symbols));
  ensure("bundle", !dims.some((dim) => dim < 0), `'${name}' has a negative size: ${formatShape(dims)}`);
  return dims;
}

/** Return a shape as a text, such as "1x3x224x224". @param {readonly api.Dimension[]} dims */
export const formatShape = (dims) => dims.join("x") || "scalar";

/** Return the bytes of a buffer for `bytes` of content: a multiple of 16, at least 16. @param {number} bytes */
export const bufferSize = (bytes) => Math.max(16, Math.ceil(bytes / 16) * 16);

/** The arrays that hold elements, the preferred one first; others are Uint8Arrays of codes, or of numbers in two's complement
 *  in the low bits and zeros above. @type {Partial<Record<DataType, string[]>>} */
const ARRAYS = {
  float32: ["Float32Array"], float16: ["Float16Array", "Uint16Array"], bfloat16: ["Uint16Array"],
  int64: ["BigInt64Array"], uint64: ["BigUint64Array"], int32: ["Int32Array"], uint32: ["Uint32Array"],
  int16: ["Int16Array"], uint16: ["Uint16Array"], int8: ["Int8Array"], uint8: ["Uint8Array", "Uint8ClampedArray"],
};

/** Return the bytes of an element of a type. @param {DataType} dtype @returns {number} */
export const elementBytes = (dtype) => SCHEMA.dtypes[dtype];

/** Return the names of the arrays that hold elements of a type. @param {DataType} dtype */
export const arrayNames = (dtype) => ARRAYS[dtype] ?? ["Uint8Array"];

/** Return a view of bytes of `buffer` as elements of a type: the preferred array that the browser has.
 *  @param {DataType} dtype @param {ArrayBuffer} buffer @param {number} [offset] @param {number} [bytes]
 *  @returns {TypedArray} */
export function typedArray(dtype, buffer, offset = 0, bytes = buffer.byteLength) {
  const name = /** @type {"Uint8Array"} */ (arrayNames(dtype).find((candidate) => candidate in globalThis));
  return new globalThis[name](buffer, offset, bytes / elementBytes(dtype));
}

/** A feed normalised; `dims` is undefined where the caller gave none.
 *  @typedef {{ data: TypedArray | GPUBuffer, dtype: DataType, dims?: readonly number[] }} Value */

/** @param {unknown} value @returns {value is GPUBuffer} */
export const isBuffer = (value) => typeof GPUBuffer !== "undefined" && value instanceof GPUBuffer;

/** Return whether an array has, or a buffer has room for, a number of elements.
 *  @param {Value["data"]} data @param {number} elements @param {DataType} dtype */
function holdsElements(data, elements, dtype) {
  return isBuffer(data) ? data.size >= bufferSize(elements * elementBytes(dtype)) : data.length === elements;
}

/** Return the bytes of a tensor's elements. @param {{ dtype: DataType, dims: readonly number[] }} tensor */
export const tensorBytes = ({ dtype, dims }) => elementCount(dims) * elementBytes(dtype);

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
function normaliseFeed(name, feed, dtype) {
  const isPlain = isBuffer(feed) || ArrayBuffer.isView(feed);
  const { dims, buffer, data = buffer, dtype: own = dtype } =
    /** @type {Partial<Value> & { buffer?: GPUBuffer }} */ (isPlain ? { data: feed } : feed ?? {});
  ensure("input", own === dtype, `'${name}' is ${dtype}, not ${own}`);
  ensure("input", !dims || dims.every?.(Number.isInteger), `'${name}': dims is no list of integers`);
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
      const bound = isFed && bindShapes(each, values);
      const violation = bound && rangeViolation(bound, dynamic);
      if (violation) violations.add(violation);
      else if (bound) fitting.push({ index: at, symbols: bound });
    }
    const why = [...violations].map((text) => ` (${text})`).join("");
    const asked = `the bundle was not compiled for ${textOf(values, describeSize)}`;
    ensure("input", fitting.length, `${asked}; it was for ${compiled}${why}`);
    const [{ index, symbols }] = fitting;
    const isSettled = !Object.values(symbols).includes(undefined) &&
      (fitting.length === 1 || Object.values(values).every(({ dims }) => dims));
    ensure("input", isSettled, `the sizes of the feeds do not say which shapes are meant (${compiled}): give {data, dims}`);
    return { index, program: programs[index - plans.length], symbols: /** @type {Symbols} */ (symbols), values };
  }

  return { shapes, match };
}

/** @template T @param {Record<string, T>} items @param {(item: T) => string} format */
const textOf = (items, format) => Object.entries(items).map(([name, item]) => `${name}=${format(item)}`).join(" ");

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
 * @param {Record<string, Dimension[]>} shapes @param {Record<string, Value>} feeds @returns {PartialSymbols | null}
 */
function bindShapes(shapes, feeds) {
  /** @type {PartialSymbols} */
  const symbols = Object.create(null); // a name may be __proto__
  const byShape = Object.keys(shapes).sort((one, other) => Number(!feeds[one].dims) - Number(!feeds[other].dims));
  const open = new Set(byShape);
  for (let before = Infinity; open.size < before; ) {
    before = open.size;
    for (const name of open) {
      const { dims } = feeds[name];
      const fits = dims ? bindDims(shapes[name], dims, symbols) : bindCount(shapes[name], feeds[name], symbols);
      if (fits === false) return null;
      if (fits) open.delete(name);
    }
  }
  for (const dim of [...open].flatMap((name) => shapes[name])) if (typeof dim === "string") symbols[dim] ??= undefined;
  return symbols;
}

/** Settle symbols by a shape that the caller gave, and return whether it fits.
 *  @param {Dimension[]} shape @param {readonly number[]} dims @param {PartialSymbols} symbols */
function bindDims(shape, dims, symbols) {
  if (dims.length !== shape.length) return false;
  for (const [axis, dim] of shape.entries()) {
    if (typeof dim === "string") symbols[dim] ??= dims[axis];
    if (dims[axis] !== evaluate(dim, /** @type {Symbols} */ (symbols))) return false;
  }
  return true;
}

/** Settle at most one symbol by a number of elements, and return whether it fits; undefined where that is open yet.
 *  @param {Dimension[]} shape @param {Value} feed @param {PartialSymbols} symbols */
function bindCount(shape, { data, dtype }, symbols) {
  const sizes = shape.map((dim) => /** @type {number | undefined} */ (evaluate(dim, /** @type {Symbols} */ (symbols))));
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
