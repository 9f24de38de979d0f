/** @import { BoundCall } from "./calls.js" */

import { encodeCall } from "./calls.js";

/** Calls whose timestamps one query set holds. */
const CALLS_A_SET = 2048;

/**
 * Run calls, each in a pass of its own, and return the microseconds that each took.
 *
 * @param {GPUDevice} device one with the feature timestamp-query @param {BoundCall[]} calls
 * @returns {Promise<number[]>}
 */
export async function timeCalls(device, calls) {
  const parts = [];
  for (let start = 0; start < calls.length; start += CALLS_A_SET) {
    parts.push(timePart(device, calls.slice(start, start + CALLS_A_SET)));
  }
  return (await Promise.all(parts)).flat();
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
