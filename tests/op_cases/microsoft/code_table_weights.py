"""Cases of the operators in ``compiler/ops/microsoft/code_table_weights.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _case(rows: tuple[int, ...], k: int, n: int, block: int, kind: int) -> Case:
    count = n * k
    packed = Tensor((-(-count // 2),), "uint8", 0, 255, constant=True)
    scales = Tensor((-(-count // block),), low=0.05, high=0.2, constant=True)
    return Case((Tensor((*rows, k)), packed, scales), {"K": k, "N": n, "block_size": block, "quant_type": kind})


CASES: Cases = {
    "MatMulBnb4": (
        _case((3,), 32, 5, 16, 1),
        _case((2, 3), 64, 8, 32, 0),
        _case((1,), 48, 7, 64, 1),
    ),
}
