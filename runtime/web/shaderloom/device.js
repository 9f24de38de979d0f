// The choice of a device.

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
