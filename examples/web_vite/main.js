// Runs the bundle in public/model.shaderbundle with its sample.

import { load, ShaderloomError } from "@shaderloom/runtime";

const button = /** @type {HTMLButtonElement} */ (document.querySelector("#run"));
const log = /** @type {HTMLElement} */ (document.querySelector("#log"));

/** @param {unknown} error */
const show = (error) => {
  log.textContent = error instanceof ShaderloomError ? `${error.kind}: ${error.message}` : String(error);
};

try {
  const session = await load(`${import.meta.env.BASE_URL}model.shaderbundle/`, {
    onProgress: ({ what, done, total }) => { log.textContent = `${what}: ${done} of ${total}`; },
  });
  const { inputs } = await session.sample();
  log.textContent = "ready";
  button.disabled = false;
  button.onclick = async () => {
    try {
      const start = performance.now();
      const outputs = await session.run(inputs);
      const lines = Object.entries(outputs).map(([name, { dtype, dims }]) => `${name}: ${dtype} ${dims.join("x")}`);
      log.textContent = [...lines, `${(performance.now() - start).toFixed(1)} ms`].join("\n");
    } catch (error) {
      show(error);
    }
  };
} catch (error) {
  show(error);
}
