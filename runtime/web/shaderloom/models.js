// Further models of a bundle: loaded where a page asks for one.

/** @import { BundleFiles } from "./files.js" */
/** @import { ReadManifest } from "./manifest.js" */

import { readManifest } from "./checking.js";
import { SCHEMA } from "./schema.js";

/** Return the manifest of a further model of a bundle, whose files must be the bundle's. @param {BundleFiles} bundle
 *  @param {string} model @returns {Promise<ReadManifest>} @throws {ShaderloomError} "bundle" */
export async function fetchModel(bundle, model) {
  const file = `models/${model}.json`;
  const content = await bundle.read(file, SCHEMA.bytes.manifest);
  return { ...await readManifest(content, file, bundle.manifest), content };
}
