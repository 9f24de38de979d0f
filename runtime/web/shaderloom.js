/**
 * Runs Shaderloom's shader bundles in a page: WebGPU and nothing else.
 *
 *     import { load } from "./shaderloom.js";
 *     const session = await load("squeezenet.shaderbundle/");
 *     const { output } = await session.run({ input: new Float32Array(3 * 224 * 224) });
 *     console.log(output.dims, output.data);
 *
 * docs/guide/bundles.md specifies the format, docs/guide/web.md shows the use, shaderloom.d.ts has the types.
 */

export { ShaderloomError } from "./shaderloom/errors.js";
export { load } from "./shaderloom/session.js";
export { evaluate } from "./shaderloom/tensors.js";
