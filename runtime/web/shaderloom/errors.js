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

/** Throw an error where something does not hold. @param {api.ErrorKind} kind @param {unknown} holds
 *  @param {string} message @returns {asserts holds} @throws {ShaderloomError} */
export function ensure(kind, holds, message) {
  if (!holds) throw new ShaderloomError(kind, message);
}

/** Return what `catch` is given to say what failed. @param {api.ErrorKind} kind @param {string} what
 *  @returns {(error: unknown) => never} @throws {ShaderloomError} */
export const failing = (kind, what) => (error) => {
  throw new ShaderloomError(kind, `${what}: ${messageOf(error)}`, { cause: error });
};

/** Return the message of whatever was thrown. @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));
