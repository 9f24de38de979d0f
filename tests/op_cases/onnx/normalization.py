"""Cases of the operators in ``compiler/ops/onnx/normalization.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor


def _batch_case(shape: tuple[int, ...], dtype: str = "float32", opset: int | None = None, **attributes: float) -> Case:
    channels = (shape[1],)
    inputs = (
        Tensor(shape, dtype),
        Tensor(channels, dtype, constant=True),
        Tensor(channels, dtype, constant=True),
        Tensor(channels, dtype, constant=True),
        Tensor(channels, dtype, 0.3, 2.0, constant=True),
    )
    outputs = 3 if attributes.get("training_mode") else 1
    return Case(inputs, dict(attributes), outputs, opset, tolerance=3e-3 if dtype == "float16" else 1e-5)


def _layer_case(shape: tuple[int, ...], axis: int = -1, *, bias: bool = True, **fields: object) -> Case:
    parameters = shape[axis:]
    inputs = [Tensor(shape), Tensor(parameters)] + ([Tensor(parameters)] if bias else [])
    return Case(tuple(inputs), {"axis": axis, **fields})


def _group_case(shape: tuple[int, ...], groups: int, *, per_group: bool = False) -> Case:
    vector = Tensor((groups if per_group else shape[1],))
    return Case((Tensor(shape), vector, vector), {"num_groups": groups}, opset=18 if per_group else None)


CASES: Cases = {
    "BatchNormalization": (
        _batch_case((2, 3, 5, 7)),
        _batch_case((1, 17, 3)),
        _batch_case((3, 7)),
        _batch_case((1, 3, 2, 3, 4), epsilon=1e-2),
        _batch_case((2, 3, 5, 7), opset=9),
        _batch_case((2, 3, 5, 7), opset=7),
        _batch_case((2, 3, 5, 7), "float16", opset=15),
        _batch_case((2, 3, 5, 7), training_mode=1),
        _batch_case((17, 3), training_mode=1, momentum=0.3),
    ),
    "LayerNormalization": (
        _layer_case((3, 7)),
        _layer_case((2, 3, 17), bias=False),
        _layer_case((2, 3, 5), 1),
        _layer_case((2, 3, 5), -2, epsilon=1e-2),
        _layer_case((1, 300)),
        Case((Tensor((3, 64), low=99.0, high=101.0), Tensor((64,))), tolerance=1e-4),
        Case((Tensor((2, 3, 7)), Tensor((7,)), Tensor((7,))), outputs=3),
        Case((Tensor((3, 7), "float16"), Tensor((7,), "float16"), Tensor((7,), "float16")), tolerance=3e-3),
    ),
    "SimplifiedLayerNormalization": (
        _layer_case((3, 7), bias=False),
        _layer_case((2, 3, 17), 1, bias=False),
        Case((Tensor((2, 3, 7)), Tensor((7,))), outputs=2),
    ),
    "RMSNormalization": (
        _layer_case((3, 7), bias=False),
        _layer_case((2, 3, 17), 1, bias=False),
        _layer_case((1, 300), bias=False, epsilon=1e-2),
    ),
    "InstanceNormalization": tuple(
        Case((Tensor(shape), Tensor(shape[1:2]), Tensor(shape[1:2])), attributes)
        for shape, attributes in (
            ((2, 3, 5, 7), {}),
            ((1, 17, 9), {"epsilon": 1e-2}),
            ((1, 3, 2, 3, 5), {}),
        )
    ),
    "GroupNormalization": (
        _group_case((2, 6, 5, 7), 3),
        _group_case((1, 4, 9), 4),
        _group_case((2, 6, 3), 1),
        _group_case((2, 6, 5, 7), 3, per_group=True),
    ),
}
