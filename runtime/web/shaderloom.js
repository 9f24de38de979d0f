/**
 * Runs Shaderloom's shader bundles in a page: WebGPU and nothing else.
 *
 *     import { load } from "./shaderloom.js";
 *     const session = await load("squeezenet.shaderbundle/");
 *     const { output } = await session.run({ input: new Float32Array(3 * 224 * 224) });
 *     console.log(output.dims, output.data);
 *
 * docs/bundles.md specifies the format, docs/web.md shows the use. No byte of a bundle is used before the hash of its
 * chunk was checked; a page needs a secure context (https, or localhost) for that and for WebGPU itself.
 */

const MAJOR = 1;
const CHUNK = 4 << 20;
const DTYPES = {
  float32: { bytes: 4, arrays: ["Float32Array"] },
  float16: { bytes: 2, arrays: ["Float16Array", "Uint16Array"] },
  bfloat16: { bytes: 2, arrays: ["Uint16Array"] },
  int64: { bytes: 8, arrays: ["BigInt64Array"] },
  uint64: { bytes: 8, arrays: ["BigUint64Array"] },
  int32: { bytes: 4, arrays: ["Int32Array"] },
  uint32: { bytes: 4, arrays: ["Uint32Array"] },
  int16: { bytes: 2, arrays: ["Int16Array"] },
  uint16: { bytes: 2, arrays: ["Uint16Array"] },
  int8: { bytes: 1, arrays: ["Int8Array"] },
  uint8: { bytes: 1, arrays: ["Uint8Array", "Uint8ClampedArray"] },
  bool: { bytes: 1, arrays: ["Uint8Array"] },
  // A byte an element: a code, or the number's two's complement in the low bits and zeros above.
  ...Object.fromEntries(
    ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0", "float4e2m1", "int4", "uint4",
      "int2", "uint2"].map((name) => [name, { bytes: 1, arrays: ["Uint8Array"] }]),
  ),
};
/** Names of element types in safetensors files. */
const SAFETENSORS = {
  F32: "float32", F16: "float16", BF16: "bfloat16", I64: "int64", U64: "uint64", I32: "int32", U32: "uint32",
  I16: "int16", U16: "uint16", I8: "int8", U8: "uint8", BOOL: "bool",
};
const ACCESS = { read: "read-only-storage", read_write: "storage", uniform: "uniform" };
const COPIES = globalThis.GPUBufferUsage ? GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST : 0;
/** Combinations of dynamic sizes whose bind groups are kept, for each plan. */
const KEPT_SIZES = 8;

/** Everything that this module throws on purpose. `kind` is "bundle", "device", "input" or "closed". */
export class ShaderloomError extends Error {
  constructor(kind, message, options) {
    super(message, options);
    this.name = "ShaderloomError";
    this.kind = kind;
  }
}

/**
 * Open the bundle (a folder) at `url` and upload its weights.
 *
 * `device`: a GPUDevice of the caller's; without one the session makes its own and destroys it in `dispose()`.
 * `software`: whether to take kernels for adapters that compute on the CPU; by default what the adapter says.
 * `onProgress({stage, done, total})`: bytes of weights ("weights") or pipelines ("pipelines").
 */
export async function load(url, { device, software, onProgress = () => {} } = {}) {
  const files = await BundleFiles.open(url);
  const opened = device ? useDevice(device, files.manifest) : await openDevice(files.manifest);
  const session = new Session(files, opened, !device, software ?? isSoftware(opened), onProgress);
  try {
    await session._uploadWeights();
  } catch (error) {
    session.dispose();
    throw error;
  }
  return session;
}

// -- files ------------------------------------------------------------------------------------------------------------

/** The files of a bundle, each checked against the manifest while it is read. */
class BundleFiles {
  constructor(base, manifest) {
    this.base = base;
    this.manifest = manifest;
  }

