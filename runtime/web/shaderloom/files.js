/** @import { Manifest } from "../shaderloom.js" */

import { ShaderloomError } from "./errors.js";
import { damaged, fetchFile, sha256 } from "./fetching.js";
import { fetchManifest } from "./manifest.js";
import { CHUNK } from "./manifest_relations.js";

/** Read the files of a bundle; no byte is used before the hash of its chunk was compared with the manifest's. */
export class BundleFiles {
  #base;
  /** Ends the requests while the bundle is loaded. @type {AbortSignal | undefined} */
  signal;

  /** @param {URL} base @param {{ manifest: Manifest, programs?: typeof import("./programs.js") }} read
   *  @param {AbortSignal} [signal] */
  constructor(base, { manifest, programs }, signal) {
    this.#base = base;
    this.manifest = manifest;
    this.programs = programs;
    this.signal = signal;
  }

  /**
   * Fetch and check the manifest of the bundle at `url`.
   *
   * @param {string | URL} url @param {AbortSignal} [signal] @param {string} [verifyKey]
   * @throws {ShaderloomError} "device" where the page may not hash, "bundle" for whatever is no bundle
   */
  static async open(url, signal, verifyKey) {
    if (!globalThis.crypto?.subtle) {
      throw new ShaderloomError("device", "this page is no secure context: serve it over https or from localhost");
    }
    const base = new URL(String(url).replace(/\/*$/, "/"), globalThis.document?.baseURI ?? globalThis.location?.href);
    return new BundleFiles(base, await fetchManifest(base, signal, verifyKey), signal);
  }

  /**
   * Call `use` with each chunk of a file and the chunk's offset in it, in order.
   *
   * @param {string} name @param {(chunk: Uint8Array<ArrayBuffer>, offset: number) => void | Promise<void>} use
   * @throws {ShaderloomError} "bundle" for a file that is missing, damaged, or of another size
   */
  async stream(name, use) {
    const record = Object.hasOwn(this.manifest.files, name) ? this.manifest.files[name] : undefined;
    if (!record) {
      throw new ShaderloomError("bundle", `the bundle has no file '${name}'`);
    }
    const { body } = await fetchFile(this.#base, name, this.signal);
    const reader = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (body).getReader();
    try {
      for (let offset = 0, rest = new Uint8Array(0), index = 0; offset < record.size; index++) {
        const chunk = new Uint8Array(Math.min(CHUNK, record.size - offset));
        let filled = 0;
        while (filled < chunk.length) {
          if (rest.length === 0) {
            const { done, value } = await reader.read();
            if (done) throw new ShaderloomError("bundle", `'${name}' ends after ${offset + filled} bytes`);
            rest = value;
          }
          const taken = rest.subarray(0, chunk.length - filled);
          chunk.set(taken, filled);
          filled += taken.length;
          rest = rest.subarray(taken.length);
        }
        if ((await sha256(chunk)) !== record.sha256[index]) throw damaged(name);
        await use(chunk, offset);
        offset += chunk.length;
        if (offset === record.size && (rest.length || !(await reader.read()).done)) {
          throw new ShaderloomError("bundle", `'${name}' is longer than ${record.size} bytes`);
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  /** Return the bytes of a file. @param {string} name @throws {ShaderloomError} as `stream` does */
  async read(name) {
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
