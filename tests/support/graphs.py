"""Small models as text, up to the expanded graph, for tests of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import numpy_helper, parser

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.graph import Graph, verify
from shaderloom.compiler.passes.expand import expand


@dataclass(frozen=True)
class Example:
    """A model in ONNX text form, with the shapes of its inputs and its initializers."""

    text: str
    feeds: Mapping[str, Sequence[int]]
    initializers: Mapping[str, np.ndarray] = field(default_factory=dict)
    dynamic: Mapping[str, tuple[int, int]] | None = None

    def graph(self) -> Graph:
        """A fresh graph after specialisation and expansion."""
        proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{self.text}')
        for name, array in self.initializers.items():
            proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        model = load_model(proto)
        graph = specialise(model, bind_shapes(model, self.feeds, self.dynamic).shapes)
        expand(graph)
        verify(graph)
        return graph

    def inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Random elements for the inputs; integers and booleans are small."""
        generator = np.random.default_rng(seed)
        result = {}
        for value in self.graph().inputs:
            shape = tuple(self.feeds[value.name])
            if value.dtype.is_float:
                result[value.name] = generator.standard_normal(shape).astype(value.dtype.numpy)
            else:
                result[value.name] = generator.integers(0, 2, shape).astype(value.dtype.numpy)
        return result


def weights(*shape: int, seed: int = 1, low: float | None = None) -> np.ndarray:
    """Seeded float32 numbers: normal ones, or uniform in [low, low + 1]."""
    generator = np.random.default_rng((seed, *shape))
    drawn = generator.standard_normal(shape) if low is None else generator.uniform(low, low + 1.0, shape)
    return drawn.astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)
