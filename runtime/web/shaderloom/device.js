// The choice of a device, and what happens to it.

/** @import { Manifest } from "../shaderloom.js" */

import { ensure, failing } from "./errors.js";

/** Return the device of the caller's once it has what the bundle needs, or open one that has, with timestamps where the
 *  GPU offers them. @param {Manifest} manifest @param {GPUDevice} [callers] @throws {ShaderloomError} "input" for what is
 *  no device, "device" for one that lacks something, and where none can be opened */
export async function openDevice(manifest, callers) {
  if (callers) {
    ensure("input", callers.queue, "device is no GPUDevice");
    requireCapabilities(manifest, callers, "the device given");
    return callers;
  }
  ensure("device", globalThis.navigator?.gpu,
    "this browser offers no WebGPU; current Chrome, Edge, Safari and Firefox have it, or a setting for it");
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  ensure("device", adapter, "this browser has WebGPU, but no GPU that it will use (no adapter was found)");
  requireCapabilities(manifest, adapter, "this GPU");
  const features = /** @type {GPUFeatureName[]} */ (["timestamp-query", ...manifest.features]);
  const requiredFeatures = features.filter((name) => adapter.features.has(name));
  return adapter.requestDevice({ requiredFeatures, requiredLimits: manifest.limits })
    .catch(failing("device", "the GPU device cannot be opened"));
}

/** Return whether a device computes on the CPU, as far as the browser says. @param {GPUDevice} device */
export function isSoftware(device) {
  /** @type {Partial<GPUAdapterInfo>} */
  const info = device.adapterInfo ?? {};
  const names = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`;
  return info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe|basic render/i.test(names);
}

/** Check that an adapter or a device has the bundle's features and limits.
 *  @param {Manifest} manifest @param {GPUAdapter | GPUDevice} offered @param {string} name @throws {ShaderloomError} "device" */
function requireCapabilities(manifest, offered, name) {
  const missing = manifest.features
    .filter((feature) => !offered.features.has(feature) && !navigator.gpu.wgslLanguageFeatures?.has(feature))
    .map((feature) => `the feature ${feature}`);
  const limits = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (offered.limits));
  for (const [limit, needed] of Object.entries(manifest.limits)) {
    const present = Number(limits[limit]); // NaN, of a method too, is never enough
    const enough = limit.startsWith("min") ? present <= needed : present >= needed;
    if (!enough) missing.push(`${limit} of ${needed}${Number.isNaN(present) ? "" : ` (it has ${present})`}`);
  }
  ensure("device", !missing.length, `${name} lacks what the bundle needs: ${missing.join(", ")}`);
}

/** What guards a device. @typedef {ReturnType<typeof guardOf>} DeviceGuard */

/** Turn the loss of a device, the end of its session, and what the device reports into errors. @param {GPUDevice} device */
export function guardOf(device) {
  let [loss, closed] = ["", false];
  /** Resolves with a readable reason when the device is lost before the session is closed. @type {Promise<string>} */
  const lost = device.lost.then(({ reason, message }) => {
    if (closed) return new Promise(() => {});
    loss = `the GPU device was lost (${reason ?? "unknown"})${message ? `: ${message}` : ""}`;
    return loss;
  });

  /** @throws {ShaderloomError} "closed" after `dispose()`, "device" after a loss */
  function check() {
    ensure("closed", !closed, "the session was disposed of");
    ensure("device", !loss, loss);
  }

  /**
   * Return what the promise of `work` resolves to, once the device has accepted its commands.
   *
   * @template T
   * @param {string} what the work's name in messages
   * @param {() => Promise<T>} work issues its commands before it returns; it rejects where that fails
   * @throws {ShaderloomError} "device" for what the device reports, or as `check` does
   */
  async function watch(what, work) {
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    const pending = work();
    pending.catch(() => {}); // it is awaited below, after what the scopes say
    const reports = await Promise.all([device.popErrorScope(), device.popErrorScope()]).catch(() => []);
    check();
    for (const report of reports) {
      const reason = report instanceof GPUOutOfMemoryError ? "not enough GPU memory" : report?.message;
      ensure("device", !report, `${what} failed: ${reason}`);
    }
    try {
      return await pending;
    } catch (error) {
      await Promise.resolve(); // the device's loss is reported in a microtask
      check();
      throw error;
    }
  }

  /** Note that the session is disposed of. */
  function close() {
    closed = true;
  }

  return { device, lost, isLost: () => loss !== "", isClosed: () => closed, check, watch, close };
}
