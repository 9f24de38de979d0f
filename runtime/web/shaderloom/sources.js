// Where the files of a bundle come from, and hashes of what arrived.

import { ensure, failing } from "./errors.js";

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

/** Return the folder at an address. @param {string | URL} url @returns {Source}
 *  @throws {ShaderloomError} "input" for what is no address */
export function folderAt(url) {
  const here = globalThis.document?.baseURI ?? globalThis.location?.href;
  const folder = String(url).replace(/\/*$/, "/");
  ensure("input", URL.canParse(folder, here), `'${url}' is no address`);
  const base = new URL(folder, here);
  return {
    async open(name, begin, signal) {
      const headers = begin ? { Range: `bytes=${begin}-` } : undefined;
      const response = await fetch(new URL(name, base), { signal, headers }).catch((error) => {
        signal?.throwIfAborted();
        return failing("bundle", `'${name}' cannot be fetched`)(error);
      });
      const { status, ok, body } = response;
      const advice = name === "manifest.json" ? `; ${base} must be the folder of a bundle (give a zip as a Blob)` : "";
      ensure("bundle", ok, `'${name}' cannot be fetched: status ${status}${advice}`);
      return { body: body ?? new Blob([]).stream(), begin: status === 206 ? begin : 0 };
    },
  };
}

/** Yield the bytes of a file from `begin` on, piece by piece. @param {Source} source @param {string} name
 *  @param {number} begin @param {AbortSignal} [signal] @returns {AsyncGenerator<Uint8Array<ArrayBuffer>, undefined>}
 *  @throws {ShaderloomError} "bundle" where the file breaks off */
async function* piecesOf(source, name, begin, signal) {
  const opened = await source.open(name, begin, signal);
  const reader = opened.body.getReader();
  let position = opened.begin;
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        signal?.throwIfAborted();
        return failing("bundle", `'${name}' breaks off after ${position} bytes`)(error);
      });
      if (done) return;
      const skipped = Math.max(begin - position, 0);
      position += value.length;
      yield value.subarray(skipped);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Return all bytes of a file. @param {Source} source @param {string} name @param {number} most
 *  @param {AbortSignal} [signal] @throws {ShaderloomError} "bundle" for more than `most` bytes */
export async function readAtMost(source, name, most, signal) {
  const pieces = [];
  let length = 0;
  for await (const piece of piecesOf(source, name, 0, signal)) {
    length += piece.length;
    ensure("bundle", length <= most, `'${name}' has more than ${most} bytes`);
    pieces.push(piece);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

/** Return what reads ranges of a file, in the order of their offsets, with as few requests as there are gaps.
 *  @param {Source} source @param {string} name @param {AbortSignal} [signal] */
export function rangeReader(source, name, signal) {
  /** @type {ReturnType<typeof piecesOf> | undefined} */
  let pieces;
  /** Bytes that came and were not read yet; the first has the number `position` in the file. */
  let rest = new Uint8Array(0);
  let position = 0;

  /** Return whether there are bytes behind those that were read. */
  async function hasMore() {
    while (!rest.length) {
      const piece = await pieces?.next();
      if (!piece?.value) return false;
      rest = piece.value;
    }
    return true;
  }

  /** Return `size` bytes at `offset`. @param {number} offset @param {number} size
   *  @throws {ShaderloomError} "bundle" for a file that ends before */
  async function read(offset, size) {
    if (!pieces || position !== offset) {
      close();
      pieces = piecesOf(source, name, offset, signal);
      rest = new Uint8Array(0);
      position = offset;
    }
    const bytes = new Uint8Array(size);
    for (let filled = 0; filled < size; ) {
      ensure("bundle", await hasMore(), `'${name}' ends after ${position} bytes`);
      const taken = rest.subarray(0, size - filled);
      bytes.set(taken, filled);
      filled += taken.length;
      rest = rest.subarray(taken.length);
      position += taken.length;
    }
    return bytes;
  }

  /** Check that a file that was read to its end has `size` bytes. @param {number} size
   *  @throws {ShaderloomError} "bundle" for one that is longer */
  async function requireEnd(size) {
    ensure("bundle", position !== size || !await hasMore(), `'${name}' is longer than ${size} bytes`);
  }

  const close = () => void pieces?.return(undefined);

  return { read, requireEnd, close };
}

/** Return the SHA-256 digest of bytes in lower-case hex. @param {Uint8Array<ArrayBuffer>} bytes */
export async function sha256(bytes) {
  const isLarge = bytes.length > MOST_HERE && globalThis.document;
  const elsewhere = isLarge ? await (await import("./hashing.js")).digestElsewhere(bytes) : undefined;
  const digest = new Uint8Array(elsewhere ?? await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Check a hash of a file. @param {string} name @param {unknown} holds @throws {ShaderloomError} "bundle" */
export const requireUndamaged = (name, holds) =>
  ensure("bundle", holds, `'${name}' is damaged: its hash differs from the bundle's`);
