// Further models of a bundle: loaded where a page asks for one.

/** @import { BundleFiles, ReadManifest } from "./files.js" */

import { readManifest } from "./checking.js";
import { SCHEMA } from "./schema.js";
import { isSame } from "./shape_relations.js";
import { each, own, rule } from "./structure.js";

/** Return the manifest of a further model of a bundle, whose files must be the bundle's. @param {BundleFiles} bundle
 *  @param {string} model @returns {Promise<ReadManifest>} @throws {ShaderloomError} "bundle" */
export async function fetchModel(bundle, model) {
  const file = `models/${model}.json`;
  const content = await bundle.read(file, SCHEMA.bytes.manifest);
  return { ...await readManifest(content, file, (manifest) => checkFurther(manifest, bundle.manifest)), content };
}

/** Check that a manifest's files are the bundle's own. @param {any} manifest @param {any} bundle its manifest
 *  @throws {import("./structure.js").Refusal} */
export function checkFurther(manifest, bundle) {
  each(manifest, "files", ({ size, sha256 }, name) => {
    const listed = own(bundle.files, name);
    const isSameFile = listed?.size === size && isSame(listed.sha256, sha256);
    rule("further file", isSameFile, "is listed otherwise in 'manifest.json'");
  });
}
