// What a decoder reads of an encoder: the encoder, the first run of a text, and what both leave on the device.

/** @import { CpuTensor, Feed, Feeds, GpuTensor, Session, Tensor } from "../shaderloom.js" */
/** @import { CacheForm } from "./generation_settings.js" */

import { isSoftware } from "./device.js";
import { ShaderloomError } from "./errors.js";

const IDS = "input_ids";
const MASK = "attention_mask";
const HIDDEN = "encoder_hidden_states";
const HIDDEN_MASK = "encoder_attention_mask";

export class EncodedText {
  #encoder;
  /** Of a text's first run. @type {Session} */
  first;
  /** Keys and values of what was encoded. @type {CacheForm[]} */
  caches;
  #sizes;
  /** By the inputs of the decoder: the encoder's results, and then {@link caches}. @type {Map<string, CpuTensor | GpuTensor>} */
  #tensors = new Map();

  /** @param {Session} first @param {Session} encoder @param {CacheForm[]} caches @param {number[]} sizes tokens of first runs */
  constructor(first, encoder, caches, sizes) {
    this.first = first;
    this.#encoder = encoder;
    this.caches = caches;
    this.#sizes = sizes;
  }

  /** Whether something was encoded. */
  get hasText() {
    return this.#tensors.has(HIDDEN);
  }

  /** Whether the encoder reads tokens. */
  get readsTokens() {
    return this.#encoder.inputs.some(({ name }) => name === IDS);
  }

  /** Return what the encoder is fed: without a mask all is valid. @param {Feeds} inputs @returns {Feeds}
   *  @throws {ShaderloomError} "input" for other names */
  checked(inputs) {
    const names = this.#encoder.inputs.map(({ name }) => name);
    const feeds = { ...inputs };
    if (names.includes(MASK) && feeds[MASK] === undefined && feeds[IDS] !== undefined) feeds[MASK] = ones(tokensOf(feeds[IDS]));
    const fed = Object.keys(feeds);
    if (fed.length !== names.length || names.some((name) => feeds[name] === undefined)) {
      throw new ShaderloomError("input", `the encoder reads ${names.join(", ")}, not ${fed.join(", ") || "nothing"}: pass encoderInputs`);
    }
    return feeds;
  }

  /** The feeds of tokens. @param {number[]} ids @returns {Feeds} */
  ofTokens(ids) {
    return this.checked({ [IDS]: { data: BigInt64Array.from(ids, BigInt), dims: [1, ids.length] } });
  }

  /** Run the encoder; runs of the decoder read its results from now on. @param {Feeds} feeds */
  async encode(feeds) {
    const [{ name }] = this.#encoder.outputs;
    const results = await this.#encoder.run(feeds, { outputs: [name], location: { [name]: "gpu" } });
    this.#free();
    const hidden = /** @type {GpuTensor} */ (results[name]);
    this.#tensors.set(HIDDEN, hidden);
    const mask = feeds[MASK] === undefined ? ones(hidden.dims[1]) : feeds[MASK];
    this.#tensors.set(HIDDEN_MASK, /** @type {CpuTensor} */ (mask));
  }

  /** Return what the decoder `session` is fed of all this. @param {Session} session @returns {Feeds} */
  feeds({ inputs }) {
    return Object.fromEntries([...this.#tensors].filter(([name]) => inputs.some((port) => port.name === name)));
  }

  /** Take keys and values of a first run. @param {Record<string, Tensor>} results */
  take(results) {
    for (const { input, output } of this.caches) {
      destroy(this.#tensors.get(input));
      this.#tensors.set(input, /** @type {GpuTensor} */ (results[output]));
    }
  }

  /** Return the tokens of a first run, more than are wanted where padding takes less than runs of one behind it.
   *  @param {number} wanted */
  size(wanted) {
    const most = isSoftware(this.first.device) ? 37 : 18;
    /** @param {number} size in runs of one token */
    const cost = (size) => (size > 16 ? most : size > 1 ? 6 : 1) + Math.max(wanted - size, 0);
    return this.#sizes.reduce((best, size) => (cost(size) < cost(best) ? size : best));
  }

  #free() {
    for (const tensor of this.#tensors.values()) destroy(tensor);
    this.#tensors.clear();
  }

  dispose() {
    this.#free();
    this.first.dispose();
    this.#encoder.dispose();
  }
}

/** Return a mask of `count` valid tokens. @param {number} count */
const ones = (count) => ({ data: new BigInt64Array(count).fill(1n), dims: [1, count] });

/** Return how many tokens a feed has. @param {Feed} feed */
function tokensOf(feed) {
  const { data = feed, dims } = /** @type {{ data?: Feed, dims?: readonly number[] }} */ (feed);
  return dims?.[1] ?? /** @type {BigInt64Array} */ (data).length;
}

/** @param {object | undefined} tensor */
function destroy(tensor) {
  const { buffer } = /** @type {Partial<GpuTensor>} */ (tensor ?? {});
  if (buffer && "destroy" in buffer) buffer.destroy();
}
