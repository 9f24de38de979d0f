/** Types of shaderloom.js. Those of WebGPU are in TypeScript's own DOM library, or in the package @webgpu/types. */

export type DataType =
  | "float32" | "float16" | "bfloat16" | "bool"
  | "int64" | "uint64" | "int32" | "uint32" | "int16" | "uint16" | "int8" | "uint8"
  | "float8e4m3fn" | "float8e4m3fnuz" | "float8e5m2" | "float8e5m2fnuz" | "float8e8m0" | "float4e2m1"
  | "int4" | "uint4" | "int2" | "uint2";

/** bfloat16 is a Uint16Array of bits, so is float16 where the browser has no Float16Array; bool is a Uint8Array,
 *  as are float8 types and types narrower than a byte: the bits of an element in the low bits of a byte. */
export type TypedArray =
  | Float32Array | Int32Array | Uint32Array | Int16Array | Uint16Array | Int8Array | Uint8Array | Uint8ClampedArray
  | BigInt64Array | BigUint64Array
  | (ArrayBufferView & ArrayLike<number> & { readonly BYTES_PER_ELEMENT: 2 });

/**
 * A value for an input. Without `dims` its number of elements must settle which shapes are meant.
 * A GPUBuffer needs the usage STORAGE and holds the elements contiguously, padded to 16 bytes. Arrays must not change
 * before the run has given its outputs.
 */
export type Feed =
  | TypedArray
  | GPUBuffer
  | { data: TypedArray | GPUBuffer; dims?: readonly number[] }
  | GpuTensor;

export type Feeds = Record<string, Feed>;

/** An array with its type and shape. */
export interface CpuTensor {
  dtype: DataType;
  dims: number[];
  data: TypedArray;
}

/** A tensor on the device; it may be fed as it is. The caller destroys `buffer`. */
export interface GpuTensor {
  dtype: DataType;
  dims: number[];
  buffer: GPUBuffer;
}

/** An output without a copy of its own: `data` is memory that belongs to the device until `release()`, which every view
 *  of a run needs; then, and after `dispose()`, it is empty. */
export interface TensorView extends CpuTensor {
  release(): void;
}

/** The tensors of each location of outputs. */
export interface Located {
  cpu: CpuTensor;
  gpu: GpuTensor;
  view: TensorView;
}

export type Tensor = Located[keyof Located];

/** A number, or the name of a dynamic dimension. */
export type Dimension = number | string;

/** A number that may depend on dynamic dimensions: itself, the name of a dimension, or [operator, operand, ...]. */
export type Size = number | string | Size[];

export interface Port {
  name: string;
  dtype: DataType;
  dims: (Dimension | null)[] | null;
}

export interface Progress {
  /** The part of the load. */
  what: "bundle" | "device" | "weights" | "pipelines";
  /** Bytes of weights, or number of pipelines. */
  done: number;
  /** What `done` ends with. */
  total: number;
  /** What is waited for: a file, the device, or the kernel that is compiled for the longest time; "" for nothing. */
  awaits: string;
}

/**
 * A bundle: the address of its folder, a zip (`shaderloom compile --zip`), or the files of a folder, as those of
 * `<input type="file" webkitdirectory>`, or as responses, whose addresses say their names.
 */
export type BundleSource = string | URL | Blob | readonly (Response | File)[];

export interface LoadOptions {
  /** The caller's device; it must have the features and limits that the manifest asks for. Without one the session
   *  makes its own and destroys it in `dispose()`. */
  device?: GPUDevice;
  /** Take kernels for adapters that compute on the CPU. Default: what the device's adapter says of itself. */
  software?: boolean;
  /** Bytes of weights that the bundle may have; 2 ** 33 by default. */
  maxWeightBytes?: number;
  /** Bytes of all buffers of the session, at most; 2 ** 33 beyond `maxWeightBytes` by default. */
  maxDeviceBytes?: number;
  /** Seconds that a run may wait for the device, at most, behind the runs before it; 300 by default. A run is submitted in
   *  parts of about 0.2 s, and ends between them. */
  maxRunSeconds?: number;
  /** Compile the pipelines of all plans, too, beside the upload of weights, or those of each plan in its first run.
   *  Default: whether the bundle is one plan. */
  prepare?: boolean;
  /** Store the files of the bundle in the origin's Cache Storage, by the hashes of their chunks: what is there is checked
   *  and used in place of a request, also by a load that goes on where one was interrupted. Default: false. */
  cache?: boolean;
  /** A further model of the bundle, in place of its own. */
  model?: string;
  /** The text of a PEM file of a public Ed25519 key: a bundle that is not signed with its other half is refused. */
  verifyKey?: string;
  /** Ends the load at once, which rejects with the signal's reason and frees what it has on the device. */
  signal?: AbortSignal;
  /** Called for each file, chunk and pipeline, until the load ends or is aborted. */
  onProgress?: (progress: Progress) => void;
}

