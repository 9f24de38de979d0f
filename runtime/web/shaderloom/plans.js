/** @import { Plan, PlanRecord, Progress } from "../shaderloom.js" */
/** @import { BundleFiles } from "./files.js" */
/** @import { CompiledKernel, Pipelines } from "./pipelines.js" */

import { ShaderloomError } from "./errors.js";
import { checked } from "./manifest.js";
import { checkPlan } from "./relations.js";
import { SCHEMA } from "./schema.js";
import { readJson } from "./structure.js";

/** A plan and its compiled kernels by key.
 *  @typedef {{ plan: Plan, kernels: Map<string, CompiledKernel> }} LoadedPlan */

/** Fetch, check and compile plans, each once. */
export class Plans {
  #files;
  #pipelines;
  #software;
  #onProgress;
  /** @type {Map<number, Promise<LoadedPlan>>} */
  #loaded = new Map();

  /**
   * @param {BundleFiles} files @param {Pipelines} pipelines
   * @param {boolean} software whether to take kernels for adapters that compute on the CPU
   * @param {(progress: Progress) => void} onProgress
   */
  constructor(files, pipelines, software, onProgress) {
    this.#files = files;
    this.#pipelines = pipelines;
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
  async #fetch({ key: own, software }) {
    const key = (this.#software && software) || own;
    const file = `plan-${key}.json`;
    const { manifest } = this.#files;
    if (manifest.files[file].size > SCHEMA.bytes.plan) throw new ShaderloomError("bundle", `'${file}' is too large`);
    const content = await this.#files.read(file);
    return checked(file, () => {
      const plan = readJson(content, "plan");
      checkPlan(plan, manifest, key);
      return plan;
    });
  }
}
