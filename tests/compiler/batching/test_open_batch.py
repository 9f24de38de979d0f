"""Models of one row take any number of rows.

Covers: compiler/batching/open_batch, shaderloom/model/model.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

import shaderloom
from shaderloom.compiler.batching.open_batch import open_batch
from shaderloom.compiler.frontend import load_model
from shaderloom.runtime.plan.errors import InputError, UnsupportedError


def parse(body: str, inputs: str = "float[1, 4, 6] x", outputs: str = "float[1, k] y") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => ({outputs}) {{ {body} }}')


def shape(name: str, *sizes: int) -> str:
    return f"{name} = Constant<value_ints = [{', '.join(map(str, sizes))}]>()"


OPENED = {
    "flattened": f"{shape('s', 1, -1)} y = Reshape(x, s)",
    "all numbers": f"{shape('s', 1, 24)} y = Reshape(x, s)",
    "copied sizes": f"{shape('s', 0, 24)} y = Reshape(x, s)",
    "squeezed and back": f"""
        {shape("s", 4, 6)} f = Reshape(x, s) r = Softmax<axis = -1>(f) {shape("t", 1, 4, 6)} y = Reshape(r, t)""",
    "heads": f"""
        {shape("s", 1, 4, 2, 3)} h = Reshape(x, s) q = Transpose<perm = [0, 2, 1, 3]>(h) {shape("f", 2, 4, 3)}
        a = Reshape(q, f) k = Transpose<perm = [0, 2, 1]>(a) p = MatMul(a, k) w = Softmax<axis = -1>(p) o = MatMul(w, a)
        {shape("b", 1, 2, 4, 3)} u = Reshape(o, b) v = Transpose<perm = [0, 2, 1, 3]>(u)
        {shape("c", 1, 4, 6)} y = Reshape(v, c)""",
    "no reshape": "y = Relu(x)",
    "class token": """
        c = Constant<value = float[1, 1, 6] {1, 2, 3, 4, 5, 6}>()
        d = Constant<value = float[1, 2, 6] {0, 1, 0, 1, 0, 1, 2, 2, 2, 3, 3, 3}>()
        y = Concat<axis = 1>(c, x, d, x)""",
    "class token of inner rows": """
        c = Constant<value = float[1, 1, 6] {1, 2, 3, 4, 5, 6}>() t = Transpose<perm = [1, 0, 2]>(x)
        u = Concat<axis = 0>(c, t) y = Transpose<perm = [1, 0, 2]>(u)""",
    "constant of flattened rows": f"""
        {shape("s", 4, 6)} f = Reshape(x, s) c = Constant<value = float[4, 2] {{1, 2, 3, 4, 5, 6, 7, 8}}>()
        d = Constant<value = float[4, 1] {{0, 1, 0, 1}}>() u = Concat<axis = 1>(c, f, d) {shape("t", 1, 36)}
        y = Reshape(u, t)""",
    "scattered to places of the row": """
        i = Constant<value = int64[1, 2, 2] {0, 3, -1, 1}>() o = Constant<value_ints = [1]>()
        e = Constant<value_ints = [3]>() u = Slice(x, o, e, o) n = Neg(u) y = ScatterND(x, i, n)""",
    "constant scattered into the row": """
        i = Constant<value = int64[3, 3] {0, 3, 5, 0, 1, 2, 0, 3, 5}>()
        u = Constant<value = float[3] {7, 8, 9}>() y = ScatterND<reduction = "add">(x, i, u)""",
    "constant part of the row": """
        i = Constant<value = int64[1, 1, 2] {0, 2}>() u = Constant<value = float[1, 1, 6] {1, 2, 3, 4, 5, 6}>()
        y = ScatterND(x, i, u)""",
    "initial states": """
        t = Transpose<perm = [1, 0, 2]>(x) v = Constant<value = float[18] {1, -1, 0.5, 0.2, 0, 1, 0.3, 0.7,
        -0.2, 0.1, 0.6, -0.5, 0.9, -0.8, 0.4, 0.2, -0.6, 0.3}>() ws = Constant<value_ints = [1, 3, 6]>()
        w = Reshape(v, ws) r = Constant<value = float[1, 3, 3] {0.1, 0.2, 0.3, -0.1, -0.2, -0.3, 0.3, 0.2, 0.1}>()
        h = Constant<value = float[1, 1, 3] {0.5, -0.5, 0.2}>()
        all, last = RNN<hidden_size = 3>(t, w, r, "", "", h) y = Transpose<perm = [2, 0, 1, 3]>(all)""",
    "places of one row": f"""{shape("s", -1)} f = Reshape(x, s)
        i = Constant<value = int64[1, 2, 2] {{0, 23, -24, 7}}>() y = Gather<axis = 0>(f, i)""",
}


@pytest.mark.parametrize("name", OPENED)
def test_rows_of_an_opened_model_are_those_of_single_runs(name, device):
    model = parse(OPENED[name])
    evaluator = onnx.reference.ReferenceEvaluator(model)
    x = np.random.default_rng(0).standard_normal((5, 4, 6), dtype=np.float32)
    with shaderloom.InferenceSession(model, device=device, batch="open", cache=False) as session:
        assert session.get_inputs()[0].shape == ["batch", 4, 6]
        assert session.get_outputs()[0].shape[0] == "batch"
        for rows in (1, 2, 5):
            (result,) = session.run(None, {"x": x[:rows]})
            expected = np.concatenate([evaluator.run(None, {"x": x[row : row + 1]})[0] for row in range(rows)])
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        with session.batched(4) as batched:
            futures = [batched.submit({"x": x[row : row + 1]}) for row in range(5)]
            for row, future in enumerate(futures):
                (expected,) = session.run(None, {"x": x[row : row + 1]})
                np.testing.assert_array_equal(future.result()[0], expected)


def test_nodes_that_do_not_take_several_rows_are_listed():
    body = f"""{shape("a", 0)} s = Squeeze(x, a) t = Squeeze(x, a) e = Relu(s) f = Add(e, t) y = Unsqueeze(f, a)"""
    with pytest.raises(UnsupportedError) as refusal:
        open_batch(load_model(parse(body)))
    assert [part.origin.op for part in refusal.value.parts] == ["Squeeze", "Squeeze"]


MIXING = {
    "Softmax": "y = Softmax<axis = 0>(x)",
    "Concat": "c = Constant<value = float[1, 4, 6]>() y = Concat<axis = 0>(x, c)",
    "ScatterND": """
        i = Constant<value = int64[1, 1] {0}>() o = Constant<value_ints = [1, 4, 6]>() u = ConstantOfShape(o)
        y = ScatterND(x, i, u)""",
}


@pytest.mark.parametrize("op", MIXING)
def test_nodes_that_mix_rows_are_named(op):
    body = MIXING[op].replace("float[1, 4, 6]>", f"float[1, 4, 6] {{{', '.join(['1'] * 24)}}}>")
    with pytest.raises(UnsupportedError, match=f"{op} mixes the rows") as refusal:
        open_batch(load_model(parse(body)))
    assert refusal.value.origin.op == op


@pytest.mark.parametrize(
    ("inputs", "reason"), [("float[2, 4, 6] x", "no input has a leading size of 1"), ("float[1, n, 6] x", "all other")]
)
def test_other_models_are_refused(inputs, reason):
    with pytest.raises(UnsupportedError, match=reason):
        open_batch(load_model(parse("y = Relu(x)", inputs)))


def test_a_dimension_of_the_same_name_stays_what_it_is():
    inputs = "float[1, 4, 6] x, float[batch] b"
    model = open_batch(load_model(parse("y = Relu(x)", inputs.replace("batch", "6"), "float[1, 4, batch] y")))
    assert model.inputs[0].dims == ("batch_", 4, 6)


def test_options_are_checked(device):
    model = parse(OPENED["no reshape"])
    with pytest.raises(InputError, match="'declared' or 'open'"):
        shaderloom.InferenceSession(model, device=device, batch="any")
    with pytest.raises(InputError, match="a device alone"):
        shaderloom.InferenceSession(model, providers=["wgpu", "cpu"], batch="open")


def test_the_disk_cache_tells_opened_models_apart(device, cache_folder):
    model = parse(OPENED["flattened"])
    x = np.ones((3, 4, 6), np.float32)
    for _ in range(2):
        with shaderloom.InferenceSession(model, device=device, batch="open") as session:
            assert session.run(None, {"x": x})[0].shape == (3, 24)
        with shaderloom.InferenceSession(model, device=device) as session, pytest.raises(InputError):
            session.run(None, {"x": x})