export interface RecoverOptions {
  /** A device in place of the one that was lost; needed where that was the caller's. */
  device?: GPUDevice;
  signal?: AbortSignal;
  onProgress?: (progress: Progress) => void;
}

export interface RunOptions<Location extends keyof Located = keyof Located> {
  /** Whether outputs are arrays ("cpu", the default), views of mapped memory ("view"), or stay on the device ("gpu"),
   *  where they are written to new buffers; one location for all, or those of outputs by name. */
  location?: Location | Record<string, Location>;
  /** Names of the outputs wanted; all by default. */
  outputs?: readonly string[];
  /**
   * Buffers of the caller's for outputs, by name, which are on the device then. A plan writes there, with no copy but
   * for outputs that equal an input, a weight or another output, or that are constant; it needs the usage STORAGE
   * (COPY_DST for these, and for states), and a size of the output's bytes rounded up to 16. A fed buffer may be that
   * of an output which begins as its input, and of no other.
   */
  into?: Record<string, GPUBuffer>;
  /**
   * Write outputs that begin as an input (`plan.states`, like caches of keys and values with spare capacity) to the
   * GPUBuffer that is fed for it, in place of a copy; with `location` "gpu" the output is that buffer. Default: false.
   * In a program of several steps that is so where nothing reads the input behind the step that writes the output;
   * elsewhere the output has a buffer of its own, and the fed one stays as it is.
   */
  inPlace?: boolean;
  /** Ends the run at once, which rejects with the signal's reason; what was submitted, a part or two, goes on. */
  signal?: AbortSignal;
}

/** The time of a call of a kernel. */
export interface CallTime {
  label: string;
  /** The kernel's key. */
  kernel: string;
  /** The ONNX nodes that it computes. */
  origins: string[];
  /** Arithmetic operations, as the compiler counts them. */
  flops: number;
  /** Bytes that are read and written at least. */
  bytes: number;
  microseconds: number;
}

/** The sizes of a dynamic dimension: low, low + step, ... high. */
export interface SizeRange {
  low: number;
  high: number;
  step: number;
}

/** The shapes that the inputs of a plan have, and the keys of its files. */
export interface PlanRecord {
  key: string;
  shapes: Record<string, Dimension[]>;
  /** The key of the plan for adapters that compute on the CPU, where the bundle has one. */
  software?: string;
  /** The axes along which rows of a batch lie, where they are proven to be independent. */
  rows?: { inputs: Record<string, number>; outputs: Record<string, number> };
}

/** Part of a program, as docs/guide/bundles.md specifies it. */
export type Step = StageStep | ReadStep | AliasStep | BranchStep | CompareStep | LoopStep | RefuseStep;

export interface StageStep {
  kind: "stage";
  plan: string;
  software?: string;
  inputs: string[];
  /** Inputs of the plan that have as many rows as a symbol says, and no elements. */
  sizes: Record<string, string>;
  outputs: PlanPort[];
}

export interface ReadStep {
  kind: "read";
  value: string;
  symbols: string[];
}

export interface AliasStep {
  kind: "alias";
  value: string;
  source: string;
}

export interface BranchStep {
  kind: "branch";
  condition: string;
  true: Step[];
  false: Step[];
}

export interface CompareStep {
  kind: "compare";
  /** Whether left is less than right, or equal to it. */
  test: "less" | "equal";
  left: Size;
  right: Size;
  true: Step[];
  false: Step[];
}

export interface LoopStep {
  kind: "loop";
  /** The most iterations; null for the upper bound of the symbol, which is the number of iterations. */
  count: Size | null;
  symbol: string | null;
  condition: string | null;
  going: string | null;
  iteration: string;
  carried: {
    name: string;
    initial: string;
    next: string;
    result: string | null;
    /** Those of the axes that change from iteration to iteration, null for others. */
    symbols?: (string | null)[];
  }[];
  stacked: { row: string; result: string; dtype: DataType; shape: Size[] }[];
  steps: Step[];
}

export interface RefuseStep {
  kind: "refuse";
  reason: string;
}

/** The steps of a model that is no single plan, for inputs of these shapes. */
export interface Program {
  key: string;
  shapes: Record<string, Dimension[]>;
  /** What the integers which a run reads may be. */
  ranges: Record<string, SizeRange>;
  steps: Step[];
}

/** manifest.json, as docs/guide/bundles.md specifies it. */
export interface Manifest {
  format: string;
  producer: { name: string; version: string };
  target: string;
  model: { graph_name?: string; custom_metadata_map?: Record<string, string>; [field: string]: unknown };
  nodes: number;
  inputs: Port[];
  overridable: Port[];
  outputs: Port[];
  dynamic: Record<string, SizeRange>;
  features: GPUFeatureName[];
  limits: Record<string, number>;
  plans: PlanRecord[];
  programs?: Program[];
  weights: Record<string, { bytes: number; parts: { file: string; offset: number; length: number }[] }>;
  samples: { plan: string; file: string; tolerance: number }[];
  files: Record<string, { size: number; sha256: string[] }>;
}

