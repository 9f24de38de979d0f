"""Expected tensors by path and name, each requested once, and the tolerances of the comparison."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from ..model.compiled import Progress
from ..runtime.plan.errors import UnsupportedError
from .comparison import Difference, compare
from .graph_instance import MAIN_GRAPH, GraphInstance
from .onnx_model import OnnxModel
from .references import EvaluatorReference, Reference


class Expectations:
    """The expected tensors of one model for one set of inputs.

    Those of loop bodies are cached until :meth:`turn_to` moves to another iteration.
    """

    def __init__(
        self,
        source: OnnxModel,
        reference: Reference,
        feeds: Mapping[str, np.ndarray],
        tolerance: float | None,
        progress: Progress,
    ) -> None:
        self.source = source
        self.reference = reference
        self.feeds = feeds
        self.tolerance = tolerance
        self.progress = progress
        #: nested graphs that the reference cannot run by themselves, and why
        self.unknown: dict[str, str] = {}
        self._undefined: set[str] = set()  #: names of the main graph for which no reference has a value
        self._expected: dict[GraphInstance, dict[str, np.ndarray]] = {MAIN_GRAPH: {}}
        self._spread: dict[GraphInstance, dict[str, np.ndarray]] = {MAIN_GRAPH: {}}
        self._asked: dict[GraphInstance, set[str]] = {MAIN_GRAPH: set()}
        self._evaluators = tuple(EvaluatorReference(source, rounds=rounds) for rounds in (True, False))

    def leave_out(self, nodes: Collection[int]) -> None:
        """Exclude what these nodes of the main graph compute, and all that depends on it: their indices are out of
        range.
        """
        self._undefined = self.source.descendants(nodes)

    def expect(self, names: Iterable[str], instance: GraphInstance = MAIN_GRAPH) -> None:
        """Request tensors from the reference, all at once."""
        asked = self._asked.setdefault(instance, set())
        expected, spread = self._expected.setdefault(instance, {}), self._spread.setdefault(instance, {})
        missing = [name for name in dict.fromkeys(names) if name not in asked]
        if instance == MAIN_GRAPH:
            missing = [name for name in missing if name not in self._undefined]
        if not missing:
            return
        self.progress(f"computing the reference with {self.reference.name}", 0, 0)
        asked.update(missing)
        try:
            expected.update(self.reference.tensors(self.feeds, missing, instance))
            spread.update(self.reference.spread(self.feeds, missing, instance))
        except UnsupportedError as error:
            if instance == MAIN_GRAPH:
                raise
            self.unknown.setdefault(instance.graph, error.reason)

    def expect_all(self, keys: Iterable[tuple[GraphInstance, str]]) -> None:
        """Request tensors of several graphs or loop iterations."""
        by_instance: dict[GraphInstance, list[str]] = {}
        for instance, name in keys:
            by_instance.setdefault(instance, []).append(name)
        for instance, names in by_instance.items():
            self.expect(names, instance)

    def turn_to(self, iterations: tuple[int, ...]) -> None:
        """Discard the tensors of loop bodies in other iterations."""
        for by_instance in (self._expected, self._spread, self._asked):
            for other in [other for other in by_instance if any(a != b for a, b in zip(other.iterations, iterations))]:
                del by_instance[other]

    def knows(self, name: str, instance: GraphInstance = MAIN_GRAPH) -> bool:
        return name in self._expected.get(instance, {})

    def value(self, name: str, instance: GraphInstance = MAIN_GRAPH) -> np.ndarray | None:
        """Return the expected tensor, or None if the reference does not provide it or was not asked for it."""
        return self._expected.get(instance, {}).get(name)

    def largest(self, name: str, instance: GraphInstance = MAIN_GRAPH) -> float | None:
        """Return the largest finite magnitude of an expected tensor, or None if it is unavailable or not numeric."""
        expected = self.value(name, instance)
        if expected is None or expected.dtype.kind not in "fiu":
            return None
        return float(np.abs(expected[np.isfinite(expected)].astype(np.float64)).max(initial=0.0))

    def compare(self, name: str, array: np.ndarray, instance: GraphInstance = MAIN_GRAPH) -> Difference:
        """Compare a tensor with its expected value, which must be available.

        Where it differs in a model of 16-bit floats, what rounding named tensors moves is allowed: inside of a kernel
        none is rounded.
        """
        expected, other = self._expected[instance][name], self._spread.get(instance, {}).get(name)
        difference = compare(array, expected, tolerance=self.tolerance, other=other)
        if difference.is_close or self.tolerance is not None or not self.source.declares_halves:
            return difference
        moved = self._moved_by_rounding(name, instance)
        return difference if moved is None else compare(array, expected, other=other, moved=moved)

    def _moved_by_rounding(self, name: str, instance: GraphInstance) -> tuple[np.ndarray, np.ndarray] | None:
        """Return a tensor with all 16-bit floats rounded, and with none; None if onnx's evaluator has it not."""
        self.progress("computing the effect of rounding", 0, 0)
        try:
            rounded, exact = (each.tensors(self.feeds, [name], instance) for each in self._evaluators)
        except UnsupportedError:
            return None
        return (rounded[name], exact[name]) if name in rounded and name in exact else None
