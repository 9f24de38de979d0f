"""Random input arrays to try a model with."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..runtime.plan.dtypes import BY_NAME, EXTENSIONS, interface_dtype
from ..runtime.plan.errors import InputError
from .header import ModelHeader, NodeArg, node_arg

#: Kernels count elements with signed 32-bit integers
MOST_ELEMENTS = 2**31 - 1

_NUMPY_NAMES = {"float": "float32", "double": "float64"}


def random_array(port: NodeArg, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Return normal floats; integers and bools 0 and 1, which are valid indices and masks almost everywhere."""
    if math.prod(shape) > MOST_ELEMENTS:
        raise InputError(f"random values for {math.prod(shape):,} elements are too many", tensor=port.name)
    name = port.type.removeprefix("tensor(").removesuffix(")")
    name = _NUMPY_NAMES.get(name, name)
    if name in EXTENSIONS and not BY_NAME[name].is_integer:
        numbers = generator.standard_normal(shape)
        return (abs(numbers) if name == "float8e8m0" else numbers).astype(interface_dtype(BY_NAME[name]))
    if name.startswith("float"):
        return generator.standard_normal(shape).astype(name)
    if name.startswith(("int", "uint", "bool")):
        return generator.integers(0, 2, shape).astype(interface_dtype(BY_NAME[name]))
    raise InputError(f"random values of type {name} are not possible", tensor=port.name)


def random_feeds(
    header: ModelHeader, shapes: Mapping[str, tuple[int, ...]], generator: np.random.Generator | None = None
) -> dict[str, np.ndarray]:
    """Return an array for each input in ``shapes``; deterministic unless a ``generator`` is passed."""
    chosen = generator or np.random.default_rng(0)
    ports = {port.name: node_arg(port) for port in (*header.inputs, *header.overridable)}
    return {name: random_array(ports[name], tuple(shape), chosen) for name, shape in shapes.items()}
