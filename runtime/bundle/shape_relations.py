"""Relations of sizes that a manifest has of plans and programs alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..plan.size_bounds import LARGEST, Bounds, bounds_of
from .structure import Refusal, in_order, schema

Path = tuple[str | int, ...]


def check_range(sizes: Any, path: Path) -> None:
    low, high, step = sizes["low"], sizes["high"], sizes["step"]
    if step < 1 or not 0 <= high - low <= LARGEST or (high - low) % step:
        raise Refusal("range", "is no range: it has no size, or does not end with one", *path)


def check_shapes(manifest: Any, shapes: Any, path: Path) -> None:
    """Check that ``shapes`` are of inputs of the model, and their names dynamic dimensions."""
    ports = {port["name"]: port for port in (*manifest["inputs"], *manifest["overridable"])}
    for name in in_order(shapes):
        place = (*path, "shapes", name)
        if name not in ports:
            raise Refusal("plan input", "is no input of the model", *place)
        if ports[name]["dtype"] not in schema()["dtypes"]:
            raise Refusal("plan dtype", "has no element type that a device holds", *place)
        for dim in shapes[name]:
            if isinstance(dim, str) and dim not in manifest["dynamic"]:
                raise Refusal("dimension", f"has the dimension '{dim}', whose range is not there", *place)


def size_bounds(value: Any, symbols: Mapping[str, Bounds], path: Path, *, is_signed: bool = False) -> Bounds:
    """Return the bounds of a size, which must not be negative for all values of the symbols unless it ``is_signed``."""
    try:
        bounds = bounds_of(value, symbols)
    except ValueError as error:
        raise Refusal("symbol", str(error), *path) from None
    if bounds is None:
        raise Refusal("overflow", "may be as large as 2 to the power of 53", *path)
    if bounds[1] < 0 and not is_signed:
        raise Refusal("negative", "is negative", *path)
    return bounds


def byte_bounds(port: Any, symbols: Mapping[str, Bounds], path: Path) -> Bounds:
    """Return the bounds of the bytes of a tensor's elements, of which none may be too many to count.

    Neither may those of its other axes where one has the size 0: no array has such a shape.
    """
    low = high = counted = schema()["dtypes"][port["dtype"]]
    for axis, dim in enumerate(port["shape"]):
        size = size_bounds(dim, symbols, (*path, "shape", axis))
        low, high = low * max(size[0], 0), high * size[1]
        counted = min(counted * max(size[1], 1), LARGEST + 1)
    if counted > LARGEST:
        raise Refusal("overflow", "has 2 to the power of 53 bytes or more", *path)
    return low, high
