/** @import { Call, CallTime } from "../shaderloom.js" */
/** @import { BoundCall, Calls } from "./calls.js" */
/** @import { Value } from "./feeds.js" */
/** @import { DeviceGuard } from "./guard.js" */
/** @import { LoadedPlan } from "./plans.js" */
/** @import { TimeCalls } from "./programs.js" */
/** @import { Symbols } from "./shapes.js" */

import { encodeCall, encodeStates } from "./calls.js";
import { ShaderloomError } from "./errors.js";
import { evaluate } from "./sizes.js";

/** Calls whose timestamps one query set holds. */
const CALLS_A_SET = 2048;

/**
 * Run a plan, or a program, and return the time of each call.
 *
 * @param {DeviceGuard} guard @param {Calls} calls @param {Symbols} symbols @param {Record<string, Value>} values
 * @param {(time: TimeCalls) => Promise<LoadedPlan | object>} begin gives a loaded plan, or runs a program
 * @returns {Promise<CallTime[]>} @throws {ShaderloomError} "device" where there are no timestamps
 */
export async function profileOf(guard, calls, symbols, values, begin) {
  const { device } = guard;
  if (!device.features.has("timestamp-query")) {
    throw new ShaderloomError("device", "the device was opened without the feature timestamp-query");
  }
  /** @type {CallTime[]} */
  const times = [];
  /** @type {TimeCalls} */
  const time = async (bound, sizes) => {
    times.push(...await timesOf(device, bound, sizes));
  };
  const begun = await begin(time);
  if (!("kernels" in begun)) return times;
  const loaded = /** @type {LoadedPlan} */ (begun);
  await guard.watch("a profile", () => {
    const { calls: bound, lookup } = calls.bind(loaded, symbols, values);
    const encoder = device.createCommandEncoder();
    encodeStates(encoder, loaded.plan, symbols, lookup);
    device.queue.submit([encoder.finish()]);
    return time(bound, symbols);
  });
  return times;
}

/**
 * Run calls, each in a pass of its own, and return the time of each call of the plan, those of iterations summed.
 *
 * @param {GPUDevice} device one with the feature timestamp-query @param {BoundCall[]} calls @param {Symbols} symbols
 * @returns {Promise<CallTime[]>}
 */
async function timesOf(device, calls, symbols) {
  const parts = [];
  for (let start = 0; start < calls.length; start += CALLS_A_SET) {
    parts.push(timePart(device, calls.slice(start, start + CALLS_A_SET)));
  }
  const times = (await Promise.all(parts)).flat();
  /** @type {Map<Call, number>} */
  const sums = new Map();
  for (const [index, { call }] of calls.entries()) sums.set(call, (sums.get(call) ?? 0) + times[index]);
  return [...sums].map(([call, microseconds]) => ({
    label: call.label ?? "", kernel: call.kernel, origins: call.origins ?? [], microseconds,
    flops: evaluate(call.flops ?? 0, symbols), bytes: evaluate(call.bytes ?? 0, symbols),
  }));
}

/** @param {GPUDevice} device @param {BoundCall[]} calls */
async function timePart(device, calls) {
  const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const querySet = device.createQuerySet({ type: "timestamp", count: 2 * calls.length });
  const size = 16 * calls.length;
  const resolved = device.createBuffer({ size, usage: QUERY_RESOLVE | COPY_SRC });
  const staging = device.createBuffer({ size, usage: MAP_READ | COPY_DST });
  const encoder = device.createCommandEncoder();
  for (const [index, call] of calls.entries()) {
    const pass = encoder.beginComputePass({
      timestampWrites: { querySet, beginningOfPassWriteIndex: 2 * index, endOfPassWriteIndex: 2 * index + 1 },
    });
    encodeCall(pass, call);
    pass.end();
  }
  encoder.resolveQuerySet(querySet, 0, 2 * calls.length, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const ticks = new BigUint64Array(staging.getMappedRange());
  const times = calls.map((_, index) => Number(ticks[2 * index + 1] - ticks[2 * index]) / 1000);
  for (const item of [querySet, resolved, staging]) item.destroy();
  return times;
}
