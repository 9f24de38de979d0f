// The structure of a bundle's JSON: what each field is, by the table that the Python reader shares. Both give the same
// verdict on any bytes, by the same rule at the same place (runtime/bundle/structure.py).

import { ShaderloomError } from "./errors.js";
import { SCHEMA } from "./schema.js";
import { OPERATORS } from "./tensors.js";

/**
 * @typedef {string | string[] | Record<string, string[]>} Form A type, in the notation of the table.
 * @typedef {{ [limit: string]: any, types: Record<string, Form> }} Schema
 * @typedef {(value: any) => void} Check
 */

/** A field that is not as the format says: the rule that it breaks, and where it is. */
export class Refusal extends Error {
  /** @param {string} rule @param {string} reason @param {(string | number)[]} path */
  constructor(rule, reason, path) {
    super(reason);
    this.rule = rule;
    this.path = path;
  }

  /** Return the error of a file. @param {string} file */
  of(file) {
    const parts = this.path.map((part) => (/^[A-Za-z_]\w*$/.test(`${part}`) ? `.${part}` : `[${JSON.stringify(part)}]`));
    const place = parts.join("").replace(/^\./, "") || "it";
    return new ShaderloomError("bundle", `'${file}': ${place} ${this.message}`, { cause: this });
  }
}

/** Refuse what breaks a rule. @param {string} name the rule's @param {unknown} holds @param {string} reason
 *  @param {(string | number)[]} path where that is in what is checked @returns {asserts holds} @throws {Refusal} */
export function rule(name, holds, reason, ...path) {
  if (!holds) throw new Refusal(name, reason, path);
}

/** Return what a check gives for a value that is at a name. @template Result, Value
 *  @param {string | number} name @param {(value: Value, name: any) => Result} check
 *  @param {Value} value @returns {Result} @throws {Refusal} with the name in its path */
export function within(name, check, value) {
  try {
    return check(value, name);
  } catch (error) {
    if (error instanceof Refusal) error.path.unshift(name);
    throw error;
  }
}

/** Check the items of a list in their order, or those of an object in the order of their names.
 *  @param {any} items @param {(item: any, name: any) => void} check @throws {Refusal} */
function eachOf(items, check) {
  const names = Array.isArray(items) ? items.keys() : Object.keys(items).sort();
  for (const name of names) within(name, check, items[name]);
}

/** Check the items of a field. @param {any} value @param {string} field @param {(item: any, name: any) => void} check
 *  @throws {Refusal} */
export const each = (value, field, check) => within(field, (items) => eachOf(items, check), value[field]);

/** Return what an object has of a name itself, or undefined. @template T @param {Record<string, T>} object
 *  @param {string} name @returns {T | undefined} */
export const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

/** Return the JSON value of a file whose fields are all of their types.
 *  @param {Uint8Array} content no longer than the table says @param {"manifest" | "plan"} kind @throws {Refusal} */
export function readJson(content, kind) {
  const value = parse(content);
  let level = [value];
  for (let depth = 0; depth < SCHEMA.depth; depth++) {
    level = level.flatMap((part) => (isContainer(part) ? Object.values(part).filter(isContainer) : []));
  }
  rule("json", !level.length, "is nested too deeply");
  checkOf(kind)(value);
  return value;
}

/** @param {Uint8Array} content @throws {Refusal} for what is no JSON */
export function parse(content) {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content));
  } catch (error) {
    throw new Refusal("json", `is not JSON: ${error}`, []);
  }
}

/** @param {any} value */
const isContainer = (value) => Object(value) === value;

/** @param {any} value */
const isText = (value) => typeof value === "string";

/** The checks of types by their names. @type {Map<string, Check>} */
const checks = new Map();

/** Return the check of a type; that of a name is made when it is used, as a type may be part of itself.
 *  @param {Form} form @returns {Check} */
