// The files of a bundle: where they come from, and what arrived once its hashes are right.

/** @import { BundleSource, LoadOptions, Manifest } from "../shaderloom.js" */
/** @import { ChunkCache } from "./cache.js" */

import { MOST_HERE, readManifest } from "./checking.js";
import { ensure, failing } from "./errors.js";
import { CHUNK, checkFurther } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { own } from "./structure.js";

/** A manifest with its bytes, and what runs its programs. @typedef {Awaited<ReturnType<typeof readManifest>>} ReadManifest */

/** The files of a bundle. @typedef {ReturnType<typeof filesIn>} BundleFiles */

/**
 * Read and check the manifest of a bundle.
 *
 * @param {BundleSource} from @param {LoadOptions} options
 * @throws {ShaderloomError} "device" where the page may not hash, "bundle" for whatever is no bundle, "storage" where
 *   the page may not store
 */
export async function openFiles(from, { signal, verifyKey, cache, model }) {
  ensure("device", globalThis.crypto?.subtle, "this page is no secure context: serve it over https or from localhost");
  const isAddress = typeof from === "string" || from instanceof URL;
  const source = isAddress ? folderAt(from) : await (await import("./blobs.js")).filesOf(from);
  const stored = cache ? await (await import("./cache.js")).openCache() : undefined;
  let files = filesIn(source, await fetchManifest(source, signal, verifyKey), stored);
  source.check?.(files.manifest);
  if (model !== undefined) files = filesIn(source, await fetchModel(files, model), stored);
  await stored?.requireRoom(files.manifest);
  return files;
}

/** Read the files of a bundle; no byte is used before the hash of its chunk was compared with the manifest's.
 *  @param {Source} source @param {ReadManifest} read @param {ChunkCache} [cache] */
function filesIn(source, { manifest, content, programs }, cache) {
  /** What ends the requests while the bundle is loaded. @type {{ signal?: AbortSignal }} */
  const loading = {};

  /**
   * Call `use` with each chunk of a file and the chunk's offset in it, in order.
   *
   * @param {string} name @param {(chunk: Uint8Array<ArrayBuffer>, offset: number) => void | Promise<void>} use
   * @throws {ShaderloomError} "bundle" for a file that is missing, damaged, or of another size, "storage" where it should
   *   be stored and has no room
   */
  async function stream(name, use) {
    const record = own(manifest.files, name);
    ensure("bundle", record, `the bundle has no file '${name}'`);
    const { size, sha256: hashes } = record;
    const reader = rangeReader(source, name, loading.signal);
    try {
      for (const [index, hash] of hashes.entries()) {
        const offset = index * CHUNK;
        let chunk = await cache?.get(hash);
        if (!chunk) {
          chunk = await reader.read(offset, Math.min(CHUNK, size - offset));
          requireUndamaged(name, await sha256(chunk) === hash);
          if (index === hashes.length - 1) await reader.requireEnd(size);
          await cache?.put(hash, chunk);
        }
        await use(chunk, offset);
      }
    } finally {
      reader.close();
    }
  }

  /** Return the bytes of a file, `most` at most. @param {string} name @param {number} [most]
   *  @throws {ShaderloomError} as `stream` does, and "bundle" for a larger file */
  async function read(name, most = Infinity) {
    ensure("bundle", !(manifest.files[name]?.size > most), `'${name}' has more than ${most} bytes`);
    /** @type {Uint8Array<ArrayBuffer>[]} */
    const chunks = []; // memory for what has come, not for what the manifest says
    await stream(name, (chunk) => void chunks.push(chunk));
    return new Uint8Array(await new Blob(chunks).arrayBuffer());
  }

  /** Return the text of a file. @param {string} name @throws {ShaderloomError} as `stream` does */
  const text = async (name) => Promise.resolve(await read(name))
    .then((content) => new TextDecoder("utf-8", { fatal: true }).decode(content))
    .catch(failing("bundle", `'${name}' is not a text`));

  return { manifest, /** The bytes of the manifest. */ content, programs, loading, stream, read, text };
}

/**
 * Return the manifest of a bundle, once its hash and its fields are right.
 *
 * @param {Source} source @param {AbortSignal} [signal] @param {string} [verifyKey] the key that the bundle is signed for
 * @returns {Promise<ReadManifest>}
 * @throws {ShaderloomError} "bundle"
 */
