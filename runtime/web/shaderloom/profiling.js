/** @import { Call, CallTime } from "../shaderloom.js" */
/** @import { Attachment } from "./session.js" */
/** @import { Dispatch } from "./calls.js" */
/** @import { TimeCalls } from "./programs.js" */

import { ensure } from "./errors.js";
import { encodeCall } from "./pacing.js";
import { evaluate } from "./tensors.js";

/** Dispatches whose timestamps one query set holds. */
const CALLS_A_SET = 2048;

/** Return the times that `run` gives to the function which it is called with, one for each call.
 *  @param {Attachment} on @param {(time: TimeCalls) => Promise<unknown>} run @returns {Promise<CallTime[]>}
 *  @throws {ShaderloomError} "device" where there are no timestamps */
export async function profileOf(on, run) {
  /** @type {CallTime[]} */
  const times = [];
  await run(async (turn, dispatches, symbols) => {
    const { features } = on.guard.device;
    ensure("device", features.has("timestamp-query"), "the device was opened without the feature timestamp-query");
    /** Of the iterations of a call. @type {Map<Call, number>} */
    const sums = new Map();
    const rest = dispatches[Symbol.iterator]();
    for (let count = 1; count; ) {
      const part = await turn.submit("a profile", (encoder) => timePart(on, encoder, rest));
      for (const { call, microseconds } of part) sums.set(call, (sums.get(call) ?? 0) + microseconds);
      count = part.length;
    }
    for (const [{ label, kernel, origins, flops, bytes }, microseconds] of sums) {
      const counts = { flops: evaluate(flops, symbols), bytes: evaluate(bytes, symbols) };
      times.push({ label, kernel, origins, microseconds, ...counts });
    }
  });
  return times;
}

/** Encode the next dispatches, and return what reads their times. @param {Attachment} on
 *  @param {GPUCommandEncoder} encoder @param {Iterator<Dispatch>} rest
 *  @returns {import("./pacing.js").Work<{ call: Call, microseconds: number }[]>} */
function timePart({ guard: { device }, pacer }, encoder, rest) {
  const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const querySet = device.createQuerySet({ type: "timestamp", count: 2 * CALLS_A_SET });
  const size = 16 * CALLS_A_SET;
  const resolved = device.createBuffer({ size, usage: QUERY_RESOLVE | COPY_SRC });
  const staging = device.createBuffer({ size, usage: MAP_READ | COPY_DST });
  /** @type {Dispatch[]} */
  const timed = [];
  let work = 0;
  while (timed.length < CALLS_A_SET && !pacer.isFull({ work, dispatches: timed.length })) {
    const next = rest.next();
    if (next.done) break;
    work += next.value.work;
    const at = 2 * timed.push(next.value) - 2;
    const timestampWrites = { querySet, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 };
    const pass = encoder.beginComputePass({ timestampWrites });
    encodeCall(pass, next.value);
    pass.end();
  }
  if (timed.length) encoder.resolveQuerySet(querySet, 0, 2 * timed.length, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
  const read = async () => {
    await staging.mapAsync(GPUMapMode.READ);
    const ticks = new BigUint64Array(staging.getMappedRange());
    const times = timed.map(({ call }, index) =>
      ({ call, microseconds: Number(ticks[2 * index + 1] - ticks[2 * index]) / 1000 }));
    for (const item of [querySet, resolved, staging]) item.destroy();
    return times;
  };
  return { work, finish: () => read };
}
