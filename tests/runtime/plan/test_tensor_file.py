"""The wire-format scan: payloads are found wherever they are, never copied, and damaged files are refused."""

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom.runtime.plan import tensor_file
from shaderloom.runtime.plan.errors import ModelError
from shaderloom.runtime.plan.tensor_file import MINIMUM_PAYLOAD, strip_payloads

BIG = MINIMUM_PAYLOAD  # elements: always more bytes than the threshold


def _tensor(name: str, seed: int, size: int = BIG) -> TensorProto:
    data = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    return numpy_helper.from_array(data, name)


def _graph(nodes, initializers=(), outputs=("y",)):
    return helper.make_graph(
        nodes,
        "g",
        [],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        initializer=list(initializers),
    )


def _tensors(graph):
    """Every tensor of a graph, nested graphs and attributes included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def _everywhere() -> onnx.ModelProto:
    branch = _graph([helper.make_node("Constant", [], ["y"], value=_tensor("in_branch", 1))], [_tensor("inner", 2)])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=_tensor("in_constant", 3)),
        helper.make_node("If", ["p"], ["y"], then_branch=branch, else_branch=branch),
    ]
    typed = TensorProto(name="typed", data_type=TensorProto.FLOAT, dims=[BIG])
    typed.float_data.extend(np.arange(BIG, dtype=np.float32))
    double = TensorProto(name="double", data_type=TensorProto.DOUBLE, dims=[BIG])
    double.double_data.extend(np.arange(BIG, dtype=np.float64))
    return helper.make_model(_graph(nodes, [_tensor("top", 4), typed, double, _tensor("small", 5, 3)]))


def test_every_payload_is_found_and_its_range_is_the_array():
    model = _everywhere()
    data = model.SerializeToString()
    stripped = strip_payloads(data)
    copy = onnx.ModelProto.FromString(stripped.message)
    originals, copies = list(_tensors(model.graph)), list(_tensors(copy.graph))
    assert [tensor.name for tensor in originals] == [tensor.name for tensor in copies]
    seen = set()
    for original, tensor in zip(originals, copies):
        expected = numpy_helper.to_array(original)
        if original.name == "small":
            assert tensor == original
            continue
        begin, end = tensor.segment.begin, tensor.segment.end
        assert data[begin:end] == expected.tobytes()
        assert not tensor.raw_data and not tensor.float_data and not tensor.double_data
        seen.add((begin, end))
    assert seen == stripped.ranges
    assert len(stripped.message) < 3000


def test_a_model_without_large_tensors_is_copied_byte_for_byte():
    data = helper.make_model(
        _graph([helper.make_node("Identity", ["x"], ["y"])], [_tensor("x", 0, 4)])
    ).SerializeToString()
    stripped = strip_payloads(data)
    assert stripped.message == data
    assert not stripped.ranges


def test_integers_in_typed_fields_stay_in_the_message():
    tensor = TensorProto(name="i", data_type=TensorProto.INT64, dims=[2000])
    tensor.int64_data.extend(range(2000))
    stripped = strip_payloads(helper.make_model(_graph([], [tensor])).SerializeToString())
    assert not stripped.ranges
    copy = onnx.ModelProto.FromString(stripped.message)
    assert numpy_helper.to_array(copy.graph.initializer[0]).tolist() == list(range(2000))


def test_float_data_of_another_type_is_left_to_protobuf():
    tensor = TensorProto(name="c", data_type=TensorProto.COMPLEX64, dims=[BIG])
    tensor.float_data.extend([1.0] * (2 * BIG))
    assert not strip_payloads(helper.make_model(_graph([], [tensor])).SerializeToString()).ranges


def test_every_truncation_is_refused_or_gives_a_prefix():
    """A cut inside a field is an error; a cut between two top-level fields is a shorter message."""
    data = _everywhere().SerializeToString()
    refused = 0
    for length in range(0, len(data), 37):
        try:
            stripped = strip_payloads(data[:length])
        except ModelError:
            refused += 1
        else:
            onnx.ModelProto.FromString(stripped.message)
    assert refused > 0.9 * (len(data) // 37)


def test_a_payload_longer_than_the_file_is_refused():
    data = bytearray(helper.make_model(_graph([], [_tensor("w", 0)])).SerializeToString())
    with pytest.raises(ModelError, match="truncated"):
        strip_payloads(bytes(data[:-20]))


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01",
        b"\x3b",
        b"\x3a" + b"\xff" * 10 + b"\x01",
        b"\xff" * 20,
        b"<html></html>",
        b"\x89PNG\r\n\x1a\n" + b"0" * 99,
    ],
    ids=["field zero", "group", "eleven-byte length", "endless number", "html", "png"],
)
def test_what_is_no_protobuf_message_is_refused(data):
    with pytest.raises(ModelError):
        strip_payloads(data)


def test_nesting_is_limited():
    payload = b"\x4a" + b"\x80\x08" + bytes(1024)  # raw_data
    body = b"\x2a" + _length(payload) + payload  # GraphProto.initializer
    for _ in range(60):  # graph -> node -> attribute -> graph
        attribute = b"\x32" + _length(body) + body
        node = b"\x2a" + _length(attribute) + attribute
        body = b"\x0a" + _length(node) + node
    with pytest.raises(ModelError, match="nested"):
        strip_payloads(b"\x3a" + _length(body) + body)


def _length(message: bytes) -> bytes:
    value, encoded = len(message), bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def test_random_damage_never_escapes_the_error_family():
    data = _everywhere().SerializeToString()
    draw = random.Random(7)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 6)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            stripped = strip_payloads(bytes(damaged))
        except ModelError:
            continue
        assert all(0 <= begin <= end <= len(damaged) for begin, end in stripped.ranges)


def test_work_grows_linearly_with_the_number_of_nodes(monkeypatch):
    """Fields looked at, a measure of the time: no part is walked again for each level or each tensor."""

    def fields(count: int) -> int:
        nodes = [helper.make_node("Constant", [], [f"c{i}"], value=_tensor("t", i)) for i in range(count)]
        data = helper.make_model(_graph(nodes)).SerializeToString()
        looked_at = 0
        original = tensor_file._Scan._field

        def counted(self, position, end):
            nonlocal looked_at
            looked_at += 1
            return original(self, position, end)

        with monkeypatch.context() as patch:
            patch.setattr(tensor_file._Scan, "_field", counted)
            strip_payloads(data)
        return looked_at

    small, large = fields(50), fields(500)
    assert large < 11 * small
