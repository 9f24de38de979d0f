"""Limits of the device that a kernel must keep to; what exceeds one is refused with the node at fault."""

from __future__ import annotations

from ...runtime.plan.errors import DeviceLimitError
from ..symbolic import polynomial as ix
from ..target import Target
from .draft import Draft
from .groups import Group


def check_limits(draft: Draft, group: Group, bindings: int, target: Target) -> None:
    """Raise :class:`DeviceLimitError` if the device cannot bind or run the kernel."""
    node = group.nodes[-1]
    checks = (
        (bindings, "max-storage-buffers-per-shader-stage", "storage buffers"),
        (draft.threads, "max-compute-invocations-per-workgroup", "invocations"),
        (draft.workgroup_bytes, "max-compute-workgroup-storage-size", "bytes of workgroup memory"),
        (
            max(ix.bounds(size)[1] for size in draft.grid),
            "max-compute-workgroups-per-dimension",
            "workgroups in a dimension",
        ),
    )
    for amount, limit, what in checks:
        if amount > target.limit(limit):
            raise DeviceLimitError(
                f"the kernel of {node.op} needs {amount} {what}, the device allows {target.limit(limit)} ({limit})",
                origin=node.origin,
            )


def check_trips(draft: Draft, group: Group, inner: int, target: Target) -> None:
    """Raise :class:`DeviceLimitError` if the driver would leave the loops of a thread early.

    ``inner`` are the trips of the loops inside one call of every hook.
    """
    rounds = draft.rounds + max(draft.rounds if draft.calls is None else draft.calls, 1) * inner
    limit = target.max_loop_trips
    if limit is not None and rounds > limit:
        node = group.nodes[-1] if group.region is None else group.region.anchor
        raise DeviceLimitError(
            f"{rounds:,} rounds of the loops of {node.op} in one thread; those of a software driver end after "
            f"{limit:,} rounds",
            origin=node.origin,
            hint="use shorter axes or fewer steps at a time, the provider 'cpu' for this node, or a GPU",
        )
