// The pace of runs: a device gets their work in parts, so that none holds it for long, and no run waits for ever.

/** @import { Dispatch } from "./calls.js" */
/** @import { DeviceGuard } from "./device.js" */
/** @import { TimeCalls } from "./programs.js" */
/** @import { Symbols } from "./tensors.js" */

import { abortable, deferred, ensure } from "./errors.js";

/**
 * What a submission has beside the commands that were encoded before: dispatches with the values of their symbols, the
 * work of the rest, and what encodes the end into the last part and returns what waits for it, unless nothing does.
 *
 * @template T
 * @typedef {{ dispatches?: Iterable<Dispatch>, symbols?: Symbols, work?: number,
 *   finish?: (encoder: GPUCommandEncoder) => () => Promise<T> }} Work
 */

/** @typedef {{ work: number, dispatches: number }} Amount The work is as calls estimate it. */

/** Milliseconds that a part is to take: systems reset a GPU after about two seconds, and a page is drawn between parts. */
const PART_MS = 200;

/** Dispatches of a part, which a page's thread encodes in some milliseconds. */
const PART_DISPATCHES = 2048;

/** Amounts a millisecond before any was measured: of a small GPU, and of a processor. A bundle may say anything of the work,
 *  so the first parts have few dispatches. */
const FIRST_DISPATCHES = 0.5, FIRST_WORK = { gpu: 1e8, software: 2e6 };

/** Milliseconds from which a measured time is that of the work, and not of the way to the device and back. */
const LEAST_MEASURED_MS = 20;

/** How far one measurement changes a rate, at most. */
const LARGEST_CHANGE = 8;

/** What paces the runs of a session. @typedef {ReturnType<typeof pacerOn>} Pacer */

/** Give runs their turns, and measure how fast the device works. @param {DeviceGuard} guard
 *  @param {boolean} software whether the device computes on the CPU @param {number} most seconds of a run */
export function pacerOn(guard, software, most) {
  /** Amounts a millisecond. @type {Amount} */
  const rates = { work: FIRST_WORK[software ? "software" : "gpu"], dispatches: FIRST_DISPATCHES };
  /** The end of the last turn. @type {Promise<unknown>} */
  let turns = Promise.resolve();
  const pacer = { guard, most, isFull, note, /** When the device ends what was submitted. */ ended: Promise.resolve(0) };

  /** Return what `use` gives in a turn, in the order of the calls. @template T @param {AbortSignal | undefined} signal
   *  @param {(turn: Turn) => Promise<T>} use may end the turn before @returns {Promise<T>} */
  async function inTurn(signal, use) {
    const before = turns;
    const turn = turnOf(pacer, signal);
    turns = before.then(() => turn.ended);
    try {
      await abortable(before, signal);
      return await use(turn);
    } finally {
      turn.end();
    }
  }

  /** Return whether an amount fills a part. @param {Amount} amount */
  function isFull({ work, dispatches }) {
    const most = Math.min(rates.dispatches * PART_MS, PART_DISPATCHES);
    return work >= rates.work * PART_MS || dispatches >= most;
  }

  /** Note that a part was submitted, and return its end. @param {Amount} amount
   *  @param {Promise<void>} abandoned ends when the run waits for it no longer */
  function note(amount, abandoned) {
    const submitted = performance.now();
    const done = guard.device.queue.onSubmittedWorkDone().catch(() => {}); // a loss is told by the guard
    pacer.ended = Promise.all([pacer.ended, Promise.race([done, abandoned])]).then(([before]) => {
      const now = performance.now();
      const elapsed = Math.max(now - Math.max(submitted, before), 0.1);
      for (const what of /** @type {const} */ (["work", "dispatches"])) {
        const [rate, measured] = [rates[what], amount[what] / elapsed];
        if (!measured || (elapsed < LEAST_MEASURED_MS && measured < rate)) continue;
        rates[what] = Math.min(Math.max(measured, rate / LARGEST_CHANGE), rate * LARGEST_CHANGE);
      }
      return now;
    });
    return pacer.ended;
  }

  return { inTurn, isFull };
}

/** The time from the first part of a run to its last one, in which no other run of the session submits any.
 *  @typedef {ReturnType<typeof turnOf>} Turn */

/** @param {{ guard: DeviceGuard, most: number, ended: Promise<number>, isFull: (amount: Amount) => boolean,
 *  note: (amount: Amount, abandoned: Promise<void>) => Promise<number> }} pacer @param {AbortSignal} [signal] */
