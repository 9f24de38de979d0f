"""Cases of the operators in ``compiler/ops/microsoft/block_quantized.py``."""

from __future__ import annotations

from shaderloom.runtime.plan.dtypes import BY_NAME

from ..case import Case, Cases, Tensor


def _nbits_case(
    rows: tuple[int, ...],
    k: int,
    n: int,
    block: int,
    bits: int = 4,
    *,
    zeros: str | None = None,
    bias: bool = False,
    groups: bool = False,
) -> Case:
    """``groups``: the blocks of the numbers along K take turns."""
    blocks = -(-k // block)
    inputs: list[Tensor | None] = [
        Tensor((*rows, k)),
        Tensor((n, blocks, block * bits // 8), "uint8", 0, 255, constant=True),
        Tensor((n, blocks), low=0.05, high=0.2, constant=True),
    ]
    if zeros == "uint8":
        inputs.append(Tensor((n, -(-blocks * bits // 8)), "uint8", 0, 255, constant=True))
    elif zeros is not None:
        inputs.append(Tensor((n, blocks), zeros, 5.0, 9.0, constant=True))
    if bias or groups:
        inputs += [None] * (4 - len(inputs))
        inputs.append(Tensor((k,), "int32", data=[at % blocks for at in range(k)], constant=True) if groups else None)
        inputs.append(Tensor((n,), constant=True) if bias else None)
    return Case(tuple(inputs), {"K": k, "N": n, "block_size": block, "bits": bits})


def _gather_case(bits: int, *, zeros: bool) -> Case:
    rows, blocks = 5, 3
    packed = Tensor((rows, 16 * blocks * bits // 8), "uint8", 0, 255)
    inputs = [packed, Tensor((2, 2), "int64", data=[[0, 4], [-1, 2]]), Tensor((rows, blocks), low=0.05, high=0.2)]
    if zeros:
        inputs.append(Tensor((rows, -(-blocks * bits // 8)), "uint8", 0, 255))
    return Case(tuple(inputs), {"bits": bits, "block_size": 16})


def _wide_case(dtype: str, *, zeros: bool) -> Case:
    """Blocks of a 4-bit tensor along another axis than the last."""
    low, high = BY_NAME[dtype].integer_range
    data, indices = Tensor((19, 3), dtype, low, high, constant=True), Tensor((2,), "int64", data=[2, 0])
    inputs = [data, indices, Tensor((2, 3), low=0.05, high=0.2)]
    if zeros:
        inputs.append(Tensor((2, 3), dtype, low, high, constant=True))
    return Case(tuple(inputs), {"block_size": 16, "gather_axis": 1, "quantize_axis": 0})


def _one_axis_case() -> Case:
    """Numbers are gathered along the axis of the blocks."""
    data, indices = Tensor((19, 3), "int4", -8, 7, constant=True), Tensor((2, 2), "int64", data=[[2, 17], [-1, 16]])
    scales = Tensor((2, 3), low=0.05, high=0.2)
    return Case((data, indices, scales), {"block_size": 16, "gather_axis": 0, "quantize_axis": 0})


CASES: Cases = {
    "MatMulNBits": (
        _nbits_case((3,), 32, 5, 16),
        _nbits_case((2, 3), 40, 8, 16, zeros="uint8"),
        _nbits_case((1,), 64, 12, 32, zeros="float32"),
        _nbits_case((3,), 32, 5, 16, bias=True),
        _nbits_case((3,), 32, 6, 16, 8, zeros="uint8"),
        _nbits_case((3,), 96, 5, 32, 2, zeros="uint8"),
        _nbits_case((3,), 50, 5, 16, 3, zeros="uint8"),
        _nbits_case((1,), 64, 6, 32, 5),
        _nbits_case((2, 3), 40, 7, 16, 6, zeros="float32", bias=True),
        _nbits_case((3,), 64, 6, 16, 7, zeros="uint8", groups=True),
        _nbits_case((3,), 64, 6, 16, groups=True),
        _nbits_case((2, 3), 64, 6, 16, zeros="float32", groups=True, bias=True),
    ),
    "GatherBlockQuantized": (
        _gather_case(4, zeros=False),
        _gather_case(4, zeros=True),
        _gather_case(8, zeros=True),
        _wide_case("int4", zeros=True),
        _wide_case("uint4", zeros=False),
        _one_axis_case(),
    ),
}
