"""Cases of the operators in ``compiler/ops/onnx/resize.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _floats(*values: float) -> Tensor:
    return Tensor((len(values),), "float32", data=list(values), constant=True)


def _ints(*values: int) -> Tensor:
    return Tensor((len(values),), "int64", data=list(values), constant=True)


def _scales(image: Tensor, *scales: float, opset: int | None = None, **attributes: object) -> Case:
    return Case((image, None, _floats(*scales)), attributes, opset=opset)


def _sizes(image: Tensor, *sizes: int, opset: int | None = None, **attributes: object) -> Case:
    return Case((image, None, None, _ints(*sizes)), attributes, opset=opset)


_IMAGE = Tensor((1, 2, 5, 7))

CASES: Cases = {
    "Resize": (
        _scales(_IMAGE, 1, 1, 2, 2, coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        _scales(_IMAGE, 1, 1, 2, 3),
        _scales(_IMAGE, 1, 1, 0.6, 1.7, nearest_mode="round_prefer_ceil"),
        _sizes(_IMAGE, 1, 2, 8, 3, nearest_mode="ceil", coordinate_transformation_mode="asymmetric"),
        _sizes(_IMAGE, 1, 2, 3, 20, nearest_mode="floor", coordinate_transformation_mode="align_corners"),
        Case(  # version 11 has no omitted inputs: an empty tensor stands for one
            (_IMAGE, _floats(), _floats(), _ints(1, 2, 9, 4)),
            {"nearest_mode": "floor", "coordinate_transformation_mode": "tf_half_pixel_for_nn"},
            opset=11,
        ),
        _sizes(Tensor((2, 3, 4), "uint8", 0, 255), 2, 7, 6, nearest_mode="round_prefer_floor"),
        _sizes(
            Tensor((1, 2, 3, 4, 2, 5), "int32", -9, 9), 1, 2, 5, 2, 2, 9, coordinate_transformation_mode="half_pixel"
        ),
        _scales(_IMAGE, 1, 1, 2, 2, mode="linear"),
        _scales(_IMAGE, 1, 1, 0.6, 2.3, mode="linear"),
        _sizes(_IMAGE, 1, 2, 9, 1, mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
        _sizes(_IMAGE, 1, 2, 10, 13, mode="linear", coordinate_transformation_mode="align_corners"),
        _sizes(_IMAGE, 1, 2, 3, 11, mode="linear", coordinate_transformation_mode="asymmetric"),
        _scales(_IMAGE, 1, 1, 1.3, 0.7, mode="linear", coordinate_transformation_mode="half_pixel_symmetric", opset=19),
        _sizes(Tensor((3, 4)), 5, 9, mode="linear"),
        _scales(Tensor((1, 2, 9, 11)), 1, 1, 0.5, 0.4, mode="linear", antialias=1),
        _sizes(Tensor((1, 1, 12, 10)), 1, 1, 5, 13, mode="linear", antialias=1, exclude_outside=1),
        _scales(Tensor((1, 2, 12, 11)), 1, 1, 0.5, 0.4, mode="cubic", antialias=1, exclude_outside=1),
        _sizes(Tensor((1, 1, 3, 4, 5)), 1, 1, 6, 3, 7, mode="linear"),
        _scales(_IMAGE, 1, 1, 1.4, 0.55, mode="cubic"),
        _scales(_IMAGE, 1, 1, 0.8, 2.5, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5),
        _sizes(_IMAGE, 1, 2, 9, 4, mode="cubic", coordinate_transformation_mode="align_corners"),
        _sizes(_IMAGE, 1, 2, 9, 4, mode="cubic", coordinate_transformation_mode="asymmetric"),
        _sizes(_IMAGE, 9, 4, axes=[2, 3], mode="linear", opset=18),
        _sizes(_IMAGE, 8, 8, axes=[2, 3], keep_aspect_ratio_policy="not_larger", opset=18),
        _sizes(_IMAGE, 8, 8, axes=[2, 3], keep_aspect_ratio_policy="not_smaller", mode="linear", opset=18),
        Case(
            (_IMAGE, _floats(0, 0, 0.4, 0.6, 1, 1, 0.6, 0.8), None, _ints(1, 2, 3, 3)),
            {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        ),
        Case(
            (_IMAGE, _floats(0, 0, -0.2, 0.1, 1, 1, 1.2, 1.7), None, _ints(1, 2, 6, 5)),
            {
                "mode": "linear",
                "coordinate_transformation_mode": "tf_crop_and_resize",
                "extrapolation_value": 10.0,
            },
        ),
        Case(
            (_IMAGE, _floats(0, 0, 0.123, 0.1, 1, 1, 0.917, 0.77), None, _ints(1, 2, 6, 5)),
            {"mode": "nearest", "coordinate_transformation_mode": "tf_crop_and_resize"},
        ),
        Case(  # positions that are no fraction of 32-bit integers
            (_IMAGE, _floats(0, 0, 0.1, 0.381966, 1, 1, 0.9, 0.5772157), None, _ints(1, 2, 6, 60)),
            {"mode": "cubic", "coordinate_transformation_mode": "tf_crop_and_resize"},
        ),
        Case((_IMAGE, _floats(1, 1, 2, 0.5)), {"mode": "nearest"}, opset=10),
        Case((_IMAGE, _floats(1, 1, 1.5, 0.7)), {"mode": "linear"}, opset=10),
    ),
    "Upsample": (
        Case((_IMAGE, _floats(1, 1, 2, 3)), {"mode": "nearest"}, opset=9),
        Case((_IMAGE, _floats(1, 1, 1.5, 2)), {"mode": "linear"}, opset=9),
        Case((Tensor((1, 1, 2, 3)),), {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 2.0]}, opset=7),
    ),
}
