// Words of a bundle's tokenizer and chat template, made in a worker: a regular expression or a loop of these files that
// never ends is ended with it.

/** Seconds that one text may take. */
const SECONDS = 20;

/** Return what `loadGenerator` makes words with. @param {import("@shaderloom/runtime/generate").WordAssets} assets */
export async function makeWords(assets) {
  let worker = new Asked(assets);
  const ask = async (what, ...values) => {
    if (worker.isEnded) worker = new Asked(assets);
    await worker.opened;
    return worker.ask(what, ...values);
  };
  await worker.opened;
  return {
    encode: (text, isSpecial) => ask("encode", text, isSpecial),
    decode: async (ids) => String(await ask("decode", ids)),
    format: async (messages) => String(await ask("format", messages)),
    dispose: () => worker.end("the words were disposed of"),
  };
}

/** A worker with what it was asked and has not answered. */
class Asked {
  #worker = new Worker(new URL("./words_worker.js", import.meta.url), { type: "module" });
  #waiting = new Map();
  #number = 0;
  isEnded = false;

  constructor(assets) {
    this.#worker.onmessage = ({ data: { number, value, reason } }) => {
      const { resolve, reject, timer } = this.#waiting.get(number);
      clearTimeout(timer);
      this.#waiting.delete(number);
      if (reason === undefined) resolve(value);
      else reject(new Error(reason));
    };
    this.#worker.onerror = ({ message }) => this.end(message || "the worker does not start");
    this.opened = this.ask("open", assets);
  }

  ask(what, ...values) {
    return new Promise((resolve, reject) => {
      const number = this.#number++;
      const timer = setTimeout(() => this.end(`the bundle's words took more than ${SECONDS} s`), SECONDS * 1000);
      this.#waiting.set(number, { resolve, reject, timer });
      this.#worker.postMessage({ number, what, values });
    });
  }

  end(reason) {
    this.isEnded = true;
    this.#worker.terminate();
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(new Error(reason));
    }
    this.#waiting.clear();
  }
}
