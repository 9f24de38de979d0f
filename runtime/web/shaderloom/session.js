/** @import * as api from "../shaderloom.js" */
/** @import { Value } from "./feeds.js" */
/** @import { LoadedPlan } from "./plans.js" */
/** @import { ProgramRunner, TimeCalls } from "./programs.js" */
/** @import { Symbols } from "./shapes.js" */

import { abortable } from "./aborting.js";
import { Buffers } from "./buffers.js";
import { Calls, encodeRun } from "./calls.js";
import { checkDevice, isSoftware, openDevice } from "./device.js";
import { ShaderloomError } from "./errors.js";
import { requireShape } from "./feeds.js";
import { BundleFiles } from "./files.js";
import { DeviceGuard } from "./guard.js";
import { begunBuffers, OutputCopies, placeOutputs, selectOutputs, writtenBuffers } from "./outputs.js";
import { Pipelines } from "./pipelines.js";
import { Plans } from "./plans.js";
import { Signature } from "./signature.js";
import { requireFewer, uploadWeights } from "./weights.js";

/**
 * Open a bundle and upload its weights.
 *
 * What `options` mean is with their types, in shaderloom.d.ts.
 *
 * @type {typeof api.load}
 * @throws {ShaderloomError} "bundle" for a bundle that cannot be read, "device" for a device that cannot run it; and
 *   the signal's reason once it is aborted
 */
export const load = (source, options = {}) => abortable(open(source, options), options.signal);

/** @param {api.BundleSource} source @param {api.LoadOptions} options */
async function open(source, options) {
  const { device: callers, software, maxWeightBytes = 2 ** 33, prepare, signal } = options;
  const { maxDeviceBytes = maxWeightBytes + 2 ** 33 } = options;
  signal?.throwIfAborted();
  /** @param {api.Progress} progress */
  const onProgress = (progress) => {
    if (!signal?.aborted) options.onProgress?.(progress);
  };
  onProgress({ what: "bundle", done: 0, total: 1, awaits: "manifest.json" });
  const files = await BundleFiles.open(source, signal, options.verifyKey);
  requireFewer(files.manifest, maxWeightBytes);
  onProgress({ what: "device", done: 0, total: 1, awaits: "the GPU device" });
  signal?.throwIfAborted();
  const device = callers ? checkDevice(callers, files.manifest) : await openDevice(files.manifest);
  const guard = new DeviceGuard(device);
  const buffers = new Buffers(device, maxDeviceBytes);
  const session = new Session(files, guard, buffers, {
    device: callers, software: software ?? isSoftware(device), onProgress,
  });
  const stop = () => session.dispose();
  signal?.addEventListener("abort", stop);
  try {
    signal?.throwIfAborted();
    await Promise.all([uploadWeights(files, guard, buffers, onProgress), prepare && session.prepare()]);
  } catch (error) {
    stop();
    throw error;
  } finally {
    signal?.removeEventListener("abort", stop);
    files.signal = undefined;
  }
  return session;
}

/** A loaded bundle. Runs may overlap: each is one submission, and the device's queue keeps their order.
 *  @implements {api.Session} */
class Session {
  #files;
  #guard;
  #buffers;
  #ownsDevice;
  #signature;
  #pipelines;
  #plans;
  #calls;
  #copies;
  #programs;

  /** @param {BundleFiles} files @param {DeviceGuard} guard @param {Buffers} buffers
   *  @param {api.LoadOptions & { software: boolean, onProgress: (progress: api.Progress) => void }} options */
  constructor(files, guard, buffers, { device, software, onProgress }) {
    const { manifest } = files;
    this.manifest = manifest;
    this.device = guard.device;
    this.inputs = manifest.inputs;
    this.outputs = manifest.outputs;
    this.lost = guard.lost;
    this.#files = files;
    this.#guard = guard;
    this.#buffers = buffers;
    this.#ownsDevice = !device;
    this.#signature = new Signature(manifest);
    this.#pipelines = new Pipelines(files, guard);
    this.#plans = new Plans(files, this.#pipelines, software, onProgress);
    this.#calls = new Calls(this.device, buffers);
    this.#copies = new OutputCopies(guard);
    this.#programs = files.programs && new files.programs.ProgramRunner(guard, buffers, this.#calls, this.#copies, this.#plans);
    this.shapes = this.#signature.shapes;
  }

