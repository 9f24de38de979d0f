"""The backend ``"shaderloom"`` of ``torch.compile``, for inference."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..runtime.plan.errors import InputError, UnsupportedError
from ..session.session import InferenceSession
from .compiled_graph import CompiledGraph

#: Of a session, without the model
_OPTIONS = tuple(inspect.signature(InferenceSession).parameters)[1:]

_graphs: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()


def shaderloom_backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> CompiledGraph:
    """Compile a graph of ``torch.compile``: it becomes a session with the first call.

    ``options`` are those of :class:`InferenceSession`; ``fallback`` (True) leaves graphs that no session can run to
    PyTorch, with a warning, and raises otherwise.  Raises :class:`UnsupportedError` at once if the graph is to be
    trained: gradients are enabled and a tensor requires one.
    """
    settings = dict(options or {})
    fallback = settings.pop("fallback", True)
    if not isinstance(fallback, bool):
        raise InputError(f"the option fallback is True or False, not {fallback!r}")
    unknown = sorted(settings.keys() - set(_OPTIONS))
    if unknown:
        raise InputError(f"there is no option '{unknown[0]}'", hint=f"the options are fallback, {', '.join(_OPTIONS)}")
    if torch.is_grad_enabled() and any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in example_inputs):
        raise UnsupportedError(
            "the backend runs inference alone, and a tensor of this graph requires a gradient",
            hint="call the compiled module under torch.inference_mode() or torch.no_grad(), "
            "or switch gradients off: model.requires_grad_(False)",
        )
    compiled = CompiledGraph(graph, settings, fallback=fallback)
    _graphs.add(compiled)
    return compiled


def compiled_graphs() -> list[CompiledGraph]:
    """Return the graphs that this backend has compiled and that are in use, in no order."""
    return list(_graphs)
