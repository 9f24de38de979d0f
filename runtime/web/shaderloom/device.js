// The choice of a device, and what happens to it.

/** @import { Manifest } from "../shaderloom.js" */

import { ensure, failing } from "./errors.js";

/** Return the device once it has what the bundle needs. @param {GPUDevice} device @param {Manifest} manifest
 *  @throws {ShaderloomError} "input" for what is no device, "device" for one that lacks something */
export function checkDevice(device, manifest) {
  ensure("input", device.queue, "device is no GPUDevice");
  requireCapabilities(manifest, device, "the device given");
  return device;
}

/** Open a device with what the bundle needs, and with timestamps where the GPU offers them. @param {Manifest} manifest
 *  @throws {ShaderloomError} "device" where there is no such device */
export async function openDevice(manifest) {
  const why = globalThis.isSecureContext === false ? ": the page is no secure context (https or localhost)" : "";
  const advice = "Current Chrome, Edge, Safari and Firefox have it; it may have to be enabled in the settings";
  ensure("device", globalThis.navigator?.gpu, `this browser offers no WebGPU${why}. ${advice}`);
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  ensure("device", adapter, "this browser has WebGPU, but no GPU that it will use (no adapter was found)");
  requireCapabilities(manifest, adapter, "this GPU");
  /** @type {GPUFeatureName[]} */
  const timestamps = adapter.features.has("timestamp-query") ? ["timestamp-query"] : [];
  const requiredFeatures = [...manifest.features.filter((name) => adapter.features.has(name)), ...timestamps];
  return adapter.requestDevice({ requiredFeatures, requiredLimits: manifest.limits })
    .catch(failing("device", "the GPU device cannot be opened"));
}

/** Return whether a device computes on the CPU, as far as the browser says. @param {GPUDevice} device */
export function isSoftware(device) {
  /** @type {Partial<GPUAdapterInfo>} */
  const info = device.adapterInfo ?? {};
  const names = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`;
  return Boolean(info.isFallbackAdapter) || /swiftshader|llvmpipe|lavapipe|basic render/i.test(names);
}

/** Check that an adapter or a device has the bundle's features and limits.
 *  @param {Manifest} manifest @param {GPUAdapter | GPUDevice} offered @param {string} name @throws {ShaderloomError} "device" */
function requireCapabilities(manifest, offered, name) {
  const missing = manifest.features
    .filter((name) => !offered.features.has(name) && !navigator.gpu.wgslLanguageFeatures?.has(name))
    .map((name) => `the feature ${name}`);
  const limits = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (offered.limits));
  for (const [limit, needed] of Object.entries(manifest.limits)) {
    const value = limits[limit]; // a name may be that of a method
    const present = typeof value === "number" ? value : NaN; // NaN is never enough
    const enough = limit.startsWith("min") ? present <= needed : present >= needed;
    if (!enough) missing.push(`${limit} of ${needed}${Number.isNaN(present) ? "" : ` (it has ${present})`}`);
  }
  ensure("device", !missing.length, `${name} lacks what the bundle needs: ${missing.join(", ")}`);
}

/** Turn the loss of a device, the end of its session, and what the device reports into errors. */
export class DeviceGuard {
  /** Whether the session was disposed of. */
  closed = false;
  #loss = "";

  /** @param {GPUDevice} device */
  constructor(device) {
    this.device = device;
    /** Resolves with a readable reason when the device is lost before the session is closed. @type {Promise<string>} */
    this.lost = new Promise((resolve) => {
      device.lost.then(({ reason, message }) => {
        if (this.closed) return;
        this.#loss = `the GPU device was lost (${reason ?? "unknown"})${message ? `: ${message}` : ""}`;
        resolve(this.#loss);
      });
    });
  }

  get isLost() {
    return this.#loss !== "";
  }

  /** @throws {ShaderloomError} "closed" after `dispose()`, "device" after a loss */
  check() {
    ensure("closed", !this.closed, "the session was disposed of");
    ensure("device", !this.#loss, this.#loss);
  }

  /**
   * Return what the promise of `work` resolves to, once the device has accepted its commands.
   *
   * @template T
   * @param {string} what the work's name in messages
   * @param {() => Promise<T>} work issues its commands before it returns
   * @throws {ShaderloomError} "device" for what the device reports, or as `check` does
   */
  async watch(what, work) {
    const { device } = this;
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    /** @type {Promise<T> | undefined} */
    let pending;
    let failure;
    try {
      pending = work();
      pending.catch(() => {}); // it is awaited below, after what the scopes say
    } catch (error) {
      failure = error;
    }
    const reports = await Promise.all([device.popErrorScope(), device.popErrorScope()]).catch(() => []);
    this.check();
    if (!pending) throw failure;
    for (const report of reports) {
      const reason = report instanceof GPUOutOfMemoryError ? "not enough GPU memory" : report?.message;
      ensure("device", !report, `${what} failed: ${reason}`);
    }
    try {
      return await pending;
    } catch (error) {
      await Promise.resolve(); // the device's loss is reported in a microtask
      this.check();
      throw error;
    }
  }
}
