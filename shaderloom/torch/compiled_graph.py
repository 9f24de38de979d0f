"""One graph that ``torch.compile`` has traced, run by sessions, or by PyTorch where no session can."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..log import COMPILE
from ..notices import notify
from ..runtime.plan.errors import ShaderloomError, UnsupportedError
from ..runtime.plan.record import record
from .call_layout import CallLayout
from .export import ExportedModule, export_module
from .graph_inputs import GraphInputs, placeholders
from .graph_views import SplitGraph, split_views
from .session import TorchSession

#: Operators whose results differ from run to run, or would from PyTorch's with the same seed
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}

#: Sessions of a graph for different numbers, each of which takes longer to make than PyTorch takes for many calls
_SESSIONS_OF_NUMBERS = 32


@record
class _Prepared:
    """A session for a graph with some weights, which it holds copies of."""

    weights: tuple[weakref.ref[torch.Tensor], ...]
    versions: tuple[int, ...]
    numbers: tuple[float, ...]
    inputs: GraphInputs
    written: tuple[int, ...]  #: of the inputs of a call, those that the graph writes to
    exported: ExportedModule
    session: TorchSession

    def is_for(self, args: Sequence[Any]) -> bool:
        """Return whether the weights and numbers among the arguments are those of the session."""
        return all(weight() is args[at] for at, weight in zip(self.inputs.weights, self.weights)) and all(
            number == float(args[at]) for at, number in zip(self.inputs.numbers, self.numbers)
        )

    def is_current(self) -> bool:
        """Return whether all weights exist still, unchanged."""
        weights = [weight() for weight in self.weights]
        return all(each is not None and _version(each) == version for each, version in zip(weights, self.versions))


class CompiledGraph:
    """A traced graph as a function of its arguments.  Thread-safe.

    A session is made for each set of weights that the graph is called with, on the first call; modules of one class
    share a graph.  ``refusal`` is the reason why PyTorch runs the graph in place of a session, "" if none does.
    """

    def __init__(self, graph: torch.fx.GraphModule, options: Mapping[str, Any], *, fallback: bool) -> None:
        self.graph = graph
        self.refusal = ""
        self.runs = 0  #: calls that sessions ran
        self._options = options
        self._fallback = fallback
        self._split: SplitGraph | None = None
        self._prepared: list[_Prepared] = []
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        nodes = f"<CompiledGraph of {len(self.graph.graph.nodes)} nodes"
        if self.refusal:
            return f"{nodes}, left to PyTorch: {self.refusal}>"
        return f"{nodes}; runs: {self.runs}, sessions: {len(self._prepared)}>"

    @property
    def sessions(self) -> list[TorchSession]:
        """The sessions for the weights that are in use."""
        return [each.session for each in self._prepared]

    def __call__(self, *args: Any) -> Any:
        """Run the graph; without fallback raise what a session raises."""
        if not self.refusal:
            try:
                with torch.no_grad():
                    return self._run(args)
            except ShaderloomError as error:
                if not self._fallback:
                    raise
                self._refuse(error)
        return self.graph(*args)

    def _refuse(self, error: ShaderloomError) -> None:
        """Leave the graph to PyTorch from now on, and say why."""
        with self._lock:
            self.refusal = str(error)
            for each in self._prepared:
                each.session.close()
            self._prepared.clear()
        notify(
            f"PyTorch runs a graph of {len(self.graph.graph.nodes)} nodes, shaderloom cannot: {error}",
            once=f"torch graph {error}",
        )

    def _run(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._split is None:
            self._split = split_views(self.graph)
        split = self._split
        views = iter(() if split.views is None else split.views(*args))
        computed = iter(() if split.computed is None else self._compute(split.computed, args))
        return tuple(next(views if is_view else computed) for is_view in split.is_view)

    def _compute(self, graph: torch.fx.GraphModule, args: tuple[Any, ...]) -> Sequence[Any]:
        """Return the results that a session computes, and write what the graph writes to its inputs."""
        prepared = self._prepare(graph, args)
        exported = prepared.exported
        inputs = [args[at] for at, _ in prepared.inputs.call]
        outputs = prepared.session.run(None, dict(zip(exported.inputs, inputs)))
        self.runs += 1
        computed = len(outputs) - len(prepared.written)
        for at, value in zip(prepared.written, outputs[computed:]):
            inputs[at].copy_(value)
        results: Sequence[Any] = exported.results.unflatten(outputs[:computed], inputs)
        return results

    def _prepare(self, graph: torch.fx.GraphModule, args: tuple[Any, ...]) -> _Prepared:
        for each in self._prepared:
            if each.is_for(args) and each.is_current():
                return each
        with self._lock:
            for each in [each for each in self._prepared if not each.is_current()]:
                self._prepared.remove(each)
                each.session.close()
            inputs, written, exported = _export(graph, args)
            if inputs.numbers and len(self._prepared) >= _SESSIONS_OF_NUMBERS:
                raise UnsupportedError("a number that is part of the graph differs from call to call")
            prepared = _Prepared(
                tuple(weakref.ref(args[at]) for at in inputs.weights),
                tuple(_version(args[at]) for at in inputs.weights),
                tuple(float(args[at]) for at in inputs.numbers),
                inputs,
                written,
                exported,
                TorchSession(exported, self._options),
            )
            self._prepared.append(prepared)
            COMPILE.info("a graph of torch.compile with %d nodes is a session", len(graph.graph.nodes))
            return prepared


def _export(graph: torch.fx.GraphModule, args: tuple[Any, ...]) -> tuple[GraphInputs, tuple[int, ...], ExportedModule]:
    """Export the graph with the weights of a call; return its inputs, which of a call it writes to, and the export.

    A weight that the graph writes to is an input.  Raises :class:`UnsupportedError` for a graph that draws random
    numbers, or that writes to memory of two inputs.
    """
    buffers: set[int] = set()
    written: tuple[int, ...] = ()
    names = [node.name for node in placeholders(graph)]
    while True:
        inputs = GraphInputs.of(graph, args, buffers)
        bound = inputs.bind(graph, args)
        call = [args[at] for at, _ in inputs.call]
        layout = CallLayout.of(bound.forward, call, {}, [dims for _, dims in inputs.call])
        exported = export_module(bound, layout, call, written)
        new_buffers = {names.index(target) for target in exported.mutations if isinstance(target, str)}
        targets = tuple(target for target in exported.mutations if isinstance(target, int))
        if not new_buffers and targets == written:
            break
        buffers |= new_buffers
        written = () if new_buffers else targets
    if any(node.op_type in _RANDOM or _drops(node) for node in exported.program.model.graph.all_nodes()):
        raise UnsupportedError("the graph draws random numbers, which PyTorch's generator determines")
    storages = [arg.untyped_storage()._cdata for arg in args if isinstance(arg, torch.Tensor)]
    if any(storages.count(call[at].untyped_storage()._cdata) > 1 for at in written):
        raise UnsupportedError("the graph writes to an input that shares memory with another one")
    return inputs, written, exported


def _drops(node: Any) -> bool:
    """Return whether a node is a Dropout in training mode."""
    return node.op_type == "Dropout" and len(node.inputs) > 2


def _version(tensor: torch.Tensor) -> int:
    """Return the number of PyTorch's in-place changes of a tensor; 0 for one of inference mode, which has no count."""
    return 0 if tensor.is_inference() else int(tensor._version)
