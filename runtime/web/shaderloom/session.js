/** @import * as api from "../shaderloom.js" */
/** @import { Value } from "./feeds.js" */
/** @import { LoadedPlan } from "./plans.js" */
/** @import { TimeCalls } from "./programs.js" */
/** @import { Symbols } from "./shapes.js" */

import { abortable } from "./aborting.js";
import { Attachment } from "./attachment.js";
import { checkDevice, openDevice } from "./device.js";
import { ensure } from "./errors.js";
import { requireShape } from "./feeds.js";
import { BundleFiles } from "./files.js";
import { begunBuffers, contentOf, placeOutputs, selectOutputs, writtenBuffers } from "./outputs.js";
import { Signature } from "./signature.js";
import { requireFewer, uploadWeights } from "./weights.js";

/**
 * Open a bundle and upload its weights.
 *
 * What `options` mean is with their types, in shaderloom.d.ts.
 *
 * @type {typeof api.load}
 * @throws {ShaderloomError} "bundle" for a bundle that cannot be read, "device" for a device that cannot run it, "input";
 *   and the signal's reason once it is aborted
 */
export const load = (source, options = {}) => abortable(Session.open(source, options), options.signal);

/** A loaded bundle; shaderloom.d.ts says what its methods do. @implements {api.Session} */
class Session {
  #files;
  #options;
  #signature;
  /** What is on the device; another one after `recover()`. @type {Attachment} */
  #on;
  /** The end of the last recovery. @type {Promise<void>} */
  #recovered = Promise.resolve();

  /** @param {BundleFiles} files @param {api.LoadOptions} options @param {Attachment} on */
  constructor(files, options, on) {
    const { manifest } = files;
    this.manifest = manifest;
    this.inputs = manifest.inputs;
    this.outputs = manifest.outputs;
    this.#files = files;
    this.#options = options;
    this.#on = on;
    this.#signature = new Signature(manifest);
    this.shapes = this.#signature.shapes;
  }

  /** @param {api.BundleSource} source @param {api.LoadOptions} options */
  static async open(source, options) {
    const { signal } = options;
    signal?.throwIfAborted();
    const onProgress = reporter(options);
    onProgress({ what: "bundle", done: 0, total: 1, awaits: "manifest.json" });
    const files = await BundleFiles.open(source, options);
    requireFewer(files.manifest, options.maxWeightBytes);
    return new Session(files, options, await attach(files, options));
  }

  get device() {
    return this.#on.guard.device;
  }

  get lost() {
    return this.#on.guard.lost;
  }

  /** @type {api.Session["recover"]} @throws {ShaderloomError} "input" where a device is missing, and as `load` does */
  recover(options = {}) {
    const recovery = this.#recovered.then(() => this.#recover(options));
    this.#recovered = recovery.catch(() => {});
    return abortable(recovery, options.signal);
  }

