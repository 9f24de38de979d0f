/** @import { Manifest } from "../shaderloom.js" */

import { ShaderloomError } from "./errors.js";
import { damaged, decodeUtf8, fetchFile, sha256 } from "./fetching.js";

/** The major version of the format that this package reads. */
const MAJOR = 2;

/**
 * Return the manifest of the bundle at `base`, once its hash and the version of its format are right.
 *
 * @param {URL} base @returns {Promise<Manifest>}
 * @throws {ShaderloomError} "bundle"
 */
export async function fetchManifest(base) {
  const content = new Uint8Array(await (await fetchFile(base, "manifest.json")).arrayBuffer());
  const digest = await (await fetchFile(base, "manifest.sha256")).text();
  if (digest !== `${await sha256(content)}\n`) throw damaged("manifest.json");
  /** @type {Manifest} */
  let manifest;
  try {
    manifest = JSON.parse(decodeUtf8(content));
  } catch (error) {
    throw new ShaderloomError("bundle", "'manifest.json' is not JSON", { cause: error });
  }
  const major = /^(\d+)\.\d+$/.exec(manifest.format)?.[1];
  if (Number(major) !== MAJOR) {
    throw new ShaderloomError("bundle", `the bundle has format ${manifest.format}; this runner reads ${MAJOR}.x`);
  }
  return manifest;
}
