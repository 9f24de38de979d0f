/** @import { Kernel } from "../shaderloom.js" */
/** @import { BundleFiles } from "./files.js" */
/** @import { DeviceGuard } from "./guard.js" */

import { messageOf, ShaderloomError } from "./errors.js";
import { requireBounded } from "./expansion.js";

/** @typedef {{ pipeline: GPUComputePipeline, layout: GPUBindGroupLayout, kernel: Kernel }} CompiledKernel */

/** @type {Record<string, GPUBufferBindingLayout>} */
const BINDING_TYPES = {
  read: { type: "read-only-storage" }, read_write: { type: "storage" }, uniform: { type: "uniform" },
  iteration: { type: "uniform", hasDynamicOffset: true },
};

/** Compile kernels, each once; plans share them. */
export class Pipelines {
  #files;
  #guard;
  /** @type {Map<string, Promise<CompiledKernel>>} */
  #compiled = new Map();
  /** @type {Map<string, GPUBindGroupLayout>} */
  #layouts = new Map();

  /** @param {BundleFiles} files @param {DeviceGuard} guard */
  constructor(files, guard) {
    this.#files = files;
    this.#guard = guard;
  }

  /** Return the compiled kernel. @param {Kernel} kernel @throws {ShaderloomError} "device" if the device refuses it */
  get(kernel) {
    let compiled = this.#compiled.get(kernel.key);
    if (!compiled) {
      compiled = this.#compile(kernel);
      this.#compiled.set(kernel.key, compiled);
    }
    return compiled;
  }

  /** Return the WGSL of a kernel as it is compiled. @param {Kernel} kernel */
  async shader(kernel) {
    this.#guard.check();
    const text = await this.#files.text(`shaders/${kernel.key}.wgsl`);
    return kernel.features?.includes("subgroups") ? `enable subgroups;\n${text}` : text;
  }

  /** @param {Kernel} kernel @returns {Promise<CompiledKernel>} */
  async #compile(kernel) {
    const code = await this.shader(kernel);
    const { device } = this.#guard;
    const label = kernel.key.slice(0, 12);
    requireBounded(code, `kernel ${label}`);
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code, label });
    const refused = device.popErrorScope();
    const layout = this.#layout(kernel.bindings.map((binding) => binding.access));
    try {
      const pipeline = await device.createComputePipelineAsync({
        label,
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: "main" },
      });
      return { pipeline, layout, kernel };
    } catch (error) {
      this.#guard.check();
      const { messages } = await module.getCompilationInfo();
      const first = messages.find((message) => message.type === "error");
      const reason = first ? `line ${first.lineNum}: ${first.message}` : messageOf(error);
      const name = `kernel ${label} (${kernel.template ?? "?"})`;
      throw new ShaderloomError("device", `${name} was refused: ${reason}`, { cause: error });
    } finally {
      await refused.catch(() => {});
    }
  }

  /** Return the layout for a list of accesses. Not "auto": that drops bindings which a shader leaves unused.
   *  @param {string[]} accesses */
  #layout(accesses) {
    const key = accesses.join();
    let layout = this.#layouts.get(key);
    if (!layout) {
      const entries = accesses.map((access, binding) => {
        return { binding, visibility: GPUShaderStage.COMPUTE, buffer: BINDING_TYPES[access] };
      });
      layout = this.#guard.device.createBindGroupLayout({ entries });
      this.#layouts.set(key, layout);
    }
    return layout;
  }
}
