"""The option ``check_indices``: every operator with indices, sizes that change, several steps, caches.

Covers: shaderloom/session/index_guard, compiler/frontend/checked_indices, compiler/ops/internal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.plan.errors import InputError, RunError

from ...support.cases import OperatorCase, all_cases, assert_case

HEADER = '<ir_version: 8, opset_import: ["" : 18]> '
GATHER = HEADER + "g (float[n, 4] t, int64[m] i) => (float[m, 4] y) { y = Gather(t, i) }"
#: the indices come from a node whose result is as long as the data says
STEPS = HEADER + (
    "g (float[n] t, float[m] x, int64[1] d) => (float[k] y) { p = NonZero(x)  s = Add(p, d)"
    "  r = Constant<value_ints = [-1]>()  i = Reshape(s, r)  y = Gather(t, i) }"
)
#: one Gather has operands that no device holds
DOUBLES = HEADER + (
    "g (double[n, 4] t, float[n, 4] u, int64[m] i, int64[k] j) => (double[m, 4] y, float[k, 4] z)"
    " { y = Gather(t, i)  z = Gather(u, j) }"
)
UNUSED = HEADER + "g (float[n, 4] t, int64[m] i) => (float[n, 4] y) { u = Gather(t, i)  y = Neg(t) }"


def _operators() -> list[Any]:
    """A case of every operator and rule with indices that are fed."""
    chosen = {}
    for operator in all_cases():
        for rule in operator.definition.indices:
            inputs = operator.case.inputs
            tensor = inputs[rule.position] if rule.position < len(inputs) else None
            if rule.is_error and tensor is not None and not tensor.constant and operator.operands[rule.position].size:
                chosen.setdefault((operator.definition.name, operator.definition.domain, rule.position), operator)
    return [pytest.param(operator, key[2], id=f"{operator.name}-{key[2]}") for key, operator in chosen.items()]


@pytest.fixture
def open_session(device):
    opened = []

    def make(model: Any, providers: tuple[str, ...] = ("wgpu",), **more: Any) -> shaderloom.InferenceSession:
        options = shaderloom.SessionOptions()
        options.check_indices = True
        session = shaderloom.InferenceSession(model, options, providers, device=device, **{"cache": False, **more})
        opened.append(session)
        return session

    yield make
    for session in opened:
        session.close()


def _parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def _table(rows: int) -> np.ndarray:
    return np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)


@pytest.mark.parametrize(("operator", "position"), _operators())
def test_every_operator_with_indices(operator: OperatorCase, position: int, open_session):
    session = open_session(operator.model())
    assert [each.name for each in session.get_outputs()] == operator.output_names
    assert_case(operator, session.run(None, operator.feeds))
    indices = operator.feeds[f"x{position}"].copy()
    indices.flat[-1] = 1_000_000
    with pytest.raises(RunError, match=r"idx=1000000 must be within the inclusive range") as caught:
        session.run(None, {**operator.feeds, f"x{position}": indices})
    assert operator.definition.name in str(caught.value) and caught.value.tensor == f"x{position}"
    assert_case(operator, session.run(None, operator.feeds))


def test_many_operators_have_indices():
    names = {parameter.values[0].definition.name for parameter in _operators()}
    assert {"Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "RoiAlign"} <= names
    assert {"EmbedLayerNormalization", "RotaryEmbedding", "ArrayFeatureExtractor", "MaxUnpool"} <= names


@pytest.mark.parametrize("index", [-6, 5])
@pytest.mark.parametrize("providers", [("wgpu",), ("wgpu", "cpu")])
def test_the_error_is_onnxruntimes(open_session, index, providers):
    onnxruntime = pytest.importorskip("onnxruntime")
    feeds = {"t": _table(5), "i": np.array([0, index, -5])}
    reference = onnxruntime.InferenceSession(_parsed(GATHER).SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(Exception, match=f"idx={index} must be within the inclusive range") as expected:
        reference.run(None, feeds)
    with pytest.raises(RunError) as caught:
        open_session(_parsed(GATHER), providers).run(None, feeds)
    text = str(expected.value)
    assert text[text.index("indices element") :].strip() in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_sizes_that_change(open_session):
    """From the third size on a plan serves a range of sizes: the limit is that of the run."""
    session = open_session(_parsed(GATHER))
    for rows in (3, 5, 7, 9, 4, 12):
        for count in (2, 5, 11):
            indices = np.resize(np.array([rows - 1, -rows]), count)
            (y,) = session.run(None, {"t": _table(rows), "i": indices})
            np.testing.assert_array_equal(y, _table(rows)[indices])
            with pytest.raises(RunError, match=rf"idx={rows} .* range \[-{rows},{rows - 1}\]"):
                session.run(None, {"t": _table(rows), "i": indices + 1 + (indices < 0) * rows})


def test_no_indices_are_in_range(open_session):
    (y,) = open_session(_parsed(GATHER)).run(None, {"t": _table(3), "i": np.zeros(0, np.int64)})
    assert y.shape == (0, 4)


def test_several_steps(open_session):
    session = open_session(_parsed(STEPS))
    feeds = {"t": np.arange(6, dtype=np.float32), "x": np.array([0, 1, 0, 2], np.float32)}
    np.testing.assert_array_equal(session.run(None, {**feeds, "d": np.array([2])})[0], [3, 5])
    assert len(session.stats.steps) > 1
    with pytest.raises(RunError, match=r"Gather .*idx=7 must be within the inclusive range \[-6,5\]"):
        session.run(None, {**feeds, "d": np.array([4])})


def test_results_that_stay_on_the_device(open_session, device):
    session = open_session(_parsed(GATHER), preferred_output_location="gpu-buffer")
    table = shaderloom.Tensor.from_numpy(_table(5), session.device)
    for _ in range(3):
        (y,) = session.run(None, {"t": table, "i": np.array([4])})
        assert y.location == "gpu-buffer"
    with pytest.raises(RunError, match="idx=5"):
        session.run(None, {"t": table, "i": np.array([5])})
    memory = shaderloom.Tensor.empty((1, 4), np.float32, session.device)
    indices = shaderloom.Tensor.from_numpy(np.array([3]), session.device)
    for _ in range(3):
        session.run(["y"], {"t": table, "i": indices}, outputs={"y": memory})
    indices.update(np.array([9]))
    with pytest.raises(RunError, match="idx=9"):
        session.run(["y"], {"t": table, "i": indices}, outputs={"y": memory})


def test_a_second_session_has_the_rules_from_the_disk(open_session, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(_parsed(GATHER), path)
    for _ in range(2):
        session = open_session(path, cache=tmp_path / "cache")
        with pytest.raises(RunError, match="idx=5"):
            session.run(None, {"t": _table(5), "i": np.array([5])})
        session.close()
    plain = shaderloom.InferenceSession(path, providers=["wgpu"], cache=tmp_path / "cache")
    with plain:
        np.testing.assert_array_equal(plain.run(None, {"t": _table(5), "i": np.array([5])})[0], _table(5)[[4]])


def test_what_no_output_needs_is_not_checked(open_session):
    """As in onnxruntime, which removes such nodes."""
    (y,) = open_session(_parsed(UNUSED)).run(None, {"t": _table(2), "i": np.array([99])})
    np.testing.assert_array_equal(y, -_table(2))


def test_the_cpu_checks_by_itself(open_session):
    pytest.importorskip("onnxruntime")
    for providers in (("cpu",), ("cpu", "wgpu")):
        session = open_session(_parsed(GATHER), providers)
        assert len(session.run(None, {"t": _table(3), "i": np.array([2])})) == 1
        with pytest.raises(InputError):
            session.run(None, {"t": _table(3), "i": np.array([3])})


def test_what_goes_to_the_cpu_is_checked_there(open_session):
    """The ranges of nodes on the device count beside it."""
    pytest.importorskip("onnxruntime")
    session = open_session(_parsed(DOUBLES), ("wgpu", "cpu"))
    feeds = {"t": _table(5).astype(np.float64), "u": _table(5), "i": np.array([0, -5, 4]), "j": np.array([4, 1])}
    for _ in range(2):
        y, z = session.run(None, feeds)
        np.testing.assert_array_equal(y, feeds["t"][feeds["i"]])
        np.testing.assert_array_equal(z, feeds["u"][feeds["j"]])
    assert [(each.op_type, each.provider) for each in session.placement()] == [("Gather", "cpu"), ("Gather", "wgpu")]
    with pytest.raises(InputError, match="idx=5 must be within the inclusive range"):
        session.run(None, {**feeds, "i": np.array([5])})
    with pytest.raises(RunError, match=r"main node 1\): .*idx=-6 must be within the inclusive range"):
        session.run(None, {**feeds, "j": np.array([-6])})


def test_all_indices_are_checked_on_the_cpu(open_session):
    pytest.importorskip("onnxruntime")
    text = GATHER.replace("float", "double")
    session = open_session(_parsed(text), ("wgpu", "cpu"))
    feeds = {"t": _table(5).astype(np.float64), "i": np.array([0, 4])}
    np.testing.assert_array_equal(session.run(None, feeds)[0], feeds["t"][feeds["i"]])
    assert [(each.op_type, each.provider) for each in session.placement()] == [("Gather", "cpu")]
    with pytest.raises(InputError, match="idx=5 must be within the inclusive range"):
        session.run(None, {**feeds, "i": np.array([5])})


def test_the_error_of_the_cpu_names_the_node_that_failed(open_session):
    pytest.importorskip("onnxruntime")
    text = HEADER + (
        "g (float[n, 4] t, int64[m] i) => (float[m, 4] y)"
        " { a = Cast<to = 11>(t)  [rows] b = Gather(a, i)  y = Cast<to = 1>(b) }"
    )
    session = open_session(_parsed(text), ("wgpu", "cpu"))
    with pytest.raises(InputError, match=r"^input at Gather 'rows' \(main node 1; .*idx=5 must be within"):
        session.run(None, {"t": _table(5), "i": np.array([5])})


def test_placement_and_repr_show_the_nodes_of_the_model(open_session):
    session = open_session(_parsed(GATHER))
    session.run(None, {"t": _table(3), "i": np.array([2])})
    assert [placement.op_type for placement in session.placement()] == ["Gather"]
    assert "1 node" in repr(session)


def test_bundles_are_refused(tmp_path):
    with pytest.raises(InputError, match="no means to check indices"):
        compile_bundle(_parsed(GATHER), tmp_path / "b", options={"check_indices": True})
