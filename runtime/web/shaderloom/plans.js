/** @import { Kernel, Plan, Progress } from "../shaderloom.js" */
/** @import { Buffers, Source } from "./buffers.js" */
/** @import { DeviceGuard } from "./device.js" */
/** @import { BundleFiles } from "./files.js" */
/** @import { SharedDevice } from "./weights.js" */

import { outputSources } from "./buffers.js";
import { readPlan } from "./checking.js";
import { messageOf, ShaderloomError } from "./errors.js";
import { requireBounded } from "./expansion.js";
import { SCHEMA } from "./schema.js";
import { totalBytes } from "./weights.js";

/** The keys of a plan for GPUs, and of the one for adapters that compute on the CPU.
 *  @typedef {{ key: string, software?: string }} PlanKeys */

/** @typedef {{ pipeline: GPUComputePipeline, layout: GPUBindGroupLayout, kernel: Kernel }} CompiledKernel */

/** A plan, compiled kernels by key, its own among them, and the sources of its outputs by their buffers.
 *  @typedef {{ plan: Plan, kernels: Map<string, CompiledKernel>, sources: Map<string, Source> }} LoadedPlan */

/** @type {Record<string, GPUBufferBindingLayout>} */
const BINDING_TYPES = {
  read: { type: "read-only-storage" }, read_write: { type: "storage" }, uniform: { type: "uniform" },
  iteration: { type: "uniform", hasDynamicOffset: true },
};

/** Kernels that are fetched and compiled at once: enough for the cores, and what a cancelled load leaves to the browser. */
const AT_ONCE = 16;

/** What plans are loaded with; `software` says whether the device computes on the CPU, for which there are other kernels.
 *  @typedef {{ files: BundleFiles, onProgress: (progress: Progress) => void, software: boolean, guard: DeviceGuard,
 *  shared: SharedDevice, buffers: Buffers }} Foundation */

/** The plans of a session. @typedef {ReturnType<typeof plansOn>} Plans */

/** Fetch, check and compile plans and their kernels, each once; the sessions of a device share pipelines. @param {Foundation} on */
export function plansOn(on) {
  const { files, guard, shared, buffers } = on;
  /** Kernels that are compiled, each once. @type {Map<string, Promise<CompiledKernel>>} */
  const compiled = new Map();
  /** By the key of the plan for GPUs. @type {Map<string, Promise<LoadedPlan>>} */
  const present = new Map();

  /** Return a plan of the manifest. @param {PlanKeys} record @returns {Promise<LoadedPlan>}
   *  @throws {ShaderloomError} "bundle", "device" */
  function get(record) {
    return present.get(record.key) ?? load([record]).then(([plan]) => plan);
  }

  /** Return plans of the manifest; kernels of those that are not there yet are compiled together.
   *  @param {PlanKeys[]} records @returns {Promise<LoadedPlan[]>} @throws {ShaderloomError} "bundle", "device" */
  function load(records) {
    const missing = new Map(records.filter(({ key }) => !present.has(key)).map((record) => [record.key, record]));
    const together = loadAll([...missing.values()]);
    for (const [position, key] of [...missing.keys()].entries()) {
      const loaded = together.then((plans) => plans[position]);
      loaded.catch(() => present.delete(key)); // a failed fetch may be tried again
      present.set(key, loaded);
    }
    return together.then(() => Promise.all(records.map(get)));
  }

  /** @param {PlanKeys[]} records @returns {Promise<LoadedPlan[]>} */
  async function loadAll(records) {
    const fetched = Promise.all(records.map(fetchPlan));
    buffers.hooks.ready ??= fetched;
    const plans = await fetched;
    const kernels = new Map(plans.flatMap((plan) => plan.kernels.map((kernel) => [kernel.key, kernel])));
    const ready = await compileAll([...kernels.values()]);
    return plans.map((plan) => ({ plan, kernels: ready, sources: outputSources(plan) }));
  }

  /** Return the compiled kernels by key. @param {Kernel[]} kernels @returns {Promise<Map<string, CompiledKernel>>} */
  async function compileAll(kernels) {
    const queue = (function* () { // which ends for all workers where one fails
      yield* kernels;
    })();
    /** @type {Set<Kernel>} */
    const awaited = new Set();
    /** @type {Map<string, CompiledKernel>} */
    const done = new Map();
    const report = () => {
      const [oldest] = awaited;
      const awaits = oldest ? `kernel ${oldest.key.slice(0, 12)} (${oldest.template})` : "";
      on.onProgress({ what: "pipelines", done: done.size, total: kernels.length, awaits });
    };
    const work = async () => {
      for (const kernel of queue) {
        awaited.add(kernel);
        done.set(kernel.key, await entryOf(compiled, kernel.key, () => compile(kernel)));
        awaited.delete(kernel);
        report();
      }
    };
    const workers = Array.from({ length: AT_ONCE }, work);
    if (kernels.length) report();
    await Promise.all(workers);
    return done;
  }

  /** @param {PlanKeys} record @returns {Promise<Plan>} */
  async function fetchPlan({ key: own, software }) {
    const key = (on.software && software) || own;
    const file = `plan-${key}.json`;
    const plan = await readPlan(file, await files.read(file, SCHEMA.bytes.plan), key, files);
    buffers.requireRoom(plan, totalBytes(files.manifest));
    return plan;
  }

  /** Return the WGSL of a kernel as it is compiled. @param {Kernel} kernel */
  async function shader(kernel) {
    guard.check();
    const text = await files.text(`shaders/${kernel.key}.wgsl`);
    return kernel.features.includes("subgroups") ? `enable subgroups;\n${text}` : text;
  }

  /** @param {Kernel} kernel @returns {Promise<CompiledKernel>} */
  async function compile(kernel) {
    const code = await shader(kernel);
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

  return { get, load, shader, clear: () => present.clear() };
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
