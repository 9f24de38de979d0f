import { ensure } from "./errors.js";

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
