/** Tensors as numbers: comparison with expected values, medians, previews. */

/**
 * Compare a tensor with the expected one, as docs/guide/bundles.md says: floats by the largest difference over the largest
 * expected magnitude (at least 1), integers and bools exactly. {agrees, error, reason}: error is infinite where only
 * `reason` says what is wrong.
 */
export function compare(actual, expected, tolerance) {
  const refuse = (reason) => ({ agrees: false, error: Infinity, reason });
  if (!actual) return refuse("missing");
  if (actual.dtype !== expected.dtype || actual.dims.join() !== expected.dims.join()) {
    return refuse(`is ${actual.dtype} ${actual.dims.join("×")}`);
  }
  if (!expected.dtype.includes("float")) {
    let wrong = 0;
    for (let index = 0; index < expected.data.length; index++) wrong += actual.data[index] !== expected.data[index];
    return wrong ? refuse(`${wrong} of ${expected.data.length} elements differ`) : { agrees: true, error: 0 };
  }
  const [left, right] = [floats(actual), floats(expected)];
  let largest = 1, error = 0, other = 0;
  for (let index = 0; index < right.length; index++) {
    if (!Number.isFinite(right[index])) {
      other += !Object.is(left[index], right[index]);
    } else if (!Number.isFinite(left[index])) {
      other++;
    } else {
      largest = Math.max(largest, Math.abs(right[index]));
      error = Math.max(error, Math.abs(left[index] - right[index]));
    }
  }
  if (other) return refuse(`${other} elements that are not finite differ`);
  return { agrees: error / largest <= tolerance, error: error / largest };
}

/** The values of a tensor of floats; 16-bit ones come as their bits where the browser has no Float16Array. */
export function floats({ dtype, data }) {
  if (!(data instanceof Uint16Array)) return data;
  return Float64Array.from(data, dtype === "bfloat16" ? fromBfloat16 : fromFloat16);
}

function fromFloat16(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
}

function fromBfloat16(bits) {
  return new Float32Array(new Uint32Array([bits << 16]).buffer)[0];
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The first values of a tensor as a text. */
export function preview(tensor, most = 4) {
  const numbers = tensor.dtype.includes("float") ? floats(tensor) : tensor.data;
  const short = (value) => (typeof value === "number" ? Number(value.toPrecision(5)) : value); // or a BigInt
  const shown = Array.from(numbers.slice(0, most), (value) => String(short(value)));
  return shown.join(", ") + (numbers.length > most ? ", …" : "");
}
