"""Inputs checked against the model's declarations: arrays, and the shape key that selects a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from ..notices import notify
from ..runtime.execution.ports import Feed
from ..runtime.memory.host_arrays import host_array, is_torch_tensor
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.dtypes import BY_NAME, EXTENSIONS, DType, to_border
from ..runtime.plan.errors import DECLARED, InputError, UnsupportedError
from ..runtime.plan.record import record
from ..runtime.plan.size_range import SizeRange, read_ranges
from .header import ModelHeader
from .open_sizes import GeneralisedShape
from .served_sizes import points_among

#: Dynamic dimensions as a caller declares them: name -> ``(low, high)`` or ``(low, high, step)``
Dynamic = Mapping[str, Sequence[int]]
#: Validated ranges by name of the dimension
Ranges = Mapping[str, SizeRange]


@record(slots=False)
class ShapeKey:
    """The dimensions that select a plan: for each input numbers, or the name of a dynamic dimension.

    ``opened`` has the ranges of those that are open sizes.
    """

    dims: tuple[tuple[str, tuple[int | str, ...]], ...]
    opened: GeneralisedShape | None = None

    def __hash__(self) -> int:
        return hash(self.dims)

    def open(self, opened: GeneralisedShape) -> ShapeKey:
        """Return the key of the plan for all sizes that are ``opened``."""
        return ShapeKey(
            tuple(
                (name, tuple(str(opened.sizes.get((name, axis), "")) or size for axis, size in enumerate(dims)))
                for name, dims in self.dims
            ),
            opened,
        )

    def at_points(self, shapes: Mapping[str, Sequence[int]], dynamic: Ranges) -> ShapeKey:
        """Return the key with numbers in place of the names whose sizes in ``shapes`` are points."""
        points: set[str] = set()
        for name, dims in self.dims:
            named = {dim: size for dim, size in zip(dims, shapes[name]) if isinstance(dim, str)}
            points |= points_among(named, dynamic)
        return ShapeKey(tuple((name, tuple(1 if dim in points else dim for dim in dims)) for name, dims in self.dims))

    def without_single_sizes(self, dynamic: Ranges) -> ShapeKey:
        """Return the key with the size in place of each name whose range has one: the plan has no symbol for it."""
        single = {name: sizes.low for name, sizes in dynamic.items() if sizes.low == sizes.high}
        return ShapeKey(tuple((name, tuple(single.get(str(dim), dim) for dim in dims)) for name, dims in self.dims))

    def at_sizes(self, shapes: Mapping[str, Sequence[int]]) -> ShapeKey:
        """Return the key of the plan for ``shapes`` alone."""
        return ShapeKey(tuple((name, tuple(shapes[name])) for name, _ in self.dims))

    def declared(self, dynamic: Ranges) -> dict[str, SizeRange]:
        """Return those of the declared ranges that the plan serves."""
        named = {dim for _, dims in self.dims for dim in dims}
        return {name: sizes for name, sizes in dynamic.items() if name in named}

    @property
    def is_range(self) -> bool:
        """Whether the plan serves a range of sizes."""
        return any(isinstance(dim, str) for _, dims in self.dims for dim in dims)

    def to_json(self) -> dict[str, list[int | str]]:
        return {name: list(dims) for name, dims in self.dims}

    def __str__(self) -> str:
        shapes = ", ".join(f"{name}={'x'.join(map(str, dims)) or 'scalar'}" for name, dims in self.dims)
        return shapes if self.opened is None else f"{shapes} ({self.opened})"


def read_dynamic(header: ModelHeader, dynamic: Dynamic) -> dict[str, SizeRange]:
    """Read the declared ranges; raise :class:`InputError` unless every name is an input dimension with sizes."""
    if not isinstance(dynamic, Mapping):
        raise InputError(
            f"dynamic is a mapping from names of dimensions to ranges, not {type(dynamic).__name__}",
            hint='write it like {"height": (64, 512)}, or {"height": (64, 512, 4)} with a step',
        )
    named = sorted(
        {dim for port in (*header.inputs, *header.overridable) for dim in port.dims or () if is_dimension_name(dim)}
    )
    for name in dynamic:
        if name not in named:
            raise InputError(
                f"no input has a dimension '{name}' to declare dynamic",
                hint=f"named dimensions are {', '.join(named) or 'none'}",
            )
    try:
        return read_ranges(dynamic)
    except ValueError as error:
        raise InputError(str(error)) from None


def shape_key(header: ModelHeader, shapes: Mapping[str, Sequence[int]], dynamic: Ranges) -> ShapeKey:
    """Return the key for these input shapes, with the name of every dynamic dimension in place of its size.

    Raises :class:`InputError` for an unknown or missing input, a wrong rank or size, a name that would stand for two
    sizes, or a size that is not in the declared range.
    """
    _check_names(header, shapes)
    sizes: dict[str, int] = {}
    result = []
    for name, port in header.feedable.items():
        if name in shapes:
            result.append((name, _bind(port, tuple(shapes[name]), sizes, dynamic)))
    return ShapeKey(tuple(result))


def _check_names(header: ModelHeader, names: Mapping[str, Any]) -> None:
    feedable = header.feedable
    unknown = [name for name in names if name not in feedable]
    if unknown:
        raise InputError(
            f"the model has no input '{min(unknown)}'", hint=f"its inputs are {', '.join(feedable) or 'none'}"
        )
    missing = [port.name for port in header.inputs if port.name not in names]
    if missing:
        raise InputError(f"no value was given for {', '.join(repr(name) for name in missing)}", tensor=missing[0])


def _bind(port: DeclaredPort, shape: tuple[int, ...], sizes: dict[str, int], dynamic: Ranges) -> tuple[int | str, ...]:
    if any(size < 0 for size in shape):
        raise InputError(f"the shape {list(shape)} has a negative size", tensor=port.name)
    if port.dims is None:
        return shape
    if len(shape) != len(port.dims):
        raise InputError(
            f"has rank {len(shape)} (shape {list(shape)}), expected {len(port.dims)}: {_declared(port)}",
            tensor=port.name,
        )
    bound: list[int | str] = []
    for axis, (size, dim) in enumerate(zip(shape, port.dims)):
        if isinstance(dim, int) and dim != size:
            raise InputError(f"dimension {axis} is {size}, expected {dim}: {_declared(port)}", tensor=port.name)
        if is_dimension_name(dim) and sizes.setdefault(dim, size) != size:
            raise InputError(
                f"dimension {axis}, '{dim}', is {size} and elsewhere {sizes[dim]}: {_declared(port)}", tensor=port.name
            )
        if is_dimension_name(dim) and dim in dynamic:
            if not dynamic[dim].allows(size):
                raise InputError(
                    f"dimension {axis}, '{dim}', is {size}; it was declared dynamic from {dynamic[dim]}",
                    tensor=port.name,
                    hint=dynamic[dim].refusal(size),
                )
            bound.append(dim)
        else:
            bound.append(size)
    return tuple(bound)


def is_dimension_name(dim: Any) -> TypeGuard[str]:
    """Return whether a declared dimension is a name for one size; exporters write "?" for an unknown one."""
    return isinstance(dim, str) and dim not in ("", "?")


def _declared(port: DeclaredPort) -> str:
    dims = ", ".join("?" if dim is None else str(dim) for dim in port.dims or ())
    return f"the model declares [{dims}]"


def check_feeds(header: ModelHeader, feeds: Mapping[str, Any], *, host: bool = False) -> dict[str, Feed]:
    """Return the fed values as arrays or tensors of the declared types.

    Arrays and tensors must have the declared dtype.  Lists and Python or numpy scalars are converted if that changes no
    value.  Raises :class:`InputError` otherwise.  ``host`` allows the types that only the host can hold.
    """
    if not isinstance(feeds, Mapping):
        raise InputError(f"inputs are a dict of name to array, not a {type(feeds).__name__}", hint=DECLARED)
    _check_names(header, feeds)
    ports = header.feedable
    return {name: _to_feed(ports[name], value, host) for name, value in feeds.items()}


def _to_feed(port: DeclaredPort, value: Any, host: bool) -> Feed:
    value = getattr(value, "_ortvalue_content", value)  # an OrtValue holds an array or a tensor
    if port.dtype is None and host:  # a sequence, or an element type that only onnx knows
        return value
    if port.dtype is None or not (host or BY_NAME[port.dtype].on_device):
        raise UnsupportedError(
            f"no device holds inputs of type {port.dtype}",
            tensor=port.name,
            hint="providers=['wgpu', 'cpu'] leaves what reads it to the cpu",
        )
    dtype = BY_NAME[port.dtype]
    expected = dtype.numpy
    if isinstance(value, Tensor):
        if value.element_type != expected:
            raise InputError(f"has dtype {value.element_type}, expected {expected}", tensor=port.name)
        return value
    if port.dtype == "string":
        return _of_texts(port, value)
    convert = f".astype('{expected}')"
    if is_torch_tensor(value):
        value, convert = _as_array(port, value), f".to(torch.{expected})"
    if isinstance(value, np.ndarray):
        if dtype.name in EXTENSIONS and value.dtype.name in (dtype.storage, "uint8") and dtype.bits == 8:
            return _of_storage(port, value, dtype)
        if value.dtype.name != expected:
            raise InputError(
                f"has dtype {value.dtype.name}, expected {expected}",
                tensor=port.name,
                hint=f"convert it with {convert}",
            )
        return value
    if value is None:
        raise InputError("no value was given", tensor=port.name)
    array = _as_array(port, value)
    if array.dtype.name == expected:
        return array
    if array.dtype.kind in "biuf" and dtype.name not in EXTENSIONS:
        with np.errstate(all="ignore"):
            converted = array.astype(expected)
            exact = np.array_equal(converted.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
        if exact and (array.dtype.kind == "b") == (expected == "bool"):
            return converted
    raise InputError(
        f"{type(value).__name__} of {array.dtype.name} is not exactly representable as {expected}",
        tensor=port.name,
        hint=f"pass a numpy array of dtype {expected}",
    )


def _as_array(port: DeclaredPort, value: Any) -> np.ndarray:
    """Return what is fed as an array; raise :class:`InputError` with the name of the input."""
    try:
        return host_array(value)
    except InputError as error:
        raise InputError(error.reason, tensor=port.name, hint=error.hint) from None


def _of_texts(port: DeclaredPort, value: Any) -> np.ndarray:
    """Return a string tensor as an array of ``str``, ``bytes`` decoded as UTF-8.  Raises :class:`InputError`."""
    array = np.asarray(value, dtype=object)
    texts = np.empty_like(array)
    for index, each in np.ndenumerate(array):
        try:
            texts[index] = each.decode() if isinstance(each, bytes) else each
        except UnicodeDecodeError as error:
            raise InputError(f"element {list(index)} is not UTF-8: {error.reason}", tensor=port.name) from None
        if not isinstance(texts[index], str):
            raise InputError(
                f"element {list(index)} has type {type(each).__name__}, expected strings",
                tensor=port.name,
                hint="pass an array of str with dtype object",
            )
    return texts


def _of_storage(port: DeclaredPort, array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return uint8 bit patterns, or int8 values of a narrower signed type, as an array of the interface dtype."""
    low, high = dtype.integer_range if array.dtype == np.int8 else (0, (1 << dtype.width) - 1)
    if dtype.width < 8 and array.size and not (low <= int(array.min()) and int(array.max()) <= high):
        raise InputError(f"has elements outside {low} to {high}, the range of {dtype}", tensor=port.name)
    return to_border(np.ascontiguousarray(array), dtype)


