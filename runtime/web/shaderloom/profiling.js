/** @import { Call, CallTime } from "../shaderloom.js" */
/** @import { Calls, Dispatch } from "./calls.js" */
/** @import { Value } from "./feeds.js" */
/** @import { Pacer, Turn } from "./pacing.js" */
/** @import { LoadedPlan } from "./plans.js" */
/** @import { TimeCalls } from "./programs.js" */
/** @import { Symbols } from "./shapes.js" */

import { encodeCall, encodeStates } from "./calls.js";
import { ShaderloomError } from "./errors.js";
import { evaluate } from "./sizes.js";

/** Dispatches whose timestamps one query set holds. */
const CALLS_A_SET = 2048;

/**
 * Run a plan, or a program, and return the time of each call.
 *
 * @param {GPUDevice} device @param {Pacer} pacer @param {Calls} calls @param {Symbols} symbols
 * @param {Record<string, Value>} values
 * @param {(time: TimeCalls) => Promise<LoadedPlan | object>} begin gives a loaded plan, or runs a program
 * @returns {Promise<CallTime[]>} @throws {ShaderloomError} "device" where there are no timestamps
 */
export async function profileOf(device, pacer, calls, symbols, values, begin) {
  if (!device.features.has("timestamp-query")) {
    throw new ShaderloomError("device", "the device was opened without the feature timestamp-query");
  }
  /** @type {CallTime[]} */
  const times = [];
  /** @type {TimeCalls} */
  const time = async (turn, dispatches, sizes) => {
    for (const each of await timesOf(device, pacer, turn, dispatches, sizes)) times.push(each);
  };
  const begun = await begin(time);
  if (!("kernels" in begun)) return times;
  const loaded = /** @type {LoadedPlan} */ (begun);
  const turn = await pacer.turn();
  try {
    /** @type {Iterable<Dispatch>} */
    let dispatches = [];
    await turn.submit("a profile", (encoder) => {
      const bound = calls.bind(loaded, symbols, values);
      encodeStates(encoder, loaded.plan, symbols, bound.lookup);
      dispatches = bound.dispatches;
      return { finish: () => () => Promise.resolve() };
    });
    await time(turn, dispatches, symbols);
  } finally {
    turn.end();
  }
  return times;
}

/**
 * Run dispatches, each in a pass of its own, and return the time of each call of the plan, those of iterations summed.
 *
 * @param {GPUDevice} device one with the feature timestamp-query @param {Pacer} pacer @param {Turn} turn
 * @param {Iterable<Dispatch>} dispatches @param {Symbols} symbols @returns {Promise<CallTime[]>}
 */
async function timesOf(device, pacer, turn, dispatches, symbols) {
  /** @type {Map<Call, number>} */
  const sums = new Map();
  const rest = dispatches[Symbol.iterator]();
  for (let count = 1; count; ) {
    const times = await turn.submit("a profile", (encoder) => timePart(device, encoder, rest, pacer));
    for (const { call, microseconds } of times) sums.set(call, (sums.get(call) ?? 0) + microseconds);
    count = times.length;
  }
  return [...sums].map(([call, microseconds]) => ({
    label: call.label ?? "", kernel: call.kernel, origins: call.origins ?? [], microseconds,
    flops: evaluate(call.flops ?? 0, symbols), bytes: evaluate(call.bytes ?? 0, symbols),
  }));
}

/** Encode the next dispatches, and return what reads their times. @param {GPUDevice} device
 *  @param {GPUCommandEncoder} encoder @param {Iterator<Dispatch>} rest @param {Pacer} pacer
 *  @returns {import("./pacing.js").Work<{ call: Call, microseconds: number }[]>} */
function timePart(device, encoder, rest, pacer) {
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
