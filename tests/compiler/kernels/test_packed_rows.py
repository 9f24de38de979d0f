"""Products with quantised weights and many rows: groups of rows in the kernel of few, and tiles that decode.

Covers: compiler/kernels/products/packed_gemm, compiler/tuning/packed_tiles.
"""

from __future__ import annotations

import re
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from shaderloom.compiler.target import target_of
from shaderloom.compiler.tuning import gemm_tiles, packed_tiles
from shaderloom.compiler.tuning.gemm_tiles import Problem
from shaderloom.compiler.tuning.packed_tiles import PackedTile
from shaderloom.runtime.plan.device_profile import DeviceProfile

from ...support.running import compile_for, run_plan
from ...support.sessions import leave_groups_out
from ..codegen.test_text_size import H200
from .test_packed_gemm import check, dequantised, nbits


@pytest.mark.parametrize(
    ("shape", "n", "block", "bits", "zeros"),
    [
        ((9, 1056), 33, 16, 4, "uint8"),
        pytest.param((17, 4864), 21, 32, 4, None, marks=pytest.mark.slow),
        pytest.param((3, 7, 1280), 40, 256, 4, "float", marks=pytest.mark.slow),
        pytest.param((16, 1536), 18, 64, 2, "uint8", marks=pytest.mark.slow),
        pytest.param((70, 1552), 20, 16, 8, "uint8", marks=pytest.mark.slow),
    ],
)
def test_groups_of_rows(each_device, shape, n, block, bits, zeros):
    """On a GPU the kernel of few rows computes groups of more rows of a long product; software drivers keep theirs."""
    case = nbits(shape, n, block, bits, zeros=zeros)
    check(each_device, case, "cpu", packed=False)
    check(each_device, case, "discrete")


@pytest.mark.parametrize("tile", [PackedTile(5, 2, 1, 64), PackedTile(8, 2, 1, 32)])
def test_groups_of_two_vectors(device, tile):
    with mock.patch.object(packed_tiles, "ranked", return_value=[tile]):
        check(device, nbits((17, 1056), 45, zeros="uint8"), "discrete")


def test_groups_where_they_are_predicted_to_be_faster():
    target = target_of(H200)

    def takes(rows: int, columns: int, terms: int) -> bool:
        problem = Problem(rows, columns, terms)
        return packed_tiles.takes_groups(problem, target, gemm_tiles.parts_cost(problem, 1, target))

    assert [takes(rows, 4096, 4096) for rows in (9, 16, 32, 128, 512)] == [True, True, True, False, False]
    assert [takes(rows, 896, 4864) for rows in (16, 128, 512)] == [True, True, False]
    assert [takes(rows, 14336, 4096) for rows in (16, 64)] == [True, False]
    software = target_of(DeviceProfile(kind="cpu"))
    assert not packed_tiles.takes_groups(Problem(16, 4096, 4096), software, 1e9)
    tiles = packed_tiles.ranked(Problem(20, 4096, 4096), 512, 4, target)
    assert tiles[0].rows == 7 and PackedTile(4, 2, 1, tiles[0].parts) in tiles


@pytest.mark.parametrize(
    ("shape", "n", "block", "bits", "zeros"),
    [
        pytest.param((65, 96), 132, 32, 4, None, marks=pytest.mark.slow),
        pytest.param((3, 7, 40), 9, 16, 4, "uint8", marks=pytest.mark.slow),
        pytest.param((33, 1056), 70, 32, 4, "float", marks=pytest.mark.slow),
        pytest.param((130, 96), 68, 16, 2, "uint8", marks=pytest.mark.slow),
        ((20, 72), 36, 64, 8, "uint8"),
        pytest.param((16, 640), 20, 128, 8, None, marks=pytest.mark.slow),
        pytest.param((20, 96), 36, 32, 3, "uint8", marks=pytest.mark.slow),
    ],
)
def test_tiles_of_many_rows(device, monkeypatch, shape, n, block, bits, zeros):
    """A workgroup decodes what it puts in its memory: tiles of every shape that a GPU is offered, sizes that they do
    not divide."""
    case = nbits(shape, n, block, bits, zeros=zeros)
    profile = replace(device.profile, kind="discrete")
    leave_groups_out(monkeypatch)
    offered = gemm_tiles.ranked(Problem(64, 64, 64), target_of(profile))
    for tile in offered[:: 2 if n == 132 else 6]:
        with mock.patch.object(gemm_tiles, "ranked", return_value=[tile]):
            plan = compile_for(case.model, {"x": case.x}, profile)
        (kernel,) = (each for each in plan.kernels if each.template == "gemm_shared")
        assert "load_words0" in kernel.wgsl
        (found,) = run_plan(device, plan, case.model, {"x": case.x})
        assert np.abs(found - case.expected).max() <= 1e-5 * np.abs(case.expected).max(), tile


def test_bytes_with_a_scale_for_each_column_in_parts(device):
    """A GPU computes a product in parts, of bytes as they are, where that is predicted to be faster; but not of
    activations that are rounded, as words have no parts."""
    case = dequantised("int8", (256, 2048), 512, block=0, transposed=False, zero=False)
    plan = compile_for(case.model, {"x": case.x}, replace(device.profile, kind="discrete"))
    assert any("Reduce" in call.label for call in plan.calls) and not any(each.calls for each in plan.weights)
    (found,) = run_plan(device, plan, case.model, {"x": case.x})
    assert np.abs(found - case.expected).max() <= 1e-5 * np.abs(case.expected).max()
    for activations, rounds in (("auto", False), ("int8", True)):
        plan = compile_for(case.model, {"x": case.x}, H200, activations=activations)
        assert any("ByteMatMul" in call.label for call in plan.calls) == rounds
        assert any(each.calls for each in plan.weights) == rounds


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_threads_store_to_different_memory_banks(monkeypatch, bits):
    """Eight neighbouring threads store 16 bytes each at a time: one to each of the eight groups of four banks."""
    case = nbits((256, 512), 256, 32, bits)
    leave_groups_out(monkeypatch)
    offered = gemm_tiles.ranked(Problem(64, 64, 64), target_of(H200))
    assert len(offered) > 10
    for tile in offered:
        with mock.patch.object(gemm_tiles, "ranked", return_value=[tile]):
            plan = compile_for(case.model, {"x": case.x}, H200)
        (text,) = (each.wgsl for each in plan.kernels if each.template == "gemm_shared")
        places = re.findall(r"tile_b\[(b_place[^]]*)\] = ", text)
        assert places
        stored = [_numbers(text, places, thread) for thread in range(tile.threads)]
        for first in range(0, tile.threads, 8):
            for at_once in zip(*stored[first : first + 8], strict=True):
                assert len({place % 8 for place in at_once}) == 8, (tile, first, at_once)


def _numbers(text: str, expressions: list[str], thread: int) -> list[int]:
    """Evaluate expressions over what the text says that a thread knows of its place in B."""
    known = {"thread": thread}
    for name, value in re.findall(r"let (b_(?:row|place|turn)\w*) = ([^;]*);", text):
        known[name] = eval(value.replace("/", "//"), {}, known)
    return [eval(each.replace("/", "//"), {}, known) for each in expressions]
