// Texts piece by piece: characters once they are complete, and nothing of a text that ends an answer.

/** @import { Words } from "../generate.js" */

import { ShaderloomError } from "./errors.js";

/** The text of tokens as they come. */
export class TextStream {
  #words;
  #ids;
  #begin = 0;
  #end;

  /** Begin behind tokens, which decide whether a word begins with a space. @param {Words} words @param {number[]} before */
  constructor(words, before) {
    this.#words = words;
    this.#ids = before.slice(-4);
    this.#end = this.#ids.length;
  }

  /** Return the text that a token completes; with `isLast` also what is incomplete. @param {number} token
   *  @param {boolean} isLast */
  async push(token, isLast) {
    this.#ids.push(token);
    const shown = this.#ids.slice(this.#begin, this.#end);
    const [before, now] = await Promise.all([shown, this.#ids.slice(this.#begin)].map((ids) => this.#words.decode(ids)));
    if (now.endsWith("\ufffd") && !isLast) return "";
    this.#begin = this.#end;
    this.#end = this.#ids.length;
    return now.slice(before.length);
  }
}

/** Ends a text at the first of several texts, of which no part is let through. */
export class StopTexts {
  /** @type {string[]} */
  #stops;
  #text = "";
  isStopped = false;

  /** @param {string | readonly string[]} stops @throws {ShaderloomError} "input" */
  constructor(stops) {
    this.#stops = typeof stops === "string" ? [stops] : [...stops];
    if (!this.#stops.every((stop) => typeof stop === "string" && stop)) {
      throw new ShaderloomError("input", "stop is a text or a list of texts, none of them empty");
    }
  }

  /** Return the text that may be shown now. @param {string} text */
  push(text) {
    this.#text += text;
    const ends = this.#stops.map((stop) => this.#text.indexOf(stop)).filter((place) => place >= 0);
    this.isStopped = ends.length > 0;
    if (this.isStopped) return this.#text.slice(0, Math.min(...ends));
    const overlap = Math.max(0, ...this.#stops.map((stop) => overlapOf(this.#text, stop)));
    const shown = this.#text.slice(0, this.#text.length - overlap);
    this.#text = this.#text.slice(shown.length);
    return shown;
  }

  /** Return what was held back when no more text comes. */
  rest() {
    return this.#text;
  }
}

/** Return the length of the longest end of a text that `stop` begins with. @param {string} text @param {string} stop */
function overlapOf(text, stop) {
  for (let size = Math.min(text.length, stop.length - 1); size > 0; size--) {
    if (text.endsWith(stop.slice(0, size))) return size;
  }
  return 0;
}