  /** @param {api.RecoverOptions} options */
  async #recover({ device, signal, onProgress }) {
    if (this.#on.guard.closed) this.#on.guard.check();
    if (!this.#on.guard.isLost) return;
    ensure("input", device || !this.#options.device, "the device that was lost was the caller's: recover({ device })");
    const lost = this.#on;
    this.#on = await attach(this.#files, { ...this.#options, device, signal, onProgress });
    const isClosed = lost.guard.closed;
    lost.dispose();
    if (isClosed) this.#on.dispose();
  }

  /** @template {keyof api.Located} [Location="cpu"]
   *  @param {api.Feeds} feeds @param {api.RunOptions<Location>} [options]
   *  @returns {Promise<Record<string, api.Located[Location]>>}
   *  @throws {ShaderloomError} "input", "device", "bundle" or "closed"; and the signal's reason once it is aborted */
  run(feeds, options = {}) {
    const outputs = abortable(this.#run(feeds, options), options.signal);
    return /** @type {Promise<Record<string, api.Located[Location]>>} */ (outputs);
  }

  /** @param {api.Feeds} feeds @param {api.RunOptions} options @returns {Promise<Record<string, api.Tensor>>} */
  async #run(feeds, options) {
    const { outputs, inPlace, signal } = options;
    const { guard, calls, copies, pacer } = this.#on;
    signal?.throwIfAborted();
    guard.check();
    const { program, index, symbols, values } = this.#signature.match(feeds);
    if (program) return this.#runProgram(program, symbols, values, options);
    const loaded = await this.#planFor(index, symbols, values);
    const { plan, sources } = loaded;
    const wanted = selectOutputs(plan, symbols, outputs);
    const begun = inPlace ? begunBuffers(plan, values) : new Map();
    return pacer.inTurn(signal, (turn) => turn.submit("a run", (encoder) => {
      const placed = placeOutputs(guard.device, wanted, options, begun);
      const { dispatches, lookup } = calls.bind(encoder, loaded, symbols, values, writtenBuffers(sources, placed, begun));
      const finish = (/** @type {GPUCommandEncoder} */ last) => {
        turn.end();
        return copies.deliver(last, placed, (name) => contentOf(sources.get(name), lookup));
      };
      return { dispatches, finish };
    }));
  }

  /** @type {api.Session["profile"]}
   *  @throws {ShaderloomError} "device" where there are no timestamps (feature "timestamp-query"), or as `run` does */
  async profile(feeds) {
    const on = this.#on;
    on.guard.check();
    const { profileOf, timePlan } = await import("./profiling.js");
    const { program, index, symbols, values } = this.#signature.match(feeds);
    return profileOf(on, async (time) => program
      ? this.#runProgram(program, symbols, values, { outputs: [], time })
      : timePlan(on, await this.#planFor(index, symbols, values), symbols, values, time));
  }

  /** @type {api.Session["prepare"]} @throws {ShaderloomError} "input", "bundle", "device" or "closed" */
  async prepare(index) {
    this.#on.guard.check();
    return prepare(this.#files, this.#on, index);
  }

  /** Return the WGSL of a kernel as it is compiled. @param {api.Kernel} kernel */
  async shader(kernel) {
    return this.#on.pipelines.shader(kernel);
  }

  /** @type {api.Session["sample"]} @throws {ShaderloomError} "input" if there is none */
  async sample(index = 0) {
    this.#on.guard.check();
    const record = this.manifest.samples[index];
    ensure("input", record, `the bundle has no sample ${index}`);
    const { sampleOf } = await import("./safetensors.js");
    return sampleOf(await this.#files.read(record.file), record);
  }

  /** Return a file of the bundle's `assets`. @param {string} name @throws {ShaderloomError} "bundle" */
  asset(name) {
    return this.#files.read(`assets/${name}`);
  }

  dispose() {
    this.#on.dispose();
  }

  /** Run a program of the manifest.
   *  @param {api.Program} program @param {Symbols} symbols @param {Record<string, Value>} values
   *  @param {api.RunOptions & { time?: TimeCalls }} options */
  #runProgram(program, symbols, values, options) {
    const { runProgram } = /** @type {typeof import("./programs.js")} */ (this.#files.programs);
    return runProgram(this.#on, program, symbols, values, this.outputs, options);
  }

  /** Return the loaded plan at an index, which the feeds were matched with. @param {number} index
   *  @param {Symbols} symbols @param {Record<string, Value>} values @returns {Promise<LoadedPlan>} */
  async #planFor(index, symbols, values) {
    const loaded = await this.#on.plans.get(this.manifest.plans[index]);
    for (const port of loaded.plan.inputs) requireShape(port, symbols, values[port.name]);
    return loaded;
  }
}

/** Return the function that reports progress until the load is aborted. @param {api.LoadOptions} options
 *  @returns {(progress: api.Progress) => void} */
const reporter = ({ signal, onProgress }) => (progress) => {
  if (!signal?.aborted) onProgress?.(progress);
};

/** Open the device that options ask for, upload the weights there, and compile what is prepared.
 *  @param {BundleFiles} files @param {api.LoadOptions} options */
async function attach(files, options) {
  const { device: callers, signal } = options;
  const { manifest } = files;
  const { prepare: prepares = manifest.plans.length === 1 && !manifest.programs?.length } = options;
  const onProgress = reporter(options);
  onProgress({ what: "device", done: 0, total: 1, awaits: "the GPU device" });
  signal?.throwIfAborted();
  const device = callers ? checkDevice(callers, manifest) : await openDevice(manifest);
  const on = new Attachment(files, device, !callers, options, onProgress);
  const stop = () => on.dispose();
  signal?.addEventListener("abort", stop);
  files.signal = signal;
  try {
    signal?.throwIfAborted();
    await Promise.all([prepares && prepare(files, on), uploadWeights(on)]);
  } catch (error) {
    stop();
    throw error;
  } finally {
    signal?.removeEventListener("abort", stop);
    files.signal = undefined;
  }
  return on;
}

/** Compile plans, or the stages of programs: those at an index, or all. @param {BundleFiles} files @param {Attachment} on
 *  @param {number} [index] @returns {Promise<api.Plan[]>} */
async function prepare({ manifest, programs: runner }, { plans }, index) {
  const { plans: whole, programs = [] } = manifest;
  const records = [...whole.map((plan) => [plan]), ...programs.map(({ steps }) => runner?.stagesOf(steps))];
  const chosen = index === undefined ? records : [records[index]];
  ensure("input", chosen[0], `the bundle has no plan ${index}`);
  const loaded = await plans.load(chosen.flatMap((each) => each ?? []));
  return loaded.map(({ plan }) => plan);
}
