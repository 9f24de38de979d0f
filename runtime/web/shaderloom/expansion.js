// Bounds of what a driver expands of a shader. runtime/device/wgsl_guard.py says where they are from, wgsl_values.py how
// sizes are told; both refuse the same texts, in the same words.

import { ShaderloomError } from "./errors.js";

const MAX_NESTING = 1_000, MAX_OPERATORS = 6_000, MAX_SCALARS = 1 << 11, MAX_INLINED = 1 << 18;
const SMALL = 16, VECTOR_SIZE = 4, LARGEST = 2 ** 40, PASSES = 8, TYPE_DEPTH = 32;

const COMMENT = /\/\/[^\n\v\f\r\x85\u2028\u2029]*|\/\*/g, BLOCK = /\/\*|\*\//g;
const TOKEN = /[A-Za-z_]\w*|\d[\w.]*|[(){}[\]<>,;:=@.]/g;
const COUNT = /^(?:0|[1-9]\d{0,8}|0[xX][\da-fA-F]{1,7})[iu]?$/;
const VECTOR = /^(?:vec([234])[fiuh]?|mat([234])x([234])[fh]?)$/;
const ELSEWHERE = ["storage", "uniform", "workgroup"];

/** @typedef {Map<string, number>} Sizes */
/** An open bracket: scalars of finished operands, of the current one, of the whole where a declaration says them;
 *  whether the whole is written out here; the name that the statement declares, and scalars of its type.
 *  @typedef {{ done: number, current: number, value?: number, expands: boolean, declares: string, declared: number }} Frame */

/** @returns {Sizes} */
const noSizes = () => new Map();

/** @param {string} code @param {string} kernel its name in messages
 *  @throws {ShaderloomError} "bundle" for a shader that nests too deeply or expands too far */
export function requireBounded(code, kernel) {
  const reason = excessOf(withoutComments(code));
  if (reason) throw new ShaderloomError("bundle", `${kernel} ${reason}`);
}

