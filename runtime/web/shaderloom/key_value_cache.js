// Keys and values of the tokens so far, on the device: extended in place and grown by doubling, or replaced by each run.

/** @import { CacheForm, Settings } from "./generation_settings.js" */
/** @import { DataType, GpuTensor, Session, Tensor } from "../shaderloom.js" */

import { tensorUsage } from "./buffers.js";
import { bufferSize, elementBytes } from "./tensors.js";

export class KeyValueCache {
  #session;
  #settings;
  #dtypes;
  /** By the input that reads it. @type {Map<string, GpuTensor>} */
  #tensors = new Map();
  #rows;

  /** @param {Session} session @param {Settings} settings */
  constructor(session, settings) {
    this.#session = session;
    this.#settings = settings;
    this.#dtypes = new Map(session.inputs.map(({ name, dtype }) => [name, dtype]));
    this.#rows = settings.inPlace ? settings.rows.low : 0;
    this.#resize(this.#rows);
  }

  /** The feeds of a run. */
  get feeds() {
    return Object.fromEntries(this.#tensors);
  }

  /** Make room for `needed` rows: capacities double, up to the most. @param {number} needed */
  grow(needed) {
    let rows = this.#rows;
    while (rows < needed) rows *= 2;
    if (rows > this.#rows) this.#resize(Math.min(rows, this.#settings.rows.high));
  }

  /** Forget what is behind the first `rows`; return how many remain. @param {number} rows */
  rewind(rows) {
    if (this.#settings.inPlace || rows >= this.#rows) return rows;
    const isWhole = this.#settings.caches.every((cache) => (rows * this.#rowBytes(cache)) % 4 === 0);
    this.#resize(isWhole ? rows : 0); // copies on the device are of whole words
    return this.#rows;
  }

  /** Take what a run gave in place of what it was fed. @param {Record<string, Tensor>} results */
  take(results) {
    for (const { input, output } of this.#settings.caches) {
      const { buffer, dims, dtype } = /** @type {GpuTensor} */ (results[output]);
      const before = this.#tensors.get(input)?.buffer;
      if (before !== buffer) before?.destroy();
      this.#tensors.set(input, { buffer, dims, dtype });
      this.#rows = dims[2];
    }
  }

  dispose() {
    for (const { buffer } of this.#tensors.values()) buffer.destroy();
    this.#tensors.clear();
  }

  /** @param {CacheForm} cache */
  #rowBytes({ input, size }) {
    return size * elementBytes(/** @type {DataType} */ (this.#dtypes.get(input)));
  }

  /** Take buffers of `rows` rows, which begin with those that there are. @param {number} rows */
  #resize(rows) {
    const { device } = this.#session;
    const encoder = device.createCommandEncoder();
    const common = Math.min(rows, this.#rows);
    const before = new Map(this.#tensors);
    for (const cache of this.#settings.caches) {
      const { input, batch, heads, size } = cache;
      const bytes = this.#rowBytes(cache);
      const dims = [batch, heads, rows, size];
      const buffer = device.createBuffer({
        size: bufferSize(batch * heads * rows * bytes), usage: tensorUsage(), label: `cache ${input}`.slice(0, 40),
      });
      const old = before.get(input)?.buffer;
      for (let head = 0; old && common && head < batch * heads; head++) {
        encoder.copyBufferToBuffer(old, head * this.#rows * bytes, buffer, head * rows * bytes, common * bytes);
      }
      this.#tensors.set(input, { buffer, dims, dtype: /** @type {DataType} */ (this.#dtypes.get(input)) });
    }
    device.queue.submit([encoder.finish()]);
    for (const { buffer } of before.values()) buffer.destroy();
    this.#rows = rows;
  }
}
