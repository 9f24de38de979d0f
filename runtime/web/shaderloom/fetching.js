// Requests for the files of a bundle, and hashes of what arrived.

import { messageOf, ShaderloomError } from "./errors.js";

/** Return the response for a file of the bundle at `base`.
 *  @param {URL} base @param {string} name @param {AbortSignal} [signal]
 *  @throws {ShaderloomError} "bundle" where it cannot be fetched, and the signal's reason once it is aborted */
export async function fetchFile(base, name, signal) {
  let response;
  try {
    response = await fetch(new URL(name, base), { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw new ShaderloomError("bundle", `'${name}' cannot be fetched: ${messageOf(error)}`, { cause: error });
  }
  if (!response.ok) {
    const hint = name === "manifest.json" ? `; ${base} must be the folder of a bundle (a zip has to be unpacked)` : "";
    throw new ShaderloomError("bundle", `'${name}' cannot be fetched: status ${response.status}${hint}`);
  }
  return response;
}

/** Return the bytes of a response. @param {Response} response @param {string} name @param {number} most
 *  @throws {ShaderloomError} "bundle" for more than `most` bytes */
export async function readAtMost(response, name, most) {
  const body = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body);
  const reader = body.getReader();
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const pieces = [];
  let length = 0;
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    length += piece.value.length;
    if (length > most) {
      reader.cancel().catch(() => {});
      throw new ShaderloomError("bundle", `'${name}' has more than ${most} bytes`);
    }
    pieces.push(piece.value);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

/** Return the SHA-256 digest of bytes in lower-case hex. @param {Uint8Array<ArrayBuffer>} bytes */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the error for a file that has another hash than the bundle says. @param {string} name */
export function damaged(name) {
  return new ShaderloomError("bundle", `'${name}' is damaged: its hash differs from the bundle's`);
}
