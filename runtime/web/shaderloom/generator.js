/** @import * as api from "../generate.js" */
/** @import { Feeds, GpuTensor, Session } from "../shaderloom.js" */
/** @import { Settings } from "./generation_settings.js" */

import { load } from "../shaderloom.js";
import { tensorUsage } from "./buffers.js";
import { isSoftware } from "./device.js";
import { DeviceChoice, tokenOf } from "./device_choice.js";
import { EncodedText } from "./encoded_text.js";
import { abortable, ShaderloomError } from "./errors.js";
import { hasAsset, readSettings, readWordAssets } from "./generation_settings.js";
import { KeyValueCache } from "./key_value_cache.js";
import { Sampling } from "./sampling.js";
import { bufferSize, elementBytes } from "./tensors.js";
import { StopTexts, TextStream } from "./words.js";

/**
 * Open a bundle that generates text. What `options` mean is with their types, in generate.d.ts.
 *
 * @type {typeof api.loadGenerator}
 * @throws {ShaderloomError} as `load` does
 */
export async function loadGenerator(source, options = {}) {
  const { words: makeWords, ...others } = options;
  const session = await load(source, { prepare: true, ...others });
  /** @type {Session[]} */
  const opened = [session];
  try {
    /** @param {string} model */
    const further = (model) => load(source, { ...others, prepare: true, device: session.device, model });
    const hasEncoder = Object.hasOwn(session.manifest.files, "models/encoder.json");
    for (const model of hasEncoder ? ["first", "encoder"] : []) opened.push(await further(model));
    const [, first, encoder] = opened;
    const settings = await readSettings(session, first);
    const encoded = first && new EncodedText(first, encoder, settings.encodedCaches, settings.firstSizes);
    const words = makeWords && hasAsset(session, "tokenizer.json")
      ? await makeWords(await readWordAssets(session)) : undefined;
    return new Generator(session, settings, words, () => further("choice"), encoded);
  } catch (error) {
    for (const each of opened) each.dispose();
    throw error;
  }
}

/** A decoder, what makes its words, and the tokens so far. @implements {api.Generator} */
class Generator {
  #settings;
  #words;
  #openChoice;
  #encoded;
  /** @type {Promise<DeviceChoice> | undefined} */
  #choice;
  #cache;
  #logits;
  /** Those whose rows are in the cache. @type {number[]} */
  #ids = [];
  /** The run of the device that goes on. @type {Promise<unknown>} */
  #busy = Promise.resolve();
  /** @type {object | undefined} */
  #active;

