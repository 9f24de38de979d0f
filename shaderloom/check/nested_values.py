"""Expected tensors inside branches and loop bodies: each body runs as a model of its own, iteration by iteration.

The values around a body come from the reference, and so do the loop-carried values: each iteration is compared with the
reference's values for it, not with those that follow from our own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ..compiler.frontend.topology import names_read
from ..cpu.segment import type_of
from ..runtime.plan.errors import UnsupportedError
from .graph_instance import GraphInstance
from .onnx_model import Constant, OnnxGraph, OnnxModel

#: Runs an opened model; returns the outputs in its order
Run = Callable[[Mapping[str, Any]], Sequence[Any]]
#: Opens a model
Open = Callable[[onnx.ModelProto], Run]
#: The tensors of the main graph of these names
MainTensors = Callable[[Collection[str]], Mapping[str, Any]]


class NestedValues:
    """The tensors of nested graphs for one set of inputs.  The last iteration of each loop is cached."""

    def __init__(self, model: OnnxModel, feeds: Mapping[str, Any], main: MainTensors, open_model: Open) -> None:
        self._model = model
        self._feeds = feeds
        self._main = main
        self._open = open_model
        self._outside: dict[str, Any] | None = None
        self._runs: dict[tuple[Any, ...], tuple[Run, list[str]]] = {}
        self._branches: dict[str, tuple[GraphInstance, dict[str, Any]]] = {}
        self._loops: dict[str, _Progress] = {}

    def tensors(self, instance: GraphInstance) -> dict[str, Any] | None:
        """Return all tensors of a nested graph, inputs included; None if the reference runs fewer iterations."""
        graph = self._model.graphs[instance.graph]
        if graph.is_loop_body:
            return self._iteration(graph, instance)
        cached = self._branches.get(graph.path)
        if cached is None or cached[0] != instance:
            cached = self._branches[graph.path] = instance, self._run(graph, instance, {})
        return cached[1]

    def _iteration(self, graph: OnnxGraph, instance: GraphInstance) -> dict[str, Any] | None:
        outer, iteration = instance.iterations[:-1], instance.iterations[-1]
        progress = self._loops.get(graph.path)
        if progress is None or progress.outer != outer or progress.number > iteration:
            progress = self._loops[graph.path] = self._first(graph, outer)
        while progress.number < iteration:
            if not self._next(graph, progress):
                return None
        return progress.values

    def _first(self, graph: OnnxGraph, outer: tuple[int, ...]) -> _Progress:
        assert graph.outer is not None, "it is the body of a node"
        around = GraphInstance(graph.outer, outer)
        node = self._model.graphs[graph.outer].proto.node[graph.index]
        operands = [self._array(self._value(around, name)) if name else None for name in node.input]
        return _Progress(node, operands, outer)

    def _next(self, graph: OnnxGraph, progress: _Progress) -> bool:
        """Run the next iteration; return False if there is none."""
        arguments = progress.inputs()
        if arguments is None or len(arguments) != len(graph.proto.input):
            return False
        progress.number += 1
        instance = GraphInstance(graph.path, (*progress.outer, progress.number))
        inputs = dict(zip((port.name for port in graph.proto.input), arguments))
        values = progress.values = self._run(graph, instance, inputs)
        if any(port.name in graph.producers and port.name not in values for port in graph.proto.output):
            progress.going = False  # one of its nodes refuses its operands: no later iteration has values
            return True
        results = [
            self._array(values[port.name] if port.name in values else self._value(instance, port.name))
            for port in graph.proto.output
        ]
        progress.take(results)
        return True

    # -- values around -----------------------------------------------------------------------------------------------

    def _value(self, instance: GraphInstance, name: str) -> Any:
        """Return a value that is visible to the nodes of a graph; a constant of the model as its message."""
        home = self._model.defining_graph(instance.graph, name)
        if home is None:
            raise KeyError(name)
        constant = home.sources.get(name)
        if constant is not None and name not in self._feeds:
            return constant
        if home.outer is None:
            return self._feeds[name] if name in self._feeds else self._of_main(name)
        values = self.tensors(GraphInstance(home.path, instance.iterations[: home.loops]))
        assert values is not None, "an iteration is inside of one that was run"
        return values[name]

    def _of_main(self, name: str) -> Any:
        """Return a tensor of the main graph; all that nodes with nested graphs read are requested in one run."""
        if self._outside is None:
            main = self._model.graphs["main"]
            reads = {
                read
                for node in main.proto.node
                if any(attribute.HasField("g") for attribute in node.attribute)
                for read in names_read(node)
            }
            try:
                self._outside = dict(self._main([read for read in main.producers if read in reads]))
            except UnsupportedError:  # perhaps only some of them fail
                self._outside = {}
        if name not in self._outside:
            self._outside.update(self._main([name]))
        return self._outside[name]

    def _array(self, value: Any) -> Any:
        if isinstance(value, onnx.TensorProto):
            return numpy_helper.to_array(value, str(self._model.path.absolute().parent))
        return value

    # -- bodies ------------------------------------------------------------------------------------------------------

    def _run(self, graph: OnnxGraph, instance: GraphInstance, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run a graph once and return its tensors, inputs included."""
        assert graph.outer is not None, "the main graph is no body"
        around = GraphInstance(graph.outer, instance.iterations[: self._model.graphs[graph.outer].loops])
        visible = [name for name in graph.captured if self._model.defining_graph(graph.outer, name) is not None]
        seen = {name: self._value(around, name) for name in visible}
        constants = {name: value for name, value in seen.items() if isinstance(value, Constant)}
        operands = {**{name: value for name, value in seen.items() if name not in constants}, **inputs}
        constants.update((name, value) for name, value in graph.sources.items() if value is not None)
        types = {name: type_of(value) for name, value in operands.items()}
        key = (graph.path, *((name, kind.SerializeToString()) for name, kind in types.items()))
        if key not in self._runs:
            proto = self._model.of_nodes(graph.proto.node, types, constants)
            names = [port.name for port in proto.graph.output]
            self._runs[key] = (self._open(proto) if names else lambda feeds: (), names)
        run, names = self._runs[key]
        try:
            return {**inputs, **dict(zip(names, run(operands)))}
        except UnsupportedError:
            return {**inputs, **self._one_by_one(graph, operands, constants)}

    def _one_by_one(
        self, graph: OnnxGraph, feeds: Mapping[str, Any], constants: Mapping[str, Constant]
    ) -> dict[str, Any]:
        """Return the results of the nodes that run on their own, where running the whole graph fails on one of them."""
        results: dict[str, Any] = {}
        for node in graph.proto.node:
            here = {**feeds, **results}
            reads = [name for name in dict.fromkeys(names_read(node)) if name in here or name in constants]
            if any(name in graph.producers and name not in results for name in node.input):
                continue
            values = {name: here[name] for name in reads if name in here}
            proto = self._model.of_nodes(
                [node],
                {name: type_of(value) for name, value in values.items()},
                {name: constants[name] for name in reads if name in constants},
            )
            with suppress(UnsupportedError):
                results.update(zip((port.name for port in proto.graph.output), self._open(proto)(values)))
        return results