async function fetchManifest(source, signal, verifyKey) {
  /** @param {string} name @param {number} most */
  const read = (name, most) => readAtMost(source, name, most, signal);
  const content = await read("manifest.json", SCHEMA.bytes.manifest);
  const digest = await read("manifest.sha256", 65);
  requireUndamaged("manifest.json", new TextDecoder().decode(digest) === `${await sha256(content)}\n`);
  if (verifyKey !== undefined) {
    const { requireSignature } = await import("./signing.js");
    await requireSignature(await read("manifest.signature", 129), digest, verifyKey);
  }
  return readManifest(content);
}

/** Return the manifest of a further model of a bundle, whose files must be the bundle's. @param {BundleFiles} bundle
 *  @param {string} model @returns {Promise<ReadManifest>} @throws {ShaderloomError} "bundle" */
async function fetchModel(bundle, model) {
  const file = `models/${model}.json`;
  const content = await bundle.read(file, SCHEMA.bytes.manifest);
  return readManifest(content, file, (manifest) => checkFurther(manifest, bundle.manifest));
}

/**
 * The bytes of a file from `begin` on.
 *
 * @typedef {{ body: ReadableStream<Uint8Array<ArrayBuffer>>, begin: number }} Opened
 */

/**
 * `open` gives the bytes of a file from `begin` on, or from 0 on where the source cannot skip; it throws "bundle" where
 * there is no such file, and the signal's reason once it is aborted. `check` throws "bundle" where the files are others than
 * those of a manifest, as far as that is known.
 *
 * @typedef {{ check?(manifest: Manifest): void, open(name: string, begin: number, signal?: AbortSignal): Promise<Opened> }} Source
 * @typedef {ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>} Reader
 */

/** Return the folder at an address. @param {string | URL} url @returns {Source}
 *  @throws {ShaderloomError} "input" for what is no address */
function folderAt(url) {
  const here = globalThis.document?.baseURI ?? globalThis.location?.href;
  const folder = String(url).replace(/\/*$/, "/");
  ensure("input", URL.canParse(folder, here), `'${url}' is no address`);
  const base = new URL(folder, here);
  return {
    async open(name, begin, signal) {
      const headers = begin ? { Range: `bytes=${begin}-` } : undefined;
      const response = await fetch(new URL(name, base), { signal, headers })
        .catch(unlessAborted(signal, `'${name}' cannot be fetched`));
      const { status, ok, body } = response;
      const advice = /** @type {Record<string, string>} */ ({
        "manifest.json": `; ${base} must be the folder of a bundle (give a zip as a Blob)`,
        "manifest.signature": "; 'shaderloom compile --sign' writes it",
      });
      ensure("bundle", ok, `'${name}' cannot be fetched: status ${status}${advice[name] ?? ""}`);
      return { body: body ?? new Blob([]).stream(), begin: status === 206 ? begin : 0 };
    },
  };
}

/** Return what `catch` is given to say what failed, or that it was aborted. @param {AbortSignal | undefined} signal
 *  @param {string} what @returns {(error: unknown) => never} */
const unlessAborted = (signal, what) => (error) => {
  signal?.throwIfAborted();
  return failing("bundle", what)(error);
};

/** Yield the bytes of a file from `begin` on, piece by piece. @param {Source} source @param {string} name
 *  @param {number} begin @param {AbortSignal} [signal] @returns {AsyncGenerator<Uint8Array<ArrayBuffer>, undefined>}
 *  @throws {ShaderloomError} "bundle" where the file breaks off */
async function* piecesOf(source, name, begin, signal) {
  const opened = await source.open(name, begin, signal);
  const reader = opened.body.getReader();
  let position = opened.begin;
  try {
    for (;;) {
      const { done, value } = await reader.read()
        .catch(unlessAborted(signal, `'${name}' breaks off after ${position} bytes`));
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
async function readAtMost(source, name, most, signal) {
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
function rangeReader(source, name, signal) {
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
const requireUndamaged = (name, holds) =>
  ensure("bundle", holds, `'${name}' is damaged: its hash differs from the bundle's`);
