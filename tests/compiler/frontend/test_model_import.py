"""Importing models: what is kept, what is tolerated, and one clear error for everything else.

Covers: compiler/frontend.
"""

import os
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.constants import BytesSource, FileSource, InlineSource
from shaderloom.runtime.plan.errors import InputError, ModelError, ShaderloomError, UnsupportedError

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'


def _parse(text: str, header: str = HEADER) -> onnx.ModelProto:
    return parser.parse_model(f"{header}\n{text}")


def _load(text: str, header: str = HEADER):
    return load_model(_parse(text, header))


SIMPLE = "g (float[N, 3] x) => (float[N, 3] y) { t = Abs(x)  y = Neg(t) }"


# -- what is read ------------------------------------------------------------------------------------------------------


def test_path_bytes_and_message_give_the_same_model(tmp_path):
    proto = _parse(SIMPLE)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    models = [load_model(proto), load_model(proto.SerializeToString()), load_model(path), load_model(str(path))]
    for model in models:
        assert [(node.op, node.inputs, node.outputs) for node in model.graph.nodes] == [
            ("Abs", ("x",), ("t",)),
            ("Neg", ("t",), ("y",)),
        ]
        assert [(port.name, str(port.dtype), port.dims) for port in model.inputs] == [("x", "float32", ("N", 3))]
        assert str(model.graph.nodes[1].origin) == "Neg (main node 1)"
    assert models[0].path is None
    assert models[2].path == path


def test_declared_dimensions_below_one_are_unknown():
    proto = _parse("g (float[N, 3, 4, 5] x) => (float[] y) { y = Abs(x) }")
    shape = proto.graph.input[0].type.tensor_type.shape
    shape.dim[1].dim_value = -1
    shape.dim[2].dim_value = 0
    shape.dim[3].Clear()
    assert load_model(proto).inputs[0].dims == ("N", None, None, None)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert load_model(proto).inputs[0].dims is None


def test_metadata():
    proto = _parse(SIMPLE)
    proto.producer_name, proto.doc_string, proto.model_version = "maker", "what", 7
    proto.metadata_props.add(key="character", value="a\nb")
    metadata = load_model(proto).metadata
    assert (metadata.producer_name, metadata.description) == ("maker", "what")
    assert (metadata.version, metadata.graph_name) == (7, "g")
    assert metadata.custom_metadata_map == {"character": "a\nb"}


def test_initializers_that_are_inputs_have_a_default():
    model = _load("g (float[3] x, float[3] w = {1, 2, 3}) => (float[3] y) { y = Add(x, w) }")
    proto = _parse("g (float[3] x, float[3] w) => (float[3] y) { y = Add(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "w"))
    model = load_model(proto)
    assert [port.name for port in model.inputs] == ["x"]
    assert [port.name for port in model.overridable] == ["w"]


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value": numpy_helper.from_array(np.array([[1, 2]], np.int32))}, np.array([[1, 2]], np.int32)),
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.5, 2.0]}, np.array([1.5, 2.0], np.float32)),
        ({"value_int": -3}, np.int64(-3)),
        ({"value_ints": [1, 2, 3]}, np.array([1, 2, 3], np.int64)),
    ],
    ids=["value", "value_float", "value_floats", "value_int", "value_ints"],
)
def test_constant_nodes_become_constants(attribute, expected):
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], **attribute), helper.make_node("Identity", ["c"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    array = model.graph.constants["c"].read()
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)
    assert [node.op for node in model.graph.nodes] == ["Identity"]


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"],
)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_tensors_of_every_type_and_both_encodings(dtype, raw):
    array = np.array([[0, 1, 2], [1, 100, 3]]).astype(dtype)
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = helper.make_tensor("w", code, array.shape, array.tobytes() if raw else array.flatten(), raw=raw)
    proto = _parse("g () => (float[2, 3] y) { y = Identity(w) }")
    proto.graph.initializer.append(tensor)
    source = load_model(proto).graph.constants["w"]
    assert source.read().dtype == array.dtype
    np.testing.assert_array_equal(source.read(), array)


