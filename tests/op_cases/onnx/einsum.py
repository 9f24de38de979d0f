"""Cases of the operators in ``compiler/ops/onnx/einsum.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _case(equation: str, *shapes: tuple[int, ...], dtype: str = "float32") -> Case:
    return Case(tuple(Tensor(shape, dtype) for shape in shapes), {"equation": equation})


CASES: Cases = {
    "Einsum": (
        _case("ij,jk->ik", (3, 7), (7, 5)),
        _case("bhid,bhjd->bhij", (2, 3, 5, 4), (2, 3, 6, 4)),
        _case("bij,bjk", (2, 3, 7), (2, 7, 5)),
        _case("ij->ji", (3, 7)),
        _case("ij->", (3, 7)),
        _case("ij->i", (3, 7)),
        _case("ii->i", (5, 5)),
        _case("iji->j", (5, 3, 5)),
        _case("ii", (4, 4)),
        _case("i,i", (7,), (7,)),
        _case("i,j->ij", (3,), (5,)),
        _case("ij,ij->ij", (3, 5), (3, 5)),
        _case("...ij,...jk->...ik", (2, 1, 3, 7), (4, 7, 5)),
        _case("i...->...", (3, 2, 5)),
        _case("ijk,jl,kl->il", (3, 4, 5), (4, 6), (5, 6)),
        _case("bqhd, bkhd -> bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
        _case("ij,jk->ik", (3, 7), (7, 5), dtype="int32"),
        _case("ij,kl->", (2, 3), (4, 5)),
        _case("abc,cd->abd", (2, 3, 0), (0, 5)),
    ),
}
