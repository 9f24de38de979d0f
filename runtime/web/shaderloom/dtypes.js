// Element types of tensors.

/** @import { DataType, TypedArray } from "../shaderloom.js" */

import { SCHEMA } from "./schema.js";

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
