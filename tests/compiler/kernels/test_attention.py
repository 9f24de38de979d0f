"""Attention in one kernel: every way to write it, odd sizes, masks, both forms of the kernel, both drivers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.remarks import Remark
from shaderloom.compiler.target import target_of
from shaderloom.compiler.tuning.attention_tiles import AttentionProblem, attention_parts
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.plan import Plan

from ...support.attentions import MASKS, Form, attention
from ...support.cases import OperatorCase, all_cases, difference
from ...support.comparison import reference, relative_error
from ...support.effort import quick_first, slow
from ...support.golden import check_golden
from ...support.passes import lower_model
from ...support.running import compile_for, run_plan
from ...support.watching import count_outside

FORMS = {
    "plain": Form(),
    "divided": Form(scale="Div scores"),
    "scaled query": Form(scale="Mul query"),
    "unscaled": Form(scale="none"),
    "softmax in parts": Form(softmax="parts"),
    "softmax by reciprocal": Form(softmax="reciprocal"),
    "capped": Form(cap=5.0, mask="b1mn"),
    "grouped": Form(groups=2, mask="b1mn"),
    "one head of keys": Form(groups=4, mask="mn"),
    "heads as axes": Form(layout="heads", merge=False),
    "masked by Where": Form(mask="b1mn", mask_kind="Where"),
    "two masks": Form(mask="b1m1", mask_kind="And Where"),
    "a mask for each head": Form(mask="1hmn", scale="Div scores"),
}


def templates(plan: Plan) -> list[str]:
    names = {kernel.key: kernel.template for kernel in plan.kernels}
    return [names[call.kernel] for call in plan.calls]


def check(device, model, feeds, *, tolerance: float = 1e-5, calls: int = 1, dynamic=None, **options) -> None:
    profile = replace(device.profile, kind="discrete")
    plan = compile_for(model, feeds, profile, dynamic=dynamic, **options)
    (found,) = run_plan(device, plan, model, feeds)
    (expected,) = reference(model.SerializeToString(), feeds)
    assert relative_error(found, expected) <= tolerance
    assert sum(name in ("attention_row", "attention_tile") for name in templates(plan)) == 1
    assert len(templates(plan)) == calls, templates(plan)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("queries", quick_first([7, 1]))
def test_forms(device, form: Form, queries: int):
    heads = max(form.groups, 2)
    model, feeds = attention(form, heads=heads, queries=queries)
    check(device, model, feeds)


@pytest.mark.parametrize("size", [7, 64, *slow([1, 3, 17, 63, 65, 256])])
@pytest.mark.parametrize(("queries", "keys"), [(1, 300), (17, 3), (65, 63)])
def test_sizes(device, size: int, queries: int, keys: int):
    model, feeds = attention(Form(mask="mn"), batch=1, queries=queries, keys=keys, size=size)
    check(device, model, feeds, calls=2 if keys * size > 19_300 else 1)  # many keys are split, and merged


@pytest.mark.parametrize(("size", "value_size"), [(8, 5), (3, 64), (64, 1)])
@pytest.mark.parametrize(("queries", "keys"), quick_first([(3, 17), (1, 1), (33, 130)]))
def test_values_of_another_size(device, size: int, value_size: int, queries: int, keys: int):
    model, feeds = attention(Form(), batch=1, queries=queries, keys=keys, size=size, value_size=value_size)
    check(device, model, feeds)


@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask])
@pytest.mark.parametrize("queries", quick_first([6, 1]))
def test_masks(device, mask: str, queries: int):
    model, feeds = attention(Form(mask=mask), batch=2, heads=3, queries=queries)
    check(device, model, feeds)


@pytest.mark.parametrize("queries", [1, 9])
def test_each_driver_within_the_limits_of_the_web(web_device, queries: int):
    model, feeds = attention(Form(groups=2, mask="b1mn"), heads=4, queries=queries, keys=21, size=17)
    check(web_device, model, feeds)


@pytest.mark.parametrize("low", [-1e9, -np.inf])
@pytest.mark.parametrize("queries", [1, 6])
def test_rows_without_keys(each_device, low: float, queries: int):
    """A mean of all values for large negative numbers, NaN for infinities: what the separate kernels give."""
    model, feeds = attention(Form(mask="b1mn", mask_kind="Where", low=low), batch=2, queries=queries)
    feeds["mask"][0] = False
    check(each_device, model, feeds)


@pytest.mark.parametrize("queries", [1, 6])
@pytest.mark.parametrize("size", [8, 64])
def test_half_precision(device, queries: int, size: int):
    model, feeds = attention(Form(mask="b1mn"), dtype=np.float16, queries=queries, size=size)
    check(device, model, feeds, tolerance=5e-3)


@pytest.mark.parametrize("queries", [1, 6])
def test_half_precision_in_words_that_cross_rows(device, queries: int):
    """Three elements a head: no thread owns whole words, so another kernel packs what the attention computes."""
    model, feeds = attention(Form(merge=False), dtype=np.float16, queries=queries, size=3)
    profile = replace(device.profile, kind="discrete")
    plan = compile_for(model, feeds, profile)
    (found,), (expected,) = run_plan(device, plan, model, feeds), reference(model.SerializeToString(), feeds)
    assert relative_error(found, expected) <= 5e-3
    assert templates(plan)[-1] == "map"


@pytest.mark.parametrize("queries", [1, 7])
def test_dynamic_keys(device, queries: int):
    """One plan for every number of keys, none included: no term at all gives zeros."""
    form = Form(layout="heads", merge=False, mask="n")
    dims = {"k": (2, 2, "K", 8), "v": (2, 2, "K", 8), "mask": ("K",)}
    model, feeds = attention(form, queries=queries, dims=dims)
    profile = replace(device.profile, kind="discrete")
    plan = compile_for(model, feeds, profile, dynamic={"K": (0, 600)})
    assert [name for name in templates(plan) if name.startswith("attention")]
    for keys in (0, 1, 5, 64, 130, 600):
        _, feeds = attention(form, queries=queries, keys=keys, dims=dims)
        (found,) = run_plan(device, plan, model, feeds)
        if keys:
            (expected,) = reference(model.SerializeToString(), feeds)
            assert relative_error(found, expected) <= 1e-5
        else:
            assert not found.any() and found.shape == (2, 2, queries, 8)


def test_dynamic_queries(device):
    form = Form(layout="heads", merge=False)
    dims = {"q": ("B", 2, "Q", 8), "k": ("B", 2, 9, 8), "v": ("B", 2, 9, 8)}
    model, feeds = attention(form, dims=dims)
    profile = replace(device.profile, kind="discrete")
    plan = compile_for(model, feeds, profile, dynamic={"Q": (1, 70), "B": (1, 3)})
    assert templates(plan) == ["attention_tile"]
    for batch, queries in ((1, 1), (3, 17), (2, 70)):
        _, feeds = attention(form, batch=batch, queries=queries)
        (found,) = run_plan(device, plan, model, feeds)
        assert relative_error(found, reference(model.SerializeToString(), feeds)[0]) <= 1e-5


@pytest.mark.parametrize("form", ["plain", "grouped", "capped"])
@pytest.mark.parametrize("size", [3, 8, 64])
def test_one_query_on_software_drivers(each_device, form: str, size: int):
    model, feeds = attention(FORMS[form], queries=1, keys=70, size=size)
    plan = compile_for(model, feeds, replace(each_device.profile, kind="cpu"))
    assert templates(plan) == ["attention_row"]
    (found,) = run_plan(each_device, plan, model, feeds)
    assert relative_error(found, reference(model.SerializeToString(), feeds)[0]) <= 1e-5


@pytest.mark.parametrize(("keys", "size"), quick_first([(2100, 63), (1100, 128), (1500, 256)]))
@pytest.mark.parametrize("form", ["plain", "masked by Where", "grouped"])
def test_keys_in_parts(device, form: str, keys: int, size: int):
    """One query and many keys: the keys are split among workgroups, a second pass puts the parts together."""
    model, feeds = attention(FORMS[form], batch=1, queries=1, keys=keys, size=size)
    plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
    assert templates(plan) == ["attention_row", "attention_merge"]
    (call, _) = plan.calls
    assert call.grid[2] > 1
    first, again = (run_plan(device, plan, model, feeds)[0] for _ in range(2))
    assert relative_error(first, reference(model.SerializeToString(), feeds)[0]) <= 1e-5
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("low", [-1e9, -np.inf])
def test_rows_without_keys_in_parts(each_device, low: float):
    form = Form(mask="b1mn", mask_kind="Where", low=low)
    model, feeds = attention(form, queries=2, keys=1100, size=128)
    feeds["mask"][0] = False
    feeds["mask"][1, :, :, :900] = False  # whole parts without a key
    check(each_device, model, feeds, calls=2)


@pytest.mark.parametrize(("keys", "parts"), [(1, 1), (513, 1), (600, 1), (1024, 11), (2049, 16), (9000, 47)])
def test_parts_pay_for_their_call(keys: int, parts: int):
    """The best numbers that were measured for heads of 32 elements; never more workgroups than a GPU runs at once."""
    target = target_of(replace(WEB, kind="discrete"))
    assert attention_parts(target, AttentionProblem(8, 1, keys, 32, 32)) == parts
    assert attention_parts(target, AttentionProblem(8, 1, 2 * keys, 32, 32, element=2)) == parts
    assert attention_parts(target, AttentionProblem(256, 1, keys, 32, 32)) == 1
    assert attention_parts(target_of(replace(WEB, kind="cpu")), AttentionProblem(8, 1, keys, 32, 32)) == 1


def test_dynamic_keys_in_parts(device):
    form = Form(layout="heads", merge=False)
    dims = {"k": (1, 2, "K", 64), "v": (1, 2, "K", 64)}
    model, feeds = attention(form, batch=1, queries=1, size=64, dims=dims)
    plan = compile_for(model, feeds, replace(device.profile, kind="discrete"), dynamic={"K": (0, 4000)})
    assert templates(plan) == ["attention_row", "attention_merge"]
    for keys in (0, 1, 3, 65, 1000, 4000):
        _, feeds = attention(form, batch=1, queries=1, keys=keys, size=64)
        (found,) = run_plan(device, plan, model, feeds)
        if keys:
            assert relative_error(found, reference(model.SerializeToString(), feeds)[0]) <= 1e-5
        else:
            assert not found.any()


@pytest.mark.parametrize("queries", [1, 20])
def test_a_score_that_is_no_number_spoils_its_row_alone(queries: int, each_device):
    model, feeds = attention(Form(mask="mn"), queries=queries, keys=37)
    feeds["mask"][0, 5] = np.nan
    for kind in ("cpu", "discrete"):
        plan = compile_for(model, feeds, replace(each_device.profile, kind=kind))
        (found,) = run_plan(each_device, plan, model, feeds)
        assert np.isnan(found[:, 0]).all() and np.isfinite(found[:, 1:]).all()


@pytest.mark.parametrize("form", ["plain", "grouped", "two masks"])
@pytest.mark.parametrize(("queries", "keys", "size"), quick_first([(7, 9, 8), (1, 5, 3), (1, 1100, 130), (33, 70, 63)]))
def test_no_access_is_outside_its_operand(device, form: str, queries: int, keys: int, size: int):
    """Shaders of this process may run without bounds checks."""
    model, feeds = attention(FORMS[form], queries=queries, keys=keys, size=size)
    plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
    assert count_outside(device, plan, model, feeds) == 0


OPERATORS = {"Attention", "MultiHeadAttention", "GroupQueryAttention"}
CASES = [operator for operator in all_cases() if operator.definition.name in OPERATORS]


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(operator, id=operator.name, marks=[pytest.mark.slow] if operator.number >= 3 else [])
        for operator in CASES
    ],
)
def test_attention_operators(device, operator: OperatorCase):
    """Every case of the operators: causal masks, caches, groups of heads, soft caps, lengths, sinks."""
    model, feeds = operator.model(), operator.feeds
    plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
    runtime, expected = operator.reference
    for found, wanted in zip(run_plan(device, plan, model, feeds), expected, strict=True):
        assert difference(found, wanted) <= operator.case.tolerance, runtime


def test_most_attention_operators_become_one_kernel():
    """What stays apart: scores that are an output too, and sinks."""
    apart = []
    for operator in CASES:
        plan = compile_for(operator.model(), operator.feeds, WEB)
        if not any(name.startswith("attention") for name in templates(plan)):
            apart.append(operator.name)
    assert len(apart) <= 0.3 * len(CASES), apart


# -- variants and reasons
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [1, 7])
def test_twin_without_the_pass(device, queries: int):
    model, feeds = attention(Form(mask="b1mn", groups=2), heads=4, queries=queries)
    profile = replace(device.profile, kind="discrete")
    joined = run_plan(device, compile_for(model, feeds, profile), model, feeds)
    apart = compile_for(model, feeds, profile, disabled_passes=("attention",))
    assert not any(name.startswith("attention") for name in templates(apart))
    assert relative_error(joined[0], run_plan(device, apart, model, feeds)[0]) <= 1e-5


def test_scores_in_memory(device):
    """Scores that are an output too are read by the attention; only the weights are not stored."""
    model, feeds = attention(Form(layout="heads", merge=False))
    scores = next(each.input[0] for each in model.graph.node if each.op_type == "Softmax")
    model.graph.output.append(helper.make_tensor_value_info(scores, 1, None))
    profile = replace(device.profile, kind="discrete")
    plan = compile_for(model, feeds, profile)
    assert len(templates(plan)) == 2 and templates(plan)[1].startswith("attention")
    for found, expected in zip(run_plan(device, plan, model, feeds), reference(model.SerializeToString(), feeds)):
        assert relative_error(found, expected) <= 1e-5


def refusals(model, feeds) -> set[str]:
    remarks: list[Remark] = []
    lower_model(model, {name: array.shape for name, array in feeds.items()}, remarks=remarks)
    return {entry.refused for entry in remarks if entry.rule == "softmax-product"}


def test_weights_that_are_an_output_stay_apart():
    model, feeds = attention(Form(layout="heads", merge=False))
    weights = next(each.output[0] for each in model.graph.node if each.op_type == "Softmax")
    model.graph.output.append(helper.make_tensor_value_info(weights, 1, None))
    assert refusals(model, feeds) == {"the weights of the softmax, or parts of them, are needed too"}


def test_large_heads_stay_apart():
    model, feeds = attention(Form(layout="heads", merge=False), size=260)
    assert refusals(model, feeds) == {"values have more than 256 elements, or a dynamic number"}


def test_software_drivers_keep_products_for_many_queries():
    model, feeds = attention(Form())
    plan = compile_for(model, feeds, replace(WEB, kind="cpu"))
    assert not any(name.startswith("attention") for name in templates(plan))
    model, feeds = attention(Form(), queries=1)
    assert "attention_row" in templates(compile_for(model, feeds, replace(WEB, kind="cpu")))


# -- text ------------------------------------------------------------------------------------------------------------


#: name -> queries, keys, kind of device
GOLDEN = {
    "attention_tile": (20, 40, "discrete"),
    "attention_row": (1, 40, "discrete"),
    "attention_row_cpu": (1, 40, "cpu"),
    "attention_parts": (1, 9000, "discrete"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str):
    queries, keys, kind = GOLDEN[name]
    model, feeds = attention(Form(mask="b1mn"), batch=1, queries=queries, keys=keys, size=32)
    plan = compile_for(model, feeds, replace(WEB, kind=kind))
    kernels = {kernel.template: kernel.wgsl for kernel in plan.kernels}
    check_golden(f"wgsl/{name}.wgsl", kernels.pop("attention_tile" if queries > 1 else "attention_row"))
    for template, wgsl in kernels.items():  # the second pass
        check_golden(f"wgsl/{template}.wgsl", wgsl)