  /**
   * Compute the outputs for `feeds`; shaderloom.d.ts says what `options` mean.
   *
   * @template {keyof api.Located} [Location="cpu"]
   * @param {api.Feeds} feeds @param {api.RunOptions<Location>} [options]
   * @returns {Promise<Record<string, api.Located[Location]>>}
   * @throws {ShaderloomError} "input", "device", "bundle" or "closed"; and the signal's reason once it is aborted
   */
  run(feeds, options = {}) {
    const outputs = abortable(this.#run(feeds, options), options.signal);
    return /** @type {Promise<Record<string, api.Located[Location]>>} */ (outputs);
  }

  /** @param {api.Feeds} feeds @param {api.RunOptions} options @returns {Promise<Record<string, api.Tensor>>} */
  async #run(feeds, options) {
    const { outputs, inPlace, signal } = options;
    signal?.throwIfAborted();
    this.#guard.check();
    const { program, index, symbols, values } = this.#signature.match(feeds);
    if (program) return this.#runProgram(program, symbols, values, options);
    const loaded = await this.#planFor(index, symbols, values);
    this.#guard.check();
    signal?.throwIfAborted();
    const { plan, sources } = loaded;
    const wanted = selectOutputs(plan, symbols, outputs);
    const begun = inPlace ? begunBuffers(plan, values) : new Map();
    return this.#guard.watch("a run", () => {
      const placed = placeOutputs(this.device, wanted, options, begun);
      const { calls, lookup } = this.#calls.bind(loaded, symbols, values, writtenBuffers(sources, placed, begun));
      const encoder = this.device.createCommandEncoder();
      encodeRun(encoder, plan, symbols, calls, lookup);
      const read = this.#copies.deliver(encoder, sources, placed, lookup);
      this.device.queue.submit([encoder.finish()]);
      return read();
    });
  }

  /**
   * Run once, each call in a pass of its own, and return the time of each call. Browsers round timestamps, to 0.1 ms
   * in Chrome.
   *
   * @param {api.Feeds} feeds @returns {Promise<api.CallTime[]>}
   * @throws {ShaderloomError} "device" where there are no timestamps (feature "timestamp-query"), or as `run` does
   */
  async profile(feeds) {
    this.#guard.check();
    const { profileOf } = await import("./profiling.js");
    const { program, index, symbols, values } = this.#signature.match(feeds);
    return profileOf(this.#guard, this.#calls, symbols, values, program
      ? (time) => this.#runProgram(program, symbols, values, { outputs: [], time })
      : () => this.#planFor(index, symbols, values));
  }

  /** Fetch and compile ahead of the first run the plan, or the stages of the program, at an index of `shapes`, those of
   *  all without an index, and return them. @param {number} [index]
   *  @throws {ShaderloomError} "bundle", "device" or "closed" */
  async prepare(index) {
    this.#guard.check();
    const { plans, programs = [] } = this.manifest;
    const records = [...plans.map((plan) => [plan]), ...programs.map(({ steps }) => this.#files.programs?.stagesOf(steps))];
    const loaded = await this.#plans.load((index === undefined ? records : [records[index]]).flatMap((each) => each ?? []));
    return loaded.map(({ plan }) => plan);
  }

  /** Return the WGSL of a kernel as it is compiled. @param {api.Kernel} kernel */
  async shader(kernel) {
    return this.#pipelines.shader(kernel);
  }

  /** Return inputs and expected outputs of the manifest's samples[index].
   *  @param {number} index @returns {Promise<api.Sample>} @throws {ShaderloomError} "input" if there is none */
  async sample(index = 0) {
    this.#guard.check();
    const record = this.manifest.samples[index];
    if (!record) throw new ShaderloomError("input", `the bundle has no sample ${index}`);
    const { sampleOf } = await import("./safetensors.js");
    return sampleOf(await this.#files.read(record.file), record);
  }

  /** Free everything on the device; outputs with location "gpu" live on if the device is the caller's. */
  dispose() {
    if (this.#guard.closed) return;
    this.#guard.closed = true;
    this.#buffers.destroy();
    this.#copies.destroy();
    this.#plans.clear();
    if (this.#ownsDevice) this.device.destroy();
  }

  /** Run a program of the manifest.
   *  @param {api.Program} program @param {Symbols} symbols @param {Record<string, Value>} values
   *  @param {api.RunOptions & { time?: TimeCalls }} options */
  #runProgram(program, symbols, values, options) {
    return /** @type {ProgramRunner} */ (this.#programs).run(program, symbols, values, this.outputs, options);
  }

  /** Return the loaded plan at an index, which the feeds were matched with. @param {number} index
   *  @param {Symbols} symbols @param {Record<string, Value>} values @returns {Promise<LoadedPlan>} */
  async #planFor(index, symbols, values) {
    const loaded = await this.#plans.get(this.manifest.plans[index]);
    for (const port of loaded.plan.inputs) requireShape(port, symbols, values[port.name]);
    return loaded;
  }
}
