"""Decisions among configurations: what the compiler asks, and what decides.  Covers: compiler/tuning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.target import target_of
from shaderloom.compiler.tuning import gemm_tiles
from shaderloom.compiler.tuning.config_choice import Choices, TuningRecord, describe, encode
from shaderloom.plans.describe import describe_plan
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile
from shaderloom.runtime.plan.facts import ANALYTIC, SHIPPED, TUNED

CPU = DeviceProfile(kind="cpu")
SHARED = replace(WEB, kind="discrete")

TEXT = """<ir_version: 9, opset_import: ["": 21]> g (float[1,8,20,20] x) => (float[1,24] y)
<float[16,8,3,3] w = {WEIGHT}, float[16,24] v = {MATRIX}> {
  a = Conv<pads=[1,1,1,1]>(x, w)
  b = Relu(a)
  c = GlobalAveragePool(b)
  d = Flatten(c)
  y = MatMul(d, v)
}"""


def numbers(count: int) -> str:
    return "{" + ", ".join(f"{value:.3f}" for value in np.random.default_rng(count).standard_normal(count)) + "}"


def model() -> bytes:
    text = TEXT.replace("{WEIGHT}", numbers(16 * 8 * 9)).replace("{MATRIX}", numbers(16 * 24))
    return onnx.parser.parse_model(text).SerializeToString()


def compiled(profile: DeviceProfile, choices: Choices | None = None):
    imported = load_model(model())
    return compile_model(
        imported,
        bind_shapes(imported, {"x": (1, 8, 20, 20)}),
        Compilation(target_of(profile), choices=choices or Choices()),
    )


def asked(profile: DeviceProfile) -> Choices:
    choices = Choices()
    compiled(profile, choices)
    return choices


@pytest.mark.parametrize("profile", [CPU, SHARED])
def test_every_candidate_can_be_chosen(profile):
    for key, decision in asked(profile).decisions.items():
        for candidate in decision.candidates[:12]:
            chosen = Choices({key: TuningRecord(encode(candidate), TUNED, 5.0, 7.0)})
            plan = compiled(profile, chosen)
            assert chosen.decisions[key].candidate == encode(candidate), key
            assert chosen.decisions[key].source == TUNED
            (decision,) = [decision for decision in plan.facts.decisions if decision.problem == key]
            assert (decision.source, decision.nanoseconds, decision.analytic_nanoseconds) == (TUNED, 5.0, 7.0)


def test_a_product_gets_the_tile_of_the_database_and_says_so():
    decisions = asked(CPU).decisions
    key, decision = next(
        (key, decision) for key, decision in decisions.items() if key.startswith("gemm") and "window=3x3" in key
    )
    other = next(tile for tile in decision.candidates if encode(tile) != decision.candidate)
    plan = compiled(CPU, Choices({key: TuningRecord(encode(other), SHIPPED, 1e6, 2e6)}))
    rows = [row for row in describe_plan(plan)["kernels"] if row["decision"] and row["decision"]["problem"] == key]
    (row,) = rows
    assert row["config"] == {name: value for name, value in encode(other).items() if name != "form"}
    assert row["decision"] == {
        "problem": key,
        "source": SHIPPED,
        "candidates": len(decision.candidates),
        "ns": 1e6,
        "analytic_ns": 2e6,
    }
    assert plan.key != compiled(CPU).key


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"form": "RegisterTile"},
        {"form": "RegisterTile", "rows": 10**9, "columns": 1, "across": 8, "down": 1},
        {"form": "SharedTile", "block_m": 64, "block_n": 64, "block_k": 16, "rows": 8, "columns": 2},
        {"form": "value", "value": 3},
    ],
)
def test_what_is_no_candidate_is_not_taken(choice):
    for key in asked(CPU).decisions:
        chosen = Choices({key: TuningRecord(choice, TUNED, 1.0, 2.0)})
        assert compiled(CPU, chosen).digest == compiled(CPU).digest
        assert chosen.decisions[key].source == ANALYTIC


def test_equal_measurements_give_equal_plans():
    decisions = asked(CPU).decisions
    known = {key: TuningRecord(encode(decision.candidates[-1]), TUNED, 1.0, 2.0) for key, decision in decisions.items()}
    assert compiled(CPU, Choices(known)).digest == compiled(CPU, Choices(dict(reversed(known.items())))).digest


def test_a_decision_log_is_current_while_its_questions_are_answered_alike():
    first = asked(CPU)
    log = first.decision_log()
    assert set(log) == set(first.decisions)
    assert Choices().is_current(log)
    key, decision = next(iter(first.decisions.items()))
    known = {key: TuningRecord(encode(decision.candidates[-1]), TUNED, 1.0, 2.0)}
    assert not Choices(known).is_current(log)
    assert Choices({"another problem": known[key]}).is_current(log)
    tuned = Choices(known)
    compiled(CPU, tuned)
    assert tuned.is_current(tuned.decision_log())
    assert not Choices().is_current(tuned.decision_log())
    faster = {key: replace(known[key], nanoseconds=0.5)}  # the same choice, measured again
    assert Choices(faster).is_current(tuned.decision_log())


def test_keys_tell_sizes_types_and_epilogues_apart_and_nothing_else():
    keys = list(asked(CPU).decisions)
    assert keys == list(asked(CPU).decisions), "keys are the same in every compilation"
    assert any("m=400 n=16 k=72 window=3x3/1x1/1x1" in key and key.endswith("epilogue=0") for key in keys)
    assert not any("main" in key or "Conv" in key for key in keys), "keys name no node"


def test_keys_of_other_profiles_are_the_same():
    """What was measured with limits or features turned off is found again without."""
    common = set(asked(CPU).decisions) & set(
        asked(replace(CPU, subgroup_size=8, features=frozenset({"subgroup"}))).decisions
    )
    assert any(key.startswith("gemm") for key in common)


def test_choices_for_people():
    assert describe(encode(gemm_tiles.SplitTile(1, 8, 16))) == "SplitTile(rows 1, across 8, parts 16)"
    assert describe(encode(None)) == "None"
    assert describe(encode(4)) == "4"