  static async open(url) {
    if (!globalThis.crypto?.subtle) {
      throw new ShaderloomError("device", "this page is no secure context: serve it over https or from localhost");
    }
    const base = new URL(String(url).replace(/\/*$/, "/"), globalThis.document?.baseURI ?? globalThis.location?.href);
    const content = new Uint8Array(await (await request(base, "manifest.json")).arrayBuffer());
    const digest = await (await request(base, "manifest.sha256")).text();
    if (digest !== `${await sha256(content)}\n`) throw damaged("manifest.json");
    let manifest;
    try {
      manifest = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content));
    } catch (error) {
      throw new ShaderloomError("bundle", "'manifest.json' is not JSON", { cause: error });
    }
    const major = /^(\d+)\.\d+$/.exec(manifest.format)?.[1];
    if (Number(major) !== MAJOR) {
      throw new ShaderloomError("bundle", `the bundle has format ${manifest.format}; this runner reads ${MAJOR}.x`);
    }
    return new BundleFiles(base, manifest);
  }

  /** Call `use(bytes, offset)` with each chunk of a file in turn, once its hash is right. */
  async stream(name, use) {
    const record = Object.hasOwn(this.manifest.files, name) ? this.manifest.files[name] : undefined;
    if (!record || !/^[a-z0-9][a-z0-9._-]*(\/[a-z0-9][a-z0-9._-]*)?$/.test(name)) {
      throw new ShaderloomError("bundle", `the bundle has no file '${name}'`);
    }
    const reader = (await request(this.base, name)).body.getReader();
    try {
      for (let offset = 0, rest = new Uint8Array(0), index = 0; offset < record.size; index++) {
        const chunk = new Uint8Array(Math.min(CHUNK, record.size - offset));
        let filled = 0;
        while (filled < chunk.length) {
          if (rest.length === 0) {
            const { done, value } = await reader.read();
            if (done) throw new ShaderloomError("bundle", `'${name}' ends after ${offset + filled} bytes`);
            rest = value;
          }
          const taken = rest.subarray(0, chunk.length - filled);
          chunk.set(taken, filled);
          filled += taken.length;
          rest = rest.subarray(taken.length);
        }
        if ((await sha256(chunk)) !== record.sha256[index]) throw damaged(name);
        await use(chunk, offset);
        offset += chunk.length;
        if (offset === record.size && (rest.length || !(await reader.read()).done)) {
          throw new ShaderloomError("bundle", `'${name}' is longer than ${record.size} bytes`);
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  /** All bytes of a file. */
  async read(name) {
    const content = new Uint8Array(this.manifest.files[name]?.size ?? 0);
    await this.stream(name, (chunk, offset) => content.set(chunk, offset));
    return content;
  }

  async text(name) {
    return new TextDecoder("utf-8", { fatal: true }).decode(await this.read(name));
  }
}

async function request(base, name) {
  let response;
  try {
    response = await fetch(new URL(name, base));
  } catch (error) {
    throw new ShaderloomError("bundle", `'${name}' cannot be fetched: ${error.message}`, { cause: error });
  }
  if (!response.ok) {
    const hint = name === "manifest.json" ? `; ${base} must be the folder of a bundle (a zip has to be unpacked)` : "";
    throw new ShaderloomError("bundle", `'${name}' cannot be fetched: status ${response.status}${hint}`);
  }
  return response;
}

async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function damaged(name) {
  return new ShaderloomError("bundle", `'${name}' is damaged: its hash differs from the bundle's`);
}

/** The tensors of a safetensors file, by name. */
function parseSafetensors(content) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(content.subarray(8, start)));
  return Object.entries(header)
    .filter(([name]) => name !== "__metadata__")
    .map(([name, { dtype, shape, data_offsets: [begin, end] }]) => {
      const bytes = content.slice(start + begin, start + end);
      return [name, { dtype: SAFETENSORS[dtype], dims: shape, data: typedArray(SAFETENSORS[dtype], bytes.buffer) }];
    });
}

// -- the device -------------------------------------------------------------------------------------------------------

/** What `offered` (an adapter or a device) lacks of the manifest's features and limits, as texts. */
function lacks(manifest, offered) {
  const told = manifest.features.filter((name) => !offered.features.has(name)).map((name) => `the feature ${name}`);
  for (const [name, needed] of Object.entries(manifest.limits)) {
    const present = offered.limits[name];
    const enough = name.startsWith("min") ? present <= needed : present >= needed; // undefined is not enough
    if (!enough) told.push(`${name} of ${needed}${present === undefined ? "" : ` (it has ${present})`}`);
  }
  return told;
}

/** Whether a device computes on the CPU, as far as the browser tells. */
function isSoftware(device) {
  const info = device.adapterInfo ?? {};
  const names = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`;
  return Boolean(info.isFallbackAdapter) || /swiftshader|llvmpipe|lavapipe|basic render/i.test(names);
}

function useDevice(device, manifest) {
  const missing = lacks(manifest, device);
  if (missing.length) {
    throw new ShaderloomError("device", `the device given lacks what the bundle needs: ${missing.join(", ")}`);
  }
  return device;
}

async function openDevice(manifest) {
  if (!globalThis.navigator?.gpu) {
    const why = globalThis.isSecureContext === false ? ": the page is no secure context (https or localhost)" : "";
    throw new ShaderloomError(
      "device",
      `this browser offers no WebGPU${why}. ` +
        "Current Chrome, Edge, Safari and Firefox have it; it may have to be enabled in the settings",
    );
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) {
    throw new ShaderloomError("device", "this browser has WebGPU, but no GPU that it will use (no adapter was found)");
  }
  const missing = lacks(manifest, adapter);
  if (missing.length) {
    throw new ShaderloomError("device", `this GPU lacks what the bundle needs: ${missing.join(", ")}`);
  }
  const timestamps = adapter.features.has("timestamp-query") ? ["timestamp-query"] : [];
  try {
    return await adapter.requestDevice({
      requiredFeatures: [...manifest.features, ...timestamps],
      requiredLimits: manifest.limits,
    });
  } catch (error) {
    throw new ShaderloomError("device", `the GPU device cannot be opened: ${error.message}`, { cause: error });
  }
}

// -- dimensions and types ---------------------------------------------------------------------------------------------

/** The value of a dimension: a number, the name of a symbol, or [operator, operand, ...]. */
export function evaluate(dimension, symbols) {
  if (typeof dimension === "number") return dimension;
  if (typeof dimension === "string") return symbols[dimension];
  const [operator, ...operands] = dimension;
  const values = operands.map((operand) => evaluate(operand, symbols));
  const [left, right] = values;
  switch (operator) {
    case "+": return values.reduce((sum, value) => sum + value, 0);
    case "*": return values.reduce((product, value) => product * value, 1);
    case "//": return Math.floor(left / right);
    case "%": return left - Math.floor(left / right) * right;
    case "min": return Math.min(left, right);
    case "max": return Math.max(left, right);
  }
  throw new ShaderloomError("bundle", `unknown operator '${operator}' in a dimension`);
}

const count = (dims) => dims.reduce((product, size) => product * size, 1);
const padded = (bytes) => Math.max(16, Math.ceil(bytes / 16) * 16);
const show = (dims) => dims.join("x") || "scalar";
const isBuffer = (value) => typeof GPUBuffer !== "undefined" && value instanceof GPUBuffer;

function typedArray(dtype, buffer) {
  const name = DTYPES[dtype].arrays.find((candidate) => candidate in globalThis);
  return new globalThis[name](buffer);
}

/** A feed as {data, dims}: `data` a typed array or a GPUBuffer, `dims` undefined where the caller did not say. */
function normaliseFeed(name, feed, dtype) {
  const bare = isBuffer(feed) || ArrayBuffer.isView(feed);
  const data = bare ? feed : (feed?.data ?? feed?.buffer);
  const dims = bare ? undefined : feed?.dims;
  if (isBuffer(data)) {
    if (!(data.usage & GPUBufferUsage.STORAGE)) {
      throw new ShaderloomError("input", `'${name}': the GPUBuffer lacks the usage STORAGE`);
    }
  } else {
    const { arrays } = DTYPES[dtype];
    if (!ArrayBuffer.isView(data) || !arrays.includes(data.constructor.name)) {
      const found = (data ?? feed)?.constructor?.name ?? typeof feed;
      throw new ShaderloomError("input", `'${name}' is ${dtype}: give ${arrays.join(" or ")}, not ${found}`);
    }
    if (dims && count(dims) !== data.length) {
      throw new ShaderloomError("input", `'${name}' has ${data.length} elements, which is not ${show(dims)}`);
    }
  }
  return { data, dims };
}

/**
 * The symbol values with which feeds fit `shapes`, or null if they do not.
 *
 * Shapes that the caller gave come first. A feed without a shape fits by its number of elements, which also settles one
 * symbol that is unknown and occurs once; what it leaves open is `undefined` in the result. A size that a symbol may not
 * have is told to `refuse`.
 */
function bindShapes(shapes, ranges, feeds, dtypes, refuse) {
  const symbols = {};
  const names = Object.keys(shapes);
  for (const name of names) {
    const { dims } = feeds[name];
    if (!dims) continue;
    if (dims.length !== shapes[name].length) return null;
    for (const [axis, dim] of shapes[name].entries()) {
      const expected = typeof dim === "number" ? dim : (symbols[dim] ??= dims[axis]);
      if (dims[axis] !== expected) return null;
    }
  }
  let open = names.filter((name) => !feeds[name].dims);
  for (let settled = true; settled && open.length; ) {
    settled = false;
    for (const name of open) {
      const { data } = feeds[name];
      const unknown = shapes[name].filter((dim) => typeof dim === "string" && symbols[dim] === undefined);
      const known = count(shapes[name].filter((dim) => !unknown.includes(dim)).map((dim) => symbols[dim] ?? dim));
      if (unknown.length === 0) {
        const fits = isBuffer(data) ? data.size >= padded(known * DTYPES[dtypes[name]].bytes) : data.length === known;
        if (!fits) return null;
      } else if (unknown.length === 1 && !isBuffer(data) && known > 0) {
        if (data.length % known) return null;
        symbols[unknown[0]] = data.length / known;
      } else {
        continue;
      }
      open = open.filter((other) => other !== name);
      settled = true;
    }
  }
  for (const name of open) for (const dim of shapes[name]) if (typeof dim === "string") symbols[dim] ??= undefined;
  for (const [name, value] of Object.entries(symbols)) {
    const { low, high, step } = ranges[name];
    if (value < low || value > high || (value - low) % step) {
      refuse(`'${name}' is ${value}; it was declared ${low} to ${high}${step > 1 ? ` in steps of ${step}` : ""}`);
      return null;
    }
  }
  return symbols;
}

// -- sessions ---------------------------------------------------------------------------------------------------------

/** A loaded bundle. Runs may overlap: each is one submission, and the device's queue keeps their order. */
class Session {
  constructor(files, device, ownsDevice, software, onProgress) {
    const { manifest } = files;
    this.manifest = manifest;
    this.device = device;
    this.inputs = manifest.inputs;
    this.outputs = manifest.outputs;
    /** The shapes of each plan: {name: dims}, a dimension a number or the name of a dynamic one. */
    this.shapes = manifest.plans.map((plan) => plan.shapes);
    this._files = files;
    this._ownsDevice = ownsDevice;
    this._software = software;
    this._onProgress = onProgress;
    const ports = [...manifest.inputs, ...(manifest.overridable ?? [])];
    this._dtypes = Object.fromEntries(ports.map((port) => [port.name, port.dtype]));
    this._ranges = Object.fromEntries(
      Object.entries(manifest.dynamic).map(([name, range]) => {
        return [name, Array.isArray(range) ? { low: range[0], high: range[1], step: 1 } : range];
      }),
    );
    this._buffers = new Map();
    this._pipelines = new Map();
    this._layouts = new Map();
    this._plans = new Map();
    this._staging = [];
    this._closed = false;
    this._lost = null;
    /** Resolves with a readable reason when the device is lost; never if the session disposes of it. */
    this.lost = new Promise((resolve) => {
      device.lost.then((info) => {
        if (this._closed) return;
        this._lost = `the GPU device was lost (${info.reason ?? "unknown"})${info.message ? `: ${info.message}` : ""}`;
        resolve(this._lost);
      });
    });
  }

  /**
   * Compute the outputs for `feeds`: {name: typed array | GPUBuffer | {data, dims}}.
   *
   * `location` "cpu" gives {dtype, dims, data} for each output, "gpu" {dtype, dims, buffer}: a new GPUBuffer that the
   * caller destroys, and that may be fed as it is. `outputs` names those wanted; all by default.
   */
  async run(feeds, { location = "cpu", outputs } = {}) {
    this._check();
    const { plan, symbols, values } = await this._choose(feeds);
    this._check();
    const wanted = (outputs ?? plan.outputs.map((port) => port.name)).map((name) => {
      const port = plan.outputs.find((candidate) => candidate.name === name);
      if (!port) throw new ShaderloomError("input", `the model has no output '${name}'`);
      const dims = port.shape.map((dim) => evaluate(dim, symbols));
      return { name, dtype: port.dtype, dims, bytes: count(dims) * DTYPES[port.dtype].bytes };
    });
    if (location !== "cpu" && location !== "gpu") {
      throw new ShaderloomError("input", `location is "cpu" or "gpu", not "${location}"`);
    }
    return this._guarded("a run", () => {
      const bound = this._bind(plan, symbols, values);
      const encoder = this.device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (const call of bound.calls) encodeCall(pass, call);
      pass.end();
      const result = location === "gpu"
        ? this._copyToBuffers(encoder, plan, wanted, bound)
        : this._copyToHost(encoder, plan, wanted, bound);
      this.device.queue.submit([encoder.finish()]);
      return result.finish();
    });
  }

  /**
   * Run once, each call in a pass of its own: [{label, kernel, origins, flops, bytes, microseconds}].
   * Throws where the device has no timestamps (feature "timestamp-query"); browsers round them, to 0.1 ms in Chrome.
   */
  async profile(feeds) {
    this._check();
    if (!this.device.features.has("timestamp-query")) {
      throw new ShaderloomError("device", "the device was opened without the feature timestamp-query");
    }
    const { plan, symbols, values } = await this._choose(feeds);
    return this._guarded("a profile", () => {
      const { calls } = this._bind(plan, symbols, values);
      const most = 2048; // calls whose timestamps one query set holds
      const times = calls.map(() => 0);
      const parts = [];
      for (let start = 0; start < calls.length; start += most) {
        const part = calls.slice(start, start + most);
        const queries = this.device.createQuerySet({ type: "timestamp", count: 2 * part.length });
        const size = 16 * part.length;
        const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
        const resolved = this.device.createBuffer({ size, usage: QUERY_RESOLVE | COPY_SRC });
        const staging = this.device.createBuffer({ size, usage: MAP_READ | COPY_DST });
        const encoder = this.device.createCommandEncoder();
        for (const [index, call] of part.entries()) {
          const [beginningOfPassWriteIndex, endOfPassWriteIndex] = [2 * index, 2 * index + 1];
          const pass = encoder.beginComputePass({
            timestampWrites: { querySet: queries, beginningOfPassWriteIndex, endOfPassWriteIndex },
          });
          encodeCall(pass, call);
          pass.end();
        }
        encoder.resolveQuerySet(queries, 0, 2 * part.length, resolved, 0);
        encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
        this.device.queue.submit([encoder.finish()]);
        parts.push(staging.mapAsync(GPUMapMode.READ).then(() => {
          const ticks = new BigUint64Array(staging.getMappedRange());
          for (let index = 0; index < part.length; index++) {
            times[start + index] = Number(ticks[2 * index + 1] - ticks[2 * index]) / 1000;
          }
          for (const item of [queries, resolved, staging]) item.destroy();
        }));
      }
      return Promise.all(parts).then(() => calls.map(({ call }, index) => ({
        label: call.label ?? "", kernel: call.kernel, origins: call.origins ?? [], microseconds: times[index],
        flops: evaluate(call.flops ?? 0, symbols), bytes: evaluate(call.bytes ?? 0, symbols),
      })));
    });
  }

  /** Fetch and compile a plan ahead of its first run; all of them without an index. Gives the plans' JSON. */
  async prepare(index) {
    this._check();
    const indices = index === undefined ? [...this.manifest.plans.keys()] : [index];
    const prepared = [];
    for (const number of indices) prepared.push(await this._plan(number));
    return prepared;
  }

  /** The text of a shader as it is compiled. */
  async shader(kernel) {
    this._check();
    const text = await this._files.text(`shaders/${kernel.key}.wgsl`);
    return kernel.features?.includes("subgroups") ? `enable subgroups;\n${text}` : text;
  }

  /** Inputs and expected outputs of the manifest's samples[index]: {inputs, outputs, tolerance}. */
  async sample(index = 0) {
    this._check();
    const record = this.manifest.samples[index];
    if (!record) throw new ShaderloomError("input", `the bundle has no sample ${index}`);
    const tensors = parseSafetensors(await this._files.read(record.file));
    const those = (kind) => Object.fromEntries(
      tensors.filter(([name]) => name.startsWith(kind)).map(([name, tensor]) => [name.slice(kind.length), tensor]),
    );
    return { inputs: those("input:"), outputs: those("output:"), tolerance: record.tolerance };
  }

  /** Free everything on the device; outputs with location "gpu" live on if the device is the caller's. */
  dispose() {
    if (this._closed) return;
    this._closed = true;
    for (const buffer of this._buffers.values()) buffer.destroy();
    for (const buffer of this._staging) buffer.destroy();
    this._buffers.clear();
    this._plans.clear();
    if (this._ownsDevice) this.device.destroy();
  }

  _check() {
    if (this._closed) throw new ShaderloomError("closed", "the session was disposed of");
    if (this._lost) throw new ShaderloomError("device", this._lost);
  }

  /** Call `work`, which gives a promise, and await it; what the device says against it becomes an error. */
  async _guarded(what, work) {
    const { device } = this;
    device.pushErrorScope("out-of-memory");
    device.pushErrorScope("validation");
    let pending, failure;
    try {
      pending = work();
    } catch (error) {
      failure = error;
    }
    pending?.catch?.(() => {}); // it is awaited below, after what the scopes say
    const told = await Promise.all([device.popErrorScope(), device.popErrorScope()]).catch(() => []);
    this._check();
    if (failure) throw failure;
    for (const error of told) {
      if (!error) continue;
      const memory = error instanceof GPUOutOfMemoryError ? "not enough GPU memory" : error.message;
      throw new ShaderloomError("device", `${what} failed: ${memory}`);
    }
    try {
      return await pending;
    } catch (error) {
      await Promise.resolve(); // the device's loss is told in a microtask
      this._check();
      throw error;
    }
  }

  // Weights

  async _uploadWeights() {
    const parts = new Map(); // by file
    let total = 0;
    await this._guarded("allocating the weights", async () => {
      for (const [key, weight] of Object.entries(this.manifest.weights)) {
        const buffer = this._create(`weight:${key}`, weight.bytes, GPUBufferUsage.STORAGE | COPIES);
        let target = 0;
        for (const { file, offset, length } of weight.parts) {
          if (!parts.has(file)) parts.set(file, []);
          parts.get(file).push({ buffer, target, begin: offset, end: offset + length });
          target += length;
        }
        if (target !== weight.bytes) {
          throw new ShaderloomError("bundle", `the parts of weight ${key} are not ${weight.bytes} bytes`);
        }
        total += target;
      }
    });
    let done = 0;
    this._onProgress({ stage: "weights", done, total });
    for (const [file, list] of parts) {
      await this._files.stream(file, async (chunk, offset) => {
        this._check();
        for (const { buffer, target, begin, end } of list) {
          const first = Math.max(begin, offset), last = Math.min(end, offset + chunk.length);
          if (first >= last) continue;
          this.device.queue.writeBuffer(buffer, target + first - begin, chunk, first - offset, last - first);
          done += last - first;
        }
        await this.device.queue.onSubmittedWorkDone(); // so that no more than a chunk waits in the browser's memory
        this._onProgress({ stage: "weights", done, total });
      });
    }
    this._check();
    if (done !== total) {
      throw new ShaderloomError("bundle", `the weights' files hold ${done} bytes of weights instead of ${total}`);
    }
  }

  // Plans

  /** The plan of manifest.plans[index] with its pipelines; made once. */
  _plan(index) {
    if (!this._plans.has(index)) {
      const pending = this._loadPlan(this.manifest.plans[index]);
      pending.catch(() => this._plans.delete(index)); // a failed fetch may be tried again
      this._plans.set(index, pending);
    }
    return this._plans.get(index);
  }

  async _loadPlan({ key, shapes, software }) {
    if (this._software && software) key = software;
    const file = `plan-${key}.json`;
    const plan = JSON.parse(await this._files.text(file));
    const names = plan.inputs.map((port) => port.name).sort().join("\n");
    if (plan.key !== key || names !== Object.keys(shapes).sort().join("\n")) {
      throw new ShaderloomError("bundle", `'${file}' is not the plan that the manifest means`);
    }
    for (const { name, low, high, step = 1 } of plan.symbols) {
      const range = this._ranges[name];
      if (range?.low !== low || range.high !== high || range.step !== step) {
        throw new ShaderloomError("bundle", `'${file}' has another range of '${name}' than the manifest`);
      }
    }
    let done = 0;
    const total = plan.kernels.length;
    this._onProgress({ stage: "pipelines", done, total });
    await Promise.all(plan.kernels.map(async (kernel) => {
      if (!this._pipelines.has(kernel.key)) this._pipelines.set(kernel.key, this._compile(kernel));
      await this._pipelines.get(kernel.key);
      this._onProgress({ stage: "pipelines", done: ++done, total });
    }));
    plan.pipelines = new Map();
    for (const kernel of plan.kernels) plan.pipelines.set(kernel.key, await this._pipelines.get(kernel.key));
    plan.bound = new Map(); // prepared calls by symbol values
    return plan;
  }

  async _compile(kernel) {
    const code = await this.shader(kernel);
    const { device } = this;
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code, label: kernel.key.slice(0, 12) });
    const refused = device.popErrorScope();
    const layout = this._layout(kernel.bindings.map((binding) => binding.access));
    try {
      const pipeline = await device.createComputePipelineAsync({
        label: kernel.key.slice(0, 12),
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: kernel.entry_point },
      });
      return { pipeline, layout, kernel };
    } catch (error) {
      this._check();
      const { messages } = await module.getCompilationInfo();
      const first = messages.find((message) => message.type === "error");
      const told = first ? `line ${first.lineNum}: ${first.message}` : error.message;
      const name = `kernel ${kernel.key.slice(0, 12)} (${kernel.template ?? "?"})`;
      throw new ShaderloomError("device", `${name} was refused: ${told}`, { cause: error });
    } finally {
      await refused.catch(() => {});
    }
  }

