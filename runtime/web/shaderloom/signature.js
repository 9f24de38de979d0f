/** @import { DataType, Feeds, Manifest, Program } from "../shaderloom.js" */
/** @import { Value } from "./feeds.js" */
/** @import { PartialSymbols, Symbols } from "./shapes.js" */

import { ensure } from "./errors.js";
import { isBuffer, normaliseFeed } from "./feeds.js";
import { bindShapes, rangeViolation } from "./shapes.js";
import { formatShape } from "./sizes.js";

/** What a bundle takes: the types of inputs, the ranges of dynamic dimensions, and the shapes of each plan. */
export class Signature {
  /** @param {Manifest} manifest */
  constructor(manifest) {
    const ports = [...manifest.inputs, ...manifest.overridable];
    /** @type {Record<string, DataType>} */
    this.dtypes = Object.fromEntries(ports.map((port) => [port.name, port.dtype]));
    this.names = ports.map(({ name }) => name).join(", ");
    this.ranges = manifest.dynamic;
    this.programs = [...manifest.plans.map(() => undefined), ...(manifest.programs ?? [])];
    this.shapes = [...manifest.plans, ...(manifest.programs ?? [])].map(({ shapes }) => shapes);
  }

  /**
   * Return the index of the first plan, or program behind them, that fits the feeds, its symbols, and the feeds
   * normalised.
   *
   * @param {Feeds} feeds
   * @returns {{ index: number, program?: Program, symbols: Symbols, values: Record<string, Value> }}
   * @throws {ShaderloomError} "input" if a feed is missing, no plan fits, or several do
   */
  match(feeds) {
    ensure("input", Object(feeds) === feeds, "feeds is no object");
    const values = this.#normalise(feeds);
    const lacking = this.shapes.map((shapes) => Object.keys(shapes).filter((name) => !(name in values)));
    ensure("input", lacking.some(({ length }) => !length), `the feeds lack ${lacking[0].join(", ")}`);
    const count = Object.keys(values).length;
    const fitting = [];
    /** @type {Set<string>} */
    const violations = new Set();
    for (const [index, shapes] of this.shapes.entries()) {
      const symbols = !lacking[index].length && Object.keys(shapes).length === count ? bindShapes(shapes, values, this.dtypes) : null;
      const violation = symbols && rangeViolation(symbols, this.ranges);
      if (violation) violations.add(violation);
      else if (symbols) fitting.push({ index, symbols });
    }
    if (!fitting.length) {
      const asked = Object.entries(values).map(([name, value]) => `${name}=${describeSize(value)}`).join(" ");
      const why = [...violations].map((text) => ` (${text})`).join("");
      ensure("input", false, `the bundle was not compiled for ${asked}; it was for ${this.#describe()}${why}`);
    }
    const [{ index, symbols }] = fitting;
    const shaped = Object.values(values).every(({ dims }) => dims);
    if (isComplete(symbols) && (fitting.length === 1 || shaped)) {
      return { index, program: this.programs[index], symbols, values };
    }
    ensure("input", false, `the sizes of the feeds do not say which shapes are meant (${this.#describe()}): give {data, dims}`);
  }

  /** @param {Feeds} feeds */
  #normalise(feeds) {
    /** @type {Record<string, Value>} */
    const values = Object.create(null); // a name may be __proto__
    for (const [name, feed] of Object.entries(feeds)) {
      ensure("input", Object.hasOwn(this.dtypes, name), `the model has no input '${name}'; it has ${this.names}`);
      values[name] = normaliseFeed(name, feed, this.dtypes[name]);
    }
    return values;
  }

  /** Return the shapes of all plans as a text. */
  #describe() {
    return this.shapes
      .map((shapes) => Object.entries(shapes).map(([name, dims]) => `${name}=${formatShape(dims)}`).join(" "))
      .join("; ");
  }
}

/** @param {PartialSymbols} symbols @returns {symbols is Symbols} */
const isComplete = (symbols) => !Object.values(symbols).includes(undefined);

/** @param {Value} value */
function describeSize({ data, dims }) {
  if (dims) return formatShape(dims);
  return isBuffer(data) ? `${data.size} bytes` : `${data.length} elements`;
}
