"""Limits and features of a device that a plan requires, and memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from ..plan.device_profile import DeviceProfile
from ..plan.dimension import DimExpr, evaluate
from ..plan.dtypes import BY_NAME, padded_bytes
from ..plan.errors import DeviceLimitError, LimitError, UnsupportedError
from ..plan.plan import Plan, Weight
from ..plan.record import record
from ..plan.size_bounds import bounds_of
from .dispatch import describe

#: symbols of which every combination of bounds is tried; of more only the two with all low and all high
_CORNERS = 6


@record
class Requirement:
    """``amount`` of a limit, and what needs it."""

    limit: str
    amount: int
    subject: str


def requirements(plan: Plan) -> dict[str, int]:
    """Return for each limit of a device the most that the plan needs of it."""
    most: dict[str, int] = {}
    for need in needs(plan):
        most[need.limit] = max(most.get(need.limit, 0), need.amount)
    return most


def check_limits(plan: Plan, profile: DeviceProfile) -> None:
    """Raise an error that names the kernel and the limit, or the feature, that a device of this profile lacks."""
    for need in needs(plan):
        if need.amount > profile.limit(need.limit):
            raise DeviceLimitError(
                f"{need.subject} needs {need.limit} of {need.amount:,}; "
                f"devices of the target have {profile.limit(need.limit):,}"
            )
    for kernel in plan.kernels:
        missing = sorted(set(kernel.features) - profile.features)
        if missing:
            raise UnsupportedError(
                f"kernel {kernel.id} needs the feature {', '.join(missing)}, which devices of the target lack"
            )


def check_memory(plan: Plan, weights: Sequence[Weight], profile: DeviceProfile, cap: int) -> None:
    """Raise an error for a plan that takes more memory than there may be, whatever the sizes of a run.

    ``weights`` are those that are to be made, ``cap`` bounds the bytes of these and of activations together.
    """
    symbols = {symbol.name: (symbol.low, symbol.high) for symbol in plan.symbols}

    def least(size: DimExpr) -> int:
        bounds = bounds_of(size, symbols)
        return 0 if bounds is None else max(bounds[0], 0)

    total = 0
    for name, size in (
        *((f"arena:{number}", least(arena)) for number, arena in enumerate(plan.arenas)),
        *((f"weight:{weight.key}", weight.bytes) for weight in weights),
    ):
        _require_buffer(name, size, profile)
        total += size
    if total > cap:
        raise LimitError(
            f"weights and activations take {total:,} bytes of device memory; the cap is {cap:,}",
            hint="raise caps.device_memory",
        )
    for kind, ports in (("input", plan.inputs), ("output", plan.outputs)):
        for port in ports:
            size = padded_bytes(math.prod(map(least, port.shape)), BY_NAME[port.dtype])
            _require_buffer(f"{kind}:{port.name}", size, profile)


def _require_buffer(name: str, size: int, profile: DeviceProfile) -> None:
    limit = profile.limit("max-buffer-size")
    if size > limit:
        raise DeviceLimitError(f"buffer '{name}' needs {size:,} bytes; the device's max-buffer-size is {limit:,}")


def needs(plan: Plan) -> Iterator[Requirement]:
    """Yield everything that the plan needs of a device, for the largest sizes of its dynamic dimensions."""
    corners = _corners(plan)

    def largest(value: DimExpr) -> int:
        return value if isinstance(value, int) else max(evaluate(value, corner) for corner in corners)

    kernels = {kernel.key: kernel for kernel in plan.kernels}
    for call in plan.calls:
        kernel, subject = kernels[call.kernel], describe(call)
        x, y, z = kernel.workgroup
        storage = sum(not binding.is_uniform for binding in kernel.bindings)
        yield Requirement("max-storage-buffers-per-shader-stage", storage, subject)
        yield Requirement("max-compute-invocations-per-workgroup", x * y * z, subject)
        for axis, size in zip("xyz", kernel.workgroup):
            yield Requirement(f"max-compute-workgroup-size-{axis}", size, subject)
        yield Requirement("max-compute-workgroup-storage-size", kernel.workgroup_bytes, subject)
        yield Requirement("max-compute-workgroups-per-dimension", max(map(largest, call.grid)), subject)
        for binding, span in zip(kernel.bindings, call.ranges, strict=True):
            kind = "uniform" if binding.is_uniform else "storage"
            yield Requirement(f"max-{kind}-buffer-binding-size", largest(span.size), f"'{span.buffer}' in {subject}")
    for port in (*plan.inputs, *plan.outputs):
        elements = math.prod(map(largest, port.shape))
        yield Requirement("max-buffer-size", padded_bytes(elements, BY_NAME[port.dtype]), f"the tensor '{port.name}'")
    for number, arena in enumerate(plan.arenas):
        yield Requirement("max-buffer-size", largest(arena), f"activation memory {number}")
    for weight in plan.weights:
        yield Requirement("max-buffer-size", weight.bytes, f"weight '{weight.description or weight.key}'")


def _corners(plan: Plan) -> list[Mapping[str, int]]:
    """Return values of the symbols among which every size is largest: sizes are monotonic in each symbol."""
    names = [symbol.name for symbol in plan.symbols]
    bounds = [(symbol.low, symbol.high) for symbol in plan.symbols]
    if len(names) > _CORNERS:
        return [dict(zip(names, (bound[side] for bound in bounds))) for side in (0, 1)]
    return [dict(zip(names, values)) for values in itertools.product(*bounds)]
