"""Weights of a plan: constants, and values that depend on constants alone with the calls that make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from ...runtime.plan.codec import digest, encode
from ...runtime.plan.plan import KernelCall, Range, SourceRef, Weight
from ..ir.dataflow import post_order
from ..ir.graph import Value
from .kernel_table import KernelTable
from .sizes import static_bytes


class Weights(Protocol):
    """The weights that a plan needs so far, and the sources that they are made from, both by key."""

    weights: dict[str, Weight]
    sources: dict[str, SourceRef]

    def key_of(self, value: Value) -> str:
        """Return the key of the weight that holds ``value``, which depends on constants alone; add it if it is new."""
        ...


def source_of(value: Value) -> SourceRef:
    """Return where the bytes of a constant are."""
    source: Any = value.constant
    reference: SourceRef = source.to_ref()
    return reference


class DeviceWeights:
    """Weights that a session makes on its device: uploaded as they are, or made by kernels of ``kernels``."""

    def __init__(self, kernels: KernelTable) -> None:
        self._kernels = kernels
        self._keys: dict[Value, str] = {}
        self._problems: dict[str, str] = {}  #: the numbers of each problem so far, by the name of its range
        self.weights: dict[str, Weight] = {}
        self.sources: dict[str, SourceRef] = {}

    def key_of(self, value: Value) -> str:
        """Return the key of the weight that holds ``value``; equal weights of any two plans have equal keys."""
        if value not in self._keys:
            weight = self._upload(value) if value.is_constant else self._transform(value)
            self._keys[value] = weight.key
            self.weights.setdefault(weight.key, weight)
        return self._keys[value]

    def _source(self, value: Value) -> str:
        reference = source_of(value)
        self.sources.setdefault(reference.key, reference)
        return reference.key

    def _upload(self, value: Value) -> Weight:
        source = self._source(value)
        return Weight(digest({"source": source, "transform": None}), static_bytes(value), (source,), (), value.name)

    def _transform(self, value: Value) -> Weight:
        """Return a weight with the calls that make it, in order, and the sources that they read."""
        order = post_order([value], self._computed_operands)
        # names must not depend on value ids, or equal weights of two plans would have different keys
        buffers = {current: f"weight:scratch{number}" for number, current in enumerate(order)}
        own = buffers[value] = "weight:result"
        sources: dict[str, None] = {}
        calls: list[KernelCall] = []
        for current in order:
            ranges = []
            for operand in self._kernels[current].built.operands:
                if operand.is_constant:
                    source = self._source(operand)
                    sources[source] = None
                    ranges.append(Range(f"source:{source}", 0, static_bytes(operand)))
                else:
                    ranges.append(Range(buffers[operand], 0, static_bytes(operand)))
            calls.append(self._kernels.call(current, tuple(ranges)))
        for problem, number in islice(self._kernels.problems.items(), len(self._problems), None):
            self._problems[f"problem:{number}"] = str(problem)
        contents = [[call.kernel, encode(_renamed(call.ranges, self._problems)), encode(call.grid)] for call in calls]
        key = digest({"sources": list(sources), "calls": contents})
        named = tuple(replace(call, ranges=_renamed(call.ranges, {own: f"weight:{key}"})) for call in calls)
        return Weight(key, static_bytes(value), tuple(sources), named, value.name)

    def _computed_operands(self, value: Value) -> list[Value]:
        return [read for read in self._kernels[value].group.reads if not read.is_constant]


def _renamed(ranges: tuple[Range, ...], names: Mapping[str, str]) -> tuple[Range, ...]:
    return tuple(replace(item, buffer=names[item.buffer]) if item.buffer in names else item for item in ranges)
