// How the next token is chosen from logits, on the host: what shaderloom/generate/sampling.py does, by the same numbers.

/** @import { GenerateOptions } from "../generate.js" */

import { ShaderloomError } from "./errors.js";

const LOWEST = -3.4028234663852886e38;
/** The hash of 32 bits "lowbias32" of C. Wellons. */
const MIX = [[16, 0x7feb352d], [15, 0x846ca68b]];
const LAST_SHIFT = 16;
const SALT = 0xa511e9b3;
/** A lower temperature draws the most probable token as this does, whose inverse leaves logits finite in float32. */
const COLDEST = 1e-20;

/** @type {[name: keyof GenerateOptions, low: number, high: number, isWhole: boolean][]} */
const RANGES = [
  ["temperature", 0, 1e4, false], ["topK", 0, 2 ** 31, true], ["topP", 1e-6, 1, false], ["minP", 0, 1, false],
  ["repetitionPenalty", 1e-3, 1e3, false], ["seed", 0, Number.MAX_SAFE_INTEGER, true],
];

export class Sampling {
  /** @param {GenerateOptions} options @throws {ShaderloomError} "input" for a parameter out of its range */
  constructor({ temperature = 0, topK = 0, topP = 1, minP = 0, repetitionPenalty = 1, seed }) {
    /** @type {Record<string, number>} */
    const values = { temperature, topK, topP, minP, repetitionPenalty, seed: seed ?? crypto.getRandomValues(new Uint32Array(1))[0] };
    for (const [name, low, high, isWhole] of RANGES) {
      const value = values[name];
      if (typeof value !== "number" || !(value >= low && value <= high) || (isWhole && !Number.isInteger(value))) {
        const kind = isWhole ? "an integer" : "a number";
        throw new ShaderloomError("input", `${name} is ${kind} from ${low} to ${high}, not ${value}`);
      }
    }
    this.seed = values.seed;
    this.topK = temperature ? topK : 0;
    /** Whether the greatest of the logits as they are is the choice. */
    this.isGreedy = temperature === 0 && repetitionPenalty === 1;
    /** 1 / temperature, the factor of noise, topP, log(minP), and the penalty. */
    this.parameters = Float32Array.from(temperature
      ? [1 / Math.max(temperature, COLDEST), 1, topP, minP ? Math.log(minP) : LOWEST, repetitionPenalty]
      : [1, 0, 1, LOWEST, repetitionPenalty]);
  }

  /** Return 32 bits for the token at a position of the text. @param {number} position */
  key(position) {
    return mixed(mixed(mixed(this.seed) + Math.floor(this.seed / 2 ** 32)) + position);
  }
}

/** @param {number} number */
function mixed(number) {
  let bits = number >>> 0;
  for (const [shift, factor] of MIX) bits = Math.imul(bits ^ (bits >>> shift), factor);
  return (bits ^ (bits >>> LAST_SHIFT)) >>> 0;
}

/** Return a number inside (0, 1) for a token. @param {number} key @param {number} token */
function uniform(key, token) {
  const bits = mixed((mixed(token + key) ^ key ^ SALT) >>> 0) >>> 9;
  return Math.fround(Math.fround(bits + 0.5) * 2 ** -23);
}

/** Choose a token by logits. @param {Float32Array} logits @param {Set<number>} seen the tokens that the text has
 *  @param {Sampling} sampling @param {number} position @throws {ShaderloomError} "input" if no logit is a number */
export function choose(logits, seen, sampling, position) {
  const [inverse, noise, topP, logMinP, penalty] = sampling.parameters;
  const scores = logits.map((logit, token) => {
    const punished = !seen.has(token) ? logit : Math.fround(logit < 0 ? logit * penalty : logit / penalty);
    return Number.isNaN(punished) ? -Infinity : punished * inverse;
  });
  if (!scores.some((score) => score > -Infinity)) {
    throw new ShaderloomError("input", "no token is left: all logits are -inf or NaN");
  }
  if (!noise) return greatest(scores);
  const least = threshold(scores, sampling.topK, topP, logMinP);
  const key = sampling.key(position);
  return greatest(scores.map((score, token) =>
    (score >= least ? score - Math.fround(Math.log(-Math.fround(Math.log(uniform(key, token))))) : -Infinity)));
}

/** Return the least score of a token that may be drawn. @param {Float32Array} scores @param {number} topK
 *  @param {number} topP @param {number} logMinP */
function threshold(scores, topK, topP, logMinP) {
  const ordered = scores.slice().sort().reverse().subarray(0, topK || scores.length);
  const weights = Array.from(ordered, (score) => Math.exp(Math.fround(score - ordered[0])));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let count = 0;
  for (let before = 0; count < weights.length && before / total < topP; count++) before += weights[count];
  return Math.max(ordered[Math.max(count, 1) - 1], Math.fround(ordered[0] + logMinP));
}

/** @param {Float32Array} values */
const greatest = (values) => values.reduce((best, value, at) => (value > values[best] ? at : best), 0);
