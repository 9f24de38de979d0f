// Files of bundles in the browser's storage: loaded where a page asks for it.

import { messageOf, ShaderloomError } from "./errors.js";
import { sha256 } from "./sources.js";

/** The cache of a page's origin, of which every entry is a chunk of a file under its hash: bundles share what is equal in
 *  them, and a load that was interrupted goes on with what is missing. */
export class ChunkCache {
  #cache;

  /** @param {Cache} cache */
  constructor(cache) {
    this.#cache = cache;
  }

  /** Open the cache named "shaderloom". @throws {ShaderloomError} "storage" where the browser has none */
  static async open() {
    try {
      return new ChunkCache(await globalThis.caches.open("shaderloom"));
    } catch (error) {
      const reason = globalThis.caches ? messageOf(error) : "there is no Cache Storage";
      throw new ShaderloomError("storage", `this page cannot store files: ${reason}; load without cache`, { cause: error });
    }
  }

  /** Return the chunk with a hash, or undefined; one that was changed is removed. @param {string} hash */
  async get(hash) {
    const response = await this.#cache.match(addressOf(hash));
    if (!response) return undefined;
    const content = new Uint8Array(await response.arrayBuffer());
    if ((await sha256(content)) === hash) return content;
    await this.#cache.delete(addressOf(hash));
    return undefined;
  }

  /** @param {string} hash @param {Uint8Array<ArrayBuffer>} content @throws {ShaderloomError} "storage" for a full storage */
  async put(hash, content) {
    try {
      await this.#cache.put(addressOf(hash), new Response(content));
    } catch (error) {
      const { usage } = await navigator.storage.estimate();
      const room = usage === undefined ? "" : `; this page has ${megabytes(usage)} MB in use`;
      throw new ShaderloomError(
        "storage",
        `the browser cannot store ${megabytes(content.length)} MB of the bundle (${messageOf(error)})${room}. ` +
          'Free some with caches.delete("shaderloom"), or load without cache; what was stored is used next time',
        { cause: error },
      );
    }
  }
}

/** @param {string} hash */
const addressOf = (hash) => new URL(`/shaderloom/${hash}`, globalThis.location.origin);

/** @param {number} bytes */
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
