"""Bad models and bad input: one clear error of the project's family each, and nothing left behind on the device.

Covers: compiler/frontend.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom import InferenceSession
from shaderloom.runtime.plan.caps import Caps
from shaderloom.runtime.plan.errors import (
    InputError,
    LimitError,
    ModelError,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)

node = helper.make_node


def make(nodes, inputs=None, outputs=("y",), constants=None, opset: int = 17, domains=()) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "bad",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in (inputs or X).items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


X = {"x": (TensorProto.FLOAT, ("batch", 4))}


def good() -> onnx.ModelProto:
    weight = np.arange(400, dtype=np.float32).reshape(4, 100) / 100
    return make([node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["y"])], constants={"w": weight})


def open_and_run(model: object, device: object, feeds: dict | None = None, **options: object) -> list[np.ndarray]:
    with InferenceSession(model, device=device, cache=False, **options) as session:  # type: ignore[arg-type]
        return session.run(None, feeds if feeds is not None else {"x": np.ones((2, 4), np.float32)})


def check(error: ShaderloomError) -> None:
    """Says something, on one line, without another exception's name in it."""
    text = str(error)
    assert text and "\n" not in text.strip()
    assert "Traceback" not in text
    assert type(error).__name__ != "InternalError", text


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"no model at all",
        b"PK\x03\x04" + bytes(100),
        b"\x89PNG\r\n\x1a\n" + bytes(64),
        b"\xff" * 1000,
        b'{"format": "json"}',
        bytes(range(256)) * 8,
    ],
    ids=["empty", "zero", "text", "zip", "png", "ones", "json", "bytes"],
)
@pytest.mark.parametrize("from_file", [True, False])
def test_a_file_that_is_no_model(data: bytes, from_file: bool, device, tmp_path: Path) -> None:
    model: object = data
    if from_file:
        model = tmp_path / "model.onnx"
        model.write_bytes(data)
    with pytest.raises((ModelError, UnsupportedError)) as caught:
        open_and_run(model, device)
    check(caught.value)


def test_a_model_cut_short_anywhere(device, tmp_path: Path) -> None:
    """Every length of a small model: an error of the family, or the model that it happens to be."""
    data = good().SerializeToString()
    path = tmp_path / "model.onnx"
    refused = 0
    for length in [*range(260), *range(260, len(data), 37)]:
        path.write_bytes(data[:length])
        try:
            open_and_run(path, device)
        except ShaderloomError as error:
            check(error)
            refused += 1
    assert refused > 250  # where only opset or version are cut off at the end, what is left may be a model


def test_single_bytes_changed(device) -> None:
    """A model with a byte changed is refused or runs; nothing else happens."""
    data = bytearray(good().SerializeToString())
    generator = np.random.default_rng(4)
    refused = 0
    for position in generator.choice(200, 150, replace=False):
        changed = bytearray(data)
        changed[position] ^= 1 << int(generator.integers(0, 8))
        try:
            open_and_run(bytes(changed), device)
        except ShaderloomError as error:
            check(error)
            refused += 1
    assert refused > 30  # names, documentation and weights may have any bytes


