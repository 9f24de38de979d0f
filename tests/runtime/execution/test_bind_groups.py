"""Bind groups of plans with dynamic dimensions: the same ones for all sizes."""

from __future__ import annotations

import numpy as np

import shaderloom

from ...support.programs import numbers, parse
from ...support.sessions import engine_of

#: Four kernels: running sums over one axis and the other, in turns
SUMS = """g (float[n, 8] x) => (float[n, 8] y) <int64 rows = {0}, int64 columns = {1}> {
    a = CumSum(x, rows)  b = CumSum(a, columns)  c = CumSum(b, rows)  y = CumSum(c, columns) }"""


def expected(x: np.ndarray) -> np.ndarray:
    return x.cumsum(0, np.float64).cumsum(1).cumsum(0).cumsum(1)


def test_new_sizes_bind_nothing_anew(each_device, monkeypatch) -> None:
    """Buffers that grow are bound again, sizes below them are not; sizes come back, too."""
    bound = []
    plain = type(each_device).bind_group
    monkeypatch.setattr(
        type(each_device), "bind_group", lambda device, *where: bound.append(1) or plain(device, *where)
    )
    with shaderloom.InferenceSession(parse(SUMS), device=each_device, cache=False, dynamic={"n": (1, 99)}) as session:
        counts = []
        for size in (40, 3, 39, 17, 99, 98, 1, 40):
            x = numbers(size, 8, seed=size)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4, atol=1e-3)
            counts.append(len(bound))
        calls = len(engine_of(session).last.compiled.plan.calls)
    assert counts == [calls] * 4 + [2 * calls] * 4


def test_a_caller_s_tensor_is_bound_in_its_size(each_device) -> None:
    """Between runs on arrays, with tensors for the input, the output, or both."""
    with shaderloom.InferenceSession(parse(SUMS), device=each_device, cache=False, dynamic={"n": (1, 99)}) as session:
        for size in (40, 3, 25):
            x = numbers(size, 8, seed=size)
            tensor = shaderloom.Tensor.from_numpy(x, each_device)
            for feed in (x, tensor):
                for where in ("cpu", "gpu-buffer"):
                    (y,) = session.run(None, {"x": feed}, outputs={"y": where})
                    found = y if isinstance(y, np.ndarray) else y.numpy()
                    np.testing.assert_allclose(found, expected(x), rtol=1e-4, atol=1e-3)
