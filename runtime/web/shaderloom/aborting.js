import { ensure } from "./errors.js";

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
    signal.addEventListener("abort", abort, { once: true });
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
