"""Small bundles for tests, written by hand or compiled, and other ways to spell them."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
from onnx import helper

from shaderloom.bundles.compile import FurtherModel, compile_bundle
from shaderloom.runtime.bundle.format import CHUNK, DIGEST, MANIFEST
from shaderloom.runtime.bundle.integrity import digest_line

from .comparing import COMPARING
from .deciding import DECIDING
from .kernels import make_model
from .large_weights import declared_windows, windows
from .programs import parse

#: A weight used as it is and two that a session would make with kernels (too large for the compiler to fold); an input
#: that is also an output, constant outputs, and an output that is a weight
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
small (float[batch, n, 8] x, float[8] bias)
    => (float[batch, n, 8] y, float[batch, n, 8] same, float[2] two, float[3000, 8] table, int64[3] shape)
<float[2] two = {1.5, -2.0}> {
    w = Constant<value = float[8] {1, 2, 3, 4, 5, 6, 7, 8}>()
    ten = Constant<value = float {10.0}>()
    rows = Constant<value = int64[2] {3000, 8}>()
    wide = Expand(w, rows)
    raised = Exp(wide)
    table = Div(raised, ten)
    column = ReduceSum<keepdims = 0>(raised)
    a = Mul(x, w)
    b = Add(a, bias)
    c = Softmax<axis = -1>(b)
    y = Add(c, column)
    same = Identity(x)
    shape = Shape(x)
}
"""


def small_model(*, bias: bool = True) -> onnx.ModelProto:
    """The model above; without ``bias`` it has one input, and adds the weight again."""
    text = MODEL if bias else MODEL.replace(", float[8] bias)", ")").replace("Add(a, bias)", "Add(a, w)")
    return onnx.parser.parse_model(text)


def feeds(n: int = 5, batch: int = 2, *, bias: bool = True) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(n)
    x = generator.standard_normal((batch, n, 8)).astype(np.float32)
    return {"x": x, "bias": generator.standard_normal(8).astype(np.float32)} if bias else {"x": x}


def small_bundle(path: Path, *lengths: int, bias: bool = True, **options: Any) -> Path:
    """Compile the small model for these values of ``n``."""
    shapes = [{"x": (2, n, 8)} for n in lengths or (5,)]
    compile_bundle(small_model(bias=bias), path, shapes=shapes, **options)
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    """Content by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def copy_bundle(source: Path, target: Path) -> Path:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target


def file_record(data: bytes) -> dict[str, Any]:
    """What a manifest says of a file with this content."""
    hashes = [hashlib.sha256(data[start : start + CHUNK]).hexdigest() for start in range(0, len(data), CHUNK)]
    return {"size": len(data), "sha256": hashes}


def seal(folder: Path) -> None:
    """Make the hashes of a changed bundle right again: what is wrong then is its content."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    for name, record in manifest["files"].items():
        path = folder / name
        if path.is_file():
            record |= file_record(path.read_bytes())
    write_manifest(folder, manifest)


def write_manifest(folder: Path, manifest: Any) -> None:
    """A manifest with its digest."""
    content = json.dumps(manifest).encode()
    (folder / MANIFEST).write_bytes(content)
    (folder / DIGEST).write_bytes(digest_line(content))


def enlarge_plans(folder: Path, refusals: int = 20_000) -> None:
    """Give plans notes of over a megabyte that change nothing."""
    for path in folder.glob("plan-*.json"):
        plan = json.loads(path.read_bytes())
        plan["notes"]["not_fused"] += [
            {"producer": "p", "consumer": "c", "why": f"reason {n:030}"} for n in range(refusals)
        ]
        path.write_text(json.dumps(plan))
    seal(folder)


def change_manifest(folder: Path, **fields: Any) -> None:
    """Replace fields of the manifest, with its digest."""
    write_manifest(folder, {**json.loads((folder / MANIFEST).read_bytes()), **fields})


def product_bundle(path: Path, *rows: int, **options: Any) -> Path:
    """A product with 64 x 64 weights, for which GPUs and adapters on the CPU want other kernels."""
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> product (float[n, 64] x) => (float[n, 64] y) { y = MatMul(x, w) }"""
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    compile_bundle(model, path, shapes=[{"x": (n, 64)} for n in rows], **options)
    return path


def recurrent_model() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A recurrent layer of 64 units and ``n`` steps, and its weights."""
    draw = np.random.default_rng(0)
    weights = {name: draw.standard_normal((1, 64, size)).astype(np.float32) / 8 for name, size in (("w", 8), ("r", 64))}
    node = helper.make_node("RNN", ["x", "w", "r"], ["y", "last"], hidden_size=64)
    first = {"x": np.zeros((4, 2, 8), np.float32)}
    return make_model([node], first, ["y", "last"], constants=weights, dims={"x": ("n", 2, 8)}), weights


