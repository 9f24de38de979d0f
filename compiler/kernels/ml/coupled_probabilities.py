"""Probabilities of classes from those of pairs: one thread a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.plan.errors import LimitError
from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...ir.coordinates import Sizes
from ...ir.graph import Node, Value
from ...ops.internal.coupled_probabilities import LEAST_ERROR, MOST_ROUNDS, coupled_probabilities_array
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ..context import GroupContext
from ..draft import BuiltKernel, Draft
from ..family import KernelFamily, Reuse, register_family
from ..geometry import linear_grid
from ..groups import Region

#: A thread holds a matrix of classes: WGSL guarantees 8,192 bytes of memory for one
MOST_CLASSES = 32


@record
class CoupledProbabilitiesConfig:
    """``workgroup`` threads a group."""

    workgroup: int = 64


class CoupledProbabilities(KernelFamily):
    """``loom.CoupledProbabilities``."""

    name = "coupled_probabilities"

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return ``FEW``: a thread reads each probability of a pair twice."""
        return Reuse.FEW if user is region.anchor else Reuse.ONCE

    def reads_result(self, anchor: Node) -> bool:
        """Return True: a thread stores a row, which is no run of elements that consumers could take."""
        return True

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return coupled_probabilities_array(operands[0], node.attributes.classes)

    def build(self, context: GroupContext) -> BuiltKernel:
        """Return the kernel; raises :class:`LimitError` for more classes than a thread holds."""
        node, config, classes = context.anchor, CoupledProbabilitiesConfig(), context.anchor.attributes.classes
        if classes > MOST_CLASSES:
            raise LimitError(f"probabilities of {classes} classes, a thread holds {MOST_CLASSES}", origin=node.origin)
        rows = node.output.shape[0]
        row, place = ix.coordinate("row", rows), ix.coordinate("place", classes)
        pair = ix.coordinate("pair", node.operand(0).shape[1])
        hooks = [
            Hook("likely_of", ("row", "pair"), 1, (), context.operands.read(node.operand(0), (row, pair))),
            Hook(
                "store",
                ("row", "place"),
                1,
                (("likely", "f32"),),
                None,
                context.results.stores((row, place), ex.register("likely", "f32")),
            ),
        ]
        return context.built(
            Draft(
                "coupled_probabilities",
                config,
                hooks,
                dims={"rows": rows},
                threads=config.workgroup,
                grid=linear_grid(rows, config.workgroup, context.target),
                rounds=(MOST_ROUNDS + 2) * (2 * classes * classes + 4 * classes),
                flops=ix.product([8 * MOST_ROUNDS * classes * classes, rows]),
                parameters={"classes": classes, "most_rounds": MOST_ROUNDS, "least_error": LEAST_ERROR / classes},
            )
        )


register_family(CoupledProbabilities())