class _Progress:
    """The progress of a Loop or Scan.  ``number`` is the iteration that ``values`` belong to, -1 before the first."""

    def __init__(self, node: onnx.NodeProto, operands: Sequence[Any], outer: tuple[int, ...]) -> None:
        self.outer = outer
        self.number = -1
        self.values: dict[str, Any] = {}
        self.is_loop = node.op_type == "Loop"
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if self.is_loop:
            most, going = (*operands, None, None)[:2]
            self.most = None if most is None else int(np.asarray(most).reshape(-1)[0])
            self.going = True if going is None else bool(np.asarray(going).reshape(-1)[0])
            self.loop_carried = list(operands[2:])
            return
        count = int(attributes["num_scan_inputs"])
        self.loop_carried = list(operands[: len(operands) - count])
        self.sequences = list(operands[len(operands) - count :])
        self.axes = tuple(attributes.get("scan_input_axes") or (0,) * count)
        self.backwards = tuple(attributes.get("scan_input_directions") or (0,) * count)
        self.most = self.sequences[0].shape[self.axes[0]]
        self.going = True

    def inputs(self) -> list[Any] | None:
        """Return the inputs of the body for the next iteration; None after the last one."""
        iteration = self.number + 1
        if not self.going or (self.most is not None and iteration >= self.most):
            return None
        if self.is_loop:
            return [np.array(iteration, np.int64), np.array(True), *self.loop_carried]
        elements = [
            np.take(sequence, -1 - iteration if backwards else iteration, axis)
            for sequence, axis, backwards in zip(self.sequences, self.axes, self.backwards)
        ]
        return [*self.loop_carried, *map(np.asarray, elements)]

    def take(self, results: Sequence[Any]) -> None:
        """Advance with the results of the body."""
        if self.is_loop:
            self.going = bool(np.asarray(results[0]).reshape(-1)[0])
            results = results[1:]
        self.loop_carried = list(results[: len(self.loop_carried)])
