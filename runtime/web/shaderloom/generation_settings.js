// What a bundle says of generation: its assets and the shapes of its plans, checked before they are used.

/** @import { WordAssets } from "../generate.js" */
/** @import { Session } from "../shaderloom.js" */

import { ShaderloomError } from "./errors.js";

/** Bytes of the settings and of a template, and of a tokenizer. */
const SETTINGS_BYTES = 4 << 20;
const TOKENIZER_BYTES = 128 << 20;
/** What is in the names of caches of an encoder's results. */
const ENCODER_PART = ".encoder.";
const SPECIAL = ["bos_token", "eos_token", "unk_token", "pad_token"];

/** A cache of keys or values: the input that reads it, the output that continues it, and its sizes but for its rows.
 *  @typedef {{ input: string, output: string, batch: number, heads: number, size: number }} CacheForm */

/**
 * What runs of the decoder are like. `chunks` are their numbers of tokens, from the most on; `inPlace`: caches have a
 * capacity, of `rows`; else each run gives longer ones. `hasRow`: a run may have padding behind its tokens. Behind an
 * encoder `encodedCaches` have keys and values of its results, `firstSizes` the tokens of a text's first run, from the most
 * on, and `starts` those that answers begin with.
 *
 * @typedef {object} Settings
 * @property {number} maxLength @property {Set<number>} ends @property {number[]} chunks @property {CacheForm[]} caches
 * @property {boolean} inPlace @property {boolean} hasRow @property {{ low: number, high: number, step: number }} rows
 * @property {number} vocabulary @property {CacheForm[]} encodedCaches @property {number[]} firstSizes @property {number[]} starts
 */

/** Read the settings of a bundle. @param {Session} session @param {Session} [firstRun] of a decoder behind an encoder
 *  @returns {Promise<Settings>}
 *  @throws {ShaderloomError} "bundle" for a bundle that does not generate text, or says wrong things of that */
export async function readSettings(session, firstRun) {
  if (!hasAsset(session, "generation.json")) {
    throw wrong("it has no generation.json: compile it with shaderloom compile FOLDER -o NAME --generate");
  }
  const values = await readObject(session, "generation.json");
  const { context, ends, starts = [] } = values;
  if (!isCount(context) || !context) throw wrong("its context is no number of tokens");
  if (!Array.isArray(ends) || !ends.every(isCount)) throw wrong("its ends are no tokens");
  const outputs = (firstRun ?? session).outputs;
  const all = cachesOf(session.shapes[0], outputs, patterns(values.past), patterns(values.present));
  const caches = all.filter(({ input }) => !input.includes(ENCODER_PART));
  if (!caches.length) throw wrong("its decoder has no caches of tokens");
  const [{ input: first }] = caches;
  const [, , rows] = session.shapes[0][first];
  const range = typeof rows === "number" ? { low: rows, high: rows, step: 1 } : session.manifest.dynamic[rows];
  const chunks = session.shapes.map((shapes) => shapes.input_ids?.[1]);
  const logits = session.outputs.find(({ name }) => name === "logits")?.dims?.[2];
  const inPlace = session.inputs.find(({ name }) => name === first)?.dims?.[2] === "capacity";
  if (inPlace && !range?.low) throw wrong("its caches begin with no rows, which never double to some");
  if (!range || !isCount(logits) || !chunks.every(isCount) || !chunks.includes(1)) {
    throw wrong("its plans are not those of a decoder");
  }
  const firstSizes = (firstRun?.shapes ?? []).map((shapes) => shapes.input_ids?.[1]);
  if (firstRun && !(firstSizes.every(isCount) && firstSizes.includes(1))) throw wrong("its first runs are not those of a decoder");
  if (!Array.isArray(starts) || !starts.every(isCount) || (firstRun && !starts.length)) {
    throw wrong("it has no tokens that answers begin with");
  }
  return {
    maxLength: inPlace ? Math.min(context, range.high) : Math.min(context, range.high + 1),
    ends: new Set(ends), chunks: chunks.sort((first, second) => second - first), caches, inPlace,
    hasRow: session.inputs.some(({ name }) => name === "logits_rows"), rows: range, vocabulary: logits,
    encodedCaches: all.filter((cache) => !caches.includes(cache)), starts,
    firstSizes: firstSizes.filter(isCount).sort((first, second) => second - first),
  };
}

/** Return what words are made with. @param {Session} session @returns {Promise<WordAssets>}
 *  @throws {ShaderloomError} "bundle" */
export async function readWordAssets(session) {
  const { special = {} } = await readObject(session, "generation.json");
  /** @param {string} name @param {number} most */
  const optional = (name, most) => (hasAsset(session, name) ? readText(session, name, most) : undefined);
  return {
    tokenizer: await optional("tokenizer.json", TOKENIZER_BYTES),
    template: await optional("chat_template.jinja", SETTINGS_BYTES),
    special: Object.fromEntries(SPECIAL.filter((name) => Object.hasOwn(special, name) && typeof special[name] === "string")
      .map((name) => [name, special[name]])),
  };
}

/** @param {Session} session @param {string} name */
export const hasAsset = ({ manifest }, name) => Object.hasOwn(manifest.files, `assets/${name}`);

/** @param {Session} session @param {string} name @param {number} most */
async function readText(session, name, most) {
  if (session.manifest.files[`assets/${name}`].size > most) throw wrong(`its ${name} has more than ${most} bytes`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await session.asset(name));
  } catch (error) {
    throw error instanceof ShaderloomError ? error : wrong(`its ${name} is no text`, error);
  }
}

/** @param {Session} session @param {string} name @returns {Promise<Record<string, any>>} */
async function readObject(session, name) {
  const text = await readText(session, name, SETTINGS_BYTES);
  try {
    const value = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch (error) {
    throw wrong(`its ${name} is no JSON`, error);
  }
  throw wrong(`its ${name} is no object`);
}

/** Return names of caches, each with one %d for the layer. @param {unknown} names @returns {string[]} */
function patterns(names) {
  const isPattern = (/** @type {unknown} */ name) => typeof name === "string" && /^[^%]*%d[^%]*$/.test(name);
  if (!Array.isArray(names) || !names.every(isPattern)) throw wrong("its names of caches do not have one %d each");
  return names;
}

/** @param {Session["shapes"][number]} shapes @param {Session["outputs"]} outputs @param {string[]} past
 *  @param {string[]} present @returns {CacheForm[]} */
function cachesOf(shapes, outputs, past, present) {
  const inputs = Object.entries(shapes).filter(([, dims]) => dims.length === 4);
  const continued = new Map(past.flatMap((name, part) => inputs.map((_, layer) =>
    /** @type {const} */ ([name.replace("%d", `${layer}`), present[part]?.replace("%d", `${layer}`)]))));
  if (!inputs.length) throw wrong("its decoder has no caches");
  return inputs.map(([input, [batch, heads, rows, size]]) => {
    const output = continued.get(input);
    if (!output || !outputs.some(({ name }) => name === output)) throw wrong(`no output continues its cache '${input}'`);
    if (!rows || ![batch, heads, size].every((dim) => isCount(dim) && dim)) {
      throw wrong(`its cache '${input}' has other sizes than one of a decoder`);
    }
    return { input, output, batch: Number(batch), heads: Number(heads), size: Number(size) };
  });
}

/** @param {unknown} value @returns {value is number} */
const isCount = (value) => typeof value === "number" && Number.isInteger(value) && value >= 0 && value < 2 ** 31;

/** @param {string} reason @param {unknown} [cause] */
const wrong = (reason, cause) => new ShaderloomError("bundle", `the bundle does not generate text: ${reason}`, { cause });
