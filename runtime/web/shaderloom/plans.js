/** @import { Kernel, Plan } from "../shaderloom.js" */
/** @import { Attachment } from "./attachment.js" */
/** @import { Source } from "./outputs.js" */
/** @import { CompiledKernel } from "./pipelines.js" */

import { readPlan } from "./checking.js";
import { outputSources } from "./outputs.js";
import { SCHEMA } from "./schema.js";
import { totalBytes } from "./weights.js";

/** The keys of a plan for GPUs, and of the one for adapters that compute on the CPU.
 *  @typedef {{ key: string, software?: string }} PlanKeys */

/** A plan, compiled kernels by key, its own among them, and the sources of its outputs by name.
 *  @typedef {{ plan: Plan, kernels: Map<string, CompiledKernel>, sources: Map<string, Source> }} LoadedPlan */

/** Kernels that are fetched and compiled at once: enough for the cores, and what a cancelled load leaves to the browser. */
const AT_ONCE = 16;

/** Fetch, check and compile plans, each once. */
export class Plans {
  #on;
  /** By the key of the plan for GPUs. @type {Map<string, Promise<LoadedPlan>>} */
  #loaded = new Map();

  /** @param {Attachment} on */
  constructor(on) {
    this.#on = on;
  }

  /** Return a plan of the manifest. @param {PlanKeys} record @returns {Promise<LoadedPlan>}
   *  @throws {ShaderloomError} "bundle", "device" */
  get(record) {
    const loaded = this.#loaded.get(record.key);
    return loaded ?? this.load([record]).then(([plan]) => plan);
  }

  /** Return plans of the manifest; kernels of those that are not there yet are compiled together.
   *  @param {PlanKeys[]} records @returns {Promise<LoadedPlan[]>} @throws {ShaderloomError} "bundle", "device" */
  load(records) {
    const missing = new Map(records.filter(({ key }) => !this.#loaded.has(key)).map((record) => [record.key, record]));
    const together = this.#load([...missing.values()]);
    for (const [position, key] of [...missing.keys()].entries()) {
      const loaded = together.then((plans) => plans[position]);
      loaded.catch(() => this.#loaded.delete(key)); // a failed fetch may be tried again
      this.#loaded.set(key, loaded);
    }
    return together.then(() => Promise.all(records.map((record) => this.get(record))));
  }

  clear() {
    this.#loaded.clear();
  }

  /** @param {PlanKeys[]} records @returns {Promise<LoadedPlan[]>} */
  async #load(records) {
    const fetched = Promise.all(records.map((record) => this.#fetch(record)));
    this.#on.buffers.ready ??= fetched;
    const plans = await fetched;
    const kernels = new Map(plans.flatMap((plan) => plan.kernels.map((kernel) => [kernel.key, kernel])));
    const compiled = await this.#compile([...kernels.values()]);
    return plans.map((plan) => ({ plan, kernels: compiled, sources: outputSources(plan) }));
  }

  /** Return the compiled kernels by key. @param {Kernel[]} kernels @returns {Promise<Map<string, CompiledKernel>>} */
  async #compile(kernels) {
    const queue = [...kernels];
    /** @type {Set<Kernel>} */
    const awaited = new Set();
    /** @type {Map<string, CompiledKernel>} */
    const compiled = new Map();
    const report = () => {
      const [oldest] = awaited;
      const awaits = oldest ? `kernel ${oldest.key.slice(0, 12)} (${oldest.template})` : "";
      this.#on.onProgress({ what: "pipelines", done: compiled.size, total: kernels.length, awaits });
    };
    const work = async () => {
      for (let kernel = queue.shift(); kernel; kernel = queue.shift()) {
        awaited.add(kernel);
        compiled.set(kernel.key, await this.#on.pipelines.get(kernel));
        awaited.delete(kernel);
        report();
      }
    };
    const workers = Array.from({ length: AT_ONCE }, work);
    if (kernels.length) report();
    try {
      await Promise.all(workers);
    } finally {
      queue.length = 0; // after a failure no further kernel is begun
    }
    return compiled;
  }

  /** @param {PlanKeys} record @returns {Promise<Plan>} */
  async #fetch({ key: own, software }) {
    const { files, buffers } = this.#on;
    const key = (this.#on.software && software) || own;
    const file = `plan-${key}.json`;
    const plan = await readPlan(file, await files.read(file, SCHEMA.bytes.plan), key, files);
    buffers.requireRoom(plan, totalBytes(files.manifest));
    return plan;
  }
}
