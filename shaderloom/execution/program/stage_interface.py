"""Precision constraints on values that cross the stages of a program.

Values cross from stage to stage in the types that the model declares, so float32 ones are not rounded there, and halves
that may leave their range are float32 there, too.  Inside a stage both may be rounded: a stage must know the values
that control later stages, positions, and masks that a constant of another stage pushes beyond the range of float16.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...compiler.precision.exact_set import InterfaceConstraints
from ...compiler.staging.control_dependence import deciding_names, names_added, names_behind_integers
from ...compiler.staging.partial_compile import Advance
from ...runtime.plan.dtypes import FLOAT16, FLOAT32, DType
from ...runtime.plan.facts import PrecisionFacts, ValueFacts
from ...runtime.plan.plan import Plan
from .context import ProgramModel
from .state import Block


def constraints(
    context: ProgramModel, block: Block, reached: Advance, outputs: Collection[str], crossing: Collection[str]
) -> InterfaceConstraints:
    """Return the constraints of a stage whose graph is finished; of its ``outputs`` no caller sees those that are
    ``crossing``.
    """
    pending = reached.pending
    control, exact, added = set[str](), set[str](), set[str]()
    if context.half:
        control = deciding_names(pending, {*block.control, *reached.wanted})
        exact = names_behind_integers(pending)
    if context.imported.declares_halves:
        added = names_added(pending).union(set(block.outputs).intersection(crossing))
    return InterfaceConstraints(
        {value.name: reached.inputs[value.name].facts for value in reached.graph.inputs},
        control=frozenset(control.intersection(outputs)),
        exact=frozenset(exact.intersection(outputs)),
        widenable=frozenset(crossing),
        added=frozenset(added.intersection(outputs)),
    )


def facts_of_outputs(plan: Plan, declared: Mapping[str, DType]) -> dict[str, ValueFacts]:
    """Return what later stages must know of a plan's outputs; the model has ``declared`` the types of some."""
    facts = plan.facts.precision or PrecisionFacts()
    return {
        port.name: ValueFacts(
            is_wide=declared.get(port.name) is FLOAT16 and port.dtype == FLOAT32.name,
            is_integral=port.name in facts.positions,
            overflow=facts.overflowing.get(port.name, (False, False)),
        )
        for port in plan.outputs
    }
