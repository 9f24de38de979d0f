/** @import { Plan, PlanRecord, Progress } from "../shaderloom.js" */
/** @import { BundleFiles } from "./files.js" */
/** @import { CompiledKernel, Pipelines } from "./pipelines.js" */
/** @import { Signature } from "./signature.js" */

import { ShaderloomError } from "./errors.js";
import { nameSet } from "./signature.js";

/** A plan and its compiled kernels by key.
 *  @typedef {{ plan: Plan, kernels: Map<string, CompiledKernel> }} LoadedPlan */

/** Fetch, check and compile plans, each once. */
export class Plans {
  #files;
  #pipelines;
  #signature;
  #software;
  #onProgress;
  /** @type {Map<number, Promise<LoadedPlan>>} */
  #loaded = new Map();

  /**
   * @param {BundleFiles} files @param {Pipelines} pipelines @param {Signature} signature
   * @param {boolean} software whether to take kernels for adapters that compute on the CPU
   * @param {(progress: Progress) => void} onProgress
   */
  constructor(files, pipelines, signature, software, onProgress) {
    this.#files = files;
    this.#pipelines = pipelines;
    this.#signature = signature;
    this.#software = software;
    this.#onProgress = onProgress;
  }

  /** Return the plan of an index in the manifest. @param {number} index @throws {ShaderloomError} "bundle", "device" */
  get(index) {
    let loaded = this.#loaded.get(index);
    if (!loaded) {
      loaded = this.#load(this.#files.manifest.plans[index]);
      loaded.catch(() => this.#loaded.delete(index)); // a failed fetch may be tried again
      this.#loaded.set(index, loaded);
    }
    return loaded;
  }

  clear() {
    this.#loaded.clear();
  }

  /** @param {PlanRecord} record @returns {Promise<LoadedPlan>} */
  async #load(record) {
    const plan = await this.#fetch(record);
    let done = 0;
    const total = plan.kernels.length;
    this.#onProgress({ stage: "pipelines", done, total });
    const kernels = await Promise.all(plan.kernels.map(async (kernel) => {
      const compiled = await this.#pipelines.get(kernel);
      this.#onProgress({ stage: "pipelines", done: ++done, total });
      return /** @type {const} */ ([kernel.key, compiled]);
    }));
    return { plan, kernels: new Map(kernels) };
  }

  /** @param {PlanRecord} record @returns {Promise<Plan>} */
  async #fetch({ key: own, shapes, software }) {
    const key = (this.#software && software) || own;
    const file = `plan-${key}.json`;
    /** @type {Plan} */
    const plan = JSON.parse(await this.#files.text(file));
    if (plan.key !== key || nameSet(plan.inputs.map((port) => port.name)) !== nameSet(Object.keys(shapes))) {
      throw new ShaderloomError("bundle", `'${file}' is not the plan that the manifest means`);
    }
    for (const { kind } of plan.steps) {
      if (kind !== "device") {
        throw new ShaderloomError("bundle", `'${file}' has a step of kind '${kind}', which this runner does not know`);
      }
    }
    for (const { name, low, high, step } of plan.symbols) {
      const range = this.#signature.ranges[name];
      if (range?.low !== low || range.high !== high || range.step !== step) {
        throw new ShaderloomError("bundle", `'${file}' has another range of '${name}' than the manifest`);
      }
    }
    return plan;
  }
}
