"""Run the kernels of a small model one by one: a buffer of its own for every value, filled with poison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.codegen.render import render
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.fusion import fuse
from shaderloom.compiler.ir.graph import Value
from shaderloom.compiler.kernels.context import GroupContext
from shaderloom.compiler.kernels.family import build
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.passes.layout import assign_layouts
from shaderloom.compiler.planning.sizes import stored_bytes
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.dimensions import dimension_variable, serialise
from shaderloom.compiler.target import target_of
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.memory.buffers import as_bytes
from shaderloom.runtime.plan.device_profile import DeviceProfile
from shaderloom.runtime.plan.dimension import evaluate
from shaderloom.runtime.plan.dtypes import compute_dtype
from shaderloom.runtime.plan.plan import Kernel

STORAGE = 0x80 | 0x4 | 0x8  # STORAGE, COPY_SRC, COPY_DST
UNIFORM = 0x40 | 0x8
POISON = 0xFF  #: bytes of 0xFF are NaN as floats and -1 as integers


@dataclass
class Ran:
    """Outputs by name, and the kernels in order."""

    outputs: dict[str, np.ndarray]
    kernels: list[Kernel]

    @property
    def templates(self) -> list[str]:
        return [kernel.template for kernel in self.kernels]


def make_model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    *,
    opset: int = 21,
    dims: Mapping[str, Sequence[Any]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model of ``nodes``; inputs have the types and shapes of ``feeds``, or the named dimensions in ``dims``."""
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), (dims or {}).get(name, array.shape)
        )
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "kernels",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def compile_kernels(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    profile: DeviceProfile,
    *,
    dynamic: Mapping[str, tuple[int, int]] | None = None,
    fusion: bool = True,
    channels_last: bool = True,
) -> tuple[Any, list[tuple[Kernel, Any]], tuple[str, ...]]:
    """The graph, and each group's kernel with what was built, in order."""
    bound = bind_shapes(imported := load_model(model), {name: array.shape for name, array in feeds.items()}, dynamic)
    graph = specialise(imported, bound.shapes)
    expand(graph)
    groups = fuse(graph, enabled=fusion)
    if channels_last:
        assign_layouts(graph, groups)
    names = tuple(symbol.name for symbol in bound.symbols)
    dimensions = tuple(dimension_variable(symbol.name, symbol.low, symbol.step) for symbol in bound.symbols)
    made = []
    for group in groups.groups:
        built = build(GroupContext(group, groups.materialised, Compilation(target_of(profile)), symbols=dimensions))
        made.append((render(built.spec), built))
    return graph, made, names


def run_kernels(
    device: Device,
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    *,
    kind: str = "",
    dynamic: Mapping[str, tuple[int, int]] | None = None,
    fusion: bool = True,
    channels_last: bool = True,
) -> Ran:
    """Compile for ``device`` (as if it were of ``kind``), run, and read the outputs back."""
    profile = replace(device.profile, kind=kind) if kind else device.profile
    graph, made, names = compile_kernels(
        model, feeds, profile, dynamic=dynamic, fusion=fusion, channels_last=channels_last
    )
    sizes = {}
    for value in graph.inputs:
        for dim, size in zip(value.shape, feeds[value.name].shape):
            if isinstance(dim, ix.Index):
                sizes[str(serialise(dim))] = size
    buffers: dict[Value, Any] = {}
    for value in (*graph.inputs, *graph.constants):
        array = feeds[value.name] if value.constant is None else value.constant.read()
        buffers[value] = _buffer(device, value, sizes, array)
    symbols = np.zeros(max(len(names), 4), np.int32)
    symbols[: len(names)] = [sizes[name] for name in names]
    uniform = device.gpu.create_buffer_with_data(data=symbols, usage=UNIFORM)
    encoder = device.gpu.create_command_encoder()
    for kernel, built in made:
        holder = device.pipeline(kernel, checked=True, max_wgsl_bytes=1 << 20)
        pipeline = holder.pipeline
        entries = []
        for operand in built.operands:
            if operand not in buffers:
                buffers[operand] = _buffer(device, operand, sizes, None)
            entries.append(buffers[operand])
        if len(kernel.bindings) > len(entries):
            entries.append(uniform)
        group = device.gpu.create_bind_group(
            layout=pipeline.layout,
            entries=[
                {"binding": number, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
                for number, buffer in enumerate(entries)
            ],
        )
        encoded = encoder.begin_compute_pass()
        encoded.set_pipeline(pipeline.pipeline)
        encoded.set_bind_group(0, group)
        encoded.dispatch_workgroups(*(evaluate(serialise(size), sizes) for size in built.spec.grid))
        encoded.end()
    device.submit([encoder.finish()], "running the kernels of a test")
    outputs = {}
    for name, value in zip(graph.output_names, graph.outputs):
        dtype = compute_dtype(value.dtype)
        shape = [evaluate(serialise(dim), sizes) for dim in value.shape]
        data = device.queue.read_buffer(buffers[value])
        count = int(np.prod(shape, dtype=np.int64))
        outputs[name] = np.frombuffer(data, dtype, count).reshape(shape).copy()
    return Ran(outputs, [kernel for kernel, _ in made])


def _buffer(device: Device, value: Value, sizes: Mapping[str, int], array: np.ndarray | None) -> Any:
    size = evaluate(serialise(stored_bytes(value)), sizes)
    data = bytearray([POISON]) * size
    if array is not None:
        raw = bytes(as_bytes(np.ascontiguousarray(array)))
        data[: len(raw)] = raw
    return device.gpu.create_buffer_with_data(data=data, usage=STORAGE)
