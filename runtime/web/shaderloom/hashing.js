// Digests of what is too large for a page's own thread, where browsers compute them at once: loaded where there is some.

/** Milliseconds after which a worker that has nothing to do ends. */
const IDLE_MS = 1000;

/** @type {Worker | undefined} */
let worker;
let [waiting, isBroken] = [0, false];
/** @type {ReturnType<typeof setTimeout> | undefined} */
let idle;

/** Return the SHA-256 digest of bytes by a worker, or undefined where none runs: in pages without its file, and by policies
 *  that forbid it. @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<ArrayBuffer | undefined>} */
export async function digestElsewhere(bytes) {
  clearTimeout(idle);
  waiting++;
  const digest = isBroken ? undefined : await ask(bytes);
  waiting--;
  isBroken ||= !digest;
  if (!waiting) idle = setTimeout(end, isBroken ? 0 : IDLE_MS);
  return digest;
}

/** @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<ArrayBuffer | undefined>} */
function ask(bytes) {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => resolve(data);
    try {
      worker ??= new Worker(new URL("./hashing_worker.js", import.meta.url), { type: "module" });
      worker.addEventListener("error", () => resolve(undefined), { once: true });
      worker.postMessage(bytes, [port2]);
    } catch {
      resolve(undefined);
    }
  });
}

function end() {
  worker?.terminate();
  worker = undefined;
}
