/** @import { Kernel } from "../shaderloom.js" */
/** @import { BundleFiles } from "./files.js" */
/** @import { DeviceGuard } from "./guard.js" */
/** @import { SharedDevice } from "./sharing.js" */

import { messageOf, ShaderloomError } from "./errors.js";
import { requireBounded } from "./expansion.js";

/** @typedef {{ pipeline: GPUComputePipeline, layout: GPUBindGroupLayout }} PipelineAndLayout
 *  @typedef {PipelineAndLayout & { kernel: Kernel }} CompiledKernel */

/** @type {Record<string, GPUBufferBindingLayout>} */
const BINDING_TYPES = {
  read: { type: "read-only-storage" }, read_write: { type: "storage" }, uniform: { type: "uniform" },
  iteration: { type: "uniform", hasDynamicOffset: true },
};

/** Compile kernels, each once; plans, and the sessions of a device, share them. */
export class Pipelines {
  #files;
  #guard;
  #shared;
  /** @type {Map<string, Promise<CompiledKernel>>} */
  #compiled = new Map();

  /** @param {BundleFiles} files @param {DeviceGuard} guard @param {SharedDevice} shared */
  constructor(files, guard, shared) {
    this.#files = files;
    this.#guard = guard;
    this.#shared = shared;
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
    const { sha256 } = this.#files.manifest.files[`shaders/${kernel.key}.wgsl`];
    const accesses = kernel.bindings.map((binding) => binding.access);
    const content = [...sha256, kernel.features?.includes("subgroups"), ...accesses].join();
    const { pipelines } = this.#shared;
    let created = pipelines.get(content);
    if (!created) {
      created = createPipeline(this.#guard.device, this.#layout(accesses), kernel, code);
      pipelines.set(content, created);
      created.catch(() => pipelines.delete(content));
    }
    try {
      return { ...await created, kernel };
    } catch (error) {
      this.#guard.check();
      throw error;
    }
  }

  /** Return the layout for a list of accesses. Not "auto": that drops bindings which a shader leaves unused.
   *  @param {string[]} accesses */
  #layout(accesses) {
    const { layouts } = this.#shared;
    const key = accesses.join();
    let layout = layouts.get(key);
    if (!layout) {
      const entries = accesses.map((access, binding) => {
        return { binding, visibility: GPUShaderStage.COMPUTE, buffer: BINDING_TYPES[access] };
      });
      layout = this.#guard.device.createBindGroupLayout({ entries });
      layouts.set(key, layout);
    }
    return layout;
  }
}

/** @param {GPUDevice} device @param {GPUBindGroupLayout} layout @param {Kernel} kernel @param {string} code
 *  @returns {Promise<PipelineAndLayout>} */
async function createPipeline(device, layout, kernel, code) {
  const label = kernel.key.slice(0, 12);
  requireBounded(code, `kernel ${label}`);
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code, label });
  const refused = device.popErrorScope();
  try {
    const pipeline = await device.createComputePipelineAsync({
      label,
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module, entryPoint: "main" },
    });
    return { pipeline, layout };
  } catch (error) {
    const { messages } = await module.getCompilationInfo();
    const first = messages.find((message) => message.type === "error");
    const reason = first ? `line ${first.lineNum}: ${first.message}` : messageOf(error);
    const name = `kernel ${label} (${kernel.template ?? "?"})`;
    throw new ShaderloomError("device", `${name} was refused: ${reason}`, { cause: error });
  } finally {
    await refused.catch(() => {});
  }
}
