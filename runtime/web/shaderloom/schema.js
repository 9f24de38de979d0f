// The types of all fields of manifest.json and plan-KEY.json, and their bounds: what follows the equals sign is JSON,
// which the Python reader takes from this file. docs/guide/bundles.md says what each form means.

/** @type {import("./structure.js").Schema} */
export const SCHEMA = {
  "bytes": { "manifest": 268435456, "plan": 268435456, "shader": 1048576 },
  "depth": 100,
  "steps": 4096,
  "reads": 256,
  "size": { "nodes": 1024, "depth": 32 },
  "dtypes": {
    "float32": 4, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "int32": 4, "int64": 8, "bool": 1, "float16": 2,
    "uint32": 4, "uint64": 8, "bfloat16": 2, "float8e4m3fn": 1, "float8e4m3fnuz": 1, "float8e5m2": 1,
    "float8e5m2fnuz": 1, "uint4": 1, "int4": 1, "float4e2m1": 1, "float8e8m0": 1, "uint2": 1, "int2": 1
  },
  "other dtypes": ["string", "float64", "complex64", "complex128"],
  "types": {
    "manifest": { "record": {
      "format": "format", "producer": { "map": "text", "most": 64 }, "target": "text", "model": "metadata",
      "nodes": "count", "inputs": "ports", "overridable": "ports", "outputs": "ports",
      "dynamic": { "map": "range", "most": 64 }, "features": { "list": "text", "most": 64 },
      "limits": { "map": "count", "most": 256 }, "decisions": { "map": "count", "most": 64 },
      "plans": { "list": "plan record", "most": 4096 },
      "weights": { "map": "weight record", "most": 1000000 },
      "samples": { "list": "sample", "most": 4096 },
      "files": { "map": "file", "most": 1000000 }
    }, "optional": { "programs": { "list": "program", "most": 4096 } } },
    "metadata": { "record": {}, "optional": {
      "producer_name": "text", "domain": "text", "description": "text", "graph_name": "text",
      "graph_description": "text", "version": "integer", "custom_metadata_map": { "map": "text", "most": 65536 }
    } },
    "ports": { "list": "port", "most": 65536 },
    "port": { "record": { "name": "text", "dtype": { "or null": "dtype" },
      "dims": { "or null": { "list": { "or null": "dim" }, "most": 32 } } } },
    "range": { "record": { "low": "count", "high": "count", "step": "count" } },
    "integer range": { "record": { "low": "integer", "high": "integer", "step": "count" } },
    "plan record": { "record": { "key": "key", "file": "text",
      "shapes": { "map": { "list": "dim", "most": 32 }, "most": 65536 } },
      "optional": { "software": "key", "rows": "batch axes" } },
    "batch axes": { "record": { "inputs": { "map": "count", "most": 65536 },
      "outputs": { "map": "count", "most": 65536 } } },
    "program": { "record": { "key": "key", "shapes": { "map": { "list": "dim", "most": 32 }, "most": 65536 },
      "ranges": { "map": "integer range", "most": 4096 },
      "steps": "steps" } },
    "steps": { "list": "step", "most": 65536 },
    "step": { "kinds": {
      "stage": { "record": { "plan": "key", "inputs": { "list": "text", "most": 65536 },
        "sizes": { "map": "text", "most": 4096 }, "outputs": "plan ports" },
        "optional": { "software": "key" } },
      "read": { "record": { "value": "text", "symbols": { "list": "text", "least": 1, "most": 256 } } },
      "alias": { "record": { "value": "text", "source": "text" } },
      "loop": { "record": {
        "count": { "or null": "size" }, "symbol": { "or null": "text" }, "condition": { "or null": "text" },
        "going": { "or null": "text" }, "iteration": "text",
        "carried": { "list": { "record": { "name": "text", "initial": "text", "next": "text",
          "result": { "or null": "text" } },
          "optional": { "symbols": { "list": { "or null": "text" }, "most": 32 } } }, "most": 4096 },
        "stacked": { "list": { "record": { "row": "text", "result": "text", "dtype": "device dtype", "shape": "shape" } },
          "most": 4096 },
        "steps": "steps"
      } },
      "refuse": { "record": { "reason": "text" } },
      "branch": { "record": { "condition": "text", "true": "steps", "false": "steps" } },
      "compare": { "record": { "test": { "one of": ["less", "equal"] }, "left": "size", "right": "size",
        "true": "steps", "false": "steps" } }
    } },
    "weight record": { "record": { "bytes": "count", "parts": { "list": "part", "least": 1, "most": 65536 } } },
    "part": { "record": { "file": "text", "offset": "count", "length": "count" } },
    "sample": { "record": { "plan": "key", "file": "text", "tolerance": "number" } },
    "file": { "record": { "size": "count", "sha256": { "list": "key", "most": 1000000 } } },

    "plan": { "record": {
      "format": "format", "key": "key", "inputs": "plan ports", "outputs": "plan ports",
      "symbols": { "list": "symbol", "most": 1024 }, "arenas": { "list": "size", "most": 65536 },
      "problems": { "list": { "list": "integer", "least": 1, "most": 16384 }, "most": 1000000 },
      "kernels": { "list": "kernel", "most": 65536 }, "commands": { "list": "command", "most": 65536 },
      "weights": { "list": "weight", "most": 1000000 }, "constants": { "list": "constant", "most": 65536 },
      "aliases": { "list": "alias", "most": 65536 }, "states": { "list": "state", "most": 65536 }, "facts": "facts", "notes": "notes"
    } },
    "plan ports": { "list": "plan port", "most": 65536 },
    "plan port": { "record": { "name": "text", "dtype": "device dtype", "shape": "shape" } },
    "shape": { "list": "size", "most": 32 },
    "symbol": { "record": { "name": "text", "low": "count", "high": "count", "step": "count" } },
    "kernel": { "record": {
      "key": "key", "template": "text", "workgroup": { "tuple": ["count", "count", "count"] },
      "bindings": { "list": "binding", "most": 1000 }, "features": { "list": "text", "most": 64 },
      "workgroup_bytes": "count", "config": { "list": { "tuple": ["text", "setting"] }, "most": 1000 }
    } },
    "binding": { "record": { "name": "text", "access": { "one of": ["read", "read_write", "uniform", "iteration"] },
      "element": "text" } },
    "command": { "kinds": {
      "device": { "record": { "calls": { "list": "call", "most": 1000000 } } },
      "repeat": { "record": { "calls": { "list": "call", "most": 1000000 }, "count": "size" } }
    } },
    "call": { "record": {
      "kernel": "key", "ranges": { "list": "buffer range", "most": 1000 },
      "grid": { "tuple": ["size", "size", "size"] }, "origins": { "list": "text", "most": 65536 }, "label": "text",
      "flops": "size", "bytes": "size"
    } },
    "buffer range": { "record": { "buffer": "text", "offset": "size", "size": "size" } },
    "weight": { "record": { "key": "key", "bytes": "count", "description": "text" } },
    "constant": { "record": { "output": "text", "dtype": "device dtype", "shape": { "list": "count", "most": 32 },
      "data": "base64" } },
    "state": { "record": { "output": "text", "input": "text" } },
    "alias": { "record": { "output": "text", "source": "text", "size": "size" } },

    "facts": { "record": {
      "tensors": { "list": "tensor facts", "most": 4000000 }, "calls": { "list": "call facts", "most": 1000000 },
      "nodes": { "list": { "one of": ["run", "weights", "folded"] }, "most": 4000000 },
      "decisions": { "list": "decision", "most": 1000000 }, "precision": { "or null": "precision facts" }, "declares_halves": "flag"
    }, "optional": { "tiled": { "list": "text", "most": 1000 } } },
    "tensor facts": { "record": {
      "name": "text", "graph": "text", "node": "text", "dtype": "text", "shape": { "list": "size", "most": 1000 },
      "layout": "layout", "kind": { "one of": ["input", "weight", "activation", "output"] },
      "iterations": { "list": "count", "most": 1000 }
    } },
    "layout": { "record": { "order": { "list": "count", "most": 1000 }, "padding": "axis pairs",
      "blocks": "axis pairs", "text": "text" } },
    "axis pairs": { "list": { "tuple": ["count", "count"] }, "most": 1000 },
    "call facts": { "record": { "operands": { "list": "count", "least": 1, "most": 1000 },
      "also": { "list": "count", "most": 1000 }, "in_place": { "or null": "count" } } },
    "decision": { "record": { "problem": "text", "source": "text", "candidates": "count",
      "nanoseconds": { "or null": "number" }, "analytic_nanoseconds": { "or null": "number" } } },
    "precision facts": { "record": { "measured": { "list": "text", "most": 4000000 },
      "positions": { "list": "text", "most": 65536 },
      "overflowing": { "map": { "tuple": ["flag", "flag"] }, "most": 65536 } } },
    "notes": { "record": {
      "calls": { "list": "call notes", "most": 1000000 }, "memory": { "or null": "memory notes" },
      "not_fused": { "list": "fusion refusal", "most": 4000000 },
      "alternatives": { "map": { "list": "alternative", "most": 65536 }, "most": 1000000 },
      "precision": { "or null": "precision notes" },
      "widened": { "list": "full precision value", "most": 4000000 }
    } },
    "call notes": { "record": { "family": "text", "prologue": { "list": "text", "most": 65536 },
      "anchor": { "list": "text", "most": 65536 }, "epilogue": { "list": "text", "most": 65536 },
      "decision": { "or null": "text" } } },
    "memory notes": { "record": { "planned_bytes": "count", "naive_bytes": "count", "lower_bound_bytes": "count",
      "weight_bytes": "count", "in_place": "count" } },
    "fusion refusal": { "record": { "producer": "text", "consumer": "text", "why": "text" } },
    "alternative": { "record": { "config": "text", "cost": { "or null": "number" }, "chosen": "flag" } },
    "precision notes": { "record": { "stored": "text", "activations": "count", "weights": "count",
      "full_precision": { "list": "full precision value", "most": 4000000 } } },
    "full precision value": { "record": { "node": "text", "tensor": "text", "why": "text" } }
  }
};
