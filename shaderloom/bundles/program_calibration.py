"""Calibration of a program before it is compiled: its stages run in full precision on the host, with numpy.

A session runs the program of a model on its device for that (:mod:`..execution.calibrate`).  A bundle is compiled
without one, and depends on none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any

import numpy as np

from ..compiler.compilation import Compilation
from ..compiler.driver import compile_unit
from ..compiler.passes.lowering import CompilationUnit, Lowering
from ..compiler.passes.pipeline import LOWERED
from ..compiler.precision.observed_range import run_measured
from ..execution.steps import Env, RunRecord
from ..execution.values import RuntimeValue
from ..runtime.bundle.program import BranchStep, CompareStep, IterateStep, ProgramRecord, StackedValue, StageStep
from ..runtime.plan.errors import ShaderloomError
from .program_run import ProgramRun, fed_sizes, stack_on_host

#: Returns the unit of a stage, a new one with each call
Unit = Callable[[], CompilationUnit]


class HostStages:
    """The stages of a program, compiled from ``units`` by the keys of their plans, on the host: each where it was
    compiled for the device, which has what comparisons decide there.

    ``declares_halves`` says after a run whether a stage has tensors that the model declares float16, and ``magnitudes``
    what the tensors of each of the ``compilations`` reach, by ONNX node.
    """

    def __init__(self, units: Mapping[str, tuple[Unit, Context]], compilations: Sequence[Compilation]) -> None:
        self.magnitudes: dict[str, float] = {}
        self.declares_halves = False
        self._units = units
        self._compilations = compilations
        self._stages: dict[str, _HostStage] = {}

    def stage(self, step: StageStep, locations: Mapping[str, str | None]) -> _HostStage:
        """Return the stage, whatever the ``locations`` of its outputs: they are on the host."""
        present = self._stages.get(step.key)
        if present is None:
            unit, there = self._units[step.key]
            lowerings = [there.run(_lowered, unit, each) for each in self._compilations]
            self.declares_halves |= any(lowering.declares_halves for lowering in lowerings)
            present = self._stages[step.key] = _HostStage(lowerings, self.magnitudes)
        return present

    def stack(self, rows: Sequence[RuntimeValue], stacked: StackedValue, sizes: Mapping[str, int]) -> RuntimeValue:
        return stack_on_host(rows, stacked, sizes)

    def require_room(self, step: IterateStep, sizes: Mapping[str, int], iterations: int) -> None:
        """Allow any number of rows: the host has room for what a device has."""


def _lowered(unit: Unit, compilation: Compilation) -> Lowering:
    return compile_unit(unit(), compilation, until=LOWERED)


class _HostStage:
    """One stage as graphs, one for each device; they give the same results but for rounding."""

    def __init__(self, lowerings: Sequence[Lowering], magnitudes: dict[str, float]) -> None:
        self._lowerings = lowerings
        self._magnitudes = magnitudes

    def dispatches(self, sizes: Mapping[str, int]) -> int:
        return 0

    def run(self, env: Env, targets: Mapping[str, Any], record: RunRecord) -> None:
        for lowering in self._lowerings:
            graph = lowering.graph
            feeds = {name: env[name].read() for name in {graph.whole_name(value.name) for value in graph.inputs}}
            results = run_measured(graph, lowering.fusion, feeds, self._magnitudes)
        env.update((name, RuntimeValue(array, "compiler")) for name, array in results.items())


class _Exploration(ProgramRun):
    """A run that looks at both sides of each branch once; the one that is taken has the results."""

    def __init__(self, stages: HostStages, program: ProgramRecord, sizes: dict[str, int]) -> None:
        super().__init__(stages, program, {}, RunRecord(), sizes)
        self._explored: set[int] = set()

    def branch(
        self,
        step: BranchStep | CompareStep,
        taken: bool,
        env: Env,
        results: Collection[str],
        decisive: Collection[str],
    ) -> None:
        if id(step) not in self._explored:
            self._explored.add(id(step))
            sizes = dict(self.sizes)
            # what the values of this run give there may be anything, errors too
            with suppress(ShaderloomError, ArithmeticError, LookupError, ValueError):
                super().branch(step, not taken, dict(env), results, decisive)
            self.sizes = sizes
        super().branch(step, taken, env, results, decisive)


def explore(program: ProgramRecord, stages: HostStages, feeds: Mapping[str, np.ndarray]) -> None:
    """Run a program on the host; sides of branches that it does not take are tried with the same values.

    Raises what :meth:`ProgramRun.run` does.
    """
    env: Env = {name: RuntimeValue(array, "caller") for name, array in feeds.items()}
    sizes = fed_sizes(program, {name: array.shape for name, array in feeds.items()})
    _Exploration(stages, program, sizes).run(program.steps, env, ())
