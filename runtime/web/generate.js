/**
 * Generates text with bundles of `shaderloom compile FOLDER -o chat.shaderbundle --generate`.
 *
 *     import { loadGenerator } from "./generate.js";
 *     const generator = await loadGenerator("chat.shaderbundle/", { words });
 *     for await (const piece of generator.generate([{ role: "user", content: "Hello!" }])) show(piece);
 *
 * docs/guide/generation.md shows the use, generate.d.ts has the types.
 */

export { loadGenerator } from "./shaderloom/generator.js";
