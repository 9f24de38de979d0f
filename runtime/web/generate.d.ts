/** Types of generate.js. */

import type { BundleSource, Feeds, LoadOptions, Session } from "./shaderloom.js";

export type Message = { role: string; content: string; [field: string]: unknown };

/** A text, tokens, or the messages of a chat, which the model's template formats. */
export type Prompt = string | readonly number[] | readonly Message[];

/** What a bundle has to make words: files that are not to be trusted. */
export interface WordAssets {
  /** The text of `tokenizer.json`; undefined where the bundle has none. */
  tokenizer?: string;
  /** The chat template, in Jinja. */
  template?: string;
  /** Texts of tokens that templates name, like `bos_token`. */
  special: Record<string, string>;
}

/** Texts to tokens and back. Each function may return a promise, as of a worker. */
export interface Words {
  /** Return the tokens of a text; with `special` those that the model begins texts with, too. */
  encode(text: string, special: boolean): number[] | Promise<number[]>;
  /** Return the text of tokens, without special ones. */
  decode(ids: number[]): string | Promise<string>;
  /** Return the text of a chat that the model goes on with. */
  format(messages: readonly Message[]): string | Promise<string>;
  dispose?(): void;
}

export interface GeneratorOptions extends Omit<LoadOptions, "model"> {
  /** Makes what turns texts into tokens; without it prompts and answers are tokens. */
  words?: (assets: WordAssets) => Words | Promise<Words>;
}

export interface GenerateOptions {
  /** What the encoder reads, with a first size of 1, like `input_features`; by default what was encoded last, or the prompt
   *  where the encoder reads text. With it the prompt is what the answer begins with. */
  encoderInputs?: Feeds;
  /** Tokens of the answer at most; as many as fit by default. */
  maxNewTokens?: number;
  /** 0, the default, takes the most probable token. */
  temperature?: number;
  /** Draw among the most probable tokens; 0: all. */
  topK?: number;
  /** Draw among the fewest tokens with this share of the probability. */
  topP?: number;
  /** Draw tokens of this part of the greatest probability, or more. */
  minP?: number;
  /** Divides positive logits of tokens that the text has, and multiplies negative ones. */
  repetitionPenalty?: number;
  /** Of the draws, an integer from 0 up; another one each time by default. */
  seed?: number;
  /** Texts that end the answer; they are no part of it. */
  stop?: string | readonly string[];
  /** Ends the answer at once: the iteration throws the signal's reason. What was computed stays in the cache. */
  signal?: AbortSignal;
}

/** What an answer took. Final when the iteration has ended. */
export interface Statistics {
  promptTokens: number;
  /** Of these those that were in the cache. */
  reusedTokens: number;
  newTokens: number;
  firstTokenSeconds: number;
  decodeSeconds: number;
  /** A token that ends answers, a text of `stop`, or `maxNewTokens`; "" while it runs, or where it was left. */
  endedBy: "" | "end" | "stop" | "length";
  seed: number;
  /** Tokens behind the first one by their time; 0 without any. */
  readonly tokensPerSecond: number;
}

/** Pieces of an answer as they come; iterate over it once. */
export interface Generation extends AsyncIterable<string> {
  /** What there is so far. */
  readonly text: string;
  readonly tokens: number[];
  readonly statistics: Statistics;
}

/** A decoder with the tokens of the last prompt and its answer, of which the next prompt reuses what it begins with. */
export interface Generator {
  readonly session: Session;
  /** Tokens of a prompt and its answer at most. */
  readonly maxLength: number;
  /** The tokens in the cache. */
  readonly tokens: number[];
  encode(prompt: Prompt): Promise<number[]>;
  /** Return the pieces of an answer; without a prompt, an empty list, one of an encoder begins with the tokens that the
   *  bundle states. A generation that has not ended ends with the next one. Throws "input" for an
   *  option that there is not, so that none is ignored. */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /** Forget the tokens in the cache but for the first `length`; return how many remain. */
  rewind(length?: number): number;
  /** Free all on the device. */
  dispose(): void;
}

/** Open a bundle of `shaderloom compile FOLDER -o NAME --generate`; `source` is read again when a token is first drawn. */
export function loadGenerator(source: BundleSource, options?: GeneratorOptions): Promise<Generator>;
