"""The compiler's front door: an imported model and the shapes of its inputs to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from ..runtime.plan.plan import Plan
from .binding.shape_binding import BoundShapes, specialise
from .compilation import Compilation
from .frontend.model import ImportedModel
from .gc_pause import paused_collection
from .passes.lowering import CompilationUnit, Lowering
from .passes.pipeline import FIRST_CHOICE, PIPELINE


def model_unit(model: ImportedModel, bound: BoundShapes) -> CompilationUnit:
    """Return what is compiled for ``model`` with the input shapes in ``bound``."""
    return CompilationUnit(lambda limits: specialise(model, bound.shapes, limits), model.graph.nodes, bound.symbols)


def compile_unit(unit: CompilationUnit, compilation: Compilation, *, until: str | None = None) -> Lowering:
    """Run the passes of :data:`PIPELINE` on ``unit``: all of them, which gives a plan, or those up to ``until``.

    Deterministic: the same unit, target, options, limits and measurements give the same plan in any process.  Raises
    the errors of the family :class:`~.errors.ShaderloomError`, with the ONNX node at fault.
    """
    lowering = Lowering(unit)
    with paused_collection():
        PIPELINE.run(lowering, compilation, until=until)
    return lowering


@dataclass
class BegunUnit:
    """A unit of which some passes have run."""

    lowering: Lowering
    compilation: Compilation
    start: str  #: the first pass that has not


def begin_unit(unit: CompilationUnit, compilation: Compilation, is_enough: Callable[[], bool]) -> BegunUnit:
    """Run the first passes of :data:`PIPELINE`, up to those that choose kernels, until ``is_enough`` says so.

    Raises what :func:`compile_unit` does.
    """
    begun = BegunUnit(Lowering(unit), compilation, PIPELINE.names[0])
    with paused_collection():
        for name, following in itertools.pairwise(PIPELINE.names):
            if name == FIRST_CHOICE or is_enough():
                break
            PIPELINE.run(begun.lowering, compilation, start=name, until=name)
            begun.start = following
    return begun


def finish_unit(begun: BegunUnit, compilation: Compilation) -> Lowering:
    """Run the other passes, in a context with the choices of the first ones; see :func:`compile_unit`."""
    with paused_collection():
        PIPELINE.run(begun.lowering, compilation, start=begun.start)
    return begun.lowering


def compile_model(model: ImportedModel, bound: BoundShapes, compilation: Compilation) -> Plan:
    """Compile ``model`` for the input shapes in ``bound``; see :func:`compile_unit`."""
    return compile_unit(model_unit(model, bound), compilation).plan