def override_dimensions(
    header: ModelHeader, by_name: Mapping[str, int], by_denotation: Mapping[str, int]
) -> ModelHeader:
    """Return the header with named dimensions fixed, as the session then declares and enforces them.

    Raises :class:`InputError` for a name that no input has.  A denotation that no input has is ignored, as in
    onnxruntime, where one list of denotations serves many models.
    """
    named = {dim for port in (*header.inputs, *header.overridable) for dim in port.dims or () if is_dimension_name(dim)}
    for name in by_name:
        if name not in named:
            raise InputError(
                f"no input has a dimension '{name}' to override",
                hint=f"named dimensions are {', '.join(sorted(named)) or 'none'}",
            )

    def fixed(port: DeclaredPort) -> DeclaredPort:
        if port.dims is None:
            return port
        denotations = port.denotations or (None,) * len(port.dims)
        dims = tuple(
            by_name[dim]
            if isinstance(dim, str) and dim in by_name
            else by_denotation.get(meaning or "", dim)
            if not isinstance(dim, int)
            else dim
            for dim, meaning in zip(port.dims, denotations)
        )
        return replace(port, dims=dims)

    return replace(
        header,
        inputs=tuple(map(fixed, header.inputs)),
        overridable=tuple(map(fixed, header.overridable)),
        outputs=tuple(map(fixed, header.outputs)),
    )


