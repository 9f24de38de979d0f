"""Records of plans as JSON: facts and notes of compiled plans come back equal.  Covers: runtime/plan/codec."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.options import CompileOptions
from shaderloom.runtime.plan.codec import decode, encode
from shaderloom.runtime.plan.facts import EvaluationTime, PrecisionFacts
from shaderloom.runtime.plan.plan import Plan


def compiled(precision: str = "float32") -> Plan:
    """A product with weights that are computed from constants, and an identity that is folded."""
    generator = np.random.default_rng(0)
    weight = numpy_helper.from_array(generator.standard_normal((8, 3000), np.float32), "weight")
    nodes = [
        helper.make_node("Exp", ["weight"], ["raised"]),
        helper.make_node("MatMul", ["x", "raised"], ["product"], name="product"),
        helper.make_node("Identity", ["product"], ["same"]),
        helper.make_node("Softmax", ["same"], ["rows"]),
        helper.make_node("Neg", ["rows"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info(*port)
        for port in (("x", TensorProto.FLOAT, ["n", 8]), ("y", TensorProto.FLOAT, ["n", 3000]))
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [weight])
    model = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    options = CompileOptions(precision=precision, disabled_passes=("fuse",))
    return compile_model(model, bind_shapes(model, {"x": (4, 8)}, {"n": (1, 64)}), Compilation(options=options))


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_facts_and_notes_survive_json(precision):
    plan = compiled(precision)
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert (again.facts, again.notes) == (plan.facts, plan.notes)
    assert again == plan
    assert (plan.facts.precision is not None) == (plan.notes.precision is not None) == (precision == "float16")


def test_facts_place_every_node():
    nodes = compiled().facts.nodes
    assert nodes == (
        EvaluationTime.WEIGHTS,
        EvaluationTime.RUN,
        EvaluationTime.FOLDED,
        EvaluationTime.RUN,
        EvaluationTime.RUN,
    )


def test_facts_name_what_a_call_writes():
    facts = compiled().facts
    written = [facts.result(number).node for number in range(len(facts.calls))]
    assert "MatMul 'product' (main node 1)" in written
    assert all(facts.writers()[tensor] == number for number, call in enumerate(facts.calls) for tensor in call.writes)
    for call in facts.calls:
        assert not set(call.writes) & set(call.reads)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"measured": "MatMul", "positions": [], "overflowing": {}}, "facts.measured is not a list"),
        ({"measured": [], "positions": [], "overflowing": {"y": [True]}}, "facts.overflowing.y has 1 elements"),
        ({"measured": [], "positions": [], "overflowing": {"y": [1, 0]}}, "facts.overflowing.y is not of type bool"),
        ({"measured": [], "positions": []}, "facts does not have the fields of PrecisionFacts"),
        ([], "facts does not have the fields of PrecisionFacts"),
    ],
)
def test_records_of_other_types_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        decode(data, PrecisionFacts, "facts")


def test_unknown_fields_are_ignored():
    data = {**encode(PrecisionFacts(("a",))), "novelty": 1}
    assert decode(data, PrecisionFacts, "facts") == PrecisionFacts(("a",))


def test_what_has_no_json_form_is_refused():
    with pytest.raises(TypeError, match="ndarray"):
        encode({"size": np.zeros(1)})


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.1", "its format is version 2.1, and this version of shaderloom reads 3.x: compile it again"),
        ("4.0", "a newer version of shaderloom reads it"),
        (None, "its format is None, which is no version"),
    ],
)
def test_plans_of_other_major_versions_are_refused(version, message):
    with pytest.raises(ValueError, match=message):
        Plan.from_json({**compiled().to_json(), "format": version})


def test_plans_of_a_newer_minor_version_are_read():
    plan = compiled()
    assert Plan.from_json({**plan.to_json(), "format": "3.7", "novelty": 1}) == plan


def test_a_command_of_an_unknown_kind_is_refused():
    data = compiled().to_json()
    data["commands"][0]["kind"] = "host"
    with pytest.raises(ValueError, match=r"plan\.commands has the kind 'host', which this version does not know"):
        Plan.from_json(data)
