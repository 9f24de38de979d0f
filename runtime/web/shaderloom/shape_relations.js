// Relations of sizes that a manifest has of plans and programs alike: the checks of runtime/bundle/shape_relations.py in
// the same order, by the same rules.

/** The least and the largest value of a size. @typedef {[low: number, high: number]} Bounds */
/** @typedef {{ get(name: string): Bounds | undefined }} SymbolBounds */
/** Null where they are open. @typedef {{ dtype: string | null, shape: any[] | null }} PortType */

import { SCHEMA } from "./schema.js";
import { each, own, rule } from "./structure.js";
import { OPERATORS } from "./tensors.js";

/** @param {any} sizes */
export function checkRange({ low, high, step }) {
  rule("range", step >= 1 && high >= low && high - low <= Number.MAX_SAFE_INTEGER && (high - low) % step === 0,
    "is no range: it has no size, or does not end with one");
}

/** @param {any} one @param {any} other */
export const isSameRange = (one, other) => ["low", "high", "step"].every((field) => one?.[field] === other[field]);

/** Check that the shapes of a plan or a program are of inputs of the model, and their names dynamic dimensions.
 *  @param {any} manifest @param {any} record */
export function checkShapes(manifest, record) {
  const ports = inputsOf(manifest);
  each(record, "shapes", (shape, name) => {
    const port = ports.get(name);
    rule("plan input", port, "is no input of the model");
    rule("plan dtype", SCHEMA.dtypes[port.dtype], "has no element type that a device holds");
    for (const dim of shape) {
      rule("dimension", typeof dim !== "string" || own(manifest.dynamic, dim),
        `has the dimension '${dim}', whose range is not there`);
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
  return Object.keys(shapes).map((name) => [name, { dtype: ports.get(name)?.dtype, shape: shapes[name] }]);
}

/** Return whether two values are written alike. @param {any} one @param {any} other */
export const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);

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
function combine(operator, left, right) {
  const apply = /** @type {(left: number, right: number) => number} */ (OPERATORS.get(operator));
  if (operator === "%" && left[0] !== left[1]) return [0, right[0] - 1];
  const crossed = operator === "*" ? [apply(left[0], right[1]), apply(left[1], right[0])] : [];
  const ends = [apply(left[0], right[0]), apply(left[1], right[1]), ...crossed];
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
  const itemsize = SCHEMA.dtypes[port.dtype ?? ""] ?? 0;
  let [low, high, counted] = [itemsize, itemsize, itemsize];
  each(port, "shape", (dim) => {
    const [least, most] = sizeBounds(dim, symbols);
    [low, high, counted] = [low * Math.max(least, 0), high * most, counted * Math.max(most, 1)];
  });
  rule("overflow", counted <= Number.MAX_SAFE_INTEGER, "has 2 to the power of 53 bytes or more");
  return [low, high];
}
