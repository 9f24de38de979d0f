"""What families of kernels say about themselves, and who asks them."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.codegen.render import render
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.fusion import fuse
from shaderloom.compiler.kernels.context import GroupContext
from shaderloom.compiler.kernels.family import build, family_named, register_family
from shaderloom.compiler.kernels.map import MAP, Map
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.passes.layout import assign_layouts
from shaderloom.compiler.target import target_of
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.dtypes import FLOAT16, FLOAT32
from shaderloom.runtime.plan.errors import InternalError, ShaderloomError

from ...support.cases import all_cases
from ...support.sources import sources

#: Operators whose kernels are of the families that store packed results, and of some that do not
OPERATORS = {"Conv", "ConvTranspose", "MatMul", "ReduceMean", "Softmax", "LayerNormalization", "AveragePool", "CumSum"}


def test_operators_name_families_that_exist():
    names = {definition.family for definition in registry.all() if definition.family is not None}
    assert len(names) > 10
    assert [name for name in names if family_named(name).name != name] == []


def test_a_name_belongs_to_one_family():
    with pytest.raises(ValueError, match="map is registered already"):
        register_family(Map())
    assert family_named("map") is MAP


def test_an_unknown_family():
    with pytest.raises(InternalError, match="no kernel family 'fold'"):
        family_named("fold")


def test_nobody_tests_the_name_of_a_family():
    """Comparisons with names would have to be found and changed for a new family."""
    found = []
    for source in sources("compiler", "runtime", "shaderloom"):
        for node in source.nodes(ast.Compare):
            sides = (node.left, *node.comparators)
            names = [side for side in sides if isinstance(side, ast.Attribute | ast.Name)]
            asks = any((side.attr if isinstance(side, ast.Attribute) else side.id) == "family" for side in names)
            inner = [part for side in sides for part in ast.walk(side)]
            by_text = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in inner)
            by_name = any(isinstance(part, ast.Attribute) and part.attr == "name" for part in inner)
            if asks and (by_text or by_name):
                found.append(f"{source.path}:{node.lineno}")
    assert found == []


@pytest.mark.parametrize("kind", ["discrete", "cpu"])
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_kernel_can_store_what_it_says(name, kind):
    """A family's answer is what building and rendering the kernel with a packed result shows."""
    compilation = Compilation(target_of(replace(WEB, kind=kind)))
    asked = 0
    for case in all_cases():
        if case.definition.name != name or case.definition.domain:
            continue
        imported = load_model(case.model())
        graph = specialise(
            imported, bind_shapes(imported, {key: array.shape for key, array in case.feeds.items()}).shapes
        )
        expand(graph)
        fusion = fuse(graph)
        assign_layouts(graph, fusion)
        for group in fusion.groups:
            if group.region is None or group.output.dtype is not FLOAT32:
                continue
            said = family_named(group.family).can_store(GroupContext(group, fusion.materialised, compilation), FLOAT16)
            assert said == is_same_with_halves(group, fusion, compilation), (case.name, group.output)
            asked += 1
    assert asked


def is_same_with_halves(group, fusion, compilation) -> bool:
    """Whether a kernel stays the same with a result of float16, of which no two threads share a word."""
    full = build(GroupContext(group, fusion.materialised, compilation)).spec
    group.output.dtype = FLOAT16
    try:
        half = build(GroupContext(group, fusion.materialised, compilation)).spec
        render(half)
    except ShaderloomError:
        return False
    finally:
        group.output.dtype = FLOAT32
    return (full.template, full.config) == (half.template, half.config)
