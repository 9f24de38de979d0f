/** @import { CpuTensor, DataType, Sample } from "../shaderloom.js" */

import { ensure, failing } from "./errors.js";
import { tensorBytes, typedArray } from "./tensors.js";

/** Element types by their names in safetensors files. @type {Map<string, DataType>} */
const DTYPES = new Map([
  ["F32", "float32"], ["F16", "float16"], ["BF16", "bfloat16"], ["I64", "int64"], ["U64", "uint64"], ["I32", "int32"],
  ["U32", "uint32"], ["I16", "int16"], ["U16", "uint16"], ["I8", "int8"], ["U8", "uint8"], ["BOOL", "bool"],
]);

/**
 * Return the tensors of a safetensors file with their names.
 *
 * @param {Uint8Array<ArrayBuffer>} content @param {string} file its name in messages
 * @returns {[name: string, tensor: CpuTensor][]} @throws {ShaderloomError} "bundle" for what is none
 */
function parseSafetensors(content, file) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const start = content.length < 8 ? Infinity : 8 + Number(view.getBigUint64(0, true));
  ensure("bundle", start <= content.length, `'${file}' is shorter than its header`);
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content.subarray(8, start)));
  } catch (error) {
    failing("bundle", `the header of '${file}' is not JSON`)(error);
  }
  return Object.entries(header ?? {})
    .filter(([name]) => name !== "__metadata__")
    .map(([name, entry]) => {
      const dtype = DTYPES.get(entry?.dtype);
      const dims = counts(entry?.shape);
      const [begin, end] = counts(entry?.data_offsets);
      const isInside = begin <= end && start + end <= content.length;
      const fits = dtype && isInside && tensorBytes({ dtype, dims }) === end - begin;
      ensure("bundle", fits, `'${name}' in '${file}' is no tensor`);
      return [name, { dtype, dims, data: typedArray(dtype, content.slice(start + begin, start + end).buffer) }];
    });
}

/** Return a list of integers from 0 up; one of NaN for anything else. @param {unknown} value @returns {number[]} */
const counts = (value) =>
  Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0) ? value : [NaN];

/** Return the inputs and expected outputs of a sample's file. @param {Uint8Array<ArrayBuffer>} content
 *  @param {{ file: string, tolerance: number }} record @returns {Sample} @throws {ShaderloomError} "bundle" */
export function sampleOf(content, { file, tolerance }) {
  const tensors = parseSafetensors(content, file);
  /** @param {string} kind */
  const select = (kind) => Object.fromEntries(
    tensors.filter(([name]) => name.startsWith(kind)).map(([name, tensor]) => [name.slice(kind.length), tensor]),
  );
  return { inputs: select("input:"), outputs: select("output:"), tolerance };
}
