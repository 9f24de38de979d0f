/** @import { Source } from "./sources.js" */

import { readManifest } from "./checking.js";
import { SCHEMA } from "./schema.js";
import { damaged, readAtMost, sha256 } from "./sources.js";

/** A manifest with its bytes, and what runs its programs.
 *  @typedef {Awaited<ReturnType<typeof readManifest>> & { content: Uint8Array<ArrayBuffer> }} ReadManifest */

/**
 * Return the manifest of a bundle, once its hash and its fields are right.
 *
 * @param {Source} source @param {AbortSignal} [signal] @param {string} [verifyKey] the key that the bundle is signed for
 * @returns {Promise<ReadManifest>}
 * @throws {ShaderloomError} "bundle"
 */
export async function fetchManifest(source, signal, verifyKey) {
  /** @param {string} name @param {number} most */
  const read = (name, most) => readAtMost(source, name, most, signal);
  const content = await read("manifest.json", SCHEMA.bytes.manifest);
  const digest = await read("manifest.sha256", 65);
  if (new TextDecoder().decode(digest) !== `${await sha256(content)}\n`) throw damaged("manifest.json");
  if (verifyKey !== undefined) {
    const { requireSignature } = await import("./signing.js");
    await requireSignature(await read("manifest.signature", 129), digest, verifyKey);
  }
  return { ...await readManifest(content), content };
}
