// Bounds of what a driver expands of a shader. runtime/device/wgsl_guard.py says where they are from, wgsl_values.py how
// sizes are told; both refuse the same texts, in the same words.

import { ShaderloomError } from "./errors.js";

const MAX_NESTING = 1_000, MAX_OPERATORS = 6_000, MAX_SCALARS = 1 << 11, MAX_INLINED = 1 << 18;
const SMALL = 16, VECTOR_SIZE = 4, LARGEST = 2 ** 40, PASSES = 8, TYPE_DEPTH = 32;

const COMMENT = /\/\/[^\n\v\f\r\x85\u2028\u2029]*|\/\*/g, BLOCK = /\/\*|\*\//g;
const TOKEN = /[A-Za-z_]\w*|\d[\w.]*|[(){}[\]<>,;:=@.]/g;
const COUNT = /^(0|[1-9]\d{0,8}|0[xX][\da-fA-F]{1,7})[iu]?$/;
const VECTOR = /^(?:vec([234])[fiuh]?|mat([234])x([234])[fh]?)$/;
const ELSEWHERE = ["storage", "uniform", "workgroup"], DECLARATIONS = ["let", "const", "var", "override", "alias"];

/** @typedef {Map<string, number>} Sizes */
/** An open bracket, with the one around it: scalars of finished operands, of the current one, of the whole where a declaration says them;
 *  whether the whole is written out here; the name that the statement declares, and scalars of its type.
 *  @typedef {{ outer?: Frame, done: number, current: number, value?: number, expands: boolean, declares: string, declared: number }} Frame */

/** @param {string} code @param {string} kernel its name in messages
 *  @throws {ShaderloomError} "bundle" for a shader that nests too deeply or expands too far */
export function requireBounded(code, kernel) {
  const text = withoutComments(code);
  /** @type {Exceed} */
  const exceed = (reason) => {
    throw new ShaderloomError("bundle", `${kernel} ${reason}`);
  };
  boundText(text, exceed);
  boundTokens(text.match(TOKEN) ?? [], exceed);
}

/** Says by what a text is beyond the bounds. @typedef {(reason: string) => never} Exceed */

/** @param {string} text without comments @param {Exceed} exceed */
function boundText(text, exceed) {
  let depth = 0;
  for (const [bracket] of text.matchAll(/[(){}[\]]/g)) {
    depth += "({[".includes(bracket) ? 1 : -1;
    if (depth > MAX_NESTING) exceed(`nests deeper than ${MAX_NESTING} levels`);
  }
  for (const statement of text.split(/[;{}]/)) {
    if (statement.length > MAX_OPERATORS && statement.replace(/[^-+*/%&|^<>=!~]/g, "").length > MAX_OPERATORS) {
      exceed(`has an expression of more than ${MAX_OPERATORS} operators`);
    }
    if (statement.split("<").length > MAX_NESTING + 1) exceed(`has an expression of more than ${MAX_NESTING} '<'`);
  }
  if (/[^\0-\x7f]/.test(text)) exceed("has letters beyond ASCII outside of comments");
}

/** Return a text with a space for each comment; those in slashes with stars nest. @param {string} code */
function withoutComments(code) {
  let text = "";
  for (let position = 0; ; ) {
    COMMENT.lastIndex = position;
    const comment = COMMENT.exec(code);
    if (!comment) return text + code.slice(position);
    text += `${code.slice(position, comment.index)} `;
    position = COMMENT.lastIndex;
    for (let depth = Number(comment[0] === "/*"); depth; position = BLOCK.lastIndex) {
      BLOCK.lastIndex = position;
      const bracket = BLOCK.exec(code);
      if (!bracket) return text;
      depth += bracket[0] === "/*" ? 1 : -1;
    }
  }
}

