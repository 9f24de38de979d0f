"""Targets: which family a device is of, that families are data, and that nothing else asks what a device is.

Covers: compiler/target, compiler/target/families.
"""

from __future__ import annotations

import ast
from dataclasses import fields, replace

import pytest

from shaderloom.compiler.target import (
    FAMILIES,
    PORTABLE_LOOP_TRIPS,
    WEB_TARGET,
    Target,
    WorkgroupCosts,
    target_of,
)
from shaderloom.compiler.tuning import gemm_tiles
from shaderloom.compiler.tuning.attention_tiles import (
    AttentionProblem,
    attention_parts,
    attention_reason,
    attention_tiles,
)
from shaderloom.compiler.tuning.depthwise_tiles import DepthwiseProblem, DepthwiseTile, Extent, depthwise_tiles
from shaderloom.compiler.tuning.winograd_tiles import WinogradProblem, tile_outputs
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile

from ...support.sources import sources

LLVMPIPE = "llvmpipe (LLVM 15.0.6, 256 bits)"
SWIFTSHADER = "SwiftShader Device (Subzero)"

DEVICES = {
    "lavapipe": (
        DeviceProfile("cpu", f"{LLVMPIPE} Mesa 22.3.6 (LLVM 15.0.6)", adapter=LLVMPIPE),
        DeviceProfile("cpu", "lavapipe"),
        DeviceProfile("cpu", f"{LLVMPIPE} OpenGL 4.5 (Core Profile) Mesa 22.3.6", adapter=LLVMPIPE),
    ),
    "SwiftShader": (DeviceProfile("cpu", f"{SWIFTSHADER} SwiftShader driver-5.0.0", adapter=SWIFTSHADER),),
    "NVIDIA": (
        DeviceProfile("discrete", "NVIDIA H200 580.95.05", adapter="NVIDIA H200"),
        DeviceProfile("unknown", "NVIDIA GeForce RTX 4090 576.02", adapter="NVIDIA GeForce RTX 4090"),
    ),
    "generic software driver": (
        replace(WEB, kind="cpu"),
        DeviceProfile("cpu", "Microsoft Basic Render Driver", adapter="Microsoft Basic Render Driver"),
        DeviceProfile("cpu", "NVIDIA H200 580.95.05", adapter="NVIDIA H200"),  # of a bundle made on this card
    ),
    "generic GPU": (
        WEB,
        DeviceProfile("integrated", "Intel(R) Iris(R) Xe Graphics Mesa 24.1", adapter="Intel(R) Iris(R) Xe Graphics"),
        DeviceProfile("discrete", f"{LLVMPIPE} Mesa", adapter=LLVMPIPE),
    ),
}


@pytest.mark.parametrize(
    ("name", "profile"), [(name, profile) for name, profiles in DEVICES.items() for profile in profiles]
)
def test_the_family_follows_from_kind_and_names(name: str, profile: DeviceProfile) -> None:
    target = target_of(profile)
    assert (target.name, target.profile) == (name, profile)
    assert target.is_software == (profile.kind == "cpu")
    assert target == target_of(profile)


def test_every_family_is_matched_and_has_a_name_of_its_own() -> None:
    assert [family.name for family in FAMILIES] == list(DEVICES)
    assert [family.is_software for family in FAMILIES if not family.adapters] == [True, False]
    assert all(text == text.lower() for family in FAMILIES for text in family.adapters)


def test_a_target_tells_what_its_profile_does() -> None:
    profile = replace(
        WEB, features=frozenset({"subgroup"}), subgroup_size=4, limits={**WEB.limits, "max-bind-groups": 3}
    )
    target = target_of(profile)
    assert target.limit("max-bind-groups") == 3
    assert target.has_feature("subgroup") and not target.has_feature("shader-f16")
    assert (target.subgroup_size, target.storage_alignment) == (4, profile.storage_alignment)
    assert WEB_TARGET == target_of(WEB)


def test_every_device_makes_the_portable_loop_trips() -> None:
    limits = [family.max_loop_trips for family in FAMILIES]
    assert PORTABLE_LOOP_TRIPS in limits
    assert all(limit is None or limit >= PORTABLE_LOOP_TRIPS for limit in limits)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_numbers_of_a_family_are_complete(family: Target) -> None:
    costs = family.costs
    assert family.group_threads & (family.group_threads - 1) == 0 and family.group_threads >= 4
    assert min(family.busy_workgroups, family.busy_workgroup_threads, family.narrow_recurrent_units) > 0
    if isinstance(costs, WorkgroupCosts):
        assert list(costs.sharing) == sorted(set(costs.sharing))
        for factors in ("floats", "words", "scaled words"):
            for tile, (start, *times) in gemm_tiles.shared_tiles(costs, factors).items():  # each is legal
                assert start >= 0 and len(times) == len(costs.sharing) and min(times) > 0, tile
            fitting = WEB.limit("max-compute-workgroup-storage-size")
            assert any(tile.workgroup_bytes <= fitting for tile in gemm_tiles.shared_tiles(costs, factors))
    else:
        assert costs.cores > 0 and family.repaid_runs > 0
        for record in (costs.register, costs.broadcast, costs.depthwise, costs.winograd):
            assert all(getattr(record, each.name) > 0 for each in fields(record))  # type: ignore[arg-type]