  /** @param {Session} session @param {Settings} settings @param {api.Words | undefined} words
   *  @param {() => Promise<Session>} openChoice @param {EncodedText} [encoded] */
  constructor(session, settings, words, openChoice, encoded) {
    this.session = session;
    this.maxLength = settings.maxLength;
    this.#settings = settings;
    this.#words = words;
    this.#openChoice = openChoice;
    this.#encoded = encoded;
    this.#cache = new KeyValueCache(session, settings);
    const dtype = session.outputs.find(({ name }) => name === "logits")?.dtype ?? "float32";
    const size = bufferSize(settings.vocabulary * elementBytes(dtype));
    /** @type {GpuTensor} */
    this.#logits = {
      dtype, dims: [1, 1, settings.vocabulary],
      buffer: session.device.createBuffer({ size, usage: tensorUsage(), label: "logits" }),
    };
  }

  get tokens() {
    return [...this.#ids];
  }

  /** @param {api.Prompt} prompt @returns {Promise<number[]>} */
  async encode(prompt) {
    if (typeof prompt !== "string" && prompt.every((entry) => typeof entry === "number")) {
      return this.#checked(/** @type {number[]} */ ([...prompt]));
    }
    if (!this.#words) throw new ShaderloomError("input", "texts need `words` and a bundle with a tokenizer; or pass tokens");
    if (typeof prompt === "string") return this.#checked(await this.#words.encode(prompt, true));
    const text = await this.#words.format(/** @type {api.Message[]} */ (prompt));
    return this.#checked(await this.#words.encode(text, false));
  }

  /** @param {number[]} ids */
  #checked(ids) {
    const wrong = ids.find((token) => !Number.isInteger(token) || token < 0 || token >= this.#settings.vocabulary);
    if (wrong !== undefined) throw new ShaderloomError("input", `the model has no token ${wrong}`);
    if (!ids.length) throw new ShaderloomError("input", "the prompt has no tokens");
    return ids;
  }

  /** Return the tokens that the decoder begins with, and what is to be encoded before. @param {api.Prompt} prompt
   *  @param {Feeds} [inputs] @returns {Promise<{ ids: number[], feeds?: Feeds }>} */
  async #begun(prompt, inputs) {
    const encoded = this.#encoded;
    if (!encoded) {
      if (inputs) throw new ShaderloomError("input", "the model has no encoder: leave encoderInputs out");
      return { ids: await this.encode(prompt) };
    }
    const isRead = !inputs && encoded.readsTokens && prompt.length > 0;
    const feeds = isRead ? encoded.ofTokens(await this.encode(prompt)) : inputs && encoded.checked(inputs);
    if (!feeds && !encoded.hasText) encoded.checked({}); // nothing to go on from
    return { feeds, ids: isRead || !prompt.length ? this.#checked([...this.#settings.starts]) : await this.encode(prompt) };
  }

  /** @param {api.Prompt} prompt @param {api.GenerateOptions} [options] @returns {api.Generation} */
  generate(prompt, options = {}) {
    checkOptions(options);
    const sampling = new Sampling(options);
    const stops = new StopTexts(options.stop ?? []);
    const statistics = {
      promptTokens: 0, reusedTokens: 0, newTokens: 0, firstTokenSeconds: 0, decodeSeconds: 0, seed: sampling.seed,
      /** @type {api.Statistics["endedBy"]} */
      endedBy: "",
      get tokensPerSecond() {
        return this.newTokens > 1 && this.decodeSeconds ? (this.newTokens - 1) / this.decodeSeconds : 0;
      },
    };
    const generation = { text: "", tokens: /** @type {number[]} */ ([]), statistics };
    const pieces = this.#pieces(prompt, options, sampling, stops, generation);
    this.#active = generation;
    return Object.assign(generation, { [Symbol.asyncIterator]: () => pieces });
  }

  /** @param {api.Prompt} prompt @param {api.GenerateOptions} options @param {Sampling} sampling @param {StopTexts} stops
   *  @param {{ text: string, tokens: number[], statistics: api.Statistics }} generation */
  async *#pieces(prompt, options, sampling, stops, generation) {
    const { statistics } = generation;
    const { ids, feeds } = await this.#begun(prompt, options.encoderInputs);
    const stream = this.#words && new TextStream(this.#words, ids);
    for await (const { token, isEnd, isLast } of this.#chosen(ids, feeds, options, sampling, generation)) {
      const piece = isEnd ? "" : stops.push((await stream?.push(token, isLast)) ?? "");
      const rest = (isEnd || isLast) && !stops.isStopped ? stops.rest() : "";
      if (stops.isStopped) statistics.endedBy = "stop";
      generation.text += piece + rest;
      if (piece + rest) yield piece + rest;
      if (stops.isStopped) return;
    }
  }

  /** The tokens behind a prompt. @param {number[]} ids @param {Feeds | undefined} feeds of the encoder
   *  @param {api.GenerateOptions} options @param {Sampling} sampling
   *  @param {{ tokens: number[], statistics: api.Statistics }} generation */
  async *#chosen(ids, feeds, { maxNewTokens, signal }, sampling, generation) {
    const { statistics, tokens } = generation;
    const count = this.#countOf(ids, maxNewTokens);
    const choice = sampling.isGreedy ? undefined : await this.#deviceChoice();
    signal?.throwIfAborted();
    await this.#busy;
    if (this.#active !== generation) return;
    let begun = performance.now();
    if (feeds) await abortable(this.#encode(feeds), signal);
    statistics.promptTokens = ids.length;
    statistics.reusedTokens = this.rewind(sharedPrefix(this.#ids, ids));
    const text = [...ids];
    choice?.begin(ids);
    while (this.#active === generation) {
      const token = await abortable(this.#next(text, sampling, choice), signal);
      const now = performance.now();
      if (!tokens.length) {
        statistics.firstTokenSeconds = (now - begun) / 1000;
        begun = now;
      }
      statistics.decodeSeconds = (now - begun) / 1000;
      text.push(token);
      statistics.newTokens = tokens.push(token);
      const isEnd = this.#settings.ends.has(token);
      const isLast = tokens.length === count;
      if (isEnd || isLast) statistics.endedBy = isEnd ? "end" : "length";
      yield { token, isEnd, isLast };
      if (isEnd || isLast) return;
      signal?.throwIfAborted();
    }
  }

  /** Return how many tokens may follow. @param {number[]} ids @param {number} [wanted]
   *  @throws {ShaderloomError} "input" if fewer fit than are wanted */
  #countOf(ids, wanted) {
    const room = this.maxLength - ids.length;
    if (wanted !== undefined && !(Number.isInteger(wanted) && wanted > 0)) {
      throw new ShaderloomError("input", `maxNewTokens is at least 1, not ${wanted}`);
    }
    if (room < (wanted ?? 1)) {
      throw new ShaderloomError(
        "input", `${ids.length} tokens and ${wanted ?? 1} new ones exceed the bundle's length of ${this.maxLength}`,
      );
    }
    return wanted ?? room;
  }

  /** Let runs read the results of the encoder, behind which no token is in the cache. @param {Feeds} feeds */
  #encode(feeds) {
    this.rewind(0);
    const encoding = /** @type {EncodedText} */ (this.#encoded).encode(feeds);
    this.#busy = encoding.catch(() => {});
    return encoding;
  }

  /** @returns {Promise<DeviceChoice>} */
  #deviceChoice() {
    this.#choice ??= this.#openChoice().then((session) => new DeviceChoice(session, this.#logits));
    this.#choice.catch(() => {
      this.#choice = undefined;
    });
    return this.#choice;
  }

  /** Run the tokens of a text that are not in the cache, and return the one behind them. @param {number[]} text
   *  @param {Sampling} sampling @param {DeviceChoice} [choice] @returns {Promise<number>} */
  #next(text, sampling, choice) {
    const next = this.#read(text.slice(this.#ids.length), !choice)
      .then((greatest) => choice?.choose(text, sampling) ?? greatest);
    this.#busy = next.catch(() => {});
    return next;
  }

  /** Run tokens behind those in the cache; return the most probable next one, if it is wanted. @param {number[]} ids
   *  @param {boolean} isWanted */
  async #read(ids, isWanted) {
    let token = -1;
    for (let done = 0; done < ids.length; ) {
      const encoded = this.#ids.length ? undefined : this.#encoded;
      const size = encoded?.size(ids.length - done) ?? this.#chunk(ids.length - done);
      const part = ids.slice(done, done + size);
      done += part.length;
      token = await this.#run(part, size, isWanted && done === ids.length);
      this.#ids.push(...part);
      if (encoded && this.#cache.rewind(part.length) !== part.length) {
        throw new ShaderloomError("bundle", "rows of the decoder's caches are no whole words");
      }
    }
    return token;
  }

  /** Return the tokens of the next run, more than are wanted where padding has room and takes less than runs.
   *  @param {number} wanted */
  #chunk(wanted) {
    const { chunks, inPlace, hasRow, rows } = this.#settings;
    // a row of padding costs a processor as much as a token, and a GPU little
    const share = (/** @type {number} */ size) => (size > 16 && isSoftware(this.session.device) ? 3 / 4 : 1 / 3);
    const fits = inPlace && hasRow
      ? (/** @type {number} */ size) => this.#ids.length + size <= rows.high && wanted > Math.floor(size * share(size))
      : (/** @type {number} */ size) => size <= wanted;
    return chunks.find(fits) ?? 1;
  }

  /** @param {number[]} part @param {number} size of the run: what is behind the part is padding @param {boolean} isRead */
  async #run(part, size, isRead) {
    const { inPlace } = this.#settings;
    const first = this.#ids.length ? undefined : this.#encoded?.first;
    const session = first ?? this.session;
    const hasRow = session.inputs.some(({ name }) => name === "logits_rows");
    const caches = first ? [...this.#settings.caches, ...this.#settings.encodedCaches] : this.#settings.caches;
    const end = this.#ids.length + size;
    const ids = BigInt64Array.from({ length: size }, (_, at) => BigInt(part[Math.min(at, part.length - 1)]));
    if (inPlace) this.#cache.grow(end);
    const results = await session.run({
      ...(first ? {} : this.#cache.feeds), ...this.#encoded?.feeds(session), input_ids: { data: ids, dims: [1, size] },
      sequence_ends: { data: BigInt64Array.of(BigInt(end)), dims: [1] },
      ...(hasRow ? { logits_rows: { data: BigInt64Array.of(BigInt(part.length - 1)), dims: [1, 1] } } : {}),
    }, {
      outputs: ["logits", ...caches.map(({ output }) => output), ...(isRead ? ["token"] : [])],
      location: Object.fromEntries(caches.map(({ output }) => [output, "gpu"])),
      into: { logits: this.#logits.buffer }, inPlace: true,
    });
    this.#cache.take(results);
    if (first) this.#encoded?.take(results);
    return isRead ? tokenOf(results.token) : -1;
  }

  /** @param {number} [length] */
  rewind(length = 0) {
    if (!(length >= 0 && length <= this.#ids.length)) {
      throw new ShaderloomError("input", `the cache has ${this.#ids.length} tokens; it cannot be rewound to ${length}`);
    }
    this.#ids.length = this.#cache.rewind(length);
    return this.#ids.length;
  }

  dispose() {
    this.#active = undefined;
    this.#cache.dispose();
    this.#logits.buffer.destroy();
    this.#choice?.then((choice) => choice.dispose(), () => {});
    this.#words?.dispose?.();
    this.#encoded?.dispose();
    this.session.dispose();
  }
}

/** Options of `generate`. @type {ReadonlySet<string>} */
const OPTIONS = new Set(/** @type {(keyof api.GenerateOptions)[]} */ ([
  "maxNewTokens", "temperature", "topK", "topP", "minP", "repetitionPenalty", "seed", "stop", "signal",
  "encoderInputs",
]));
/** Options in Python that a page has not, and why. @type {ReadonlyMap<string, string>} */
const ELSEWHERE = new Map([
  ["promptLookupNumTokens", "pages verify no drafts"],
  ["processors", "pages have no functions that change logits"],
  ...["jsonSchema", "regex", "grammar"].map((name) => /** @type {[string, string]} */ ([name, "pages follow no grammars"])),
]);

/** Refuse options that would have no effect. @param {object} options @throws {ShaderloomError} "input" */
function checkOptions(options) {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || OPTIONS.has(name)) continue;
    const reason = ELSEWHERE.get(name) ?? `the options are ${[...OPTIONS].join(", ")}`;
    throw new ShaderloomError("input", `generate has no option '${name}': ${reason}`);
  }
}

/** Return how many tokens both begin with, without the last of `ids`, whose logits are wanted. @param {number[]} had
 *  @param {number[]} ids */
function sharedPrefix(had, ids) {
  const most = Math.min(had.length, ids.length - 1);
  const differs = ids.slice(0, most).findIndex((token, place) => token !== had[place]);
  return differs < 0 ? most : differs;
}
