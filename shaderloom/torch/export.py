"""A PyTorch module as an ONNX model, by PyTorch's own exporter (``torch.onnx.export(dynamo=True)``)."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from ..runtime.plan.errors import InternalError, ShaderloomError, UnsupportedError
from ..runtime.plan.record import record
from .call_layout import CallLayout, ResultLayout

#: Bounds of a size beyond which PyTorch means that there is none
_NO_BOUND = 2**31


@record
class ExportedModule:
    """A module as an ONNX program.

    ``inputs`` and ``outputs`` are the names of its ports, in the order of the layouts.  ``ranges`` are the bounds of
    named dimensions, and ``is_bounded`` tells whether every dynamic one has them.  ``mutations`` are what the module
    writes to: indices of inputs and names of buffers.
    """

    program: Any
    arguments: CallLayout
    results: ResultLayout
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ranges: dict[str, tuple[int, int]]
    is_bounded: bool
    mutations: tuple[int | str, ...]


def export_module(
    module: torch.nn.Module, layout: CallLayout, inputs: Sequence[Any], written: Sequence[int] = ()
) -> ExportedModule:
    """Export a module for the call with these inputs.

    The values that the module writes to the inputs ``written`` are outputs behind those of the results.

    Raises :class:`UnsupportedError` with PyTorch's reason if it cannot.
    """
    results = ResultLayout()
    flat = _flat_module(module, layout, results, written)
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                flat,
                tuple(inputs),
                dynamic_shapes=layout.dims if any(dim is not None for dim in layout.dims) else None,
                dynamo=True,
                verbose=False,
            )
            program.rename_axes(_names_of_dims(program.model.graph, layout.dims))
    except Exception as error:  # of the exporter, of the module's own code, or of a converter
        raise _refusal(error) from error
    graph, exported = program.model.graph, program.exported_program
    if len(graph.inputs) != len(inputs):
        raise InternalError(f"the exporter made {len(graph.inputs)} inputs of {len(inputs)}")
    ranges, is_bounded = _ranges(graph, exported)
    return ExportedModule(
        program,
        layout,
        results,
        tuple(port.name for port in graph.inputs),
        tuple(port.name for port in graph.outputs),
        ranges,
        is_bounded,
        _mutations(exported.graph_signature),
    )


def _flat_module(
    module: torch.nn.Module, layout: CallLayout, results: ResultLayout, written: Sequence[int]
) -> torch.nn.Module:
    """Return a module with the same parameters whose inputs and outputs are tensors alone, with the layout's names."""

    def forward(*inputs: Any) -> tuple[torch.Tensor, ...]:
        arguments = layout.arguments(inputs)
        computed = results.flatten(module(*arguments.args, **arguments.kwargs), inputs)
        return (*computed, *(inputs[at] for at in written))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in layout.names]
    )
    flat = object.__new__(torch.nn.Module)
    hooks = {name: type(value)() for name, value in vars(module).items() if name.endswith("_hooks")}
    vars(flat).update({**vars(module), **hooks, "forward": forward})  # the module itself runs its hooks
    return flat


def _mutations(signature: Any) -> tuple[int | str, ...]:
    """Return what the exported module writes to: indices of inputs and names of buffers."""
    inputs = _input_names(signature)
    targets: list[int | str] = []
    for spec in signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            targets.append(inputs.index(spec.target))
        elif spec.kind is OutputKind.BUFFER_MUTATION:
            targets.append(spec.target)
    return tuple(targets)


def _input_names(signature: Any) -> list[str]:
    """Return the names of the inputs in the exported graph, in the order of the call."""
    return [
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind is InputKind.USER_INPUT and not isinstance(spec.arg, ConstantArgument)
    ]


def _names_of_dims(graph: Any, dims: Sequence[Any]) -> dict[str, str]:
    """Return for dimensions of the graph's inputs the names that the caller gave them."""
    names: dict[str, str] = {}
    for port, caller_dims in zip(graph.inputs, dims):
        entries = (
            caller_dims.items()
            if isinstance(caller_dims, Mapping)
            else enumerate(caller_dims if isinstance(caller_dims, Sequence) else ())
        )
        for axis, dim in entries:
            name = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
            old = getattr(port.shape[axis], "value", None)
            if name is not None and isinstance(old, str):
                names.setdefault(old, name)
    return names


def _ranges(graph: Any, exported: Any) -> tuple[dict[str, tuple[int, int]], bool]:
    """Return the bounds of dimensions by the names that the graph has, and whether every dynamic one has bounds."""
    names = _input_names(exported.graph_signature)
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder"}
    ranges: dict[str, tuple[int, int]] = {}
    is_bounded = True
    for name, port in zip(names, graph.inputs):
        for size, dim in zip(getattr(values[name], "shape", ()), port.shape or ()):
            if not isinstance(size, torch.SymInt):
                continue
            bounds = _bounds(exported.range_constraints.get(size.node.expr))
            is_bounded = is_bounded and bounds is not None
            if bounds is not None:
                ranges[str(dim.value)] = bounds
    return ranges, is_bounded


def _bounds(values: Any) -> tuple[int, int] | None:
    """Return the bounds of a range of PyTorch's; None if it has none."""
    try:
        low, high = int(values.lower), int(values.upper)
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
    return (max(low, 0), high) if high < _NO_BOUND else None


def _refusal(error: Exception) -> ShaderloomError:
    """Return the error for one of the exporter: its root cause, which is the shortest and the most to the point."""
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    if isinstance(root, ShaderloomError):
        return root
    lines = [line.strip() for line in str(root).splitlines() if line.strip()]
    reason = f"{type(root).__name__}: {lines[0] if lines else 'no message'}"
    return UnsupportedError(
        f"PyTorch cannot export the module to ONNX: {reason}",
        hint="torch.onnx.export(module, args, dynamo=True, report=True) tells more",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what the exporter says on the way: of packages that are absent, and of PyTorch's own code."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