function checkOf(form) {
  if (Array.isArray(form)) return record(form.join(", "));
  if (typeof form !== "string") return kinds(form);
  if (form.startsWith("(")) return tuple(form.slice(1, -1).split(", ").map(checkOf));
  if (form.endsWith("?")) {
    const inner = checkOf(form.slice(0, -1));
    return (value) => value === null || inner(value);
  }
  const [, item, bracket, least, most] = /^(.+)([[{])(?:(\d+)\.\.)?(\d*).$/.exec(form) ?? [];
  if (item) return (bracket === "[" ? list : map)(checkOf(item), Number(least ?? 0), Number(most || SCHEMA.items));
  if (form.includes("|")) return oneOf(form.split("|"));
  return BUILT_IN[form] ?? ((value) => {
    const check = checks.get(form) ?? checkOf(SCHEMA.types[form]);
    checks.set(form, check);
    check(value);
  });
}

/** @param {string} text of fields with their types @returns {Check} */
function record(text) {
  const fields = text.split(", ").map((field) => {
    const [, name, mark, form] = /** @type {string[]} */ (/^(\w+)(\??): (.+)$/.exec(field));
    return { name, isOptional: mark === "?", check: checkOf(form) };
  });
  return (value) => {
    requireObject(value);
    for (const { name, isOptional, check } of fields) {
      if (Object.hasOwn(value, name)) within(name, check, value[name]);
      else rule("missing", isOptional, "is missing", name);
    }
  };
}

/** Return the check of a record whose field `kind` says which record it is. @param {Record<string, string[]>} forms
 *  @returns {Check} */
function kinds(forms) {
  const checks = new Map(Object.entries(forms).map(([kind, form]) => [kind, checkOf(form)]));
  const tagged = record(`kind: ${[...checks.keys()].join("|")}`);
  return (value) => {
    tagged(value);
    /** @type {Check} */ (checks.get(value.kind))(value);
  };
}

/** @param {Check[]} checks @returns {Check} */
const tuple = (checks) => list((value, index) => checks[index](value), checks.length, checks.length);

/** @param {(value: any, index: number) => void} check @param {number} least @param {number} most @returns {Check} */
const list = (check, least, most) => (value) => {
  rule("type", Array.isArray(value), "is not a list");
  requireCount(value.length, least, most);
  eachOf(value, check);
};

/** @param {Check} check @param {number} least @param {number} most @returns {Check} */
const map = (check, least, most) => (value) => {
  requireObject(value);
  requireCount(Object.keys(value).length, least, most);
  eachOf(value, (item, name) => {
    BUILT_IN.text(name);
    check(item);
  });
};

/** @param {string[]} choices @returns {Check} */
function oneOf(choices) {
  const reason = `is none of ${choices.join(", ")}`;
  return (value) => rule("choice", choices.includes(value), reason);
}

/** @param {any} value */
const requireObject = (value) => rule("type", isContainer(value) && !Array.isArray(value), "is not an object");

/** @param {number} count @param {number} least @param {number} most */
const requireCount = (count, least, most) =>
  rule("count", count >= least && count <= most, `has ${count} items; ${least} to ${most} are allowed`);

/** The checks of the types without parts. @type {Record<string, Check>} */
const BUILT_IN = {
  text(value) {
    rule("type", isText(value), "is not a string");
    rule("text", !/\p{Surrogate}/u.test(value), "has half of a character");
  },
  key: (value) => rule("key", isText(value) && /^[0-9a-f]{64}$/.test(value), "is not 64 hex digits"),
  format(value) {
    const [, major] = (isText(value) && /^(\d+)\.\d+$/.exec(value)) || [];
    rule("format", major, "is no version");
    rule("format", Number(major) === 3, `is version ${value}; this runner reads 3.x`);
  },
  integer: (value) => rule("number", Number.isSafeInteger(value), "is not an integer from -2^53 + 1 to 2^53 - 1"),
  count: (value) => rule("number", Number.isSafeInteger(value) && value >= 0, "is not an integer from 0 to 2^53 - 1"),
  number: (value) => rule("number", Number.isFinite(value), "is not a finite number"),
  flag: (value) => rule("type", typeof value === "boolean", "is neither true nor false"),
  dtype: (value) => rule("dtype", isDtype(value) || SCHEMA["other dtypes"].includes(value), "is no element type"),
  "device dtype": (value) => rule("dtype", isDtype(value), "is no element type that a device holds"),
  dim: (value) => BUILT_IN[isText(value) ? "text" : "count"](value),
  setting(value) {
    if (Array.isArray(value)) eachOf(value, BUILT_IN.setting);
    else if (isContainer(value)) rule("type", false, "is an object");
    else if (isText(value)) BUILT_IN.text(value);
    else if (typeof value === "number") BUILT_IN.number(value);
  },
  base64(value) {
    BUILT_IN.text(value);
    rule("base64", value.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(value), "is not base64 data");
  },
  /** A number that may depend on symbols: an integer, a name, or [operator, operand, ...]. */
  size(value) {
    const { nodes, depth } = SCHEMA.size;
    let level = operandsOf(value);
    let parts = 1;
    for (let at = 1; at < depth && level.length; at++) {
      parts += level.length;
      rule("size", parts <= nodes, `has more than ${nodes} parts`);
      level = level.flatMap(operandsOf);
    }
    rule("size", !level.length, "is nested too deeply");
  },
};

/** @param {any} value */
const isDtype = (value) => isText(value) && Object.hasOwn(SCHEMA.dtypes, value);

/** Return the operands of a size, once it is right but for these. @param {any} value @returns {any[]} */
function operandsOf(value) {
  if (!Array.isArray(value)) {
    BUILT_IN[isText(value) ? "text" : "integer"](value);
    return [];
  }
  const [operator, ...operands] = value;
  rule("size", operands.length && OPERATORS.has(operator), "is no operator with operands");
  rule("size", "+*".includes(operator) || operands.length === 2, `has a '${operator}' of ${operands.length} operands`);
  const [, divisor] = operands;
  const isDivisor = Number.isSafeInteger(divisor) && divisor > 0;
  rule("size", isDivisor || !["//", "%"].includes(operator), "divides by no positive number");
  return operands;
}
