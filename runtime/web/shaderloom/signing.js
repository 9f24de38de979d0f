// Signatures of bundles: loaded where a page names a key.

import { ensure, messageOf, ShaderloomError } from "./errors.js";

/** Check that `signature`, the content of manifest.signature, is that of `digest`, the content of manifest.sha256.
 *  @param {Uint8Array<ArrayBuffer>} signature @param {Uint8Array<ArrayBuffer>} digest @param {string} pem the public key
 *  @throws {ShaderloomError} "input" for what is no key, "device" where Ed25519 is missing, "bundle" for what is not signed
 *    with its other half */
export async function requireSignature(signature, digest, pem) {
  const key = await publicKey(pem);
  const [, digits = ""] = /^([0-9a-f]{128})\n$/.exec(new TextDecoder().decode(signature)) ?? [];
  const bytes = Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
  const message = new Uint8Array([...new TextEncoder().encode("shaderloom bundle\n"), ...digest]);
  const isSigned = await crypto.subtle.verify("Ed25519", key, bytes, message);
  ensure("bundle", isSigned, "'manifest.signature' is no signature of this bundle by the key");
}

/** Return the key of a PEM text. @param {string} pem */
async function publicKey(pem) {
  const [, text] = String(pem).match(/^\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*$/) ?? [];
  try {
    if (text === undefined) throw new TypeError("it is no PEM text");
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return await crypto.subtle.importKey("spki", bytes, "Ed25519", false, ["verify"]);
  } catch (error) {
    const isMissing = error instanceof DOMException && error.name === "NotSupportedError";
    const reason = isMissing ? "this browser has no Ed25519" : `verifyKey is no public Ed25519 key: ${messageOf(error)}`;
    throw new ShaderloomError(isMissing ? "device" : "input", reason, { cause: error });
  }
}
