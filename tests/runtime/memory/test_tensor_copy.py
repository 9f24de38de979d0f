"""Rows are copied between tensors on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shaderloom import Tensor
from shaderloom.runtime.memory.tensor_copy import copy_rows
from shaderloom.runtime.plan.errors import ClosedError, InputError


@pytest.mark.parametrize(("rows", "others"), [(3, 7), (7, 3), (4, 4), (0, 5), (5, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_that_both_have_are_copied(each_device: Any, rows: int, others: int, dtype: str):
    rng = np.random.default_rng(0)
    source, target = (rng.standard_normal((2, 3, count, 6)).astype(dtype) for count in (rows, others))
    pair = Tensor.from_numpy(source, each_device), Tensor.from_numpy(target, each_device)
    copy_rows([pair, pair], axis=2)
    shared = min(rows, others)
    target[:, :, :shared] = source[:, :, :shared]
    np.testing.assert_array_equal(pair[1].numpy(), target)
    np.testing.assert_array_equal(pair[0].numpy(), source)


def test_what_does_not_fit_is_an_error(device: Any):
    tensor = Tensor.empty((2, 3), "float32", device)
    copy_rows([], axis=0)
    for shape, dtype in (((2, 4), "float32"), ((2, 3, 1), "float32"), ((2, 3), "int32")):
        with pytest.raises(InputError):
            copy_rows([(tensor, Tensor.empty(shape, dtype, device))], axis=0)
    with pytest.raises(InputError, match="whole words"):
        copy_rows([(Tensor.empty((2, 3), "int8", device), Tensor.empty((2, 3), "int8", device))], axis=0)
    tensor.dispose()
    with pytest.raises(ClosedError):
        copy_rows([(tensor, Tensor.empty((2, 3), "float32", device))], axis=0)
