/** @import { LoadOptions, Progress } from "../shaderloom.js" */
/** @import { Buffers } from "./buffers.js" */
/** @import { BundleFiles } from "./files.js" */
/** @import { SharedDevice } from "./sharing.js" */

import { buffersOn } from "./buffers.js";
import { callsOn } from "./calls.js";
import { DeviceGuard, isSoftware } from "./device.js";
import { copiesOn } from "./outputs.js";
import { Pacer } from "./pacing.js";
import { plansOn } from "./plans.js";
import { sharedOn } from "./sharing.js";

/** What plans are loaded with; `software` says whether the device computes on the CPU, for which there are other kernels.
 *  @typedef {{ files: BundleFiles, onProgress: (progress: Progress) => void, software: boolean, guard: DeviceGuard,
 *  shared: SharedDevice, buffers: Buffers }} Foundation */

/** What a session has on a device, from its opening to `dispose()`. @typedef {ReturnType<typeof attachmentOf>} Attachment */

/** @param {BundleFiles} files @param {GPUDevice} device @param {boolean} ownsDevice whether it ends with the session
 *  @param {LoadOptions} options @param {(progress: Progress) => void} onProgress */
export function attachmentOf(files, device, ownsDevice, options, onProgress) {
  const { maxWeightBytes = 2 ** 33, maxDeviceBytes = maxWeightBytes + 2 ** 33, maxRunSeconds = 300 } = options;
  const software = options.software ?? isSoftware(device);
  const guard = new DeviceGuard(device);
  const shared = sharedOn(device);
  const buffers = buffersOn(device, maxDeviceBytes);
  const copies = copiesOn(guard);
  /** @type {Foundation} */
  const foundation = { files, onProgress, software, guard, shared, buffers };
  const plans = plansOn(foundation);

  /** Free everything; what is shared with other sessions stays with them. */
  function dispose() {
    if (guard.closed) return;
    guard.closed = true;
    buffers.destroy();
    copies.destroy();
    plans.clear();
    shared.leave();
    if (ownsDevice) device.destroy();
  }

  const pacer = new Pacer(guard, software, maxRunSeconds);
  return { ...foundation, copies, plans, pacer, calls: callsOn(device, buffers), dispose };
}
