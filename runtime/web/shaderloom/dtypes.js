// Element types of tensors.

/** @import { DataType, TypedArray } from "../shaderloom.js" */

/** Bytes of an element, and the arrays that hold elements, the preferred one first.
 *  @typedef {{ bytes: number, arrays: string[] }} Element */

/** An element in a byte: a code, or a number's two's complement in the low bits and zeros above. @type {Element} */
const BYTE = { bytes: 1, arrays: ["Uint8Array"] };

/** @type {Record<DataType, Element>} */
const ELEMENTS = {
  float32: { bytes: 4, arrays: ["Float32Array"] },
  float16: { bytes: 2, arrays: ["Float16Array", "Uint16Array"] },
  bfloat16: { bytes: 2, arrays: ["Uint16Array"] },
  int64: { bytes: 8, arrays: ["BigInt64Array"] },
  uint64: { bytes: 8, arrays: ["BigUint64Array"] },
  int32: { bytes: 4, arrays: ["Int32Array"] },
  uint32: { bytes: 4, arrays: ["Uint32Array"] },
  int16: { bytes: 2, arrays: ["Int16Array"] },
  uint16: { bytes: 2, arrays: ["Uint16Array"] },
  int8: { bytes: 1, arrays: ["Int8Array"] },
  uint8: { bytes: 1, arrays: ["Uint8Array", "Uint8ClampedArray"] },
  bool: BYTE,
  float8e4m3fn: BYTE, float8e4m3fnuz: BYTE, float8e5m2: BYTE, float8e5m2fnuz: BYTE, float8e8m0: BYTE,
  float4e2m1: BYTE, int4: BYTE, uint4: BYTE, int2: BYTE, uint2: BYTE,
};

/** Return the bytes of an element of a type. @param {DataType} dtype */
export const elementBytes = (dtype) => ELEMENTS[dtype].bytes;

/** Return the names of the arrays that hold elements of a type. @param {DataType} dtype */
export const arrayNames = (dtype) => ELEMENTS[dtype].arrays;

/** Return a view of bytes of `buffer` as elements of a type: the preferred array that the browser has.
 *  @param {DataType} dtype @param {ArrayBuffer} buffer @param {number} [offset] @param {number} [bytes]
 *  @returns {TypedArray} */
export function typedArray(dtype, buffer, offset = 0, bytes = buffer.byteLength) {
  const constructors = /** @type {Record<string, new (buffer: ArrayBuffer, offset: number, length: number) => TypedArray>} */ (
    /** @type {unknown} */ (globalThis)
  );
  const name = arrayNames(dtype).find((candidate) => candidate in globalThis);
  return new constructors[/** @type {string} */ (name)](buffer, offset, bytes / elementBytes(dtype));
}
