// Sizes of dimensions, tensors and buffers.

/** @import * as api from "../shaderloom.js" */

import { ensure } from "./errors.js";

/** Bytes from one number to the next in the buffer "iteration": the alignment of dynamic offsets. */
export const ITERATION_STRIDE = 256;

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
  ["min", (left, right) => Math.min(left, right)],
  ["max", (left, right) => Math.max(left, right)],
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
