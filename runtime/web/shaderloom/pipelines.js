/** @import { Kernel } from "../shaderloom.js" */
/** @import { Attachment } from "./attachment.js" */

import { messageOf, ShaderloomError } from "./errors.js";
import { requireBounded } from "./expansion.js";

/** @typedef {{ pipeline: GPUComputePipeline, layout: GPUBindGroupLayout, kernel: Kernel }} CompiledKernel */

/** @type {Record<string, GPUBufferBindingLayout>} */
const BINDING_TYPES = {
  read: { type: "read-only-storage" }, read_write: { type: "storage" }, uniform: { type: "uniform" },
  iteration: { type: "uniform", hasDynamicOffset: true },
};

/** Compile kernels, each once; plans, and the sessions of a device, share them. */
export class Pipelines {
  #on;
  /** @type {Map<string, Promise<CompiledKernel>>} */
  #compiled = new Map();

  /** @param {Attachment} on */
  constructor(on) {
    this.#on = on;
  }

  /** Return the compiled kernel. @param {Kernel} kernel @throws {ShaderloomError} "device" if the device refuses it */
  get(kernel) {
    return entryOf(this.#compiled, kernel.key, () => this.#compile(kernel));
  }

  /** Return the WGSL of a kernel as it is compiled. @param {Kernel} kernel */
  async shader(kernel) {
    this.#on.guard.check();
    const text = await this.#on.files.text(`shaders/${kernel.key}.wgsl`);
    return kernel.features.includes("subgroups") ? `enable subgroups;\n${text}` : text;
  }

  /** @param {Kernel} kernel @returns {Promise<CompiledKernel>} */
  async #compile(kernel) {
    const { files, guard, shared } = this.#on;
    const code = await this.shader(kernel);
    const { sha256 } = files.manifest.files[`shaders/${kernel.key}.wgsl`];
    const accesses = kernel.bindings.map(({ access }) => access);
    // Not "auto": that drops bindings which a shader leaves unused.
    const layout = entryOf(shared.layouts, accesses.join(), () => guard.device.createBindGroupLayout({
      entries: accesses.map((access, binding) =>
        ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: BINDING_TYPES[access] })),
    }));
    const content = [...sha256, kernel.features.includes("subgroups"), ...accesses].join();
    const pipeline = entryOf(shared.pipelines, content, () => createPipeline(guard.device, layout, kernel, code));
    try {
      return { pipeline: await pipeline, layout, kernel };
    } catch (error) {
      shared.pipelines.delete(content);
      guard.check();
      throw error;
    }
  }
}

/** Return what a map has of a key, made where it is missing. @template T @param {Map<string, T>} map @param {string} key
 *  @param {() => T} make @returns {T} */
function entryOf(map, key, make) {
  const entry = map.get(key) ?? make();
  map.set(key, entry);
  return entry;
}

/** @param {GPUDevice} device @param {GPUBindGroupLayout} layout @param {Kernel} kernel @param {string} code
 *  @returns {Promise<GPUComputePipeline>} */
async function createPipeline(device, layout, kernel, code) {
  const label = kernel.key.slice(0, 12);
  requireBounded(code, `kernel ${label}`);
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code, label });
  const refused = device.popErrorScope();
  try {
    return await device.createComputePipelineAsync({
      label,
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module, entryPoint: "main" },
    });
  } catch (error) {
    const { messages } = await module.getCompilationInfo();
    const first = messages.find((message) => message.type === "error");
    const reason = first ? `line ${first.lineNum}: ${first.message}` : messageOf(error);
    const name = `kernel ${label} (${kernel.template})`;
    throw new ShaderloomError("device", `${name} was refused: ${reason}`, { cause: error });
  } finally {
    await refused.catch(() => {});
  }
}
