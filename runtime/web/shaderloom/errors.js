// What ends work before its time: errors, and signals that abort it.

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

/**
 * Return what `promise` resolves to, or reject with the signal's reason as soon as it is aborted, or "input" for no signal.
 *
 * @template T
 * @param {Promise<T>} promise @param {AbortSignal | undefined} signal @returns {Promise<T>}
 */
export function abortable(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    promise.then(resolve, reject).finally(() => signal.removeEventListener?.("abort", abort));
    ensure("input", signal.throwIfAborted, "signal is no AbortSignal");
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
  });
}

/** Return a promise, and the function that resolves it.
 *  @returns {[promise: Promise<void>, resolve: (value?: unknown) => void]} */
export function deferred() {
  /** @type {(value?: any) => void} */
  let resolve = () => {};
  const promise = new Promise((settle) => {
    resolve = settle;
  });
  return [/** @type {Promise<void>} */ (promise), resolve];
}
