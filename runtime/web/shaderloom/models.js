// Further models of a bundle: loaded where a page asks for one.

/** @import { BundleFiles } from "./files.js" */
/** @import { ReadManifest } from "./manifest.js" */

import { readManifest } from "./checking.js";
import { sortedEntries } from "./manifest_relations.js";
import { SCHEMA } from "./schema.js";
import { Refusal } from "./structure.js";

/** Return the manifest of a further model of a bundle, whose files must be the bundle's. @param {BundleFiles} bundle
 *  @param {string} model @returns {Promise<ReadManifest>} @throws {ShaderloomError} "bundle" */
export async function fetchModel(bundle, model) {
  const file = `models/${model}.json`;
  const content = await bundle.read(file, SCHEMA.bytes.manifest);
  return { ...await readManifest(content, file, (manifest) => checkFurther(manifest, bundle.manifest)), content };
}

/** Check that a manifest's files are the bundle's own. @param {any} manifest @param {any} own @throws {Refusal} */
export function checkFurther(manifest, own) {
  for (const [name, { size, sha256 }] of sortedEntries(manifest.files)) {
    const listed = Object.hasOwn(own.files, name) && own.files[name];
    if (listed?.size !== size || listed.sha256.join() !== sha256.join()) {
      throw new Refusal("further file", "is listed otherwise in 'manifest.json'", ["files", name]);
    }
  }
}
