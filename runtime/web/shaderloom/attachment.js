/** @import { LoadOptions, Progress } from "../shaderloom.js" */
/** @import { BundleFiles } from "./files.js" */

import { Buffers } from "./buffers.js";
import { Calls } from "./calls.js";
import { isSoftware } from "./device.js";
import { DeviceGuard } from "./guard.js";
import { OutputCopies } from "./outputs.js";
import { Pacer } from "./pacing.js";
import { Pipelines } from "./pipelines.js";
import { Plans } from "./plans.js";
import { SharedDevice } from "./sharing.js";

/** What a session has on a device, from its opening to `dispose()`. */
export class Attachment {
  #ownsDevice;

  /** @param {BundleFiles} files @param {GPUDevice} device @param {boolean} ownsDevice whether it ends with the session
   *  @param {LoadOptions} options @param {(progress: Progress) => void} onProgress */
  constructor(files, device, ownsDevice, options, onProgress) {
    const { maxWeightBytes = 2 ** 33, maxDeviceBytes = maxWeightBytes + 2 ** 33, maxRunSeconds = 300 } = options;
    this.files = files;
    this.onProgress = onProgress;
    /** Whether the device computes on the CPU, for which there are other kernels. */
    this.software = options.software ?? isSoftware(device);
    this.#ownsDevice = ownsDevice;
    this.shared = SharedDevice.on(device);
    this.guard = new DeviceGuard(device);
    this.buffers = new Buffers(device, maxDeviceBytes);
    this.pipelines = new Pipelines(this);
    this.plans = new Plans(this);
    this.calls = new Calls(device, this.buffers);
    this.copies = new OutputCopies(this.guard);
    this.pacer = new Pacer(this.guard, this.software, maxRunSeconds);
  }

  /** Free everything; what is shared with other sessions stays with them. */
  dispose() {
    if (this.guard.closed) return;
    this.guard.closed = true;
    this.buffers.destroy();
    this.copies.destroy();
    this.plans.clear();
    this.shared.leave();
    if (this.#ownsDevice) this.guard.device.destroy();
  }
}
