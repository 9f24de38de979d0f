// The choice of a token where it is drawn: on the device by the bundle's model "choice", else on the host.

/** @import { CpuTensor, GpuTensor, Session, Tensor } from "../shaderloom.js" */
/** @import { Sampling } from "./sampling.js" */

import { tensorUsage } from "./buffers.js";
import { choose } from "./sampling.js";
import { bufferSize, typedArray } from "./tensors.js";

export class DeviceChoice {
  #session;
  #logits;
  /** @type {GPUBuffer} */
  #seen;
  /** @type {GPUBuffer} a bit for each token: all may be chosen */
  #allowed;

  /** @param {Session} session of the model "choice" @param {GpuTensor} logits what decoders write */
  constructor(session, logits) {
    this.#session = session;
    this.#logits = logits;
    this.#seen = session.device.createBuffer({ size: bufferSize(4 * this.#vocabulary), usage: tensorUsage(), label: "seen" });
    const bits = new Uint32Array(this.#words).fill(0xffffffff);
    this.#allowed = session.device.createBuffer({ size: bufferSize(bits.byteLength), usage: tensorUsage(), label: "allowed" });
    session.device.queue.writeBuffer(this.#allowed, 0, bits);
  }

  get #vocabulary() {
    return this.#logits.dims[2];
  }

  get #words() {
    return Math.ceil(this.#vocabulary / 32);
  }

  /** Say which tokens the text has. @param {Iterable<number>} ids */
  begin(ids) {
    const seen = new Int32Array(this.#vocabulary);
    for (const token of ids) seen[token] = 1;
    this.#session.device.queue.writeBuffer(this.#seen, 0, seen);
  }

  /** Return the token behind a text, whose last token is new to it. @param {number[]} ids @param {Sampling} sampling */
  async choose(ids, sampling) {
    const topK = Math.min(sampling.topK, this.#vocabulary);
    const { token, seen_next: next } = await this.#session.run({
      logits: this.#logits, seen: { data: this.#seen, dims: [1, this.#vocabulary] },
      allowed: { data: this.#allowed, dims: [1, this.#words] },
      last: { data: BigInt64Array.of(BigInt(ids[ids.length - 1])), dims: [1, 1] },
      parameters: { data: sampling.parameters, dims: [1, 5] },
      key: { data: Uint32Array.of(sampling.key(ids.length)), dims: [1, 1] },
      top_k: { data: BigInt64Array.of(BigInt(topK)), dims: [1, 1] },
    }, { location: { token: "cpu", seen_next: "gpu" }, inPlace: true });
    const { buffer } = /** @type {GpuTensor} */ (next);
    if (buffer !== this.#seen) this.#seen.destroy();
    this.#seen = buffer;
    const chosen = tokenOf(token);
    return chosen >= 0 ? chosen : choose(await this.#read(), new Set(ids), sampling, ids.length);
  }

  /** Return the logits. @returns {Promise<Float32Array>} */
  async #read() {
    const { device } = this.#session;
    const { buffer, dtype } = this.#logits;
    const staging = device.createBuffer({ size: buffer.size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    try {
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
      device.queue.submit([encoder.finish()]);
      await staging.mapAsync(GPUMapMode.READ);
      const content = staging.getMappedRange().slice(0);
      const values = dtype === "float32" ? new Float32Array(content) : Float32Array.from(halves(content));
      return values.subarray(0, this.#vocabulary);
    } finally {
      staging.destroy();
    }
  }

  dispose() {
    this.#seen.destroy();
    this.#allowed.destroy();
    this.#session.dispose();
  }
}

/** Return the one token that a run gave. @param {Tensor} tensor */
export function tokenOf(tensor) {
  const { data } = /** @type {CpuTensor} */ (tensor);
  return Number(/** @type {BigInt64Array} */ (data)[0]);
}

/** Return the values of float16 numbers. @param {ArrayBuffer} content @returns {ArrayLike<number>} */
function halves(content) {
  const array = /** @type {ArrayLike<number> & ArrayBufferView} */ (typedArray("float16", content));
  if (!(array instanceof Uint16Array)) return array;
  return Array.from(array, (bits) => {
    const exponent = (bits >> 10) & 31;
    const fraction = (bits & 1023) / 1024;
    const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14;
    return bits >> 15 ? -size : size;
  });
}
