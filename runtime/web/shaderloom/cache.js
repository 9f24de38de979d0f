// Files of bundles in the browser's storage: loaded where a page asks for it.

/** @import { Manifest } from "../shaderloom.js" */

import { ensure, failing, messageOf, ShaderloomError } from "./errors.js";
import { CHUNK } from "./manifest_relations.js";
import { sha256 } from "./files.js";

/** The stored chunks of bundles. @typedef {ReturnType<typeof chunksIn>} ChunkCache */

/** Open the cache named "shaderloom". @throws {ShaderloomError} "storage" where the browser has none */
export async function openCache() {
  const what = "this page cannot store files, so load without cache";
  ensure("storage", globalThis.caches, `${what}: there is no Cache Storage`);
  return chunksIn(await caches.open("shaderloom").catch(failing("storage", what)));
}

/** The cache of a page's origin, of which every entry is a chunk of a file under its hash: bundles share what is equal in
 *  them, and a load that was interrupted goes on with what is missing. @param {Cache} cache */
function chunksIn(cache) {
  /** Return the chunk with a hash, or undefined; one that was changed is removed. @param {string} hash */
  async function get(hash) {
    const response = await cache.match(addressOf(hash));
    if (!response) return undefined;
    const content = new Uint8Array(await response.arrayBuffer());
    if ((await sha256(content)) === hash) return content;
    await cache.delete(addressOf(hash));
    return undefined;
  }

  /** Check that there is room for the weights that are not stored, as far as the browser says: before the first is fetched.
   *  @param {Manifest} manifest @throws {ShaderloomError} "storage" where there is not */
  async function requireRoom({ files, weights }) {
    const stored = new Set((await cache.keys()).map(({ url }) => url));
    const names = new Set(Object.values(weights).flatMap(({ parts }) => parts.map(({ file }) => file)));
    let bytes = 0;
    for (const { size, sha256 } of [...names].map((name) => files[name])) {
      for (const [index, hash] of sha256.entries()) {
        const { href } = addressOf(hash);
        if (!stored.has(href)) bytes += Math.min(CHUNK, size - index * CHUNK);
        stored.add(href);
      }
    }
    const { quota = Infinity, usage = 0 } = await estimate();
    if (bytes > quota - usage) throw fullError(bytes, usage, `it gives this origin ${megabytes(quota)} MB`);
  }

  /** @param {string} hash @param {Uint8Array<ArrayBuffer>} content @throws {ShaderloomError} "storage" for a full storage */
  const put = (hash, content) => cache.put(addressOf(hash), new Response(content)).catch(async (error) => {
    throw fullError(content.length, (await estimate()).usage, messageOf(error), error);
  });

  return { get, requireRoom, put };
}

/** Return what the browser says of its storage, which may be nothing. @returns {Promise<StorageEstimate>} */
const estimate = async () => globalThis.navigator?.storage?.estimate?.().catch(() => ({})) ?? {};

/** Return the error for bytes that do not fit beside those in use. @param {number} bytes @param {number | undefined} usage
 *  @param {string} reason @param {unknown} [cause] */
function fullError(bytes, usage, reason, cause) {
  const amount = `${megabytes(bytes)} MB of the bundle beside the ${megabytes(usage ?? 0)} MB in use`;
  return new ShaderloomError("storage", `the browser cannot store ${amount}: ${reason.replace(/\.$/, "")}. ` +
    'Free some with caches.delete("shaderloom"), or load without cache; what was stored is used next time', { cause });
}

/** @param {string} hash */
const addressOf = (hash) => new URL(`/shaderloom/${hash}`, globalThis.location.origin);

/** @param {number} bytes */
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
