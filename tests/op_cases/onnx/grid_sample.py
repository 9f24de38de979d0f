"""Cases of the operators in ``compiler/ops/onnx/grid_sample.py``."""

from __future__ import annotations

from shaderloom.compiler.ops.onnx.grid_sample import MODES, PADDINGS

from ..case import Case, Cases, Tensor


def _case(shape: tuple[int, ...], grid: tuple[int, ...], opset: int | None = None, **attributes: object) -> Case:
    positions = Tensor((shape[0], *grid, len(grid)), low=-1.4, high=1.4)
    return Case((Tensor(shape), positions), dict(attributes), opset=opset, tolerance=3e-5)


CASES: Cases = {
    "GridSample": (
        *(
            _case((1, 2, 4, 5), (3, 4), mode=mode, padding_mode=padding, align_corners=corners)
            for mode in MODES
            for padding in PADDINGS
            for corners in (0, 1)
        ),
        _case((1, 2, 3, 4, 5), (2, 3, 4), mode="linear"),
        _case((1, 2, 3, 4, 5), (2, 3, 4), mode="nearest", padding_mode="border"),
        _case((2, 3, 1, 5), (3, 3)),
        _case((1, 2, 4, 5), (3, 4), 16, mode="bilinear"),
        _case((1, 2, 4, 5), (3, 4), 16, mode="bicubic", padding_mode="reflection"),
    ),
}