def recurrent_bundle(path: Path, **options: Any) -> Path:
    """Compile that layer for 0 to 64 steps: a command of the plan is repeated."""
    compile_bundle(recurrent_model()[0], path, shapes=[{"x": (4, 2, 8)}], dynamic={"n": (0, 64)}, **options)
    return path


#: A cache of rows, one of which is new, and a result that reads it
CACHE = """
<ir_version: 13, opset_import: ["" : 24]>
cache (float[batch, 6, 4] past, float[batch, 1, 4] row, int64[batch] place)
    => (float[batch, 6, 4] present, float[batch, 6, 4] y) {
    present = TensorScatter<axis = 1>(past, row, place)
    y = Tanh(present)
}
"""


def cache_bundle(path: Path, **options: Any) -> Path:
    """Compile the cache for two sequences: it is written in place."""
    shapes = [{"past": (2, 6, 4), "row": (2, 1, 4), "place": (2,)}]
    compile_bundle(onnx.parser.parse_model(CACHE), path, shapes=shapes, **options)
    return path


def cache_feeds() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs of the cache, and what it is afterwards."""
    draw = np.random.default_rng(0)
    fed = {
        name: draw.standard_normal(shape).astype(np.float32)
        for name, shape in (("past", (2, 6, 4)), ("row", (2, 1, 4)))
    }
    present = fed["past"].copy()
    present[0, 5], present[1, 2] = fed["row"][:, 0]
    return fed | {"place": np.array([5, 2])}, present


#: A model in stages: a count that is read, a condition, and an output that is a constant
STEPS = """
<ir_version: 8, opset_import: ["" : 17]>
steps (float[5, 40] x, bool c, float[n, 3] w) => (int64[2, m] y, float[k] z, float[2] two, float[n, 3] e)
<float[2] two = {1.5, -2.0}> {
    e = Exp(w)
    y = NonZero(x)
    t = Transpose(y)
    v = GatherND(x, t)
    z = If (c) < then_branch = a () => (float[p] r) { r = Exp(v) },
                 else_branch = b () => (float[q] r) { r = Concat<axis = 0>(v, v) } >
}
"""


def steps_bundle(path: Path, **options: Any) -> Path:
    """Compile the model in stages, for 1 to 9 rows of an input."""
    model = onnx.parser.parse_model(STEPS)
    shapes = [{"x": (5, 40), "c": (), "w": (2, 3)}]
    compile_bundle(model, path, shapes=shapes, dynamic={"n": (1, 9)}, **options)
    return path


def further_bundle(path: Path, **options: Any) -> Path:
    """Compile the small model with two others of fixed sizes beside it: ``cache``, a plan, and ``steps``, a program."""
    texts = {"cache": CACHE.replace("batch", "2"), "steps": STEPS.replace("n, 3]", "2, 3]")}
    models = {name: FurtherModel(onnx.parser.parse_model(text)) for name, text in texts.items()}
    compile_bundle(small_model(), path, shapes=[{"x": (2, 5, 8)}], models=models, **options)
    return path


#: A loop that ends by a sum of what it carries, and one with a count that is fed, whose rows are stacked
LOOPS = """
<ir_version: 8, opset_import: ["" : 17]>
loops (float[n] x, float limit, int64 k)
    => (float[n] y, int64 steps, float[s] sums, float[n] z, float[k, n] rows, float[k] numbers)