  /** The bind group layout for a list of accesses. Not "auto": that drops bindings which a shader leaves unused. */
  _layout(accesses) {
    const key = accesses.join();
    if (!this._layouts.has(key)) {
      const entries = accesses.map((access, binding) => {
        const type = ACCESS[access];
        if (!type) throw new ShaderloomError("bundle", `a binding has the unknown access '${access}'`);
        return { binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } };
      });
      this._layouts.set(key, this.device.createBindGroupLayout({ entries }));
    }
    return this._layouts.get(key);
  }

  /** The plan whose shapes fit the feeds, its symbols, and the feeds with their shapes. */
  async _choose(feeds) {
    const values = {};
    for (const [name, feed] of Object.entries(feeds)) {
      if (!Object.hasOwn(this._dtypes, name)) {
        const known = Object.keys(this._dtypes).join(", ");
        throw new ShaderloomError("input", `the model has no input '${name}'; it has ${known}`);
      }
      values[name] = normaliseFeed(name, feed, this._dtypes[name]);
    }
    const names = Object.keys(values).sort().join("\n");
    const fitting = [], refused = new Set();
    for (const [index, { shapes }] of this.manifest.plans.entries()) {
      if (Object.keys(shapes).sort().join("\n") !== names) continue;
      const symbols = bindShapes(shapes, this._ranges, values, this._dtypes, (why) => refused.add(why));
      if (symbols) fitting.push({ index, symbols });
    }
    const known = this.shapes
      .map((shapes) => Object.entries(shapes).map(([name, dims]) => `${name}=${show(dims)}`).join(" "))
      .join("; ");
    if (!fitting.length) {
      const size = ({ data, dims }) => {
        if (dims) return show(dims);
        return isBuffer(data) ? `${data.size} bytes` : `${data.length} elements`;
      };
      const given = Object.entries(values).map(([name, value]) => `${name}=${size(value)}`).join(" ");
      const why = [...refused].map((text) => ` (${text})`).join("");
      const message = `the bundle was not compiled for ${given || "no inputs"}; it was for ${known}${why}`;
      throw new ShaderloomError("input", message);
    }
    const shaped = Object.values(values).every(({ dims }) => dims);
    const open = Object.values(fitting[0].symbols).includes(undefined);
    if (open || (fitting.length > 1 && !shaped)) {
      throw new ShaderloomError(
        "input", `the sizes of the feeds do not say which shapes are meant (${known}): give {data, dims}`,
      );
    }
    const { index, symbols } = fitting[0];
    const plan = await this._plan(index);
    for (const port of plan.inputs) {
      const dims = port.shape.map((dim) => evaluate(dim, symbols));
      const { data, dims: given } = values[port.name];
      const needed = padded(count(dims) * DTYPES[port.dtype].bytes);
      const fits = isBuffer(data) ? data.size >= needed : data.length === count(dims);
      if (!fits || (given && show(given) !== show(dims))) {
        throw new ShaderloomError("input", `'${port.name}' is not of shape ${show(dims)}`);
      }
    }
    return { plan, symbols, values };
  }

  // Runs

  _create(name, size, usage) {
    const buffer = this.device.createBuffer({ size: padded(size), usage, label: name.slice(0, 40) });
    this._buffers.set(name, buffer);
    return buffer;
  }

  /** The session's buffer of a name, at least `size` bytes large. Plans share them; one that grows is made anew. */
  _allocate(name, size, usage = GPUBufferUsage.STORAGE | COPIES) {
    const present = this._buffers.get(name);
    if (present && present.size >= padded(size)) return;
    if (present) {
      present.destroy(); // what was submitted still completes
      for (const plan of this._ready ?? []) plan.bound.clear();
    }
    this._create(name, size, usage);
  }

  /** Write what comes from the host and give the calls ready to encode, and where each buffer of the plan is. */
  _bind(plan, symbols, values) {
    (this._ready ??= new Set()).add(plan);
    const external = new Map();
    for (const port of plan.inputs) {
      const name = `input:${port.name}`, { data } = values[port.name];
      if (isBuffer(data)) external.set(name, data);
      else this._allocate(name, data.byteLength);
    }
    for (const port of plan.outputs) {
      const elements = count(port.shape.map((dim) => evaluate(dim, symbols)));
      this._allocate(`output:${port.name}`, elements * DTYPES[port.dtype].bytes);
    }
    for (const [index, size] of plan.arenas.entries()) this._allocate(`arena:${index}`, evaluate(size, symbols));
    const sizes = plan.symbols.map(({ name, step = 1 }) => Math.floor(symbols[name] / step));
    const symbolsName = `symbols ${plan.key}`; // each plan has symbols of its own
    if (sizes.length) {
      this._allocate(symbolsName, 4 * sizes.length, GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
      this.device.queue.writeBuffer(this._buffers.get(symbolsName), 0, new Int32Array(sizes));
    }
    for (const port of plan.inputs) {
      const { data } = values[port.name];
      if (!isBuffer(data)) this._write(this._buffers.get(`input:${port.name}`), data);
    }
    const find = (name) => external.get(name) ?? this._buffers.get(name === "symbols" ? symbolsName : name);
    return { calls: this._prepared(plan, symbols, sizes.join(), external, find), find };
  }

  _write(buffer, data) {
    if (!data.byteLength) return;
    let bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (bytes.length % 4) {
      const whole = new Uint8Array(Math.ceil(bytes.length / 4) * 4); // a write is of whole words
      whole.set(bytes);
      bytes = whole;
    }
    this.device.queue.writeBuffer(buffer, 0, bytes);
  }

  /** The calls with their bind groups: kept for these symbol values, save those that bind the caller's buffers. */
  _prepared(plan, symbols, key, external, find) {
    let prepared = plan.bound.get(key);
    if (!prepared) {
      prepared = [];
      for (const call of plan.stages.flatMap((stage) => stage.calls)) {
        const grid = call.grid.map((size) => evaluate(size, symbols));
        if (grid.includes(0)) continue;
        const compiled = plan.pipelines.get(call.kernel);
        if (!compiled || call.ranges.length !== compiled.kernel.bindings.length) {
          throw new ShaderloomError("bundle", `a call of kernel ${call.kernel.slice(0, 12)} does not fit the plan`);
        }
        prepared.push({ call, grid, compiled, group: null });
      }
      plan.bound.set(key, prepared);
      if (plan.bound.size > KEPT_SIZES) plan.bound.delete(plan.bound.keys().next().value);
    }
    return prepared.map((item) => {
      if (item.call.ranges.some(({ buffer }) => external.has(buffer))) {
        return { ...item, group: this._group(item, symbols, find) };
      }
      item.group ??= this._group(item, symbols, find);
      return item;
    });
  }

  _group({ call, compiled }, symbols, find) {
    const entries = call.ranges.map((range, binding) => {
      const buffer = find(range.buffer), offset = evaluate(range.offset, symbols), size = evaluate(range.size, symbols);
      if (!buffer || !(size > 0 && offset >= 0 && offset + size <= buffer.size)) {
        const bytes = `bytes ${offset} to ${offset + size} of '${range.buffer}', which has ${buffer?.size ?? 0}`;
        throw new ShaderloomError("bundle", `kernel ${call.kernel.slice(0, 12)} binds ${bytes}`);
      }
      return { binding, resource: { buffer, offset, size } };
    });
    return this.device.createBindGroup({ layout: compiled.layout, entries });
  }

  /** Where an output is after a run: {constant} or {buffer}. An alias leads to an input, an output or a weight. */
  _source(plan, name, find) {
    const constant = plan.constants?.find(({ output }) => `output:${output}` === name);
    if (constant) return { constant: Uint8Array.from(atob(constant.data), (letter) => letter.charCodeAt(0)) };
    const alias = plan.aliases?.find(({ output }) => `output:${output}` === name);
    if (alias) return this._source(plan, alias.source, find);
    const buffer = find(name);
    if (!buffer) throw new ShaderloomError("bundle", `an output is '${name}', which the plan does not define`);
    if (!(buffer.usage & GPUBufferUsage.COPY_SRC)) {
      throw new ShaderloomError("input", `an output equals '${name}': its GPUBuffer lacks the usage COPY_SRC`);
    }
    return { buffer };
  }

  _copyToBuffers(encoder, plan, wanted, { find }) {
    const results = {};
    for (const { name, dtype, dims, bytes } of wanted) {
      const usage = GPUBufferUsage.STORAGE | COPIES;
      const buffer = this.device.createBuffer({ size: padded(bytes), usage, label: `output ${name}`.slice(0, 40) });
      const source = this._source(plan, `output:${name}`, find);
      if (source.constant) this._write(buffer, source.constant);
      else encoder.copyBufferToBuffer(source.buffer, 0, buffer, 0, Math.ceil(bytes / 4) * 4);
      results[name] = { dtype, dims, buffer };
    }
    return { finish: async () => results };
  }

  _copyToHost(encoder, plan, wanted, { find }) {
    const results = {}, reads = [];
    let total = 0;
    for (const { name, dtype, dims, bytes } of wanted) {
      const source = this._source(plan, `output:${name}`, find);
      results[name] = { dtype, dims };
      if (source.constant) results[name].data = typedArray(dtype, source.constant.buffer);
      else reads.push({ name, dtype, bytes, buffer: source.buffer, offset: total });
      total += padded(bytes);
    }
    let staging = null;
    if (reads.length) {
      const index = this._staging.findIndex((buffer) => buffer.size >= total);
      const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
      staging = index >= 0
        ? this._staging.splice(index, 1)[0]
        : this.device.createBuffer({ size: total, usage, label: "staging" });
      for (const { bytes, buffer, offset } of reads) {
        encoder.copyBufferToBuffer(buffer, 0, staging, offset, Math.ceil(bytes / 4) * 4);
      }
    }
    const finish = async () => {
      if (!staging) return results;
      await staging.mapAsync(GPUMapMode.READ, 0, total);
      const mapped = staging.getMappedRange(0, total);
      for (const { name, dtype, bytes, offset } of reads) {
        results[name].data = typedArray(dtype, mapped.slice(offset, offset + bytes));
      }
      staging.unmap();
      if (this._closed || this._staging.length >= 4) staging.destroy();
      else this._staging.push(staging);
      return results;
    };
    return { finish };
  }
}

function encodeCall(pass, { compiled, group, grid }) {
  pass.setPipeline(compiled.pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(...grid);
}