function turnOf(pacer, signal) {
  const { guard, most } = pacer;
  /** Milliseconds for which the run waited for the device. */
  let waited = 0;
  /** The end of what other runs had submitted before. @type {Promise<unknown> | undefined} */
  let others;
  /** The ends of the parts that the device has, and what they are in all. @type {Promise<unknown>[]} */
  const ends = [];
  const ahead = { work: 0, dispatches: 0 };
  const [abandoned, abandon] = deferred();
  const [ended, end] = deferred();

  /**
   * Submit what `begin` encodes and gives, in as many parts as it takes, and return what its end waits for.
   *
   * @template T
   * @param {string} what the work's name in messages
   * @param {(encoder: GPUCommandEncoder) => Work<T>} begin is called once, and submitted with the first part
   * @param {TimeCalls} [time] submits the dispatches instead, behind the rest
   * @returns {Promise<T>}
   * @throws {ShaderloomError} "device" for what the device reports, and for a run that takes too long; and the signal's
   *   reason once it is aborted
   */
  async function submit(what, begin, time) {
    /** @type {Work<T> & { rest: Iterator<Dispatch>, next: IteratorResult<Dispatch> } | undefined} */
    let work;
    for (;;) {
      await makeRoom();
      const last = await wait(guard.watch(what, async () => {
        others ??= pacer.ended;
        const encoder = guard.device.createCommandEncoder();
        if (!work) {
          const begun = begin(encoder);
          const rest = ((!time && begun.dispatches) || [])[Symbol.iterator]();
          work = { ...begun, rest, next: rest.next() };
        }
        const part = encode(encoder, work);
        const isLast = work.next.done;
        const read = isLast ? work.finish?.(encoder) : undefined;
        guard.device.queue.submit([encoder.finish()]);
        note(part.work + ((isLast && work.work) || 0), part.dispatches || 1);
        return isLast && { value: /** @type {T} */ (await read?.()) };
      }));
      if (last) {
        await time?.(turn, work?.dispatches ?? [], work?.symbols ?? {});
        return last.value;
      }
    }
  }

  /** Encode dispatches, as many as a part has. @param {GPUCommandEncoder} encoder
   *  @param {{ rest: Iterator<Dispatch>, next: IteratorResult<Dispatch> }} work */
  function encode(encoder, work) {
    const part = { work: 0, dispatches: 0 };
    if (work.next.done) return part;
    const pass = encoder.beginComputePass();
    for (; !work.next.done && !pacer.isFull(part); work.next = work.rest.next()) {
      encodeCall(pass, work.next.value);
      part.work += work.next.value.work;
      part.dispatches++;
    }
    pass.end();
    return part;
  }

  /** @param {number} work @param {number} dispatches a part without any counts as one */
  function note(work, dispatches) {
    ahead.work += work;
    ahead.dispatches += dispatches;
    ends.push(pacer.note({ work, dispatches }, abandoned).then(() => {
      ahead.work -= work;
      ahead.dispatches -= dispatches;
      ends.shift();
    }));
  }

  /** Wait until the device has less than a part to do: the next one follows at once. */
  async function makeRoom() {
    signal?.throwIfAborted();
    guard.check();
    while (pacer.isFull(ahead)) await wait(ends[0]);
  }

  /** Return what the device gives, unless the run takes too long, or is aborted. @template T @param {Promise<T>} promise
   *  @returns {Promise<T>} */
  async function wait(promise) {
    await abortable(/** @type {Promise<unknown>} */ (Promise.race([promise, others])), signal);
    const begun = performance.now();
    const [late, setLate] = deferred();
    const timer = setTimeout(setLate, Math.min(1000 * most - waited, 2 ** 31 - 1)); // what a timer takes
    const tooLong = late.then(() => {
      abandon();
      ensure("device", false, `a run takes the device more than ${most} s (maxRunSeconds); the rest of it was not submitted`);
    });
    try {
      return await abortable(/** @type {Promise<T>} */ (Promise.race([promise, tooLong])), signal);
    } finally {
      clearTimeout(timer);
      waited += performance.now() - begun;
    }
  }

  const turn = { submit, ended, /** Let the next run begin. */ end };
  return turn;
}

/** Encode a dispatch into a pass. @param {GPUComputePassEncoder} pass @param {Dispatch} dispatch */
export function encodeCall(pass, { compiled, group, grid: [x, y, z], offset }) {
  pass.setPipeline(compiled.pipeline);
  pass.setBindGroup(0, group, offset === undefined ? [] : [offset]);
  pass.dispatchWorkgroups(x, y, z);
}