<int64 zero = {0}, int64 one = {1}, bool true = {1}> {
    y, steps, sums = Loop (, true, x, zero) <
        body = a (int64 i, bool go, float[n] v, int64 c) => (bool on, float[n] w, int64 d, float o) {
            w = Add(v, v)  d = Add(c, one)  o = ReduceSum<keepdims = 0>(w)  on = Less(o, limit) } >
    z, other, rows, numbers = Loop (k, , x, y) <
        body = b (int64 i, bool go, float[n] v, float[n] u)
            => (bool on, float[n] u2, float[n] v2, float[n] p, float f) {
            on = Identity(go)  f = Cast<to = 1>(i)  p = Mul(v, f)  u2 = Add(u, x)  v2 = Identity(v) } >
}
"""


#: A loop that carries rows, one more in each iteration, and one that begins with none and ends by their sum
GROWING = """
<ir_version: 8, opset_import: ["" : 18]>
growing (float[n, 3] x, int64 k, float limit) => (float[m, 3] y, float[m, 3] z, float[q, 3] rows, int64 count)
<int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, float half = {0.5}, bool true = {1},
 float[0, 3] none = {}> {
    y = Loop (k, , x) < body = a (int64 i, bool go, float[p, 3] v) => (bool on, float[r, 3] w) {
        on = Identity(go)  t = Exp(v)  s = Mul(t, half)  mean = ReduceMean<keepdims = 1>(s, axis)
        w = Concat<axis = 0>(v, mean) } >
    z = Neg(y)
    rows, count = Loop (, true, none, zero) < body = b (int64 i, bool go, float[p, 3] v, int64 c)
        => (bool on, float[r, 3] w, int64 d) {
        w = Concat<axis = 0>(v, x)  d = Add(c, one)  sum = ReduceSum<keepdims = 0>(w)  on = Less(sum, limit) } >
}
"""


def growing_bundle(path: Path, **options: Any) -> Path:
    """Compile the model of two loops that carry more from iteration to iteration, for 1 to 5 rows."""
    shapes = [{"x": (3, 3), "k": (), "limit": ()}]
    ranges = {"k": (0, 9), "size of y": (0, 14), "size of rows": (0, 55), "iterations of rows": (0, 12)}
    options = {"dynamic": {"n": (1, 5)}, "ranges": ranges, **options}
    compile_bundle(onnx.parser.parse_model(GROWING), path, shapes=shapes, **options)
    return path


def growing_feeds(n: int, k: int, limit: float) -> dict[str, np.ndarray]:
    x = np.random.default_rng(n).random((n, 3), np.float32)
    return {"x": x, "k": np.array(k), "limit": np.array(limit, np.float32)}


#: A scan along other axes than the first and from the end, of a declared length, and one whose length is read
SCANS = """
<ir_version: 8, opset_import: ["" : 17]>
scans (float[3, n] x, float[n, 3] z, float[3] s, int64 k)
    => (float[3] last, float[3, n] ys, float[n, 3] zs, float total, float[k] sums)
