// The structure of a bundle's JSON: what each field is, by the table that the Python reader shares. Both give the same
// verdict on any bytes, by the same rule at the same place (runtime/bundle/structure.py).

import { ShaderloomError } from "./errors.js";
import { SCHEMA } from "./schema.js";

/**
 * @typedef {string | { [form: string]: any }} Form A type: its name, or what it consists of.
 * @typedef {{ [limit: string]: any, types: Record<string, Form> }} Schema
 * @typedef {(value: any) => void} Check
 */

/** A field that is not as the format says: the rule that it breaks, and where it is. */
export class Refusal extends Error {
  /** @param {string} rule @param {string} reason @param {(string | number)[]} path */
  constructor(rule, reason, path = []) {
    super(reason);
    this.rule = rule;
    this.path = [...path];
  }

  /** Return the error of a file. @param {string} file */
  of(file) {
    const parts = this.path.map((part) => (/^[A-Za-z_]\w*$/.test(`${part}`) ? `.${part}` : `[${JSON.stringify(part)}]`));
    const place = parts.join("").replace(/^\./, "") || "it";
    return new ShaderloomError("bundle", `'${file}': ${place} ${this.message}`, { cause: this });
  }
}

/** Return the JSON value of a file whose fields are all of their types.
 *  @param {Uint8Array} content @param {"manifest" | "plan"} kind @throws {Refusal} */
export function readJson(content, kind) {
  const value = parse(content, SCHEMA.bytes[kind]);
  checkOf(kind)(value);
  return value;
}

/** @param {Uint8Array} content @param {number} most */
function parse(content, most) {
  if (content.length > most) throw new Refusal("json", `has ${content.length} bytes, more than any bundle needs`);
  let value;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content));
  } catch (error) {
    throw new Refusal("json", `is not JSON: ${error}`);
  }
  let level = [value];
  for (let depth = 0; depth < SCHEMA.depth; depth++) {
    level = level.flatMap((part) => (isContainer(part) ? Object.values(part).filter(isContainer) : []));
    if (!level.length) return value;
  }
  throw new Refusal("json", "is nested too deeply");
}

/** @param {any} value */
const isContainer = (value) => typeof value === "object" && value !== null;

/** @type {Map<string, Check>} */
const checks = new Map();

/** Return the check of a type, one of the table when it is used: a type may be part of itself.
 *  @param {Form} form @returns {Check} */
function checkOf(form) {
  if (typeof form !== "string") return compile(form);
  return BUILT_IN[form] ?? ((value) => {
    const check = checks.get(form) ?? compile(/** @type {any} */ (SCHEMA.types)[form]);
    checks.set(form, check);
    check(value);
  });
}

/** @param {any} form @returns {Check} */
function compile(form) {
  if (typeof form === "string") return checkOf(form);
  if (form.record) return record(form.record, form.optional ?? {});
  if (form.kinds) return kinds(form.kinds);
  if (form.list) return list(checkOf(form.list), form.least ?? 0, form.most);
  if (form.map) return map(checkOf(form.map), form.most);
  if (form.tuple) return tuple(form.tuple.map(checkOf));
  if (form["one of"]) return oneOf(form["one of"]);
  const inner = checkOf(form["or null"]);
  return (value) => {
    if (value !== null) inner(value);
  };
}

/** @param {string | number} name @param {Check} check @param {any} value */
function within(name, check, value) {
  try {
    check(value);
  } catch (error) {
    if (error instanceof Refusal) error.path.unshift(name);
    throw error;
  }
}

/** @param {Record<string, Form>} required @param {Record<string, Form>} optional @returns {Check} */
function record(required, optional) {
  const inner = Object.entries({ ...required, ...optional }).map(([name, form]) => ({ name, check: checkOf(form) }));
  return (value) => {
    requireObject(value);
    for (const { name, check } of inner) {
      if (Object.hasOwn(value, name)) within(name, check, value[name]);
      else if (Object.hasOwn(required, name)) throw new Refusal("missing", "is missing", [name]);
    }
  };
}

/** Return the check of a record whose field `kind` says which record it is. @param {Record<string, Form>} forms
 *  @returns {Check} */
function kinds(forms) {
  const checks = new Map(Object.entries(forms).map(([kind, form]) => [kind, checkOf(form)]));
  const choice = oneOf([...checks.keys()]);
  const tagged = record({ kind: "text" }, {});
  return (value) => {
    tagged(value);
    within("kind", choice, value.kind);
    /** @type {Check} */ (checks.get(value.kind))(value);
  };
}

/** @param {Check} check @param {number} least @param {number} most @returns {Check} */
const list = (check, least, most) => (value) => {
  requireList(value);
  if (value.length < least || value.length > most) {
    throw new Refusal("count", `has ${value.length} items; ${least} to ${most} are allowed`);
  }
  for (let index = 0; index < value.length; index++) within(index, check, value[index]);
};

