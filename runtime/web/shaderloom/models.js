// Further models of a bundle: loaded where a page asks for one.

/** @import { BundleFiles } from "./files.js" */
/** @import { ReadManifest } from "./manifest.js" */

import { readManifest } from "./checking.js";
import { ShaderloomError } from "./errors.js";

/** Return the manifest of a further model of a bundle, whose files must be the bundle's. @param {BundleFiles} bundle
 *  @param {string} model @returns {Promise<ReadManifest>} @throws {ShaderloomError} "bundle" */
export async function fetchModel(bundle, model) {
  const file = `models/${model}.json`;
  const content = await bundle.read(file);
  const read = await readManifest(content, file);
  const listed = bundle.manifest.files;
  for (const [name, record] of Object.entries(read.manifest.files)) {
    if (!Object.hasOwn(listed, name) || JSON.stringify([record.size, record.sha256])
      !== JSON.stringify([listed[name].size, listed[name].sha256])) {
      throw new ShaderloomError("bundle", `'${file}' lists '${name}' otherwise than 'manifest.json'`);
    }
  }
  return { ...read, content };
}
