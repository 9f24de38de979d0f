// A bound of what a driver makes of a shader whose functions call each other: each call is a copy of the function.

import { ShaderloomError } from "./errors.js";

/** Tokens of a shader once its functions are inlined: the bound of runtime/device/wgsl_guard.py. */
const MOST = 1 << 18;

const TOKEN = /\/\/[^\n\v\f\r\x85\u2028\u2029]*|\/\*|[\p{XID_Start}_]\p{XID_Continue}*|\d\w*|\S/gu;
const BRACKET = /\/\*|\*\//gu;

/** @param {string} code @param {string} kernel its name in messages
 *  @throws {ShaderloomError} "bundle" for a shader that expands beyond the bound; few of them end, on some drivers */
export function requireFewInlined(code, kernel) {
  const bodies = bodiesOf(code);
  /** @type {Map<string, Map<string, number>>} How often each function names others. */
  const calls = new Map();
  /** @type {Map<string, string[]>} */
  const callers = new Map([...bodies.keys()].map((name) => [name, []]));
  for (const [name, body] of bodies) {
    const counts = new Map();
    for (const token of body) {
      if (token !== name && bodies.has(token)) counts.set(token, (counts.get(token) ?? 0) + 1);
    }
    calls.set(name, counts);
    for (const called of counts.keys()) callers.get(called)?.push(name);
  }
  /** @type {Map<string, number>} Tokens of a function with what it calls. */
  const totals = new Map();
  const open = new Map([...calls].map(([name, counts]) => [name, counts.size]));
  const settled = [...bodies.keys()].filter((name) => !open.get(name)); // it grows; a circle is never WGSL
  for (const name of settled) {
    let total = bodies.get(name)?.length ?? 0;
    for (const [called, count] of calls.get(name) ?? []) total += count * (totals.get(called) ?? 0);
    if (total > MOST) throw new ShaderloomError("bundle", `${kernel} calls functions of more than ${MOST} tokens in all`);
    totals.set(name, total);
    for (const caller of callers.get(name) ?? []) {
      const left = (open.get(caller) ?? 0) - 1;
      open.set(caller, left);
      if (!left) settled.push(caller);
    }
  }
}

/** Return the tokens of each function by its name, each up to the next function. @param {string} code */
function bodiesOf(code) {
  /** @type {Map<string, string[]>} */
  const bodies = new Map();
  /** @type {string[]} */
  let body = [];
  let previous = "";
  for (const token of tokensOf(code)) {
    if (previous === "fn") {
      body = ["fn"];
      bodies.set(token, body);
    }
    body.push(token);
    previous = token;
  }
  return bodies;
}

/** Yield the tokens of a text but for comments; those in slashes with stars nest. @param {string} code */
function* tokensOf(code) {
  for (let position = 0, depth = 0; ; ) {
    const pattern = depth ? BRACKET : TOKEN;
    pattern.lastIndex = position;
    const token = pattern.exec(code)?.[0];
    if (!token) return;
    position = pattern.lastIndex;
    if (token === "/*") depth++;
    else if (depth) depth--;
    else if (!token.startsWith("//")) yield token;
  }
}
