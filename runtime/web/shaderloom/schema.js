// The types of all fields of manifest.json and plan-KEY.json, and their bounds: what follows the equals sign is JSON,
// which the Python reader takes from this file. A record is the names of its fields with their types, of which those
// with ? may be missing, in as many texts as it has lines; an object is records by their field "kind". T? is T or null,
// T[9] a list of at most 9, T[1..9] one that is not empty, T{9} items by name; without a number there are at most those
// of "items". (T, U) is a list of these, a|b one of these texts. docs/guide/bundles.md says what each type without parts
// means.

/** @type {import("./structure.js").Schema} */
export const SCHEMA = {
  "bytes": { "manifest": 268435456, "plan": 268435456, "shader": 1048576 },
  "depth": 100,
  "steps": 4096,
  "reads": 256,
  "items": 65536,
  "size": { "nodes": 1024, "depth": 32 },
  "dtypes": {
    "float32": 4, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "int32": 4, "int64": 8, "bool": 1, "float16": 2,
    "uint32": 4, "uint64": 8, "bfloat16": 2, "float8e4m3fn": 1, "float8e4m3fnuz": 1, "float8e5m2": 1,
    "float8e5m2fnuz": 1, "uint4": 1, "int4": 1, "float4e2m1": 1, "float8e8m0": 1, "uint2": 1, "int2": 1
  },
  "other dtypes": ["string", "float64", "complex64", "complex128"],
  "types": {
    "manifest": [
      "format: format, producer: text{64}, target: text, model: metadata, nodes: count, inputs: port[]",
      "overridable: port[], outputs: port[], dynamic: range{64}, features: text[64], limits: count{256}",
      "decisions: count{64}, plans: plan record[4096], weights: weight record{1000000}, samples: sample[4096]",
      "files: file{1000000}, programs?: program[4096]"
    ],
    "metadata": [
      "producer_name?: text, domain?: text, description?: text, graph_name?: text, graph_description?: text",
      "version?: integer, custom_metadata_map?: text{}"
    ],
    "port": ["name: text, dtype: dtype?, dims: dim?[32]?"],
    "range": ["low: count, high: count, step: count"],
    "integer range": ["low: integer, high: integer, step: count"],
    "plan record": ["key: key, file: text, shapes: dim[32]{}, software?: key, rows?: batch axes"],
    "batch axes": ["inputs: count{}, outputs: count{}"],
    "program": ["key: key, shapes: dim[32]{}, ranges: integer range{4096}, steps: step[]"],
    "step": {
      "stage": ["plan: key, inputs: text[], sizes: text{4096}, outputs: plan port[], software?: key"],
      "read": ["value: text, symbols: text[1..256]"],
      "alias": ["value: text, source: text"],
      "loop": [
        "count: size?, symbol: text?, condition: text?, going: text?, iteration: text, carried: carried[4096]",
        "stacked: stacked[4096], steps: step[]"
      ],
      "refuse": ["reason: text"],
      "branch": ["condition: text, true: step[], false: step[]"],
      "compare": ["test: less|equal, left: size, right: size, true: step[], false: step[]"]
    },
    "carried": ["name: text, initial: text, next: text, result: text?, symbols?: text?[32]"],
    "stacked": ["row: text, result: text, dtype: device dtype, shape: shape"],
    "weight record": ["bytes: count, parts: part[1..]"],
    "part": ["file: text, offset: count, length: count"],
    "sample": ["plan: key, file: text, tolerance: number"],
    "file": ["size: count, sha256: key[1000000]"],
    "plan": [
      "format: format, key: key, inputs: plan port[], outputs: plan port[], symbols: symbol[1024], arenas: size[]",
      "problems: integer[1..16384][1000000], kernels: kernel[], commands: command[]",
      "weights: weight[1000000], constants: constant[], aliases: alias[], states: state[]",
      "facts: facts, notes: notes"
    ],
    "plan port": ["name: text, dtype: device dtype, shape: shape"],
    "shape": "size[32]",
    "symbol": ["name: text, low: count, high: count, step: count"],
    "kernel": [
      "key: key, template: text, workgroup: count[3..3], bindings: binding[1000], features: text[64]",
      "workgroup_bytes: count, config: config[1000]"
    ],
    "config": "(text, setting)",
    "binding": ["name: text, access: read|read_write|uniform|iteration, element: text"],
    "command": {
      "device": ["calls: call[1000000]"],
      "repeat": ["calls: call[1000000], count: size"]
    },
    "call": [
      "kernel: key, ranges: buffer range[1000], grid: size[3..3], origins: text[]",
      "label: text, flops: size, bytes: size"
    ],
    "buffer range": ["buffer: text, offset: size, size: size"],
    "weight": ["key: key, bytes: count, description: text"],
    "constant": ["output: text, dtype: device dtype, shape: count[32], data: base64"],
    "state": ["output: text, input: text"],
    "alias": ["output: text, source: text, size: size"],
    "facts": [
      "tensors: tensor facts[4000000], calls: call facts[1000000], nodes: run|weights|folded[4000000]",
      "decisions: decision[1000000], precision: precision facts?, declares_halves: flag, tiled?: text[1000]"
    ],
    "tensor facts": [
      "name: text, graph: text, node: text, dtype: text, shape: size[1000], layout: layout",
      "kind: input|weight|activation|output, iterations: count[1000]"
    ],
    "layout": ["order: count[1000], padding: axis pairs, blocks: axis pairs, text: text"],
    "axis pairs": "count[2..2][1000]",
    "call facts": ["operands: count[1..1000], also: count[1000], in_place: count?"],
    "decision": ["problem: text, source: text, candidates: count, nanoseconds: number?, analytic_nanoseconds: number?"],
    "precision facts": ["measured: text[4000000], positions: text[], overflowing: flag[2..2]{}"],
    "notes": [
      "calls: call notes[1000000], memory: memory notes?, not_fused: fusion refusal[4000000]",
      "alternatives: alternative[]{1000000}, precision: precision notes?, widened: full precision value[4000000]"
    ],
    "call notes": ["family: text, prologue: text[], anchor: text[], epilogue: text[], decision: text?"],
    "memory notes": [
      "planned_bytes: count, naive_bytes: count, lower_bound_bytes: count, weight_bytes: count, in_place: count"
    ],
    "fusion refusal": ["producer: text, consumer: text, why: text"],
    "alternative": ["config: text, cost: number?, chosen: flag"],
    "precision notes": [
      "stored: text, activations: count, weights: count, full_precision: full precision value[4000000]"
    ],
    "full precision value": ["node: text, tensor: text, why: text"]
  }
};
