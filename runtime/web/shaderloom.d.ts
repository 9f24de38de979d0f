/** Types of shaderloom.js. Those of WebGPU are in the package @webgpu/types, or in TypeScript's own DOM library. */

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
  | { readonly BYTES_PER_ELEMENT: 2; readonly length: number; readonly buffer: ArrayBufferLike };

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

export interface CpuTensor {
  dtype: DataType;
  dims: number[];
  data: TypedArray;
}

/** The caller destroys `buffer`. */
export interface GpuTensor {
  dtype: DataType;
  dims: number[];
  buffer: GPUBuffer;
}

/** A number, or the name of a dynamic dimension. */
export type Dimension = number | string;

export interface Port {
  name: string;
  dtype: DataType;
  dims: (Dimension | null)[] | null;
}

export interface Progress {
  stage: "weights" | "pipelines";
  /** Bytes of weights, or number of pipelines. */
  done: number;
  total: number;
}

export interface LoadOptions {
  /** The caller's device; it must have the features and limits that the manifest asks for. */
  device?: GPUDevice;
  /** Take kernels for adapters that compute on the CPU. Default: what the device's adapter says of itself. */
  software?: boolean;
  onProgress?: (progress: Progress) => void;
}

export interface CallTime {
  label: string;
  kernel: string;
  origins: string[];
  flops: number;
  bytes: number;
  microseconds: number;
}

export interface Kernel {
  key: string;
  template: string;
  entry_point: string;
  workgroup: [number, number, number];
  features: string[];
  bindings: { name: string; access: "read" | "read_write" | "uniform"; element: string; description: string }[];
}

/** plan-KEY.json, as docs/bundles.md specifies it. */
export interface Plan {
  key: string;
  kernels: Kernel[];
  stages: { calls: { kernel: string; label: string; origins: string[] }[] }[];
  [field: string]: unknown;
}

export interface Sample {
  inputs: Record<string, CpuTensor>;
  outputs: Record<string, CpuTensor>;
  tolerance: number;
}

export interface Session {
  /** manifest.json, as docs/bundles.md specifies it. */
  readonly manifest: any;
  readonly device: GPUDevice;
  readonly inputs: Port[];
  readonly outputs: Port[];
  /** The input shapes of each plan. */
  readonly shapes: Record<string, Dimension[]>[];
  /** Resolves with a readable reason when the device is lost. */
  readonly lost: Promise<string>;
  run(
    feeds: Record<string, Feed>,
    options?: { location?: "cpu"; outputs?: readonly string[] },
  ): Promise<Record<string, CpuTensor>>;
  run(
    feeds: Record<string, Feed>,
    options: { location: "gpu"; outputs?: readonly string[] },
  ): Promise<Record<string, GpuTensor>>;
  /** Needs the feature timestamp-query, which a session's own device has where the GPU offers it. */
  profile(feeds: Record<string, Feed>): Promise<CallTime[]>;
  /** Fetch and compile ahead of the first run: the plan of an index, or all. */
  prepare(index?: number): Promise<Plan[]>;
  shader(kernel: Kernel): Promise<string>;
  sample(index?: number): Promise<Sample>;
  dispose(): void;
}

export class ShaderloomError extends Error {
  readonly kind: "bundle" | "device" | "input" | "closed";
}

/** Open the bundle (a folder) at `url`, check it, and upload its weights. */
export function load(url: string | URL, options?: LoadOptions): Promise<Session>;

/** The value of a dimension of a plan: a number, the name of a symbol, or [operator, operand, ...]. */
export function evaluate(dimension: unknown, symbols: Record<string, number>): number;
