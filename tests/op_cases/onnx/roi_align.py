"""Cases of the operators in ``compiler/ops/onnx/roi_align.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_REGIONS = Tensor((3, 4), data=[[0.0, 0.0, 9.0, 9.0], [2.5, 1.0, 7.0, 9.5], [5.0, 5.0, 5.5, 5.25]])

_ROI = (Tensor((2, 3, 10, 11)), _REGIONS, Tensor((3,), "int64", data=[0, 1, 0]))

#: Regions that reach beyond the input, lie outside of it, or have no size
_BEYOND = [[-6.0, -3.5, 30.0, 12.0], [40.0, 40.0, 50.0, 50.0], [3.0, 4.0, 3.0, 4.0], [7.0, 8.0, 2.0, 1.0]]

_ROI_OUTSIDE = (Tensor((2, 3, 10, 11)), Tensor((4, 4), data=_BEYOND), Tensor((4,), "int64", data=[1, 0, 1, 0]))

CASES: Cases = {
    "RoiAlign": (
        Case(_ROI, {"output_height": 3, "output_width": 2, "sampling_ratio": 2}),
        Case(_ROI, {"output_height": 2, "output_width": 3, "sampling_ratio": 3, "spatial_scale": 0.75}),
        Case(
            _ROI,
            {"output_height": 2, "sampling_ratio": 2, "coordinate_transformation_mode": "output_half_pixel"},
        ),
        Case(_ROI, {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": "max"}),
        Case(_ROI, {"output_height": 3, "output_width": 2}),
        *(
            Case(regions, {"output_height": 2, "output_width": 3, "mode": "max", "coordinate_transformation_mode": how})
            for regions in (_ROI, _ROI_OUTSIDE)
            for how in ("half_pixel", "output_half_pixel")
        ),
        Case(_ROI, {"output_height": 2, "output_width": 7, "coordinate_transformation_mode": "output_half_pixel"}),
        Case(_ROI_OUTSIDE, {"output_height": 2, "output_width": 3, "spatial_scale": 0.75}),
        Case(_ROI_OUTSIDE, {"output_height": 1, "output_width": 2}, opset=10),
        Case(_ROI, {"output_height": 2, "output_width": 2, "sampling_ratio": 1}, opset=10),
    ),
}