<int64 zero = {0}, int64 one = {1}, float nothing = {0}> {
    last, ys, zs = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                         scan_output_axes = [1, 0], scan_output_directions = [1, 1],
        body = a (float[3] v, float[3] r, float[3] q) => (float[3] c, float[3] o, float[3] p) {
            t = Mul(v, q)  c = Sub(t, r)  o = Tanh(c)  p = Add(o, q) } > (s, x, z)
    numbers = Range(zero, k, one)
    steps = Cast<to = 1>(numbers)
    total, sums = Scan <num_scan_inputs = 1, body = b (float sum, float step) => (float more, float row) {
        more = Add(sum, step)  row = Identity(more) } > (nothing, steps)
}
"""


def scans_bundle(path: Path, **options: Any) -> Path:
    """Compile the model of two scans, for 0 to 9 columns."""
    shapes = [{"x": (3, 5), "z": (5, 3), "s": (3,), "k": ()}]
    options = {"dynamic": {"n": (0, 9)}, "ranges": {"k": (0, 20)}, **options}
    compile_bundle(onnx.parser.parse_model(SCANS), path, shapes=shapes, **options)
    return path


def scans_feeds(n: int, k: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(n)
    shapes = {"x": (3, n), "z": (n, 3), "s": (3,)}
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} | {"k": np.array(k)}


def loops_bundle(path: Path, **options: Any) -> Path:
    """Compile the model of two loops, for 1 to 9 columns; the second swaps what it carries."""
    shapes = [{"x": (3,), "limit": (), "k": ()}]
    options = {"dynamic": {"n": (1, 9)}, "ranges": {"k": (0, 40), "iterations of y": (0, 30)}, **options}
    compile_bundle(onnx.parser.parse_model(LOOPS), path, shapes=shapes, **options)
    return path


def loops_feeds(n: int, limit: float, k: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(n).random(n, np.float32) + np.float32(0.5)
    return {"x": x, "limit": np.array(limit, np.float32), "k": np.array(k)}


#: Products in a first stage, on two sides of a condition and in a loop whose length is fed; a count that is read
HALVES = """
<ir_version: 8, opset_import: ["" : 17]>
halves (float[n, 32] x, bool c, int64 k) => (float[n, 32] y, float[k, n, 32] rows, int64[2, m] places, float[m] some) {
    h = MatMul(x, w)  a = Tanh(h)  b = MatMul(a, w)  above = Greater(x, zero)  places = NonZero(above)
    turned = Transpose(places)  some = GatherND(b, turned)
    s = If (c) < then_branch = t () => (float[n, 32] p) { p0 = MatMul(b, w) p1 = Tanh(p0) p = MatMul(p1, w) },
                 else_branch = e () => (float[n, 32] q) { q0 = MatMul(a, w) q1 = Sigmoid(q0) q = MatMul(q1, w) } >
    y, rows = Loop (k, , s) < body = l (int64 i, bool go, float[n, 32] v) => (bool on, float[n, 32] u, float[n, 32] r) {
        on = Identity(go)  r0 = MatMul(v, w)  r1 = Tanh(r0)  u = MatMul(r1, w)  r = Identity(u) } >
}
"""


def half_program() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of products in several stages, and the options of a bundle for 1 to 5 rows."""
    model = onnx.parser.parse_model(HALVES)
    weight = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32) / 6
    constants = {"w": weight, "zero": np.array(0, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    shapes = {"x": (3, 32), "c": (), "k": ()}
    return model, {"shapes": shapes, "dynamic": {"n": (1, 5)}, "ranges": {"k": (0, 12)}}


def half_program_feeds(seed: int, trips: int, *, taken: bool = True) -> dict[str, np.ndarray]:
    x = np.random.default_rng(seed).standard_normal((3, 32)).astype(np.float32)
    return {"x": x, "c": np.array(taken), "k": np.array(trips)}


#: A quantised model that gathers rows
QUANTISED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8] x, int64[k] rows) => (float[n, 8] y, uint8[n, 8] q, float[k, 8] z) <float s = {0.1}, uint8 o = {3}> {
    q = QuantizeLinear(x, s, o)
    d = DequantizeLinear(q, s, o)
    y = Softmax<axis = 1>(d)
    z = Gather<axis = 0>(y, rows)
}
"""


#: With which inputs and outputs of 30 KiB and more are bound in windows
WINDOW_LIMITS = {"maxStorageBufferBindingSize": 1 << 14, "maxBufferSize": 1 << 17}


def open_windows_bundle(path: Path, **options: Any) -> Path:
    """Compile a model whose input and output are bound in windows, for 0 to 120 rows."""
    options = {"dynamic": {"n": (0, 120)}, "limits": WINDOW_LIMITS, **options}
    compile_bundle(declared_windows()[0], path, **options)
    return path


def comparing_bundle(path: Path, **options: Any) -> Path:
    """Compile a program that compares sizes: it expands what it computes to a shape that is fed."""
    model = COMPARING["Expand to what is fed"]
    shapes = [{port: array.shape for port, array in model.feeds[0].items()}]
    compile_bundle(parse(model.text), path, shapes=shapes, **{**model.options, **options})
    return path


def bundles_of_all_kinds(folder: Path, *, as_zip: bool = False) -> dict[str, Path]:
    """Compile one with constants and aliases, one with declared dimensions, a quantised one, halves, two plans, one
    with repeated calls, one with a state, one with a program, one with loops, one with loops that carry more and more,
    one with bounds from either end, two with windows, of fixed and of declared sizes, one with further models, and one
    that compares sizes.
    """
    names = (
        *("small", "dynamic", "quantised", "half", "software", "recurrent", "cache"),
        *("steps", "loops", "growing", "bounds", "windows", "open", "further", "comparing"),
    )
    paths = {name: folder / (f"{name}.zip" if as_zip else name) for name in names}
    small_bundle(paths["small"], 5, as_zip=as_zip)
    small_bundle(paths["dynamic"], 5, dynamic={"n": (1, 64), "batch": (2, 8, 2)}, as_zip=as_zip)
    quantised = onnx.parser.parse_model(QUANTISED)
    shapes = [{"x": (4, 8), "rows": (2,)}]
    compile_bundle(quantised, paths["quantised"], shapes=shapes, dynamic={"k": (1, 9)}, as_zip=as_zip)
    product_bundle(paths["half"], 8, precision="float16", as_zip=as_zip)
    product_bundle(paths["software"], 8, as_zip=as_zip)
    recurrent_bundle(paths["recurrent"], as_zip=as_zip)
    cache_bundle(paths["cache"], as_zip=as_zip)
    steps_bundle(paths["steps"], as_zip=as_zip)
    loops_bundle(paths["loops"], as_zip=as_zip)
    growing_bundle(paths["growing"], as_zip=as_zip)
    bounds = DECIDING["bounds from either end"]
    shapes = [{port: array.shape for port, array in bounds.feeds[0].items()}]
    compile_bundle(parse(bounds.text), paths["bounds"], shapes=shapes, as_zip=as_zip, **bounds.options)
    comparing_bundle(paths["comparing"], as_zip=as_zip)
    compile_bundle(windows()[0], paths["windows"], limits=WINDOW_LIMITS, as_zip=as_zip)
    open_windows_bundle(paths["open"], as_zip=as_zip)
    further_bundle(paths["further"], target="web-software", as_zip=as_zip)
    return paths