def test_bfloat16_keeps_its_bits():
    import ml_dtypes

    array = np.array([1.0, -2.5, 3e38], ml_dtypes.bfloat16)
    proto = _parse("g () => (float[3] y) { y = Identity(w) }")
    proto.graph.initializer.append(
        helper.make_tensor("w", TensorProto.BFLOAT16, array.shape, array.tobytes(), raw=True)
    )
    source = load_model(proto).graph.constants["w"]
    assert source.dtype.name == "bfloat16"
    assert source.read().tobytes() == array.tobytes()


def _with_weight(size: int) -> tuple[onnx.ModelProto, np.ndarray]:
    array = np.arange(size, dtype=np.float32)
    proto = _parse("g (float[1] x) => (float[N] y) { y = Add(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(array, "w"))
    return proto, array


def test_large_tensors_are_ranges_of_the_model(tmp_path):
    proto, array = _with_weight(5000)
    data = proto.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    from_file = load_model(path).graph.constants["w"]
    from_bytes = load_model(data).graph.constants["w"]
    assert isinstance(from_file, FileSource)
    assert isinstance(from_bytes, BytesSource)
    for source in (from_file, from_bytes):
        np.testing.assert_array_equal(source.read(), array)
        ref = source.to_ref()
        assert (ref.path, ref.data) == ("", None)
        assert data[ref.offset : ref.offset + ref.length] == array.tobytes()
    assert from_bytes.key == load_model(data).graph.constants["w"].key == InlineSource(array).key
    assert from_bytes.key != load_model(_with_weight(5001)[0]).graph.constants["w"].key


def test_a_path_may_have_bytes_that_are_no_text(tmp_path):
    """As in a locale without Unicode, where every name of a file beyond ASCII has such bytes."""
    proto, array = _with_weight(5000)
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.onnx"))
    try:
        path.write_bytes(proto.SerializeToString())
    except OSError:
        pytest.skip("the file system refuses such names")
    source = load_model(path).graph.constants["w"]
    np.testing.assert_array_equal(source.read(), array)
    assert source.key != load_model(proto.SerializeToString()).graph.constants["w"].key


def test_weights_are_not_read_while_importing(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(_with_weight(5000)[0].SerializeToString())

    def refuse(self):
        raise AssertionError("a weight was read")

    monkeypatch.setattr(FileSource, "read", refuse)
    load_model(path)


# -- what is tolerated -------------------------------------------------------------------------------------------------


def test_unsorted_nodes_are_sorted():
    proto = _parse("g (float[3] x) => (float[3] y) { y = Neg(t)  t = Abs(x) }")
    model = load_model(proto)
    assert [node.op for node in model.graph.nodes] == ["Abs", "Neg"]
    assert [node.origin.index for node in model.graph.nodes] == [1, 0]


def test_names_may_be_any_text():
    proto = _parse(SIMPLE)
    name = '{"class_name": "Dense:0", "k": [1]}'
    proto.graph.input[0].name = proto.graph.node[0].input[0] = name
    assert load_model(proto).inputs[0].name == name


def test_duplicate_and_unused_opset_imports_are_tolerated():
    header = '<ir_version: 9, opset_import: ["" : 17, "" : 17, "ai.onnx.ml" : 2, "com.example.unused" : 1]>'
    assert _load(SIMPLE, header).opsets[""] == 17


def test_a_branch_that_is_never_taken_may_hold_anything():
    text = """g (float[3] x) => (float[3] y) {
        p = Constant <value_int = 1> ()
        c = Cast <to = 9> (p)
        y = If (c) <
            then_branch = a () => (float[3] r) { r = Abs(x) },
            else_branch = b () => (float[3] r) { r = NoSuchOperator(x) }
        >
    }"""
    node = _load(text).graph.nodes[-1]
    assert [inner.op for inner in node.blocks["then_branch"].graph.nodes] == ["Abs"]
    with pytest.raises(UnsupportedError, match="NoSuchOperator") as caught:
        _ = node.blocks["else_branch"].graph
    assert caught.value.origin.graph == "main/If_2.else_branch"


FUNCTIONS = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
g (float[3] x) => (float[3] y) { t = local.twice(x)  y = local.twice(t) }
<domain: "local", opset_import: ["" : 17]>
twice (a) => (b) { s = Abs(a)  b = Add(s, s) }
"""


def test_functions_of_the_model_are_inlined():
    model = _load(FUNCTIONS, "")
    assert [node.op for node in model.graph.nodes] == ["Abs", "Add", "Abs", "Add"]


def test_functions_of_another_opset_are_inlined_where_it_has_the_same_operators():
    """Of what these use opset 18 has the same Abs and Add, and another ReduceMax."""
    other = FUNCTIONS.replace(
        '<domain: "local", opset_import: ["" : 17]>', '<domain: "local", opset_import: ["" : 18]>'
    )
    assert [node.op for node in _load(other, "").graph.nodes] == ["Abs", "Add", "Abs", "Add"]
    newer = other.replace("s = Abs(a)", "s = ReduceMax(a)")
    assert _refused(UnsupportedError, "local.twice", newer, "").origin.op == "twice"


# -- what is refused ---------------------------------------------------------------------------------------------------


def _refused(kind, match, text, header=HEADER):
    with pytest.raises(kind, match=match) as caught:
        _load(text, header)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "data",
    [b"", b"no model", b"\x08\x09", b"\x3a\x00", bytes(100)],
    ids=["empty", "text", "no graph", "empty graph", "zeros"],
)
def test_what_is_no_model(data):
    with pytest.raises(ModelError):
        load_model(data)


def test_a_truncated_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(_with_weight(5000)[0].SerializeToString()[:9000])
    with pytest.raises(ModelError, match="truncated"):
        load_model(path)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(ModelError, match="there is no file"):
        load_model(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="not a file"):
        load_model(tmp_path)


def test_another_type():
    with pytest.raises(InputError, match="not int"):
        load_model(3)


def test_a_cycle_names_its_nodes():
    proto = _parse("g (float[3] x) => (float[3] y) { a = Add(x, c)  b = Abs(a)  c = Neg(b)  y = Abs(c) }")
    for node, name in zip(proto.graph.node, ("first", "second", "third", "fourth")):
        node.name = name
    with pytest.raises(ModelError, match="cycle") as caught:
        load_model(proto)
    assert "Add 'first' -> Abs 'second' -> Neg 'third' -> Add 'first'" in str(caught.value)
    assert "fourth" not in str(caught.value)


def test_an_unknown_operator_says_which_where_and_what_is_near():
    proto = _parse("g (float[3] x) => (float[3] y) { y = Abbs(x) }")
    proto.graph.node[0].name = "here"
    with pytest.raises(UnsupportedError) as caught:
        load_model(proto)
    for part in ("'Abbs'", "opset 17", "'here'", "main node 0", "nearest supported operator is Abs"):
        assert part in str(caught.value)
    error = _refused(
        UnsupportedError,
        "com.example.Abs",
        "g (float[3] x) => (float[3] y) { y = com.example.Abs(x) }",
        '<ir_version: 9, opset_import: ["" : 17, "com.example" : 1]>',
    )
    assert error.origin.op == "Abs"


def test_an_operator_that_this_opset_does_not_have():
    text = "g (float[3] x) => (float[3] y) { y = Gelu(x) }"
    assert "opset 20" in _refused(ModelError, "not part of opset 17", text).hint


@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        ("g (float[3] x) => (float[3] y) { y = Abs(z) }", ModelError, "nothing defines.*|'z'"),
        ("g (float[3] x) => (float[3] z) { y = Abs(x) }", ModelError, "nothing computes"),
        ("g (float[3] x) => (float[3] y) { y = Abs(x)  y = Neg(x) }", ModelError, "defined twice"),
        ("g (float[3] x) => (float[3] x) { x = Abs(x) }", ModelError, "cycle|defined twice"),
        ("g (float[3] x, float[3] x) => (float[3] y) { y = Abs(x) }", ModelError, "defined twice"),
        ("g (float[3] x) => (float[3] y) { y = Abs(x, x) }", ModelError, "at most 1 inputs, not 2"),
        ("g (float[3] x) => (float[3] y) { y = Add(x) }", ModelError, "at least 2 inputs, not 1"),
        ("g (float[3] x) => (float[3] y) { y = Add(, x) }", ModelError, "input 0 of Add is missing"),
        ("g (float[3] x) => (float[3] y) { y, z = Abs(x) }", ModelError, "at most 1 outputs, not 2"),
        ("g (float[3] x) => (float[3] y) { y = Abs <wrong = 1> (x) }", UnsupportedError, "attribute 'wrong' of Abs"),
        (
            "g (float[3] x) => (float[3] y) { y = LeakyRelu <alpha = 1> (x) }",
            UnsupportedError,
            "'alpha' .*float, not int",
        ),
        ("g (float[3] x) => (float[3] y) { y = Transpose <perm = 0> (x) }", UnsupportedError, "'perm'.* not int"),
        ("g (float[3] x) => (float[3] y) { y = Concat (x) }", ModelError, "needs the attribute 'axis'"),
        ("g (seq(float[3]) x) => (float[3] y) { y = Abs(x) }", UnsupportedError, "sequence"),
        ("g (float[3] x) => () { y = Abs(x) }", ModelError, "no outputs"),
    ],
)
def test_wrong_graphs(text, kind, match):
    _refused(kind, match, text)


def test_opsets_that_are_missing_or_too_new():
    newest = onnx.defs.onnx_opset_version()
    _refused(ModelError, "default domain", SIMPLE, '<ir_version: 9, opset_import: ["ai.onnx.ml" : 2]>')
    header = f'<ir_version: 9, opset_import: ["" : {newest + 1}]>'
    error = _refused(UnsupportedError, f"opset {newest + 1}", SIMPLE, header)
    assert "newer version" in error.hint
    proto = _parse(SIMPLE)
    del proto.opset_import[:]
    with pytest.raises(ModelError, match="any opset"):
        load_model(proto)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda tensor: tensor.dims.append(2), "needs 24 bytes, but there are 12"),
        (lambda tensor: tensor.dims.__setitem__(0, -3), "negative size"),
        (lambda tensor: setattr(tensor, "raw_data", b"123"), "needs 12 bytes, but there are 3"),
        (lambda tensor: setattr(tensor, "data_type", 77), "element type 77"),
        (lambda tensor: tensor.segment.SetInParent(), "segments"),
        (lambda tensor: tensor.ClearField("raw_data"), "do not fit"),
    ],
)
def test_wrong_tensors_are_named(change, match):
    proto = _parse("g () => (float[3] y) { y = Identity(w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "w"))
    change(proto.graph.initializer[0])
    with pytest.raises(ShaderloomError, match=match) as caught:
        load_model(proto)
    if match != "segments":  # refused by the scan, which does not know names
        assert caught.value.tensor == "w"


def test_a_function_that_calls_itself_is_refused():
    text = FUNCTIONS.replace("s = Abs(a)", "s = local.twice(a)").replace('[""  : 17]', '["" : 17, "local" : 1]')
    with pytest.raises(ModelError, match="'twice' of domain 'local' calls itself"):
        _load(text, "")


def test_random_damage_never_escapes_the_error_family():
    data = _with_weight(1000)[0].SerializeToString()
    header, draw = 400, random.Random(11)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 5)):
            position = draw.choice([draw.randrange(min(header, len(data))), len(data) - 1 - draw.randrange(200)])
            damaged[position] = draw.randrange(256)
        try:
            load_model(bytes(damaged))
        except ShaderloomError:
            continue