def static_shapes(header: ModelHeader) -> dict[str, tuple[int, ...]] | None:
    """Return the input shapes if the model declares all of them as numbers, else None."""
    shapes = _declared_shapes(header)
    return shapes if len(shapes) == len(header.inputs) else None


def complete_shapes(
    header: ModelHeader, shapes: Mapping[str, Sequence[int]], dynamic: Ranges | None = None, *, of_run: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return ``shapes`` with those of the other inputs, with a warning where open dimensions are assumed.

    A named dimension has the size that it has in ``shapes``, or the lowest of its range in ``dynamic``; that is assumed
    ``of_run`` alone, as a plan has the range.  Else the first dimension of an input is 1.  Raises :class:`InputError`
    for an input with other open dimensions.
    """
    complete = {name: tuple(shape) for name, shape in shapes.items()}
    named = {name: sizes.low for name, sizes in (dynamic or {}).items()}
    for port in header.inputs:
        sized = zip(port.dims or (), complete.get(port.name, ()))
        named.update((dim, size) for dim, size in sized if is_dimension_name(dim))
    for port in header.inputs:
        if port.name in complete:
            continue
        assumed = [_assumed(axis, dim, named) for axis, dim in enumerate(port.dims or ())]
        sizes = [size for size in assumed if size is not None]
        if port.dims is None or len(sizes) < len(assumed):
            raise InputError(
                f"{_declared(port)}, so its shape is not known",
                tensor=port.name,
                hint=f"give the sizes: --shape {port.name}=..., or shapes in Python",
            )
        served = () if of_run else dynamic or ()
        if any(not isinstance(dim, int) and dim not in served for dim in port.dims):
            text = "x".join(map(str, sizes))
            notify(f"the shape of '{port.name}' is taken as {text}: {_declared(port)} (--shape says another)")
        complete[port.name] = tuple(sizes)
    return complete


def _assumed(axis: int, dim: int | str | None, named: Mapping[str, int]) -> int | None:
    """Return the size of a declared dimension, None if nothing says it."""
    if isinstance(dim, int):
        return dim
    return named.get(dim or "", 1 if axis == 0 else None)


def _declared_shapes(header: ModelHeader) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs that have static ones."""
    return {
        port.name: tuple(dim for dim in port.dims if isinstance(dim, int))
        for port in header.inputs
        if port.dims is not None and all(isinstance(dim, int) for dim in port.dims)
    }


def canonical_dynamic(dynamic: Ranges) -> dict[str, list[int]]:
    """Return the declared ranges as JSON values for cache keys."""
    return {name: sizes.to_json() for name, sizes in sorted(dynamic.items())}
