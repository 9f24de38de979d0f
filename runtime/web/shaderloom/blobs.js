// Bundles that a page has already: a zip, or a list of files or responses. Loaded where they are asked for.

/** @import { Manifest } from "../shaderloom.js" */
/** @import { Source } from "./files.js" */

import { ensure, failing } from "./errors.js";

/** Bytes of the records of a zip without their names, as docs/guide/bundles.md prescribes them. */
const LOCAL = 30, CENTRAL = 46, END = 22;
/** The start of each record of a directory behind its signature: versions 20, flags, method, time, and the date. */
const CANONICAL = [20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];

/**
 * Return the files of a zip, or of a list: the folder of a bundle is where its manifest.json is.
 *
 * @param {Blob | readonly (Response | File)[]} source @returns {Promise<Source>}
 * @throws {ShaderloomError} "input" for anything else, "bundle" for what has no manifest.json, or is no zip of stored,
 *   canonical entries
 */
export async function filesOf(source) {
  const isZip = source instanceof Blob;
  const files = isZip ? await entriesOf(source) : listed(source);
  return {
    check: isZip ? (manifest) => checkOrder([...files.keys()], manifest) : undefined,
    async open(name, begin, signal) {
      const blob = await files.get(name);
      signal?.throwIfAborted();
      ensure("bundle", blob, `'${name}' is not among the files of the bundle`);
      return { body: blob.slice(begin).stream(), begin };
    },
  };
}

/** Check that a zip has the files of a manifest, in their order. @param {string[]} names @param {Manifest} manifest
 *  @throws {ShaderloomError} "bundle" */
function checkOrder(names, { files }) {
  const signature = names.filter((name) => name === "manifest.signature");
  const wanted = ["manifest.json", "manifest.sha256", ...[...Object.keys(files), ...signature].sort()];
  for (const [at, name] of names.entries()) {
    ensure("bundle", name === wanted[at], `the zip has '${name}' in place of ${wanted[at] ?? "its end"}`);
  }
}

/** @param {readonly (Response | File)[]} items @returns {Map<string, Blob | Promise<Blob>>} */
function listed(items) {
  ensure("input", Array.isArray(items), "a bundle is an address, a Blob, or a list of files or responses");
  const paths = items.map((item) => item instanceof Response
    ? new URL(item.url || "manifest", "file:///").pathname
    : item.webkitRelativePath || item.name);
  const [manifest] = paths.filter((path) => /(^|\/)manifest\.json$/.test(path)).sort((one, two) => one.length - two.length);
  ensure("bundle", manifest, "none of the files is 'manifest.json'");
  const folder = manifest.slice(0, -"manifest.json".length);
  return new Map(items.flatMap((item, at) => {
    if (!paths[at].startsWith(folder)) return [];
    return [[paths[at].slice(folder.length), item instanceof Response ? contentOf(item) : item]];
  }));
}

/** Return the content of a response, which can be read once. @param {Response} response */
function contentOf(response) {
  const { ok, status, url } = response;
  const content = (ok ? response.blob() : Promise.reject(`status ${status}`)).catch(failing("bundle", `'${url}' was not fetched`));
  content.catch(() => {}); // whoever opens the file is told
  return content;
}

/** Return the entries of a zip. @param {Blob} zip @returns {Promise<Map<string, Blob>>} */
async function entriesOf(zip) {
  /** @param {number} begin @param {number} end */
  const bytes = async (begin, end) =>
    new Uint8Array(await zip.slice(begin, end).arrayBuffer().catch(failing("bundle", "the file cannot be read")));
  /** @param {boolean} condition @param {string} what */
  const require = (condition, what) =>
    ensure("bundle", condition, `the file is no zip of stored, canonical entries: ${what}`);
  const end = zip.size - END;
  require(end >= 0, "it is too short");
  const tail = await bytes(end, zip.size);
  const [count, length, start] = [uint16(tail, 10), uint32(tail, 12), uint32(tail, 16)];
  require(hasBytes(tail, 0, [80, 75, 5, 6, 0, 0, 0, 0]) && uint16(tail, 8) === count && !uint16(tail, 20), "it has another end");
  require(start + length === end, "the size of its directory is wrong");
  const directory = await bytes(start, end);
  /** @type {Map<string, Blob>} */
  const entries = new Map();
  let [at, expected] = [0, 0];
  while (entries.size < count) {
    const [crc, size, behind] = [at + 16, uint32(directory, at + 24), at + CENTRAL + uint16(directory, at + 28)];
    const name = new TextDecoder("ascii").decode(directory.subarray(at + CENTRAL, behind));
    const isCanonical = hasBytes(directory, at, [80, 75, 1, 2, ...CANONICAL]) && uint32(directory, at + 20) === size
      && directory.subarray(at + 30, at + 42).every((byte) => byte === 0);
    require(behind <= directory.length && isCanonical, "its directory is damaged, or an entry compressed");
    require(uint32(directory, at + 42) === expected && !entries.has(name), `'${name}' is there twice, or leaves a gap`);
    const begin = expected + LOCAL + name.length;
    const local = await bytes(expected, begin);
    const header = [80, 75, 3, 4, ...directory.subarray(at + 6, crc + 16), ...directory.subarray(at + CENTRAL, behind)];
    require(local.length === header.length && hasBytes(local, 0, header), `the header of '${name}' is not canonical`);
    expected = begin + size;
    require(expected <= start, `'${name}' does not end before the directory`);
    entries.set(name, zip.slice(begin, expected));
    at = behind;
  }
  require(at === length && expected === start, "it has a gap");
  return entries;
}

/** Return a number of little-endian bytes; NaN beyond the end. @param {Uint8Array} bytes @param {number} at */
const uint16 = (bytes, at) => bytes[at] + 256 * bytes[at + 1];

/** @param {Uint8Array} bytes @param {number} at */
const uint32 = (bytes, at) => uint16(bytes, at) + 65536 * uint16(bytes, at + 2);

/** @param {Uint8Array} bytes @param {number} at @param {number[]} wanted */
const hasBytes = (bytes, at, wanted) => wanted.every((byte, index) => bytes[at + index] === byte);
