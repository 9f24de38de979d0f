// Where the files of a bundle come from, and hashes of what arrived.

import { ensure, messageOf, ShaderloomError } from "./errors.js";

/** Bytes that a page's own thread hashes, or checks as JSON, in some milliseconds. */
export const MOST_HERE = 2 ** 20;

/**
 * The bytes of a file from `begin` on.
 *
 * @typedef {{ body: ReadableStream<Uint8Array<ArrayBuffer>>, begin: number }} Opened
 */

/**
 * `open` gives the bytes of a file from `begin` on, or from 0 on where the source cannot skip; it throws "bundle" where
 * there is no such file, and the signal's reason once it is aborted.
 *
 * @typedef {{ open(name: string, begin: number, signal?: AbortSignal): Promise<Opened> }} Source
 * @typedef {ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>} Reader
 */

/** The folder at an address. @implements {Source} */
export class Folder {
  #base;

  /** @param {string | URL} url @throws {ShaderloomError} "input" for what is no address */
  constructor(url) {
    const here = globalThis.document?.baseURI ?? globalThis.location?.href;
    const folder = String(url).replace(/\/*$/, "/");
    ensure("input", URL.canParse(folder, here), `'${url}' is no address`);
    this.#base = new URL(folder, here);
  }

  /** @param {string} name @param {number} begin @param {AbortSignal} [signal] @returns {Promise<Opened>} */
  async open(name, begin, signal) {
    let response;
    try {
      const headers = begin ? { Range: `bytes=${begin}-` } : undefined;
      response = await fetch(new URL(name, this.#base), { signal, headers });
    } catch (error) {
      signal?.throwIfAborted();
      throw new ShaderloomError("bundle", `'${name}' cannot be fetched: ${messageOf(error)}`, { cause: error });
    }
    const { status, ok, body } = response;
    if (!ok) {
      const advice = `${this.#base} must be the folder of a bundle (give a zip as a Blob)`;
      const hint = name === "manifest.json" ? `; ${advice}` : "";
      throw new ShaderloomError("bundle", `'${name}' cannot be fetched: status ${status}${hint}`);
    }
    return { body: body ?? new Blob([]).stream(), begin: status === 206 ? begin : 0 };
  }
}

/** Return the piece of a file behind `length` bytes. @param {Reader} reader @param {string} name @param {number} length
 *  @param {AbortSignal} [signal] @throws {ShaderloomError} "bundle" where the file breaks off */
const readPiece = (reader, name, length, signal) => reader.read().catch((error) => {
  signal?.throwIfAborted();
  throw new ShaderloomError("bundle", `'${name}' breaks off after ${length} bytes: ${messageOf(error)}`, { cause: error });
});

/** Return all bytes of a file. @param {Source} source @param {string} name @param {number} most
 *  @param {AbortSignal} [signal] @throws {ShaderloomError} "bundle" for more than `most` bytes */
export async function readAtMost(source, name, most, signal) {
  const { body } = await source.open(name, 0, signal);
  const reader = body.getReader();
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const pieces = [];
  let length = 0;
  for (;;) {
    const piece = await readPiece(reader, name, length, signal);
    if (piece.done) break;
    length += piece.value.length;
    if (length > most) {
      reader.cancel().catch(() => {});
      throw new ShaderloomError("bundle", `'${name}' has more than ${most} bytes`);
    }
    pieces.push(piece.value);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

/** Read ranges of a file, in the order of their offsets, with as few requests as there are gaps. */
export class RangeReader {
  #source;
  #name;
  #signal;
  /** @type {Reader | undefined} */
  #reader;
  /** Bytes that came and were not read yet; the first has the number `position` in the file. */
  #rest = new Uint8Array(0);
  #position = 0;

  /** @param {Source} source @param {string} name @param {AbortSignal} [signal] */
  constructor(source, name, signal) {
    this.#source = source;
    this.#name = name;
    this.#signal = signal;
  }

  /** Return `size` bytes at `offset`. @param {number} offset @param {number} size
   *  @throws {ShaderloomError} "bundle" for a file that ends before */
  async read(offset, size) {
    if (!this.#reader || this.#position !== offset) await this.#open(offset);
    const bytes = new Uint8Array(size);
    for (let filled = 0; filled < size; ) {
      const taken = await this.#take(size - filled);
      bytes.set(taken, filled);
      filled += taken.length;
    }
    return bytes;
  }

  /** Check that a file that was read to its end has `size` bytes. @param {number} size
   *  @throws {ShaderloomError} "bundle" for one that is longer */
  async requireEnd(size) {
    if (this.#position !== size || !this.#reader) return;
    if (this.#rest.length || !(await readPiece(this.#reader, this.#name, size, this.#signal)).done) {
      throw new ShaderloomError("bundle", `'${this.#name}' is longer than ${size} bytes`);
    }
  }

  close() {
    this.#reader?.cancel().catch(() => {});
    this.#reader = undefined;
  }

  /** @param {number} offset */
  async #open(offset) {
    this.close();
    const { body, begin } = await this.#source.open(this.#name, offset, this.#signal);
    this.#reader = body.getReader();
    this.#rest = new Uint8Array(0);
    this.#position = begin;
    while (this.#position < offset) await this.#take(offset - this.#position);
  }

  /** Return the next bytes, at most `most`. @param {number} most */
  async #take(most) {
    while (!this.#rest.length) {
      const reader = /** @type {Reader} */ (this.#reader);
      const { done, value } = await readPiece(reader, this.#name, this.#position, this.#signal);
      if (done) throw new ShaderloomError("bundle", `'${this.#name}' ends after ${this.#position} bytes`);
      this.#rest = value;
    }
    const taken = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(taken.length);
    this.#position += taken.length;
    return taken;
  }
}

/** Return the SHA-256 digest of bytes in lower-case hex. @param {Uint8Array<ArrayBuffer>} bytes */
export async function sha256(bytes) {
  const isLarge = bytes.length > MOST_HERE && globalThis.document;
  const elsewhere = isLarge ? await (await import("./hashing.js")).digestElsewhere(bytes) : undefined;
  const digest = new Uint8Array(elsewhere ?? await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the error for a file that has another hash than the bundle says. @param {string} name */
export function damaged(name) {
  return new ShaderloomError("bundle", `'${name}' is damaged: its hash differs from the bundle's`);
}
