/** @import * as api from "../shaderloom.js" */

/**
 * Report what a caller, a bundle or a device did wrong; any other error is a fault of this package.
 *
 * @implements {api.ShaderloomError}
 */
export class ShaderloomError extends Error {
  /** @param {api.ErrorKind} kind @param {string} message @param {ErrorOptions} [options] */
  constructor(kind, message, options) {
    super(message, options);
    this.name = "ShaderloomError";
    this.kind = kind;
  }
}

/** @param {unknown} holds @param {string} message @returns {asserts holds} @throws {ShaderloomError} "input" */
export function requireInput(holds, message) {
  if (!holds) throw new ShaderloomError("input", message);
}

/** Return the message of whatever was thrown. @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));
