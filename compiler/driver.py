"""The compiler's front door: an imported model and the shapes of its inputs to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..runtime.plan.plan import Kernel, Plan
from .binding.shape_binding import BoundShapes, specialise
from .compilation import Compilation, KernelSink
from .frontend.model import ImportedModel
from .gc_pause import paused_collection
from .passes.lowering import CompilationUnit, Lowering
from .passes.pipeline import PIPELINE


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


class EarlyKernels:
    """A sink of kernels whose taker may not be there yet: until ``is_open`` returns True they wait."""

    def __init__(self, sink: KernelSink | None, is_open: Callable[[], bool]) -> None:
        self._sink = sink
        self._is_open = is_open
        self._waiting: list[Kernel] = []

    def __call__(self, kernel: Kernel) -> None:
        self._waiting.append(kernel)
        if self._is_open():
            self._send()

    def open(self, sink: KernelSink | None) -> None:
        """Give ``sink`` all kernels that wait, and from now on those to come."""
        self._sink = sink
        self._is_open = lambda: True
        self._send()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._sink is not None:
            for kernel in waiting:
                self._sink(kernel)


@dataclass
class BegunUnit:
    """A unit of which some passes have run, in the context ``compilation``, which gives its kernels to ``kernels``."""

    lowering: Lowering
    compilation: Compilation
    kernels: EarlyKernels
    start: str  #: the first pass that has not


def begin_unit(unit: CompilationUnit, compilation: Compilation, is_enough: Callable[[], bool]) -> BegunUnit:
    """Run passes of :data:`PIPELINE` until ``is_enough`` says so; at least the last one is left.

    Kernels wait for the driver until then.  Raises what :func:`compile_unit` does.
    """
    kernels = EarlyKernels(compilation.on_kernel, is_enough)
    begun = BegunUnit(Lowering(unit), replace(compilation, on_kernel=kernels), kernels, PIPELINE.names[0])
    with paused_collection():
        for name, following in itertools.pairwise(PIPELINE.names):
            if is_enough():
                break
            PIPELINE.run(begun.lowering, begun.compilation, start=name, until=name)
            begun.start = following
    return begun


def finish_unit(begun: BegunUnit, on_kernel: KernelSink | None) -> Lowering:
    """Run the other passes, and give ``on_kernel`` the kernels that wait; see :func:`compile_unit`."""
    begun.kernels.open(on_kernel)
    with paused_collection():
        PIPELINE.run(begun.lowering, begun.compilation, start=begun.start)
    return begun.lowering


def compile_model(model: ImportedModel, bound: BoundShapes, compilation: Compilation) -> Plan:
    """Compile ``model`` for the input shapes in ``bound``; see :func:`compile_unit`."""
    return compile_unit(model_unit(model, bound), compilation).plan
