/** @import { BundleSource, LoadOptions } from "../shaderloom.js" */
/** @import { ChunkCache } from "./cache.js" */
/** @import { ReadManifest } from "./manifest.js" */
/** @import { Source } from "./sources.js" */

import { ShaderloomError } from "./errors.js";
import { fetchManifest } from "./manifest.js";
import { CHUNK } from "./manifest_relations.js";
import { damaged, Folder, RangeReader, sha256 } from "./sources.js";

/** Read the files of a bundle; no byte is used before the hash of its chunk was compared with the manifest's. */
export class BundleFiles {
  #source;
  #cache;
  /** Ends the requests while the bundle is loaded. @type {AbortSignal | undefined} */
  signal;

  /** @param {Source} source @param {ReadManifest} read @param {ChunkCache} [cache] */
  constructor(source, { manifest, content, programs }, cache) {
    this.#source = source;
    this.#cache = cache;
    this.manifest = manifest;
    /** The bytes of the manifest. */
    this.content = content;
    this.programs = programs;
  }

  /**
   * Read and check the manifest of a bundle.
   *
   * @param {BundleSource} from @param {LoadOptions} options
   * @throws {ShaderloomError} "device" where the page may not hash, "bundle" for whatever is no bundle, "storage" where
   *   the page may not store
   */
  static async open(from, { signal, verifyKey, cache, model }) {
    if (!globalThis.crypto?.subtle) {
      throw new ShaderloomError("device", "this page is no secure context: serve it over https or from localhost");
    }
    const isAddress = typeof from === "string" || from instanceof URL;
    const source = isAddress ? new Folder(from) : await (await import("./blobs.js")).Blobs.of(from);
    const stored = cache ? await (await import("./cache.js")).ChunkCache.open() : undefined;
    const own = new BundleFiles(source, await fetchManifest(source, signal, verifyKey), stored);
    const files = model === undefined
      ? own
      : new BundleFiles(source, await (await import("./models.js")).fetchModel(own, model), stored);
    await stored?.requireRoom(files.manifest);
    return files;
  }

  /**
   * Call `use` with each chunk of a file and the chunk's offset in it, in order.
   *
   * @param {string} name @param {(chunk: Uint8Array<ArrayBuffer>, offset: number) => void | Promise<void>} use
   * @throws {ShaderloomError} "bundle" for a file that is missing, damaged, or of another size, "storage" where it should
   *   be stored and has no room
   */
  async stream(name, use) {
    const record = Object.hasOwn(this.manifest.files, name) ? this.manifest.files[name] : undefined;
    if (!record) throw new ShaderloomError("bundle", `the bundle has no file '${name}'`);
    const { size, sha256: hashes } = record;
    const reader = new RangeReader(this.#source, name, this.signal);
    try {
      for (const [index, hash] of hashes.entries()) {
        const offset = index * CHUNK;
        let chunk = await this.#cache?.get(hash);
        if (!chunk) {
          chunk = await reader.read(offset, Math.min(CHUNK, size - offset));
          if ((await sha256(chunk)) !== hash) throw damaged(name);
          if (index === hashes.length - 1) await reader.requireEnd(size);
          await this.#cache?.put(hash, chunk);
        }
        await use(chunk, offset);
      }
    } finally {
      reader.close();
    }
  }

  /** Return the bytes of a file, `most` at most. @param {string} name @param {number} [most]
   *  @throws {ShaderloomError} as `stream` does, and "bundle" for a larger file */
  async read(name, most = Infinity) {
    if (this.manifest.files[name]?.size > most) throw new ShaderloomError("bundle", `'${name}' has more than ${most} bytes`);
    /** @type {Uint8Array<ArrayBuffer>[]} */
    const chunks = []; // memory for what has come, not for what the manifest says
    await this.stream(name, (chunk) => {
      chunks.push(chunk);
    });
    return new Uint8Array(await new Blob(chunks).arrayBuffer());
  }

  /** Return the text of a file. @param {string} name @throws {ShaderloomError} as `stream` does */
  async text(name) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(await this.read(name));
    } catch (error) {
      if (error instanceof ShaderloomError) throw error;
      throw new ShaderloomError("bundle", `'${name}' is not a text`, { cause: error });
    }
  }
}
