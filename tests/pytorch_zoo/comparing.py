"""How far the results of a session, and of a compiled module, are from those of eager PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import shaderloom
from shaderloom.torch.backend import compiled_graphs, shaderloom_backend

from .example import Example

#: Of the largest magnitude in a result, or of 1 if that is larger
TOLERANCE = 1e-4
#: The least standard deviation of a result of many elements: with less nothing is compared
_LEAST_SPREAD = 1e-3


@dataclass(frozen=True)
class Compared:
    """``difference`` is the largest over all results.  Of ``graphs`` that compute, ``on_device`` are sessions whose
    nodes all run on the device; ``reason`` says why others are not.
    """

    difference: float
    graphs: int
    on_device: int
    reason: str = ""

    @property
    def is_right(self) -> bool:
        return self.difference <= TOLERANCE

    @property
    def is_on_device(self) -> bool:
        """Whether all of the model's arithmetic is the device's."""
        return self.graphs > 0 and self.on_device == self.graphs


def compare_session(example: Example, device: Any = None) -> Compared:
    """Compare a session of :func:`shaderloom.from_torch` with eager PyTorch."""
    expected = example()
    with shaderloom.from_torch(example.model, example.args, example.kwargs, device=device, cache=False) as session:
        result = session(*example.args, **example.kwargs)
        return Compared(difference(result, expected), 1, 1)


def compare_compiled(example: Example, device: Any = None) -> Compared:
    """Compare a module of ``torch.compile`` with eager PyTorch, in two calls: the second one is not traced."""
    torch._dynamo.reset()
    before = compiled_graphs()
    compiled = torch.compile(example.model, backend=shaderloom_backend, options={"device": device, "cache": False})
    expected = example()
    with torch.no_grad():
        results = [compiled(*example.args, **example.kwargs) for _ in range(2)]
    graphs = [graph for graph in compiled_graphs() if graph not in before and (graph.runs or graph.refusal)]
    return Compared(
        max(difference(result, expected) for result in results),
        len(graphs),
        sum(not graph.refusal for graph in graphs),
        "; ".join(sorted({graph.refusal for graph in graphs if graph.refusal})),
    )


def difference(result: Any, expected: Any) -> float:
    """Return the largest difference of two structures of tensors; infinite where they do not correspond.

    Integers count as they are, others in parts of the largest magnitude of their tensor if that is more than 1.
    Raises :class:`ValueError` if the tensors that are expected say nothing: constant, or not finite.
    """
    leaves, spec = torch.utils._pytree.tree_flatten(result)
    others, expected_spec = torch.utils._pytree.tree_flatten(expected)
    pairs = [(a, b) for a, b in zip(leaves, others) if isinstance(b, torch.Tensor)]
    if spec != expected_spec or not pairs:
        return float("inf")
    return max(_difference(*pair) for pair in pairs)


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    if not isinstance(a, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if not b.numel():
        return 0.0
    a, b, is_exact = a.double(), b.double(), not b.is_floating_point()
    if not b.isfinite().all() or (b.numel() > 16 and not is_exact and float(b.std()) < _LEAST_SPREAD):
        raise ValueError("eager PyTorch's results say nothing: they are constant, or not finite")
    largest = float((a - b).abs().max()) / (1.0 if is_exact else max(1.0, float(b.abs().max())))
    return largest if largest == largest else float("inf")
