/** @import { CpuTensor, DataType } from "../shaderloom.js" */

import { typedArray } from "./dtypes.js";

/** Element types by their names in safetensors files. @type {Record<string, DataType>} */
const DTYPES = {
  F32: "float32", F16: "float16", BF16: "bfloat16", I64: "int64", U64: "uint64", I32: "int32", U32: "uint32",
  I16: "int16", U16: "uint16", I8: "int8", U8: "uint8", BOOL: "bool",
};

/** Return the tensors of a safetensors file with their names.
 *  @param {Uint8Array<ArrayBuffer>} content @returns {[name: string, tensor: CpuTensor][]} */
export function parseSafetensors(content) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  /** @type {Record<string, { dtype: string, shape: number[], data_offsets: [number, number] }>} */
  const header = JSON.parse(new TextDecoder().decode(content.subarray(8, start)));
  return Object.entries(header)
    .filter(([name]) => name !== "__metadata__")
    .map(([name, { dtype, shape, data_offsets: [begin, end] }]) => {
      const bytes = content.slice(start + begin, start + end);
      return [name, { dtype: DTYPES[dtype], dims: shape, data: typedArray(DTYPES[dtype], bytes.buffer) }];
    });
}
