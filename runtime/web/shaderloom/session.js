/** @import * as api from "../shaderloom.js" */
/** @import { BundleFiles } from "./files.js" */
/** @import { Foundation } from "./plans.js" */
/** @import { Options } from "./programs.js" */
/** @import { Match } from "./tensors.js" */
/** @typedef {typeof import("./programs.js")} Programs */

import { begunBuffers, buffersOn, contentOf, copiesOn, placeOutputs, selectPorts, writtenBuffers } from "./buffers.js";
import { callsOn } from "./calls.js";
import { guardOf, isSoftware, openDevice } from "./device.js";
import { abortable, ensure } from "./errors.js";
import { openFiles } from "./files.js";
import { pacerOn } from "./pacing.js";
import { plansOn } from "./plans.js";
import { requireShape, shapeOf, signatureOf } from "./tensors.js";
import { sharedOn, totalBytes, uploadWeights } from "./weights.js";

/** Bytes of weights that a bundle may have, and of what is beside them, unless a page says otherwise. */
const MOST_WEIGHTS = 2 ** 33;

/**
 * Open a bundle and upload its weights.
 *
 * What `options` mean is with their types, in shaderloom.d.ts.
 *
 * @type {typeof api.load}
 * @throws {ShaderloomError} "bundle" for a bundle that cannot be read, "device" for a device that cannot run it, "input";
 *   and the signal's reason once it is aborted
 */
export const load = (source, options = {}) => abortable(open(source, options), options.signal);

/** @param {api.BundleSource} source @param {api.LoadOptions} options */
async function open(source, options) {
  options.signal?.throwIfAborted();
  reporter(options)({ what: "bundle", done: 0, total: 1, awaits: "manifest.json" });
  const files = await openFiles(source, options);
  const total = totalBytes(files.manifest);
  const { maxWeightBytes = MOST_WEIGHTS } = options;
  ensure("bundle", total <= maxWeightBytes, `the weights have ${total} bytes; maxWeightBytes is ${maxWeightBytes}`);
  return sessionOf(files, options, await attach(files, options));
}

/** Return a loaded bundle; shaderloom.d.ts says what its methods do.
 *  @param {BundleFiles} files @param {api.LoadOptions} loadOptions
 *  @param {Attachment} on what is on the device; another one after `recover()` @returns {api.Session} */
function sessionOf(files, loadOptions, on) {
  const { manifest } = files;
  const { inputs, outputs, plans, samples } = manifest;
  const signature = signatureOf(manifest);
  /** The end of the last recovery. @type {Promise<void>} */
  let recovered = Promise.resolve();

  /** @param {api.RecoverOptions} changes @throws {ShaderloomError} "input" where a device is missing, and as `load` does */
  async function recover({ device, signal, onProgress }) {
    if (on.guard.isClosed()) on.guard.check();
    if (!on.guard.isLost()) return;
    ensure("input", device || !loadOptions.device, "the device that was lost was the caller's: recover({ device })");
    const lost = on;
    on = await attach(files, { ...loadOptions, device, signal, onProgress });
    const isClosed = lost.guard.isClosed();
    lost.dispose();
    if (isClosed) on.dispose();
  }

  /** Run a plan or a program. @param {api.Feeds} feeds @param {Options} options
   *  @returns {Promise<Record<string, api.Tensor>>}
   *  @throws {ShaderloomError} "input", "device", "bundle" or "closed"; and the signal's reason once it is aborted */
  async function run(feeds, options) {
    const { guard, calls, copies, pacer } = on;
    options.signal?.throwIfAborted();
    guard.check();
    const match = signature.match(feeds);
    if (match.program) {
      const { runProgram } = /** @type {Programs} */ (files.programs);
      return runProgram(on, /** @type {Required<Match>} */ (match), outputs, options);
    }
    const { index, symbols, values } = match;
    const loaded = await on.plans.get(plans[index]);
    const { plan, sources } = loaded;
    for (const port of plan.inputs) requireShape(port, symbols, values[port.name]);
    const wanted = selectPorts(plan.outputs, options.outputs).map((port) => ({ ...port, dims: shapeOf(port, symbols) }));
    const begun = options.inPlace ? begunBuffers(plan, values) : new Map();
    return pacer.inTurn(options.signal, (turn) => turn.submit("a run", (encoder) => {
      const placed = placeOutputs(guard.device, wanted, options, begun);
      const { dispatches, lookup } = calls.bind(encoder, loaded, symbols, values, writtenBuffers(sources, placed, begun));
      const finish = (/** @type {GPUCommandEncoder} */ last) => {
        if (!options.time) turn.end();
        return copies.deliver(last, placed, (name) => contentOf(sources, name, lookup));
      };
      return { dispatches, symbols, finish };
    }, options.time));
  }

  return {
    manifest, inputs, outputs, shapes: signature.shapes,

    get device() {
      return on.guard.device;
    },

    get lost() {
      return on.guard.lost;
    },

    recover(changes = {}) {
      const recovery = recovered.then(() => recover(changes));
      recovered = recovery.catch(() => {});
      return abortable(recovery, changes.signal);
    },

    run: (/** @type {api.Feeds} */ feeds, /** @type {api.RunOptions} */ options = {}) =>
      /** @type {Promise<any>} */ (abortable(run(feeds, options), options.signal)),

    /** @throws {ShaderloomError} "device" where there are no timestamps (feature "timestamp-query"), or as `run` does */
    async profile(feeds) {
      on.guard.check();
      const { profileOf } = await import("./profiling.js");
      return profileOf(on, (time) => run(feeds, { outputs: [], time }));
    },

    /** @throws {ShaderloomError} "input", "bundle", "device" or "closed" */
    async prepare(index) {
      on.guard.check();
      return prepare(files, on, index);
    },

    shader: async (kernel) => on.plans.shader(kernel),

    /** @throws {ShaderloomError} "input" if there is none */
    async sample(index = 0) {
      on.guard.check();
      const record = samples[index];
      ensure("input", record, `the bundle has no sample ${index}`);
      const { sampleOf } = await import("./safetensors.js");
      return sampleOf(await files.read(record.file), record);
    },

    /** @throws {ShaderloomError} "bundle" */
    asset: (name) => files.read(`assets/${name}`),

    dispose: () => on.dispose(),
  };
}