def external(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save_model(good(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_external_data_that_is_missing(device, tmp_path: Path) -> None:
    path = external(tmp_path)
    open_and_run(path, device)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin") as caught:
        open_and_run(path, device)
    check(caught.value)


def test_external_data_that_is_too_short(device, tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "weights.bin").write_bytes(bytes(100))
    with pytest.raises(ModelError) as caught:
        open_and_run(path, device)
    check(caught.value)


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/hostname", "a/../../outside.bin"])
def test_external_data_outside_of_the_folder(location: str, device, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(1600))
    path = external(folder)
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        open_and_run(path, device)
    check(caught.value)


def test_a_path_that_is_not_there(device, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        open_and_run(tmp_path / "none.onnx", device)
    with pytest.raises(ModelError, match="not a file of a model"):
        open_and_run(tmp_path, device)


# -- graphs ----------------------------------------------------------------------------------------------------------

BAD_GRAPHS: dict[str, tuple[Callable[[], onnx.ModelProto], type[ShaderloomError], str]] = {
    "unknown operator": (lambda: make([node("Frobnicate", ["x"], ["y"])]), UnsupportedError, "Frobnicate"),
    "unknown domain": (
        lambda: make([node("Relu", ["x"], ["y"], domain="example.com")], domains=["example.com"]),
        UnsupportedError,
        "example.com",
    ),
    "cycle": (
        lambda: make([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Relu", ["b"], ["y"])]),
        ModelError,
        "cycle",
    ),
    "node that reads itself": (lambda: make([node("Add", ["x", "y"], ["y"])]), ModelError, ""),
    "value without a producer": (lambda: make([node("Add", ["x", "nothing"], ["y"])]), ModelError, "nothing"),
    "output without a producer": (lambda: make([node("Relu", ["x"], ["z"])]), ModelError, "y"),
    "value made twice": (lambda: make([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]), ModelError, "y"),
    "no input of an operator": (lambda: make([node("Add", ["x"], ["y"])]), ModelError, "Add"),
    "shapes that do not broadcast": (
        lambda: make([node("Add", ["x", "b"], ["y"])], constants={"b": np.zeros((3,), np.float32)}),
        ShapeError,
        "Add",
    ),
    "inner sizes that differ": (
        lambda: make([node("MatMul", ["x", "b"], ["y"])], constants={"b": np.zeros((3, 2), np.float32)}),
        ShapeError,
        "inner",
    ),
    "types that differ": (
        lambda: make([node("Add", ["x", "b"], ["y"])], constants={"b": np.zeros((4,), np.int32)}),
        ShaderloomError,
        "Add",
    ),
    "attribute of a wrong type": (lambda: make([node("Softmax", ["x"], ["y"], axis="last")]), ShaderloomError, "axis"),
    "attribute that is missing": (lambda: make([node("Cast", ["x"], ["y"])]), ModelError, "to"),
    "axis out of range": (lambda: make([node("Softmax", ["x"], ["y"], axis=5)]), ShaderloomError, "Softmax"),
    "permutation that is none": (
        lambda: make([node("Transpose", ["x"], ["y"], perm=[0, 0])]),
        ShaderloomError,
        "Transpose",
    ),
    "reshape to another size": (
        lambda: make([node("Reshape", ["x", "s"], ["y"])], constants={"s": np.array([3, 5])}),
        ShapeError,
        "Reshape",
    ),
    "double precision": (
        lambda: make([node("Relu", ["x"], ["y"])], {"x": (TensorProto.DOUBLE, (2, 4))}),
        UnsupportedError,
        "float64",
    ),
    "strings": (
        lambda: make(
            [node("Identity", ["x"], ["i"]), node("Reshape", ["i", "s"], ["y"])],
            {"x": (TensorProto.STRING, (2, 4))},
            constants={"s": np.array([8])},
        ),
        UnsupportedError,
        "string",
    ),
    "shape computed from elements": (
        lambda: make(
            [
                node("Cast", ["x"], ["c"], to=TensorProto.INT64),
                node("Reshape", ["c", "f"], ["s"]),
                node("Reshape", ["z", "s"], ["y"]),
            ],
            {"x": (TensorProto.FLOAT, (2, 1)), "z": (TensorProto.FLOAT, (2, 4))},
            constants={"f": np.array([2])},
        ),
        ShaderloomError,
        "",
    ),
    "opset from the future": (lambda: make([node("Relu", ["x"], ["y"])], opset=900), ShaderloomError, "900"),
    "initializer with too few bytes": (lambda: _short_initializer(), ModelError, "w"),
    "negative size": (lambda: _negative_size(), ModelError, "w"),
}


def _short_initializer() -> onnx.ModelProto:
    model = good()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    return model


def _negative_size() -> onnx.ModelProto:
    model = good()
    model.graph.initializer[0].dims[0] = -4
    return model


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_a_bad_graph(name: str, device) -> None:
    build, kind, mentions = BAD_GRAPHS[name]
    model = build()
    feeds = {
        port.name: np.ones(
            [2 if dim.dim_param else dim.dim_value for dim in port.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type),
        )
        for port in model.graph.input
    }
    used = device_memory(device)
    with pytest.raises(kind) as caught:
        open_and_run(model, device, feeds)
    check(caught.value)
    assert mentions in str(caught.value)
    assert device_memory(device) == used


def device_memory(device) -> int:
    """Buffers of the device that are alive, as wgpu-native counts them."""
    gc.collect()
    device.wait()
    import wgpu.backends.wgpu_native.extras

    report = wgpu.diagnostics.get_dict()["wgpu_native_counts"]
    return sum(row.get("a", 0) for name, row in report.items() if name == "Buffer")


# -- what a caller feeds ---------------------------------------------------------------------------------------------

ONES = np.ones((2, 4), np.float32)
BAD_FEEDS: dict[str, tuple[dict[str, object], str]] = {
    "unknown name": ({"x": ONES, "z": ONES}, "z"),
    "wrong name": ({"X": ONES}, "X"),
    "nothing": ({}, "x"),
    "rank": ({"x": np.ones(4, np.float32)}, "rank"),
    "size": ({"x": np.ones((2, 5), np.float32)}, "5"),
    "double": ({"x": np.ones((2, 4))}, "float64"),
    "integers": ({"x": np.ones((2, 4), np.int64)}, "int64"),
    "strings": ({"x": np.array([["a"] * 4])}, "x"),
    "None": ({"x": None}, "x"),
}


@pytest.mark.parametrize("name", BAD_FEEDS)
def test_bad_feeds_leave_the_session_usable(name: str, device) -> None:
    feeds, mentions = BAD_FEEDS[name]
    with InferenceSession(good(), device=device, cache=False) as session:
        (before,) = session.run(None, {"x": ONES})
        used = session.device_bytes
        for _ in range(2):
            with pytest.raises(InputError) as caught:
                session.run(None, feeds)
            check(caught.value)
            assert mentions in str(caught.value)
        assert session.device_bytes == used
        np.testing.assert_array_equal(session.run(None, {"x": ONES})[0], before)


def test_an_output_that_is_not_there(device) -> None:
    with InferenceSession(good(), device=device, cache=False) as session:
        with pytest.raises(InputError, match="no output 'z'") as caught:
            session.run(["z"], {"x": ONES})
        check(caught.value)
        assert len(session.run(["y"], {"x": ONES})) == 1


# -- caps ------------------------------------------------------------------------------------------------------------


def test_cap_on_device_memory(device) -> None:
    model = good()
    with InferenceSession(model, device=device, cache=False, caps=Caps(device_memory=4096)) as session:
        (result,) = session.run(None, {"x": ONES})
        used = session.device_bytes
        assert 0 < used <= 4096
        with pytest.raises(LimitError, match="device memory") as caught:
            session.run(None, {"x": np.ones((64, 4), np.float32)})
        check(caught.value)
        assert session.device_bytes <= 4096
        np.testing.assert_array_equal(session.run(None, {"x": ONES})[0], result)
    assert session.device_bytes == 0


def test_cap_on_device_memory_for_weights(device) -> None:
    session = InferenceSession(good(), device=device, cache=False, caps=Caps(device_memory=1000))
    with pytest.raises(LimitError, match="device memory"):
        session.run(None, {"x": ONES})
    assert session.device_bytes == 0
    session.close()


def test_cap_on_the_elements_of_a_tensor(device) -> None:
    with InferenceSession(good(), device=device, cache=False, caps=Caps(tensor_elements=1000)) as session:
        assert session.run(None, {"x": ONES})[0].shape == (2, 100)
        with pytest.raises(LimitError, match=r"1,?000") as caught:
            session.run(None, {"x": np.ones((11, 4), np.float32)})
        check(caught.value)
        assert session.run(None, {"x": ONES})[0].shape == (2, 100)


def test_cap_on_elements_holds_inside_the_graph(device) -> None:
    """An intermediate tensor that is too large is refused before anything is made for it."""
    nodes = [node("Expand", ["x", "s"], ["e"]), node("Exp", ["e"], ["f"]), node("ReduceSum", ["f"], ["y"], keepdims=0)]
    model = make(nodes, {"x": (TensorProto.FLOAT, (1,))}, constants={"s": np.array([1 << 20])})
    with (
        InferenceSession(model, device=device, cache=False, caps=Caps(tensor_elements=1000)) as session,
        pytest.raises(LimitError) as caught,
    ):
        session.run(None, {"x": np.ones(1, np.float32)})
    check(caught.value)
    assert session.device_bytes == 0


def test_cap_on_the_size_of_a_shader(device) -> None:
    """The cap of a session holds although another session of the device has made the same pipeline."""
    with InferenceSession(good(), device=device, cache=False) as other:
        other.run(None, {"x": ONES})
        with (
            InferenceSession(good(), device=device, cache=False, caps=Caps(wgsl_bytes=200)) as session,
            pytest.raises(LimitError, match="200") as caught,
        ):
            session.run(None, {"x": ONES})
        check(caught.value)
        assert session.device_bytes == 0


def test_more_elements_than_a_position_can_count(device) -> None:
    nodes = [node("Expand", ["x", "s"], ["e"]), node("ReduceSum", ["e"], ["y"], keepdims=0)]
    model = make(nodes, {"x": (TensorProto.FLOAT, (1,))}, constants={"s": np.array([1 << 16, 1 << 16])})
    with pytest.raises(LimitError) as caught:
        open_and_run(model, device, {"x": np.ones(1, np.float32)})
    check(caught.value)


@pytest.mark.parametrize("text", [b"MatMul", b"bad", b"graph-of-mine", b"batch", b"weight-of-mine"])
def test_texts_that_are_no_utf8(text: bytes, tmp_path: Path) -> None:
    """protobuf hands out such a text as bytes."""
    model = good()
    model.graph.doc_string = "graph-of-mine"
    model.graph.initializer[0].doc_string = "weight-of-mine"
    data = model.SerializeToString()
    assert data.count(text) == 1
    (tmp_path / "model.onnx").write_bytes(data.replace(text, b"\xff" + text[1:]))
    for source in (tmp_path / "model.onnx", (tmp_path / "model.onnx").read_bytes()):
        with pytest.raises(ModelError, match=r"the field '\w+' of a \w+ is not UTF-8: b'\\xff") as caught:
            InferenceSession(source, providers=["wgpu"])
        check(caught.value)


@pytest.mark.parametrize(
    ("operands", "outputs", "message"),
    [
        ("n, c", "bool go, float[2] b", "a body takes 3 values, but the node has 2 for it"),
        ("n, c, x, x", "bool go, float[2] b, float[2] b", "a body takes 3 values, but the node has 4 for it"),
        ("n, c, x", "bool go", "the body of Loop has 1 outputs for 1 carried values"),
    ],
)
def test_loops_whose_bodies_take_or_give_something_else(operands: str, outputs: str, message: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) <int64 n = {{3}}, bool c = {{1}}> {{
            y = Loop<body = body (int64 i, bool keep, float[2] a) => ({outputs})
                {{ go = Identity(keep) b = Add(a, a) }}>({operands})
        }}"""
    )
    with pytest.raises(ModelError, match=message) as caught:
        open_and_run(model, None, {"x": np.ones(2, np.float32)})
    check(caught.value)
