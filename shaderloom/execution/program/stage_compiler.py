"""Compile the compilable prefix of a graph into the plan of a stage."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...compiler.driver import compile_unit
from ...compiler.passes.lowering import CompilationUnit
from ...compiler.staging.partial_compile import Advance
from ...model.compiled import CompiledPlan
from ...model.open_sizes import GeneralisedShape
from ...runtime.plan.plan import Symbol
from ..steps import Recompile
from .context import ProgramContext
from .stage_interface import constraints
from .state import State

#: Reason why a stage of a half-precision model is entirely float32
UNCALIBRATED = (
    "the run in full precision that was looked at took other branches or sizes, so what it reaches is not known"
)


class Uncalibrated(Exception):
    """Raised for a half-precision stage with nodes that no calibration covers."""


class StageCompiler:
    """Compiles the stages of one program, or loads their plans from the disk cache."""

    def __init__(self, context: ProgramContext) -> None:
        self._context = context
        self.allows_uncalibrated = False  #: nodes that no calibration covers stay in full precision
        self.full_precision_plans: dict[
            str, str
        ] = {}  #: half-precision plans that are entirely float32, and the reason

    def compile(
        self,
        state: State,
        reached: Advance,
        outputs: Mapping[str, str | None],
        crossing: Collection[str],
        recompute: Callable[[], Advance],
        general: GeneralisedShape | None = None,
    ) -> tuple[CompiledPlan, Recompile]:
        """Return the plan of a stage with these ``outputs``, for all sizes that are ``general``, and a function that
        recompiles it.  Those that are ``crossing`` may be stored as float32 although they are declared float16.

        ``recompute`` recomputes what was ``reached``, since compiling mutates the graph.  In half precision the plan
        depends on the magnitudes of a run in full precision; raises :class:`Uncalibrated` if none covers the
        stage's nodes.
        """
        context = self._context
        source, profile = context.source, context.resources.device.profile
        graph = reached.finish(list(outputs))
        nodes = [item.node for item in reached.done]
        symbols = () if general is None else general.symbols
        entries = _entries(state, reached, outputs, symbols)
        interface = constraints(context, state.block, reached, outputs, crossing)

        def make(options: Mapping[str, Any]) -> tuple[CompiledPlan, Recompile]:
            unit = CompilationUnit(lambda _: graph, nodes, symbols, interface)
            compilation = replace(
                source.compilation(profile, options),
                limits=context.limits,
                on_kernel=context.resources.add_kernel,
            )
            stage = {**entries, "interface": interface.to_json()}
            compiled = source.compile_stage(stage, unit, compilation)
            fresh = replace(unit, specialise=lambda _: recompute().finish(list(outputs)))
            return compiled, lambda disabled: compile_unit(fresh, compilation.without(disabled))

        if not context.half:
            return make(source.options.current if context.pool is None else source.options.reference)
        compiled, recompile = make(source.options.current)
        precision = compiled.plan.facts.precision
        assert precision is not None, "the plan is in half precision"
        calibration = source.calibration
        if calibration is not None and not calibration.covers(precision.measured):
            if not self.allows_uncalibrated or general is not None:
                raise Uncalibrated
            # randomness, or a provider's rounding, took another path in the calibration run
            graph = recompute().finish(list(outputs))
            compiled, recompile = make(source.options.reference)
            self.full_precision_plans[compiled.plan.key] = UNCALIBRATED
        return compiled, recompile


def _entries(
    state: State, reached: Advance, outputs: Mapping[str, str | None], symbols: tuple[Symbol, ...]
) -> dict[str, Any]:
    """Return the cache entries that identify the plan of this stage among all plans of the model."""
    digest = hashlib.sha256()
    for name, value in sorted(reached.inputs.items()):
        digest.update(f"{name}\0{value.dtype}\0{list(value.shape)}\0".encode())
        if value.static_value is not None and value.static_value.dtype == object:
            digest.update(f"{value.static_value.tolist()}".encode())
        elif value.static_value is not None:
            digest.update(np.ascontiguousarray(value.static_value).tobytes())
    nodes = [[item.scope.prefix, item.origin.index, item.node.op, item.synthetic] for item in reached.done]
    return {
        "block": state.block.name,
        "nodes": nodes,
        "operands": digest.hexdigest(),
        "outputs": sorted(outputs),
        "symbols": [[symbol.name, *symbol.range] for symbol in symbols],
    }
