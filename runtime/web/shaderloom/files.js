/** @import { BundleSource, LoadOptions } from "../shaderloom.js" */
/** @import { ChunkCache } from "./cache.js" */
/** @import { Source } from "./sources.js" */

import { readManifest } from "./checking.js";
import { ensure, failing } from "./errors.js";
import { CHUNK, checkFurther } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { folderAt, rangeReader, readAtMost, requireUndamaged, sha256 } from "./sources.js";
import { own } from "./structure.js";

/** A manifest with its bytes, and what runs its programs.
 *  @typedef {Awaited<ReturnType<typeof readManifest>> & { content: Uint8Array<ArrayBuffer> }} ReadManifest */

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
    await stream(name, (chunk) => {
      chunks.push(chunk);
    });
    return new Uint8Array(await new Blob(chunks).arrayBuffer());
  }

  /** Return the text of a file. @param {string} name @throws {ShaderloomError} as `stream` does */
  async function text(name) {
    const content = await read(name);
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(content);
    } catch (error) {
      return failing("bundle", `'${name}' is not a text`)(error);
    }
  }

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
  return { ...await readManifest(content), content };
}

/** Return the manifest of a further model of a bundle, whose files must be the bundle's. @param {BundleFiles} bundle
 *  @param {string} model @returns {Promise<ReadManifest>} @throws {ShaderloomError} "bundle" */
async function fetchModel(bundle, model) {
  const file = `models/${model}.json`;
  const content = await bundle.read(file, SCHEMA.bytes.manifest);
  return { ...await readManifest(content, file, (manifest) => checkFurther(manifest, bundle.manifest)), content };
}
