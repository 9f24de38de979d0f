// Bounds of sizes that depend on symbols: none that a run computes is beyond what a number counts exactly.

import { floorDivide, modulo } from "./sizes.js";

/** @typedef {[low: number, high: number]} Bounds The least and the largest value. */

/** Return bounds of a size whose structure was checked, or undefined if it, or a part, may be 2 to the power of 53.
 *  @param {any} value @param {{ get(name: string): Bounds | undefined }} symbols
 *  @param {(name: string) => Error} unknown makes the error for a name that is no symbol
 *  @returns {Bounds | undefined} */
export function boundsOf(value, symbols, unknown) {
  if (typeof value === "number") return [value, value];
  if (typeof value === "string") {
    const bounds = symbols.get(value);
    if (!bounds) throw unknown(value);
    return bounds;
  }
  const [operator, ...operands] = value;
  const parts = operands.map((/** @type {any} */ operand) => boundsOf(operand, symbols, unknown));
  let result = parts[0];
  for (const part of parts.slice(1)) {
    if (!result || !part) return undefined;
    result = combine(operator, result, part);
    if (Math.max(...result.map(Math.abs)) > Number.MAX_SAFE_INTEGER) return undefined;
  }
  return result;
}

/** @param {string} operator @param {Bounds} left @param {Bounds} right @returns {Bounds} */
function combine(operator, left, right) {
  switch (operator) {
    case "+": return [left[0] + right[0], left[1] + right[1]];
    case "*": {
      const products = left.flatMap((first) => right.map((second) => first * second));
      return [Math.min(...products), Math.max(...products)];
    }
    case "//": return [floorDivide(left[0], right[0]), floorDivide(left[1], right[0])];
    case "%": {
      const [divisor] = right;
      const rest = modulo(left[0], divisor);
      return left[0] === left[1] ? [rest, rest] : [0, divisor - 1];
    }
    case "min": return [Math.min(left[0], right[0]), Math.min(left[1], right[1])];
    default: return [Math.max(left[0], right[0]), Math.max(left[1], right[1])];
  }
}