/** @param {Check} check @param {number} most @returns {Check} */
const map = (check, most) => (value) => {
  requireObject(value);
  const names = Object.keys(value).sort();
  if (names.length > most) throw new Refusal("count", `has ${names.length} items; 0 to ${most} are allowed`);
  for (const name of names) {
    within(name, text, name);
    within(name, check, value[name]);
  }
};

/** @param {Check[]} checks @returns {Check} */
const tuple = (checks) => (value) => {
  requireList(value);
  if (value.length !== checks.length) {
    throw new Refusal("count", `has ${value.length} items instead of ${checks.length}`);
  }
  for (const [index, check] of checks.entries()) within(index, check, value[index]);
};

/** @param {string[]} choices @returns {Check} */
const oneOf = (choices) => (value) => {
  if (!choices.includes(value)) throw new Refusal("choice", `is none of ${choices.join(", ")}`);
};

/** @param {any} value */
function requireObject(value) {
  if (!isContainer(value) || Array.isArray(value)) throw new Refusal("type", "is not an object");
}

/** @param {any} value */
function requireList(value) {
  if (!Array.isArray(value)) throw new Refusal("type", "is not a list");
}

/** @type {Check} */
function text(value) {
  if (typeof value !== "string") throw new Refusal("type", "is not a string");
  if (/\p{Surrogate}/u.test(value)) throw new Refusal("text", "has half of a character");
}

/** @type {Check} */
function key(value) {
  if (typeof value !== "string" || !/^[0-9a-f]{64}$/.test(value)) throw new Refusal("key", "is not 64 hex digits");
}

/** @type {Check} */
function format(value) {
  const major = typeof value === "string" ? /^(\d+)\.\d+$/.exec(value)?.[1] : undefined;
  if (major === undefined) throw new Refusal("format", "is no version");
  if (Number(major) !== 3) throw new Refusal("format", `is version ${value}; this runner reads 3.x`);
}

/** @type {Check} */
function integer(value) {
  if (!Number.isSafeInteger(value)) throw new Refusal("number", "is not an integer below 2 to the power of 53");
}

/** @type {Check} */
function count(value) {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new Refusal("number", "is not an integer from 0 up, below 2 to the power of 53");
  }
}

/** @type {Check} */
function finite(value) {
  if (!Number.isFinite(value)) throw new Refusal("number", "is not a finite number");
}

/** @type {Check} */
function flag(value) {
  if (typeof value !== "boolean") throw new Refusal("type", "is neither true nor false");
}

/** @type {Check} */
function dtype(value) {
  if (typeof value !== "string" || !(Object.hasOwn(SCHEMA.dtypes, value) || SCHEMA["other dtypes"].includes(value))) {
    throw new Refusal("dtype", "is no element type");
  }
}

/** @type {Check} */
function deviceDtype(value) {
  if (typeof value !== "string" || !Object.hasOwn(SCHEMA.dtypes, value)) {
    throw new Refusal("dtype", "is no element type that a device holds");
  }
}

/** @type {Check} */
const dim = (value) => (typeof value === "string" ? text : count)(value);

/** @type {Check} */
function setting(value) {
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) within(index, setting, item);
  } else if (typeof value === "string") text(value);
  else if (typeof value === "number") finite(value);
  else if (value !== null && typeof value !== "boolean") throw new Refusal("type", "is an object");
}

/** @type {Check} */
function base64(value) {
  text(value);
  const padding = value.indexOf("=");
  const wrong = padding >= 0 && !["=", "=="].includes(value.slice(padding));
  if (value.length % 4 || /[^A-Za-z0-9+/=]/.test(value) || wrong) throw new Refusal("base64", "is not base64 data");
}

const OPERATORS = ["+", "*", "//", "%", "min", "max"];

/** Check a number that may depend on symbols: an integer, a name, or [operator, operand, ...]. @type {Check} */
function size(value) {
  let level = [value];
  let nodes = 0;
  for (let depth = 0; depth < SCHEMA.size.depth; depth++) {
    nodes += level.length;
    if (nodes > SCHEMA.size.nodes) throw new Refusal("size", `has more than ${SCHEMA.size.nodes} parts`);
    /** @type {any[]} */
    const following = [];
    for (const item of level) {
      if (typeof item === "string") text(item);
      else if (!Array.isArray(item)) integer(item);
      else if (item.length < 2 || !OPERATORS.includes(item[0])) {
        throw new Refusal("size", "is no operator with operands");
      } else if (!"+*".includes(item[0]) && item.length !== 3) {
        throw new Refusal("size", `has a '${item[0]}' of ${item.length - 1} operands`);
      } else if ((item[0] === "//" || item[0] === "%") && !(Number.isSafeInteger(item[2]) && item[2] > 0)) {
        throw new Refusal("size", "divides by something else than a positive number");
      } else for (let operand = 1; operand < item.length; operand++) following.push(item[operand]);
    }
    if (!following.length) return;
    level = following;
  }
  throw new Refusal("size", "is nested too deeply");
}

/** @type {Record<string, Check>} */
const BUILT_IN = {
  text, key, format, integer, count, number: finite, flag, dtype, "device dtype": deviceDtype, dim, setting, base64, size,
};