export interface Kernel {
  key: string;
  template: string;
  workgroup: [number, number, number];
  features: string[];
  bindings: { name: string; access: "read" | "read_write" | "uniform" | "iteration"; element: string }[];
}

export interface Call {
  kernel: string;
  grid: [Size, Size, Size];
  ranges: { buffer: string; offset: Size; size: Size }[];
  label: string;
  origins: string[];
  flops: Size;
  bytes: Size;
}

export interface PlanPort {
  name: string;
  dtype: DataType;
  shape: Size[];
}

/** plan-KEY.json, as docs/guide/bundles.md specifies it. */
export interface Plan {
  key: string;
  inputs: PlanPort[];
  outputs: PlanPort[];
  symbols: { name: string; low: number; high: number; step: number }[];
  arenas: Size[];
  /** Numbers that calls give to kernels which several problems share. */
  problems: number[][];
  kernels: Kernel[];
  commands: ({ kind: "device"; calls: Call[] } | { kind: "repeat"; calls: Call[]; count: Size })[];
  weights: { key: string; bytes: number }[];
  constants: { output: string; data: string }[];
  aliases: { output: string; source: string }[];
  /** Outputs that begin a run with the elements of an input. */
  states: { output: string; input: string }[];
}

/** A run that the bundle brings to compare with. */
export interface Sample {
  inputs: Record<string, CpuTensor>;
  outputs: Record<string, CpuTensor>;
  /** The largest difference allowed, relative to the largest magnitude of an output (at least 1). */
  tolerance: number;
}

/**
 * A loaded bundle. Runs may overlap: the device takes them in the order of the calls, a run that is submitted in one
 * part without a wait between them, one of several parts and that of a program once the run before was submitted.
 */
export interface Session {
  /** What the bundle says of itself: manifest.json. */
  readonly manifest: Manifest;
  /** The device of now: `recover()` gives another one. */
  readonly device: GPUDevice;
  /** What may be fed, as the model declares it: names, types, and dimensions, of which a text names one that is open. */
  readonly inputs: Port[];
  /** What a run gives, in the same form. */
  readonly outputs: Port[];
  /** The input shapes of each plan, and those of each program behind them. */
  readonly shapes: Record<string, Dimension[]>[];
  /** Resolves with a readable reason when the device is lost: `recover()` opens another one. */
  readonly lost: Promise<string>;
  /** Compute the outputs for `feeds`, by name. */
  run<Location extends keyof Located = "cpu">(
    feeds: Feeds,
    options?: RunOptions<Location> & { location?: Location; into?: undefined },
  ): Promise<Record<string, Located[Location]>>;
  /** The same with a location for each output, or with buffers of the caller's. */
  run(feeds: Feeds, options: RunOptions): Promise<Record<string, Tensor>>;
  /** Run once, each call in a pass of its own, and return their times; browsers round them, to 0.1 ms in Chrome. Needs
   *  the feature timestamp-query, which a session's own device has where the GPU offers it. */
  profile(feeds: Feeds): Promise<CallTime[]>;
  /** Fetch and compile ahead of the first run: the plan, or the stages of the program, at an index, or all. */
  prepare(index?: number): Promise<Plan[]>;
  /** Open a device in place of one that was lost, and load the bundle there; runs fail until then. Buffers of the old
   *  device are lost with it. Nothing happens where no device was lost. */
  recover(options?: RecoverOptions): Promise<void>;
  /** The WGSL of a kernel as it is compiled. */
  shader(kernel: Kernel): Promise<string>;
  /** Inputs and expected outputs of the manifest's samples[index], the first by default. */
  sample(index?: number): Promise<Sample>;
  /** The content of a file among the bundle's assets. */
  asset(name: string): Promise<Uint8Array<ArrayBuffer>>;
  /** Free what the session has on the device, and the device if it is the session's; outputs with location "gpu" live on
   *  if it is the caller's. */
  dispose(): void;
}

export type ErrorKind = "bundle" | "device" | "input" | "storage" | "closed";

/** What a caller, a bundle or a device did wrong; any other error is a fault of this package. */
export class ShaderloomError extends Error {
  constructor(kind: ErrorKind, message: string, options?: ErrorOptions);
  /** "bundle": damaged, missing, or of another major version; "device": no WebGPU, too small, or lost; "input":
   *  arguments, feeds or buffers that do not fit; "storage": no room for the cache; "closed": after `dispose()`. */
  readonly kind: ErrorKind;
}

/** Open a bundle, check it, and upload its weights. */
export function load(source: BundleSource, options?: LoadOptions): Promise<Session>;

/** The value of a size for the values of symbols. */
export function evaluate(size: Size, symbols: Record<string, number>): number;