/** Return the function that reports progress until the load is aborted. @param {api.LoadOptions} options
 *  @returns {(progress: api.Progress) => void} */
const reporter = ({ signal, onProgress }) => (progress) => {
  if (!signal?.aborted) onProgress?.(progress);
};

/** What a session has on a device, from its opening to `dispose()`. @typedef {ReturnType<typeof attachmentOf>} Attachment */

/** @param {BundleFiles} files @param {GPUDevice} device ends with the session unless it is the caller's
 *  @param {api.LoadOptions} options @param {(progress: api.Progress) => void} onProgress */
function attachmentOf(files, device, options, onProgress) {
  const { maxWeightBytes = MOST_WEIGHTS, maxDeviceBytes = maxWeightBytes + MOST_WEIGHTS, maxRunSeconds = 300 } = options;
  const software = options.software ?? isSoftware(device);
  const guard = guardOf(device);
  const shared = sharedOn(device);
  const buffers = buffersOn(device, maxDeviceBytes);
  const copies = copiesOn(guard);
  /** @type {Foundation} */
  const foundation = { files, onProgress, software, guard, shared, buffers };
  const plans = plansOn(foundation);

  /** Free everything; what is shared with other sessions stays with them. */
  function dispose() {
    if (guard.isClosed()) return;
    guard.close();
    buffers.destroy();
    copies.destroy();
    plans.clear();
    shared.leave();
    if (!options.device) device.destroy();
  }

  const pacer = pacerOn(guard, software, maxRunSeconds);
  return { ...foundation, copies, plans, pacer, calls: callsOn(device, buffers), dispose };
}

/** Open the device that options ask for, upload the weights there, and compile what is prepared.
 *  @param {BundleFiles} files @param {api.LoadOptions} options */
async function attach(files, options) {
  const { signal } = options;
  const { plans, programs } = files.manifest;
  const onProgress = reporter(options);
  onProgress({ what: "device", done: 0, total: 1, awaits: "the GPU device" });
  signal?.throwIfAborted();
  const device = await openDevice(files.manifest, options.device);
  const on = attachmentOf(files, device, options, onProgress);
  const stop = () => on.dispose();
  signal?.addEventListener("abort", stop);
  files.loading.signal = signal;
  try {
    signal?.throwIfAborted();
    const isOne = plans.length === 1 && !programs?.length;
    await Promise.all([(options.prepare ?? isOne) && prepare(files, on), uploadWeights(on)]);
  } catch (error) {
    stop();
    throw error;
  } finally {
    signal?.removeEventListener("abort", stop);
    files.loading.signal = undefined;
  }
  return on;
}

/** Compile plans, or the stages of programs: those at an index, or all. @param {BundleFiles} files @param {Attachment} on
 *  @param {number} [index] @returns {Promise<api.Plan[]>} */
async function prepare({ manifest: { plans, programs = [] }, programs: runner }, on, index) {
  const records = [...plans.map((plan) => [plan]), ...programs.map(({ steps }) => runner?.stagesOf(steps) ?? [])];
  const chosen = index === undefined ? records : [records[index]];
  ensure("input", chosen[0], `the bundle has no plan ${index}`);
  return (await on.plans.load(chosen.flat())).map(({ plan }) => plan);
}
