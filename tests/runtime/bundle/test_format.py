"""Writing bundles: equal bytes everywhere, shared weights and shaders, weights evaluated on the host.  No device."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import onnx.reference
import pytest

from shaderloom.bundles.compile import compile_bundle
from shaderloom.cli.compile import split_shapes
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_unit, model_unit
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.layout import Layout
from shaderloom.compiler.options import Limits
from shaderloom.compiler.planning.host_weights import stored
from shaderloom.compiler.reference.constant_eval import evaluate_constant
from shaderloom.runtime.bundle.format import CHUNK, MANIFEST, own_limit, web_limit
from shaderloom.runtime.bundle.plan import decode, encode
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.bundle.structure import read
from shaderloom.runtime.bundle.writer import BundleWriter
from shaderloom.runtime.execution.requirements import check_limits, requirements
from shaderloom.runtime.memory import safetensors
from shaderloom.runtime.plan.declared_port import DeclaredPort
from shaderloom.runtime.plan.device_profile import WEB, WEB_LIMITS
from shaderloom.runtime.plan.errors import InputError, InternalError, LimitError, ModelError
from shaderloom.runtime.plan.plan import ComputePass, Plan, Range, SourceRef, Weight

from ...support.bundles import files_of, product_bundle, small_bundle, small_model
from ...support.patience import PATIENCE
from ...support.plans import dynamic_plan, two_call_plan

# -- bytes ------------------------------------------------------------------------------------------------------------


def test_two_processes_write_the_same_bytes(tmp_path):
    first = small_bundle(tmp_path / "first.shaderbundle", 5, 7)
    model = tmp_path / "small.onnx"
    model.write_bytes(small_model().SerializeToString())
    command = [sys.executable, "-m", "shaderloom", "compile", str(model), "-o", str(tmp_path / "second.shaderbundle")]
    command += ["--shape", "x=2x5x8", "--shape", "x=2x7x8"]
    subprocess.run(command, check=True, timeout=PATIENCE, env={"PYTHONHASHSEED": "7", "PATH": ""}, cwd=Path.cwd())
    assert files_of(first) == files_of(tmp_path / "second.shaderbundle")


def test_zips_are_the_same_bytes(tmp_path):
    paths = [small_bundle(tmp_path / name / "x.shaderbundle", as_zip=True) for name in "ab"]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_weights_and_shaders_are_stored_once(tmp_path):
    one = small_bundle(tmp_path / "one", 5)
    two = small_bundle(tmp_path / "two", 5, 7)
    manifests = [json.loads((path / MANIFEST).read_bytes()) for path in (one, two)]
    assert [len(manifest["plans"]) for manifest in manifests] == [1, 2]
    assert manifests[0]["weights"] == manifests[1]["weights"]
    plans = [json.loads((two / plan["file"]).read_bytes()) for plan in manifests[1]["plans"]]
    named = {kernel["key"] for plan in plans for kernel in plan["kernels"]}
    assert {f"shaders/{key}.wgsl" for key in named} == {name for name in files_of(two) if name.startswith("shaders/")}
    with Bundle(two) as bundle:
        sizes = sorted(sum(part.length for part in parts) for parts in bundle.manifest.weights.values())
    assert sizes == [16, 32, 96_000]


def test_weights_are_final(tmp_path):
    """The bytes are those of the transform, computed with numpy; no kernel of a transform is left."""
    with Bundle(small_bundle(tmp_path / "small.shaderbundle")) as bundle:
        plan = bundle.plan(bundle.manifest.plans[0].key)
        contents = {
            weight.description: b"".join(
                bytes(bundle.read_source(source)) for source in plan.sources if source.key in weight.sources
            )
            for weight in plan.weights
        }
    raised = np.exp(np.broadcast_to(np.arange(1, 9, dtype=np.float64), (3000, 8))).astype(np.float32)
    assert sorted(contents.values(), key=len) == [
        raised.sum(dtype=np.float64).astype(np.float32).tobytes().ljust(16, b"\0"),
        np.arange(1, 9, dtype=np.float32).tobytes(),
        (raised / np.float32(10)).tobytes(),
    ]
    assert not any(weight.calls for weight in plan.weights)
    used = {call.kernel for call in plan.calls}
    assert {kernel.key for kernel in plan.kernels} == used


def test_large_weights_are_split_over_files(tmp_path):
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0, 256, size, np.uint8) for size in (48, 4096, 16, 20_000, 48)]
    with BundleWriter(tmp_path / "b", weights_file_bytes=8192) as writer:
        keys = [writer.add_weight(memoryview(array)) for array in arrays]
        assert writer.add_weight(memoryview(arrays[1].copy())) == keys[1]
        plan = _with_weights(two_call_plan(), keys)
        writer.add_plan(plan, {"x": [100]})
        writer.finish(**_facts())
    names = [name for name in files_of(tmp_path / "b") if name.startswith("weights")]
    assert len(names) == 8  # each file has room for 4,096 bytes of data
    with Bundle(tmp_path / "b") as bundle:
        bundle.check_all()
        for key, array in zip(keys, arrays):
            parts = bundle.manifest.weights[key]
            assert len(parts) == -(-array.size // 4096)
            stored_bytes = b"".join(files_of(tmp_path / "b")[part.file][part.offset :][: part.length] for part in parts)
            assert stored_bytes == array.tobytes()
            entries = safetensors.parse(memoryview(files_of(tmp_path / "b")[parts[0].file]))
            name = key if len(parts) == 1 else f"{key}.0"
            assert (entries[name].begin, entries[name].end) == (parts[0].offset, parts[0].offset + parts[0].length)


def _with_weights(plan: Plan, keys: list[str]) -> Plan:
    call = plan.calls[0]
    ranges = (call.ranges[0], Range(f"weight:{keys[0]}", 0, 48), call.ranges[2])
    command = ComputePass((replace(call, ranges=ranges), plan.calls[1]))
    weights = tuple(Weight(key, 48, (), ()) for key in keys[:1])
    return replace(plan, key="ab" * 32, sources=(), weights=weights, commands=(command,), kernels=plan.kernels[:2])


def _facts():
    return {
        "producer": {"name": "tests", "version": "0"},
        "target": "web",
        "model": {},
        "nodes": 1,
        "inputs": (DeclaredPort("x", "float32", ("N",)),),
        "overridable": (),
        "outputs": (DeclaredPort("y", "float32", ("N",)),),
        "dynamic": {},
        "features": ("subgroup",),
        "limits": {"max-buffer-size": 1024},
    }


def test_chunks_of_a_file_have_hashes_of_their_own(tmp_path):
    data = np.random.default_rng(0).integers(0, 256, CHUNK + 64, np.uint8)
    with BundleWriter(tmp_path / "b") as writer:
        key = writer.add_weight(memoryview(data))
        small = writer.add_weight(memoryview(data[:48]))
        writer.add_plan(_with_weights(two_call_plan(), [small]), {"x": [100]})
        manifest = writer.finish(**_facts())
    (part,) = manifest.weights[key]
    assert len(manifest.files[part.file].chunks) == 2
    with Bundle(tmp_path / "b") as bundle:
        assert bundle.manifest == manifest
        position = part.offset + CHUNK + 3  # in the second chunk only
        _flip(tmp_path / "b" / part.file, position)
        first = bundle.read_source(SourceRef("a", part.file, 0, 100, "uint8", (100,)))
        assert len(first) == 100
        with pytest.raises(Exception, match=part.file):
            bundle.read_source(SourceRef("b", part.file, position, 1, "uint8", (1,)))


def _flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (value,) = file.read(1)
        file.seek(position)
        file.write(bytes([value ^ 1]))


def test_plans_survive_the_format():
    plan = replace(dynamic_plan(), key="ab" * 32)
    shaders = {kernel.key: kernel.wgsl for kernel in plan.kernels}
    assert decode(read(encode(plan), "plan"), shaders.__getitem__, {}) == plan
    with pytest.raises(InternalError, match="not evaluated"):
        encode(two_call_plan())


@pytest.mark.parametrize(("fault", "told"), [("version", "model.version is not an integer"), ("rank", "has 33 items")])
def test_what_no_reader_would_take_is_not_written(tmp_path, fault, told):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Exp(x) }'
    )
    if fault == "version":
        model.model_version = 1 << 60
    else:
        for port in (model.graph.input[0], model.graph.output[0]):
            for _ in range(32):
                port.type.tensor_type.shape.dim.add().dim_value = 1
    with pytest.raises(LimitError, match=f"does not fit the format of bundles: .*{told}"):
        compile_bundle(model, tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_names_of_limits():
    for name in WEB_LIMITS:
        assert own_limit(web_limit(name)) == name
    assert web_limit("max-compute-workgroup-size-x") == "maxComputeWorkgroupSizeX"


# -- places -----------------------------------------------------------------------------------------------------------


def test_only_bundles_are_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for name, as_zip in (("folder", False), ("file", False), ("folder", True), ("file", True)):
        with pytest.raises(InputError, match="is there already"):
            small_bundle(tmp_path / name, as_zip=as_zip)
    small_bundle(tmp_path / "bundle", 5)
    before = files_of(tmp_path / "bundle")
    small_bundle(tmp_path / "bundle", 7)
    assert files_of(tmp_path / "bundle") != before
    small_bundle(tmp_path / "zip", 5, as_zip=True)
    small_bundle(tmp_path / "zip", 7, as_zip=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "file", "folder", "zip"]


def test_a_failed_compilation_leaves_what_was_there(tmp_path):
    path = small_bundle(tmp_path / "bundle", 5)
    before = files_of(path)
    with pytest.raises(InputError, match="twice"):
        compile_bundle(small_model(), path, shapes=[{"x": (2, 5, 8)}, {"x": (2, 5, 8)}])
    with pytest.raises(ModelError):
        compile_bundle(b"\xff", path, shapes=[{"x": (2, 5, 8)}])
    assert files_of(path) == before
    assert [item.name for item in tmp_path.iterdir()] == ["bundle"]


def test_the_model_is_not_replaced(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(small_model().SerializeToString())
    with pytest.raises(InputError, match="is there already"):
        compile_bundle(path, path, shapes=[{"x": (2, 5, 8)}], as_zip=True)


@pytest.mark.parametrize("as_zip", [False, True])
def test_a_folder_that_is_gone(tmp_path, monkeypatch, as_zip):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InputError, match="cannot write 'b': No such file or directory"):
        compile_bundle(small_model(), "b", shapes=[{"x": (2, 5, 8)}], as_zip=as_zip)


def test_shapes_must_be_known(tmp_path):
    with pytest.raises(InputError, match=r"not known \[give the sizes: .* or shapes in Python"):
        compile_bundle(small_model(), tmp_path / "b")
    with pytest.raises(InputError, match="no target"):
        compile_bundle(small_model(), tmp_path / "b", shapes=[{"x": (2, 5, 8)}], target="moon")
    assert list(tmp_path.iterdir()) == []


def test_sets_of_shapes():
    assert split_shapes(None) == []
    assert split_shapes(["a=1x2"]) == [{"a": (1, 2)}]
    assert split_shapes(["a=1", "a=2"]) == [{"a": (1,)}, {"a": (2,)}]
    assert split_shapes(["a=1", "b=2", "b=3", "a=4"]) == [{"a": (1,), "b": (2,)}, {"b": (3,), "a": (4,)}]


# -- limits -----------------------------------------------------------------------------------------------------------


def test_needs_of_a_plan():
    needed = requirements(two_call_plan())
    assert needed["max-storage-buffers-per-shader-stage"] == 3
    assert needed["max-compute-invocations-per-workgroup"] == 64
    assert needed["max-storage-buffer-binding-size"] == 400
    assert needed["max-buffer-size"] == 656
    assert requirements(dynamic_plan(0, 1000))["max-buffer-size"] == 12000
    assert requirements(dynamic_plan(0, 1000))["max-uniform-buffer-binding-size"] == 16


@pytest.mark.parametrize("limit", ["max-storage-buffers-per-shader-stage", "max-compute-invocations-per-workgroup"])
def test_a_plan_beyond_its_target_names_kernel_and_limit(limit):
    plan = two_call_plan()
    check_limits(plan, WEB)
    small = replace(WEB, limits={**WEB_LIMITS, limit: 2})
    with pytest.raises(LimitError, match=rf"kernel {plan.kernels[0].id} 'scale'.*{limit} of"):
        check_limits(plan, small)


def test_a_tensor_beyond_the_web_limits_is_refused(tmp_path):
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        large (float[n] x) => (float[n] y) { a = Exp(x) y = Softmax<axis = 0>(a) }"""
    )
    with pytest.raises(LimitError, match=r"128|134,217,728"):
        compile_bundle(model, tmp_path / "b", shapes=[{"x": ((128 << 20) // 4 + 4,)}])
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_says_what_the_bundle_needs(tmp_path):
    path = small_bundle(tmp_path / "b", 5)
    manifest = json.loads((path / MANIFEST).read_bytes())
    assert manifest["target"] == "web"
    assert manifest["features"] == []
    assert manifest["limits"]["minStorageBufferOffsetAlignment"] == 256
    for name, value in manifest["limits"].items():
        assert value <= WEB_LIMITS[own_limit(name)]
    assert manifest["model"]["graph_name"] == "small"
    assert manifest["inputs"] == [
        {"name": "x", "dtype": "float32", "dims": ["batch", "n", 8]},
        {"name": "bias", "dtype": "float32", "dims": [8]},
    ]


def test_software_adapters_have_plans_of_their_own(tmp_path):
    both = product_bundle(tmp_path / "both", 64, 65)
    one = product_bundle(tmp_path / "one", 64, 65, software=False)
    with Bundle(both) as bundle, Bundle(one) as other:
        assert bundle.manifest.weights == other.manifest.weights, "weights are shared"
        assert [record.key for record in bundle.manifest.plans] == [record.key for record in other.manifest.plans]
        for record, alone in zip(bundle.manifest.plans, other.manifest.plans):
            assert (record.for_software().key, alone.for_software()) == (record.software, alone)
            plan, software = bundle.plan(record.key), bundle.plan(record.for_software().key)
            assert plan.key != software.key
            assert (plan.inputs, plan.outputs) == (software.inputs, software.outputs)
            assert not any(kernel.workgroup_bytes for kernel in software.kernels)
        assert set(other.manifest.files) < set(bundle.manifest.files)
    with Bundle(product_bundle(tmp_path / "native", 64, target="native")) as bundle:
        (record,) = bundle.manifest.plans
        assert record.software not in (None, record.key)
    with Bundle(product_bundle(tmp_path / "cpu", 64, target="web-software")) as bundle:
        (record,) = bundle.manifest.plans
        assert record.software == record.key, "the plan is for such adapters"


# -- weights on the host ----------------------------------------------------------------------------------------------


CONSTANTS = {
    "views": ("float[6, 4] w", "t = Transpose<perm = [1, 0]>(w) r = Reshape(t, sizes) y = Add(r, x)"),
    "arithmetic": ("float[6, 4] w", "a = Tanh(w) b = Mul(a, w) c = Exp(b) r = Reshape(c, sizes) y = Add(r, x)"),
    "reduction": ("float[6, 4] w", "s = ReduceMean<axes = [0], keepdims = 1>(w) a = Sub(w, s) f = Sqrt(s)"
                  " g = Add(a, f) r = Reshape(g, sizes) y = Add(r, x)"),
    "product": ("float[6, 4] w", "t = Transpose<perm = [1, 0]>(w) p = MatMul(t, w) q = MatMul(w, p)"
                " r = Reshape(q, sizes) y = Add(r, x)"),
    "comparison": ("float[6, 4] w", "z = ReduceMax<keepdims = 0>(w) h = Mul(z, w) l = Less(w, h) c = Cast<to = 1>(l)"
                   " r = Reshape(c, sizes) y = Add(r, x)"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_weights_on_the_host_are_those_of_the_reference(name, tmp_path, monkeypatch):
    """With folding of small constants out of the way, the whole subgraph is a weight."""
    declared, body = CONSTANTS[name]
    w = (np.random.default_rng(0).standard_normal((6, 4)) * 2).astype(np.float32)
    w = np.abs(w) if name == "reduction" else w
    head = f'<ir_version: 8, opset_import: ["" : 13]> g (float[2, 12] x, {declared}) => (float[2, 12] y)'
    parsed = onnx.parser.parse_model(f"{head} {{ sizes = Constant<value_ints = [2, 12]>() {body} }}")
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    del parsed.graph.input[1]
    kept = _evaluated(parsed, {"x": (2, 12)})
    zero = np.zeros((2, 12), np.float32)
    (expected,) = onnx.reference.ReferenceEvaluator(parsed).run(None, {"x": zero})
    candidates = [np.frombuffer(data, np.float32) for data in kept]
    assert candidates
    assert any(array.size == 24 and _same_up_to_order(array, expected.reshape(-1)) for array in candidates), (
        candidates,
        expected,
    )


def _same_up_to_order(found: np.ndarray, expected: np.ndarray) -> bool:
    return np.allclose(np.sort(found), np.sort(expected), rtol=1e-5, atol=1e-6)


def _evaluated(model: onnx.ModelProto, shapes) -> list[bytes]:
    """The bytes of every weight of the model's plan for a bundle."""
    kept: list[bytes] = []

    def keep(data: memoryview) -> str:
        kept.append(bytes(data))
        return f"{len(kept):064}"

    imported = load_model(model.SerializeToString())
    compilation = Compilation(limits=Limits(fold_elements=2), keep_weight=keep)
    lowering = compile_unit(model_unit(imported, bind_shapes(imported, shapes, {})), compilation)
    assert any(group.constant for group in lowering.fusion.groups), "nothing was left to the host"
    assert lowering.plan.sources == ()
    return kept


def test_layouts_of_weights():
    array = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
    np.testing.assert_array_equal(np.frombuffer(stored(array, Layout((0, 1, 2, 3))), np.float32), array.reshape(-1))
    last = np.frombuffer(stored(array, Layout((0, 2, 3, 1))), np.float32)
    np.testing.assert_array_equal(last, array.transpose(0, 2, 3, 1).reshape(-1))
    padded = np.frombuffer(stored(array, Layout((2, 3, 1, 0), padding=((1, 4),))), np.float32).reshape(2, 2, 4, 2)
    np.testing.assert_array_equal(padded[:, :, :3], array.transpose(2, 3, 1, 0))
    assert not padded[:, :, 3].any()
    scalar = stored(np.float32(3).reshape(()), Layout(()))
    assert bytes(scalar) == np.float32(3).tobytes()


@pytest.mark.parametrize(
    "layout",
    [
        Layout((0, 1, 2)),
        Layout((2, 0, 1)),
        Layout((1, 2, 0), padding=((0, 4), (2, 8))),
        Layout((0, 1, 2), blocks=((1, 4),)),
        Layout((2, 1, 0), padding=((2, 6),), blocks=((1, 2), (0, 3))),
    ],
)
def test_every_element_lies_where_the_layout_says(layout):
    array = np.arange(1, 3 * 5 * 6 + 1, dtype=np.int32).reshape(3, 5, 6)
    found = np.frombuffer(stored(array, layout), np.int32)
    expected = np.zeros(int(layout.stored_elements(array.shape)), np.int32)
    for where in np.ndindex(*array.shape):
        expected[int(layout.position(array.shape, where))] = array[where]
    np.testing.assert_array_equal(found, expected)


def test_what_is_no_constant_is_not_evaluated():
    imported = load_model(small_model().SerializeToString())
    graph = specialise(imported, bind_shapes(imported, {"x": (2, 5, 8), "bias": (8,)}, {}).shapes)
    with pytest.raises(InternalError, match="no constant"):
        evaluate_constant(graph.outputs[0])
