"""Expressions on a device: as a kernel of their own, one element or four lanes a thread."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import numpy as np

from shaderloom.compiler.codegen.render import render
from shaderloom.compiler.codegen.spec import BoundTensor, Hook, KernelSpec, Store
from shaderloom.compiler.kernels.map import MapConfig
from shaderloom.compiler.symbolic import expr as ex
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.lanes import lane_variable
from shaderloom.runtime.plan.dtypes import BY_NAME, compute_dtype, padded_bytes

from .kernels import STORAGE

STORAGE_OF = {"f32": "float32", "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64"}
FLOATS = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-30, -1e-30, 1e-3, 0.0624, 0.0626, 7.25, -88.0, 88.0,
     1e4, -1e4, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)  # fmt: skip
INT32 = np.array([0, 1, -1, 2, -2, 3, -3, 7, -7, 100, 65535, -65536, 2**30, -(2**31), 2**31 - 1], np.int32)
UINT32 = np.array([0, 1, 2, 3, 5, 31, 32, 33, 65535, 65536, 2**31, 2**32 - 1], np.uint32)
INT64 = np.array(
    [0, 1, -1, 2, -2, 3, -7, 10, 2**31, -(2**31), 2**32 - 1, 2**32, -(2**32), 2**32 + 5, 10**12, -(10**12), 2**53 + 1,
     2**62, -(2**63), 2**63 - 1, 0x0123456789ABCDEF], np.int64)  # fmt: skip
UINT64 = np.concatenate([INT64.view(np.uint64), np.array([63, 64, 65, 33, 31], np.uint64)])
#: Types that are packed in memory
PACKED = ("bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "int4", "uint4", "int2", "uint2")
VALUES = {"f32": FLOATS, "i32": INT32, "u32": UINT32, "i64": INT64, "u64": UINT64}


def pairs(left: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
    """Every combination of the elements of two arrays."""
    both = np.array(list(itertools.product(range(len(left)), range(len(right)))))
    return [left[both[:, 0]], right[both[:, 1]]]


def evaluate(
    device,
    build: Callable[..., ex.Expr],
    arrays: list[np.ndarray],
    result: str,
    lanes: int,
    by_bits: tuple[str, ...] = (),
) -> np.ndarray:
    """``build`` of the elements of ``arrays`` on the device, stored as ``result``, with helpers ``by_bits``.

    Arrays are lengthened to whole groups of lanes: an access past the end would be moved onto the last element.
    """
    wanted = len(arrays[0])
    arrays = [np.resize(array, -(-len(array) // lanes) * lanes) for array in arrays]
    count = len(arrays[0])
    threads = -(-count // lanes)
    thread = ix.variable("q", 0, max(threads - 1, 1))
    position = ix.add(ix.multiply(thread, 4), lane_variable()) if lanes == 4 else thread
    names = [array.dtype.name for array in arrays]
    loads = [ex.load(f"x{number}", name, position, BY_NAME[name].compute) for number, name in enumerate(names)]
    value = build(*loads)
    if value.dtype == "bool" and result != "bool":
        value = ex.select(value, ex.const(1, BY_NAME[result].compute), ex.const(0, BY_NAME[result].compute))
    operands = [BoundTensor(f"x{number}", "read", name) for number, name in enumerate(names)]
    spec = KernelSpec(
        "map", MapConfig(lanes, 64), (*operands, BoundTensor("y", "read_write", result)),
        (Hook("store", ("q",), lanes, (), None, (Store("y", result, position, value),)),),
        (("threads", threads),), 64, (-(-threads // 64), 1, 1), by_bits=by_bits,
    )  # fmt: skip
    kernel = render(spec)
    pipeline = device.pipeline(kernel, checked=True, max_wgsl_bytes=1 << 20).pipeline
    buffers = []
    for array in arrays:
        data = array.tobytes()
        data += bytes(padded_bytes(len(array), BY_NAME[array.dtype.name]) - len(data))
        buffers.append(device.gpu.create_buffer_with_data(data=data, usage=STORAGE))
    size = padded_bytes(count, BY_NAME[result])
    buffers.append(device.gpu.create_buffer_with_data(data=b"\xff" * size, usage=STORAGE))
    group = device.gpu.create_bind_group(
        layout=pipeline.layout,
        entries=[
            {"binding": number, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
            for number, buffer in enumerate(buffers)
        ],
    )
    encoder = device.gpu.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline.pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(*spec.grid)
    compute.end()
    device.submit([encoder.finish()], "a helper function")
    return np.frombuffer(device.queue.read_buffer(buffers[-1]), compute_dtype(BY_NAME[result]), wanted)


def both_forms(
    device, build: Callable[..., ex.Expr], arrays: list[np.ndarray], result: str, rounding: float = 0.0
) -> np.ndarray:
    """The result, which scalars and four lanes must agree on: bit by bit (NaN is NaN), or up to ``rounding``.

    A driver may contract a product and a sum in one of the forms and not in the other.
    """
    one = evaluate(device, build, arrays, result, 1)
    four = evaluate(device, build, arrays, result, 4)
    np.testing.assert_allclose(one, four, rtol=rounding, atol=0.0)
    return one


def unary(op: str) -> Callable[[ex.Expr], ex.Expr]:
    return lambda value: ex.unary(op, value)


def binary(op: str) -> Callable[[ex.Expr, ex.Expr], ex.Expr]:
    return lambda left, right: ex.binary(op, left, right)


def quiet(function: Callable[[], np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function()
