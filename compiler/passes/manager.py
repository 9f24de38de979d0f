"""The pass manager: runs a list of passes, whose order it checks, over the state of a compilation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...runtime.plan.errors import InputError, InternalError
from ...runtime.plan.record import record
from ..compilation import Compilation, PassReport
from ..ir.graph import verify
from .lowering import Lowering

#: Changes the lowering in place, leaves its graph sorted, and returns the number of changes
PassFunction = Callable[[Lowering, Compilation], int]


@record
class Pass:
    """One pass of the compiler.

    ``requires`` names passes whose results it reads: they run before it in every compilation.  ``after`` names passes
    that must not run later, if they run at all.  A disabled pass is left out, or ``fallback`` runs in its place; one
    that is ``required`` cannot be disabled.
    """

    name: str
    run: PassFunction
    requires: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    fallback: PassFunction | None = None
    required: bool = False


class PassManager:
    """Passes in the order in which they run."""

    def __init__(self, passes: Sequence[Pass]) -> None:
        """Check the order: raises :class:`InternalError` if it breaks a constraint that a pass declares."""
        self.passes = tuple(passes)
        self.names = tuple(each.name for each in self.passes)
        self.optional = tuple(each.name for each in self.passes if not each.required)  #: may be disabled
        self._position = {name: position for position, name in enumerate(self.names)}
        if len(self._position) < len(self.names):
            raise InternalError(f"two passes have one name: {', '.join(self.names)}")
        for each in self.passes:
            self._check(each)

    def _check(self, each: Pass) -> None:
        """Raise :class:`InternalError` unless all that a pass names runs before it, and what it requires always."""
        for name in (*each.requires, *each.after):
            if name not in self._position:
                raise InternalError(f"the pass '{each.name}' comes after '{name}', which is no pass")
            if self._position[name] >= self._position[each.name]:
                raise InternalError(f"the pass '{each.name}' must come after '{name}'")
        for name in each.requires:
            other = self.passes[self._position[name]]
            if not other.required and other.fallback is None:
                raise InternalError(f"the pass '{each.name}' requires '{name}', which may be disabled")

    def position(self, name: str) -> int:
        """Return the position of a pass in the list.  Raises :class:`InputError` if there is none of this name."""
        if name not in self._position:
            raise InputError(f"there is no pass '{name}'", hint=f"the passes are {', '.join(self.names)}")
        return self._position[name]

    def run(
        self, lowering: Lowering, compilation: Compilation, *, start: str | None = None, until: str | None = None
    ) -> None:
        """Run the passes from ``start`` to ``until``, both included: by default all of them.

        With the option ``verify`` the graph is checked after each; the observer gets a report of each that ran.
        Raises :class:`InputError` if a disabled pass is unknown, or required.
        """
        disabled = compilation.options.disabled_passes
        for name in disabled:
            if self.passes[self.position(name)].required:
                raise InputError(
                    f"the pass '{name}' cannot be disabled", hint=f"those that can be are {', '.join(self.optional)}"
                )
        first = 0 if start is None else self.position(start)
        last = len(self.passes) - 1 if until is None else self.position(until)
        for each in self.passes[first : last + 1]:
            run = each.fallback if each.name in disabled else each.run
            if run is not None:
                self._run(each.name, run, lowering, compilation)

    @staticmethod
    def _run(name: str, run: PassFunction, lowering: Lowering, compilation: Compilation) -> None:
        """Run one pass, verify the graph, and report."""
        start = time.perf_counter()
        changes = run(lowering, compilation)
        milliseconds = (time.perf_counter() - start) * 1e3
        if compilation.options.verify:
            verify(lowering.graph)
        if compilation.observer is not None:
            report = PassReport(name, changes, len(lowering.graph.nodes), milliseconds)
            compilation.observer(report, lowering.graph)