/** Check tokens: passes over them settle what is known of names. @param {string[]} tokens @param {Exceed} exceed */
function boundTokens(tokens, exceed) {
  /** @type {Sizes} */
  const types = new Map();
  /** @type {Sizes} */
  const members = new Map();
  /** @type {Sizes} */
  const values = new Map();
  /** @type {Sizes} */
  const counts = new Map();
  /** Tokens of functions with those that they call. @type {Sizes} */
  const inlined = new Map();
  /** Values that are no variables: to index one, it is copied to memory. @type {Set<string>} */
  const immutable = new Set();
  /** Types, functions and counts that were used. @type {Set<string>} */
  const guessed = new Set();
  /** Whether every name had its size before it was used. */
  let isSettled = true;
  /** The innermost open bracket. @type {Frame} */
  let frame;
  let [at, scalars, length, inside] = [0, 0, 0, ""];

  /** @param {Sizes} kind @param {string} name @param {number} size */
  function define(kind, name, size) {
    const bounded = Math.min(size, LARGEST);
    if (bounded <= (kind.get(name) ?? (kind === values ? VECTOR_SIZE : 0))) return;
    kind.set(name, bounded);
    if (kind === values || guessed.has(name)) isSettled = false;
  }

  const next = () => tokens[at++] ?? "";

  const peek = (offset = 0) => tokens[at + offset] ?? "";

  /** Take a token if it is the next one. @param {string} token */
  const takes = (token) => {
    if (peek() !== token) return false;
    at++;
    return true;
  };

  /** @param {boolean} [expands] @param {number} [value] */
  function open(expands = false, value = undefined) {
    frame = { outer: frame, done: 0, current: 0, value, expands, declares: "", declared: 0 };
  }

  /** Count a value that is written out here. @param {number} size */
  function expand(size) {
    if (size > SMALL) scalars += size;
    if (scalars > MAX_SCALARS) exceed(`has arrays and structs of more than ${MAX_SCALARS} scalars in all`);
  }

  /** A literal counts one. */
  function endOperand() {
    frame.done += Math.max(frame.current, 1);
    frame.current = 0;
  }

  function endStatement() {
    endOperand();
    const { declares, declared, done } = frame;
    if (!declares) return;
    define(values, declares, declared || done);
    Object.assign(frame, { declares: "", done: 0 });
  }

  /** @param {string} bracket */
  function close(bracket) {
    endStatement();
    if (!frame.outer) return; // a bracket too many, which the parser refuses
    const { value, done, expands } = frame;
    frame = frame.outer;
    if (bracket === ")") {
      frame.current = value ?? done;
      if (expands) expand(frame.current);
    } else if (bracket === "}" && !frame.outer && inside) {
      define(inlined, inside, length);
      inside = "";
    }
  }

  /** Take a member of the value before, or components of a vector. */
  function member() {
    const name = next();
    guessed.add(name);
    frame.current = members.get(name) ?? VECTOR_SIZE;
    if (!/^[.[]/.test(peek())) expand(frame.current);
  }

  /** Take a constructor, a call, or the use of a value. @param {string} name */
  function use(name) {
    const following = peek();
    if (name === "array" || types.has(name) || (/[<(]/.test(following) && VECTOR.test(name))) {
      const declared = name !== "array" || following === "<" ? type(name) : undefined;
      if (takes("(")) open(true, declared);
      return;
    }
    const size = values.get(name) ?? VECTOR_SIZE;
    if (takes("(")) {
      open(true, size);
      length += inlined.get(name) ?? 0;
      guessed.add(name);
      if (length > MAX_INLINED) exceed(`calls functions of more than ${MAX_INLINED} tokens in all`);
      return;
    }
    frame.current = size;
    if (following !== "." && (following !== "[" || immutable.has(name))) expand(size);
  }

  function struct() {
    const name = next();
    let size = 0;
    at++;
    for (let token = next(); token && token !== "}"; token = next()) {
      if (token === "@") attribute();
      else if (token === ":") {
        const [field, held] = [peek(-2), type()];
        define(members, field, held);
        size += held;
      }
    }
    define(types, name, size);
  }

  /** Take a declaration up to its initial value, or a whole alias. @param {string} keyword */
  function declaration(keyword) {
    const space = peek() === "<" ? peek(1) : "";
    if (space) skipTo(">");
    const name = next();
    if (keyword === "alias") {
      at++;
      return define(types, name, type());
    }
    if (keyword !== "var") {
      if (!immutable.has(name) && values.has(name)) isSettled = false;
      immutable.add(name);
    }
    const declared = takes(":") ? type() : 0;
    const isElsewhere = ELSEWHERE.includes(space);
    Object.assign(frame, { declares: isElsewhere ? "" : name, declared, done: 0, current: 0 });
    if (isElsewhere) define(values, name, 1);
    else if (keyword === "var") expand(declared);
    const [, count] = COUNT.exec(peek(1)) ?? [];
    if (keyword === "const" && peek(2) === ";" && count) define(counts, name, Number(count));
  }

  /** Take parameters and result of a function, up to its body. */
  function signature() {
    inside = next();
    length = 0;
    at++;
    while (peek() && peek() !== "{") {
      const token = next();
      if (token === "@") attribute();
      else if (token === ":") define(values, peek(-2), type());
      else if (token === ">") {
        while (takes("@")) attribute();
        define(values, inside, type());
      }
    }
  }

  function attribute() {
    at++;
    if (peek() !== "(") return;
    for (let depth = 0, token = next(); token; token = next()) {
      depth += Number(token === "(") - Number(token === ")");
      if (!depth) return;
    }
  }

  /** Move behind a token. @param {string} end */
  function skipTo(end) {
    while (peek() && next() !== end);
  }

  /** Take a type and return its scalars. @returns {number} */
  function type(name = next(), depth = 0) {
    if (depth > TYPE_DEPTH) exceed(`has a type of more than ${TYPE_DEPTH} levels`);
    const [, components, columns, rows = 1] = VECTOR.exec(name) ?? [];
    const count = components ?? columns;
    guessed.add(name);
    const size = count ? Number(count) * Number(rows) : (types.get(name) ?? 1);
    if (!takes("<")) return size;
    let element = type(next(), depth + 1);
    if (name === "ptr") {
      at++;
      element = type(next(), depth + 1);
    }
    if (name === "array" && peek() === ",") element *= countOf(peek(1), peek(2));
    skipTo(">");
    return count ? size : element;
  }

  /** @param {string} token @param {string} following */
  function countOf(token, following) {
    if (/[>,]/.test(following)) {
      const [, count] = COUNT.exec(token) ?? [];
      const size = count ? Number(count) : counts.get(token);
      if (size !== undefined) return size;
      if (/^[A-Za-z_]/.test(token)) {
        guessed.add(token);
        return 1; // declared later, if at all
      }
    }
    return exceed("has an array whose size is neither a number nor a constant that is one");
  }

  /** @param {string} token */
  function take(token) {
    if ("([{".includes(token)) open();
    else if (")]}".includes(token)) close(token);
    else if (DECLARATIONS.includes(token)) declaration(token);
    else if (token === ",") endOperand();
    else if (token === ";") endStatement();
    else if (token === "=") frame.current = 0;
    else if (token === "@") attribute();
    else if (token === ".") member();
    else if (token === "struct") struct();
    else if (token === "fn") signature();
    else if (token > "@") use(token); // a name: numbers and other signs are below
  }

  for (let pass = 0; pass < PASSES; pass++) {
    guessed.clear();
    [at, scalars, length, inside, isSettled] = [0, 0, 0, "", true];
    frame = /** @type {any} */ (undefined); // the one of the whole text has none around it
    open();
    for (let token = next(); token; token = next()) {
      length++;
      take(token);
    }
    if (isSettled) return;
  }
  exceed("declares names in the reverse order of their use");
}
