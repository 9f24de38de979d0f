/** @import { Manifest } from "../shaderloom.js" */
/** @import { Source } from "./sources.js" */

import { checkManifest } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { damaged, readAtMost, sha256 } from "./sources.js";
import { readJson, Refusal } from "./structure.js";

/**
 * Return the manifest of a bundle, once its hash and its fields are right.
 *
 * @param {Source} source @param {AbortSignal} [signal] @param {string} [verifyKey] the key that the bundle is signed for
 * @returns {Promise<{ manifest: Manifest, programs?: typeof import("./programs.js") }>} with what runs its programs
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
  const manifest = checked("manifest.json", () => readJson(content, "manifest"));
  const programs = manifest.programs?.length ? await import("./programs.js") : undefined;
  checked("manifest.json", () => checkManifest(manifest, programs));
  return { manifest, programs };
}

/** Return what `read` returns; a refusal is the error of the file. @template T @param {string} file
 *  @param {() => T} read @throws {ShaderloomError} "bundle" */
export function checked(file, read) {
  try {
    return read();
  } catch (error) {
    throw error instanceof Refusal ? error.of(file) : error;
  }
}