/** Return by what a text without comments is beyond the bounds, or "". @param {string} text */
function excessOf(text) {
  let depth = 0;
  for (const [bracket] of text.matchAll(/[(){}[\]]/g)) {
    depth += "({[".includes(bracket) ? 1 : -1;
    if (depth > MAX_NESTING) return `nests deeper than ${MAX_NESTING} levels`;
  }
  for (const statement of text.split(/[;{}]/)) {
    if (statement.length > MAX_OPERATORS && statement.replace(/[^-+*/%&|^<>=!~]/g, "").length > MAX_OPERATORS) {
      return `has an expression of more than ${MAX_OPERATORS} operators`;
    }
    if (statement.split("<").length > MAX_NESTING + 1) return `has an expression of more than ${MAX_NESTING} '<'`;
  }
  if (/[^\0-\x7f]/.test(text)) return "has letters beyond ASCII outside of comments";
  const expansion = new Expansion(text.match(TOKEN) ?? []);
  for (let pass = 0; pass < PASSES; pass++) {
    if (expansion.settle()) return expansion.excess;
  }
  return "declares names in the reverse order of their use";
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

/** Sizes by name, which passes over the tokens settle. */
class Expansion {
  /** By what the text is beyond the bounds; it ends the last pass. */
  excess = "";
  #tokens;
  #types = noSizes();
  #members = noSizes();
  #values = noSizes();
  #counts = noSizes();
  /** Tokens of functions with those that they call. */
  #inlined = noSizes();
  /** @type {Set<string>} Values that are no variables: to index one, it is copied to memory. */
  #immutable = new Set();
  /** @type {Set<string>} Types, functions and counts that were used. */
  #guessed = new Set();
  /** @type {Frame[]} */
  #frames = [];
  #at = 0;
  #scalars = 0;
  #function = "";
  #length = 0;
  #settled = true;

  /** @param {string[]} tokens */
  constructor(tokens) {
    this.#tokens = tokens;
  }

  /** Take all tokens; return whether every name had its size before it was used, or the text is beyond the bounds. */
  settle() {
    this.#guessed.clear();
    this.#frames = [];
    this.#open();
    this.#at = this.#scalars = this.#length = 0;
    this.#function = "";
    this.#settled = true;
    for (let token = this.#next(); token && !this.excess; token = this.#next()) {
      this.#length++;
      this.#take(token);
    }
    return this.#settled || this.excess !== "";
  }

  #next() {
    return this.#tokens[this.#at++] ?? "";
  }

  #peek(offset = 0) {
    return this.#tokens[this.#at + offset] ?? "";
  }

  get #frame() {
    return this.#frames[this.#frames.length - 1];
  }

  /** @param {string} token */
  #take(token) {
    switch (token) {
      case "(": case "[": case "{": return this.#open();
      case ")": case "]": case "}": return this.#close(token);
      case "let": case "const": case "var": case "override": case "alias": return this.#declaration(token);
      case "<": case ">": case ":": return;
      case ",": return this.#endOperand();
      case ";": return this.#endStatement();
      case "=": this.#frame.current = 0; return;
      case "@": return this.#attribute();
      case ".": return this.#member();
      case "struct": return this.#struct();
      case "fn": return this.#signature();
    }
    if (token > ":") this.#name(token);
  }

  /** Take a member of the value before, or components of a vector. */
  #member() {
    const name = this.#next();
    this.#guessed.add(name);
    this.#frame.current = this.#members.get(name) ?? VECTOR_SIZE;
    if (!/^[.[]/.test(this.#peek())) this.#expand(this.#frame.current);
  }

  /** @param {boolean} [expands] @param {number} [value] */
  #open(expands = false, value = undefined) {
    this.#frames.push({ done: 0, current: 0, value, expands, declares: "", declared: 0 });
  }

  /** @param {string} bracket */
  #close(bracket) {
    this.#endStatement();
    if (this.#frames.length === 1) return; // a bracket too many, which the parser refuses
    const frame = this.#frame;
    this.#frames.pop();
    if (bracket === ")") {
      const size = frame.value ?? frame.done;
      this.#frame.current = size;
      if (frame.expands) this.#expand(size);
    } else if (bracket === "}" && this.#frames.length === 1 && this.#function) {
      this.#define(this.#inlined, this.#function, this.#length);
      this.#function = "";
    }
  }

  /** A literal counts one. */
  #endOperand() {
    const frame = this.#frame;
    frame.done += Math.max(frame.current, 1);
    frame.current = 0;
  }

  #endStatement() {
    this.#endOperand();
    const frame = this.#frame;
    if (!frame.declares) return;
    this.#define(this.#values, frame.declares, frame.declared || frame.done);
    frame.declares = "";
    frame.done = 0;
  }

  /** @param {Sizes} kind @param {string} name @param {number} size */
  #define(kind, name, size) {
    const bounded = Math.min(size, LARGEST);
    if (bounded <= (kind.get(name) ?? (kind === this.#values ? VECTOR_SIZE : 0))) return;
    kind.set(name, bounded);
    if (kind === this.#values || this.#guessed.has(name)) this.#settled = false;
  }

  /** Count a value that is written out here. @param {number} scalars */
  #expand(scalars) {
    if (scalars > SMALL) this.#scalars += scalars;
    if (this.#scalars > MAX_SCALARS) this.excess ||= `has arrays and structs of more than ${MAX_SCALARS} scalars in all`;
  }

  /** Take a constructor, a call, or the use of a value. @param {string} name */
  #name(name) {
    const following = this.#peek();
    if (name === "array" || this.#types.has(name) || (/[<(]/.test(following) && VECTOR.test(name))) {
      const declared = name !== "array" || following === "<" ? this.#type(name) : undefined;
      if (this.#peek() !== "(") return;
      this.#at++;
      return this.#open(true, declared);
    }
    const size = this.#values.get(name) ?? VECTOR_SIZE;
    if (following === "(") {
      this.#at++;
      this.#open(true, size);
      this.#length += this.#inlined.get(name) ?? 0;
      this.#guessed.add(name);
      if (this.#length > MAX_INLINED) this.excess ||= `calls functions of more than ${MAX_INLINED} tokens in all`;
      return;
    }
    this.#frame.current = size;
    if (following !== "." && (following !== "[" || this.#immutable.has(name))) this.#expand(size);
  }

  #struct() {
    const name = this.#next();
    let size = 0;
    this.#at++;
    for (let token = this.#next(); token && token !== "}"; token = this.#next()) {
      if (token === "@") this.#attribute();
      else if (token === ":") {
        const member = this.#peek(-2), scalars = this.#type();
        this.#define(this.#members, member, scalars);
        size += scalars;
      }
    }
    this.#define(this.#types, name, size);
  }

  /** Take a declaration up to its initial value, or a whole alias. @param {string} keyword */
  #declaration(keyword) {
    let space = "";
    if (this.#peek() === "<") {
      space = this.#peek(1);
      this.#skipTo(">");
    }
    const name = this.#next();
    if (keyword === "alias") {
      this.#at++;
      return this.#define(this.#types, name, this.#type());
    }
    const frame = Object.assign(this.#frame, { declares: name, declared: 0, done: 0, current: 0 });
    if (keyword !== "var") {
      if (!this.#immutable.has(name) && this.#values.has(name)) this.#settled = false;
      this.#immutable.add(name);
    }
    if (this.#peek() === ":") {
      this.#at++;
      frame.declared = this.#type();
    }
    if (ELSEWHERE.includes(space)) {
      frame.declares = "";
      this.#define(this.#values, name, 1);
    } else if (keyword === "var") this.#expand(frame.declared);
    const count = this.#peek(1);
    if (keyword === "const" && this.#peek(2) === ";" && COUNT.test(count)) {
      this.#define(this.#counts, name, numberOf(count));
    }
  }

  /** Take parameters and result of a function, up to its body. */
  #signature() {
    this.#function = this.#next();
    this.#length = 0;
    this.#at++;
    while (this.#peek() && this.#peek() !== "{") {
      const token = this.#next();
      if (token === "@") this.#attribute();
      else if (token === ":") this.#define(this.#values, this.#peek(-2), this.#type());
      else if (token === ">") {
        while (this.#peek() === "@") {
          this.#at++;
          this.#attribute();
        }
        this.#define(this.#values, this.#function, this.#type());
      }
    }
  }

  #attribute() {
    this.#at++;
    if (this.#peek() !== "(") return;
    for (let depth = 0, token = this.#next(); token; token = this.#next()) {
      depth += Number(token === "(") - Number(token === ")");
      if (!depth) return;
    }
  }

  /** Move behind a token. @param {string} end */
  #skipTo(end) {
    for (let token = this.#next(); token && token !== end; ) token = this.#next();
  }

  /** Take a type and return its scalars. @returns {number} */
  #type(name = this.#next(), depth = 0) {
    if (depth > TYPE_DEPTH) this.excess ||= `has a type of more than ${TYPE_DEPTH} levels`;
    if (this.excess) return 0;
    const vector = VECTOR.exec(name);
    this.#guessed.add(name);
    const size = vector ? Number(vector[1] ?? vector[2]) * Number(vector[3] ?? 1) : (this.#types.get(name) ?? 1);
    if (this.#peek() !== "<") return size;
    this.#at++;
    let element = this.#type(this.#next(), depth + 1);
    if (name === "ptr") {
      this.#at++;
      element = this.#type(this.#next(), depth + 1);
    }
    if (name === "array" && this.#peek() === ",") element *= this.#count(this.#peek(1), this.#peek(2));
    this.#skipTo(">");
    return vector ? size : element;
  }

  /** @param {string} token @param {string} following */
  #count(token, following) {
    if (following === ">" || following === ",") {
      if (COUNT.test(token)) return numberOf(token);
      const size = this.#counts.get(token);
      if (size !== undefined) return size;
      if (/^[A-Za-z_]/.test(token)) {
        this.#guessed.add(token);
        return 1; // declared later, if at all
      }
    }
    this.excess ||= "has an array whose size is neither a number nor a constant that is one";
    return 0;
  }
}

/** @param {string} count */
function numberOf(count) {
  return Number(count.replace(/[iu]$/, ""));
}
