"""The inputs of a graph that ``torch.compile`` has traced: weights, sizes, and the tensors of a call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from ..runtime.plan.record import record


@record
class GraphInputs:
    """The placeholders of a traced graph by what they are, as positions among its arguments.

    ``weights`` are parameters and buffers of modules, of which a session may keep a copy.  ``numbers`` are floats of
    the program, such as the epsilon of a norm, which PyTorch passes as tensors where it traces sizes as symbols;
    operators take them as numbers, so that they are part of what is compiled.  ``sizes`` are integers that some tensor
    of the call has as a dimension: ``(position, tensor's position, axis)``.  ``call`` are the others, each with its
    dynamic dimensions as ``torch.export`` takes them.
    """

    weights: tuple[int, ...]
    numbers: tuple[int, ...]
    sizes: tuple[tuple[int, int, int], ...]
    call: tuple[tuple[int, Any], ...]

    @classmethod
    def of(cls, graph: torch.fx.GraphModule, args: Sequence[Any], written: Collection[int]) -> GraphInputs:
        """Return the inputs of a graph that is called with ``args`` and writes to those at ``written``."""
        nodes = placeholders(graph)
        examples = [node.meta["example_value"] for node in nodes]
        numbers = tuple(at for at, node in enumerate(nodes) if _is_number(node))
        weights = tuple(at for at, arg in enumerate(args) if is_weight(arg) and at not in written)
        sizes: list[tuple[int, int, int]] = []
        call: list[tuple[int, Any]] = []
        for at, example in enumerate(examples):
            if at in weights or at in numbers:
                continue
            source = _axis_with(example, examples) if isinstance(example, torch.SymInt) else None
            if source is not None:
                sizes.append((at, *source))
            else:
                call.append((at, _dynamic_dims(example)))
        return cls(weights, numbers, tuple(sizes), tuple(call))

    def bind(self, graph: torch.fx.GraphModule, args: Sequence[Any]) -> torch.fx.GraphModule:
        """Return the graph as a function of the ``call`` alone, with the weights of ``args`` as its buffers."""
        bound = torch.fx.GraphModule(graph, torch.fx.Graph())
        copies: dict[torch.fx.Node, Any] = {}
        nodes = placeholders(graph)
        for at, _ in self.call:
            copies[nodes[at]] = bound.graph.node_copy(nodes[at])
        for at in self.weights:
            name = nodes[at].name
            bound.register_buffer(name, args[at].detach())
            copies[nodes[at]] = bound.graph.get_attr(name)
        for at in self.numbers:
            copies.update(dict.fromkeys((nodes[at], *nodes[at].users), float(args[at])))
        for at, tensor, axis in self.sizes:
            copies[nodes[at]] = bound.graph.call_function(torch.ops.aten.sym_size.int, (copies[nodes[tensor]], axis))
        result = bound.graph.graph_copy(graph.graph, copies)
        bound.graph.output(result)
        bound.recompile()
        return bound.eval()


def placeholders(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the placeholders of a graph, in the order of its arguments."""
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _is_number(node: torch.fx.Node) -> bool:
    """Return whether a placeholder is a scalar of which the graph reads nothing but the number."""
    example = node.meta["example_value"]
    is_scalar = isinstance(example, torch.Tensor) and example.ndim == 0 and example.dtype == torch.float64
    return is_scalar and bool(node.users) and all(user.target == "item" for user in node.users)


def is_weight(arg: Any) -> bool:
    """Return whether an argument of a traced graph is a parameter or a buffer of a module."""
    if not isinstance(arg, torch.Tensor):
        return False
    return isinstance(arg, torch.nn.Parameter) or getattr(arg, "_dynamo_static_input_type", None) is not None


def _axis_with(size: torch.SymInt, examples: Sequence[Any]) -> tuple[int, int] | None:
    """Return the position of a tensor, and its axis, that has exactly this size; None if there is none."""
    for at, example in enumerate(examples):
        if isinstance(example, torch.Tensor):
            for axis, other in enumerate(example.shape):
                if isinstance(other, torch.SymInt) and other.node.expr == size.node.expr:
                    return at, axis
    return None


def _dynamic_dims(example: Any) -> Any:
    """Return the dynamic dimensions of an argument, with the bounds that the program gave to ``mark_dynamic``."""
    if _is_open(example):
        return torch.export.Dim.DYNAMIC
    if not isinstance(example, torch.Tensor):
        return None
    dims = {axis: _dim_of(size) for axis, size in enumerate(example.shape) if _is_open(size)}
    return dims or None


def _is_open(size: Any) -> bool:
    """Return whether a size differs between the calls of a graph: tracing may have found that a symbol is a number."""
    return isinstance(size, torch.SymInt) and not size.node.expr.is_number


def _dim_of(size: torch.SymInt) -> Any:
    bounds = size.node.shape_env.var_to_range.get(size.node.expr)
    try:
        return torch.export.Dim.DYNAMIC(min=int(bounds.lower), max=int(bounds.upper))
    except (AttributeError, TypeError, ValueError, OverflowError):  # an expression, or no bound
        return torch.export.Dim.DYNAMIC