def _target(name: str, **facts: object) -> Target:
    return target_of(replace(DEVICES[name][0], **facts))  # type: ignore[arg-type]


def test_what_the_measured_targets_choose() -> None:
    """The choices that the measurements in docs/performance.md led to: a changed number must mean to change them."""
    subgroup = frozenset({"subgroup"})
    lavapipe = _target("lavapipe", features=subgroup, subgroup_size=8)
    swiftshader = _target("SwiftShader", features=subgroup, subgroup_size=4)
    product = gemm_tiles.Problem(3136, 64, 576)
    assert gemm_tiles.ranked(product, lavapipe)[0] == gemm_tiles.SubgroupTile(7, 8, 8)
    assert gemm_tiles.ranked(product, swiftshader)[0] == gemm_tiles.SubgroupTile(8, 8, 4)
    assert gemm_tiles.ranked(product, _target("lavapipe"))[0] == gemm_tiles.RegisterTile(16, 2, 8, 1)
    nvidia = _target("NVIDIA")
    assert gemm_tiles.ranked(product, nvidia)[0] == gemm_tiles.SharedTile(32, 64, 32, 8, 1, 2, 4)
    assert gemm_tiles.ranked(product, nvidia) == gemm_tiles.ranked(product, WEB_TARGET)
    blocks = gemm_tiles.Problem(1024, 3072, 512, factors="scaled words")
    assert gemm_tiles.ranked(blocks, nvidia)[0] == gemm_tiles.SharedTile(64, 128, 16, 8, 2, 1, 4)
    half = replace(blocks, is_range=True, few=512)  # of which the larger tile would leave a third of the time idle
    assert gemm_tiles.ranked(half, nvidia)[0] == gemm_tiles.SharedTile(64, 64, 16, 4, 2, 1, 4)
    deep = gemm_tiles.Problem(49, 512, 4608)
    assert [gemm_tiles.split_parts(deep, 512, each) for each in (lavapipe, nvidia)] == [1, 8]
    layer = WinogradProblem(1, 56, 56, 64, 64)
    assert [tile_outputs(layer, each) for each in (lavapipe, nvidia)] == [4, None]
    channels = DepthwiseProblem(24, 56, Extent(56, 3, 1, 1), Extent(56, 3, 1, 1))
    assert [depthwise_tiles(channels, each)[0] for each in (lavapipe, swiftshader, nvidia)] == [
        DepthwiseTile(8, 8, 1),
        DepthwiseTile(4, 8, 1, rows=4),
        DepthwiseTile(8, 32, 2),
    ]
    assert [attention_parts(each, AttentionProblem(8, 1, 1024, 64, 64)) for each in (lavapipe, nvidia)] == [1, 16]
    assert [attention_tiles(each, AttentionProblem(8, 1, 1024, 64, 64))[0].threads for each in (lavapipe, nvidia)] == [
        16,
        256,
    ]
    assert [attention_reason(each, 128, 1 << 20) is None for each in (lavapipe, nvidia)] == [False, True]
    assert attention_reason(lavapipe, 128, lavapipe.limit("max-storage-buffer-binding-size") + 1) is None


def test_nothing_else_asks_what_a_device_is() -> None:
    """Outside of ``target`` no module of the compiler sees a device's profile or compares its kind."""
    asking = []
    for source in sources("compiler"):
        attributes = source.nodes(ast.Attribute)
        if source.path.parts[1] == "target":
            asks = [node for node in attributes if node.attr == "kind" and source.path.name != "matching.py"]
        else:
            asks = [node for node in attributes if node.attr in ("profile", "is_software")]
            asks += [node for node in source.nodes(ast.ImportFrom) if (node.module or "").endswith("device_profile")]
            asks += [node for node in source.nodes(ast.Compare) if _constants(node) & {"cpu", "discrete", "integrated"}]
        asking += [f"{source.path}:{node.lineno}" for node in asks]
    assert asking == []


def _constants(node: ast.Compare) -> set[object]:
    return {each.value for each in (node.left, *node.comparators) if isinstance(each, ast.Constant)}
