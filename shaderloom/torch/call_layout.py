"""The arguments of a call as a flat list of inputs, and the results of one as a structure again.

Structures are PyTorch's pytrees: tuples, lists, dicts, and classes that a library has registered.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..runtime.plan.errors import InputError, UnsupportedError
from ..runtime.plan.record import record

#: What may be part of arguments or results without being computed with
_PLAIN = (int, float, complex, bool, str, bytes, torch.dtype, torch.device, torch.memory_format, type(None))


@record
class CallLayout:
    """How the arguments of one call, and of all calls like it, become inputs.

    ``constants`` has a value for each leaf of the arguments, :data:`INPUT` where the leaf is an input.  ``names`` and
    ``dims`` are those of the inputs: ``dims`` the dynamic dimensions of each as ``torch.export`` takes them.
    """

    signature: inspect.Signature
    spec: Any
    constants: tuple[Any, ...]
    names: tuple[str, ...]
    dims: tuple[Any, ...]

    @classmethod
    def of(
        cls, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any = None
    ) -> CallLayout:
        """Return the layout of a call of ``forward``.

        An ``int`` with a dynamic dimension is an input as well.  Raises :class:`UnsupportedError` for an argument that
        is neither a tensor nor plain, and :class:`InputError` for arguments or dimensions that do not fit.
        """
        signature = inspect.signature(forward)
        arguments = _bind(signature, args, kwargs)
        shapes = _by_argument(arguments, dynamic_shapes)
        leaves, spec = pytree.tree_flatten(arguments)
        paths = [path for path, _ in pytree.tree_flatten_with_path(arguments)[0]]
        dims = _spread(arguments, shapes)
        constants: list[Any] = []
        inputs: dict[str, Any] = {}
        for leaf, path, dim in zip(leaves, paths, dims):
            if isinstance(leaf, torch.Tensor) or (type(leaf) is int and dim is not None):
                constants.append(INPUT)
                inputs[_input_name(path, inputs)] = dim
            elif isinstance(leaf, _PLAIN):
                constants.append(leaf)
            else:
                raise UnsupportedError(
                    f"the argument {pytree.keystr(path)} is a {type(leaf).__name__}, neither a tensor nor plain",
                    hint="register the class with torch.utils._pytree.register_pytree_node, or pass its tensors",
                )
        return cls(signature, spec, tuple(constants), tuple(inputs), tuple(inputs.values()))

    def inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the inputs of a call; raise :class:`InputError` if anything else differs from the example."""
        leaves, spec = pytree.tree_flatten(_bind(self.signature, args, kwargs))
        if spec != self.spec:
            raise InputError(
                "the arguments have another structure than those that the module was exported with",
                hint="pass the same arguments, or make another session with from_torch",
            )
        for leaf, constant in zip(leaves, self.constants):
            if constant is not INPUT and not (type(leaf) is type(constant) and leaf == constant):
                raise InputError(
                    f"an argument is {_shown(leaf)} that was {_shown(constant)} when the module was exported",
                    hint="arguments that are not tensors are part of the compiled model: make another session",
                )
        return [leaf for leaf, constant in zip(leaves, self.constants) if constant is INPUT]

    def arguments(self, inputs: Sequence[Any]) -> inspect.BoundArguments:
        """Return the arguments of the call with these inputs."""
        rest = iter(inputs)
        leaves = [next(rest) if constant is INPUT else constant for constant in self.constants]
        return inspect.BoundArguments(self.signature, pytree.tree_unflatten(leaves, self.spec))


class ResultLayout:
    """The structure of a module's results, once it has run: what each leaf is."""

    def __init__(self) -> None:
        self._spec: Any = None
        self._leaves: list[_Computed | _Passed | _Plain] = []

    def flatten(self, results: Any, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Return the tensors of the results that are not ``inputs`` themselves, with sizes that are computed as
        tensors; remember the rest.

        Raises :class:`UnsupportedError` for what is neither a tensor nor plain.
        """
        leaves, self._spec = pytree.tree_flatten(results)
        self._leaves = [_leaf_of(leaf, inputs) for leaf in leaves]
        return tuple(
            torch.scalar_tensor(leaf, dtype=torch.int64) if kind.is_size else leaf
            for leaf, kind in zip(leaves, self._leaves)
            if isinstance(kind, _Computed)
        )

    def unflatten(self, tensors: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """Return the results of a run with these inputs that has computed these tensors."""
        rest = iter(tensors)
        leaves: list[Any] = []
        for kind in self._leaves:
            if isinstance(kind, _Computed):
                computed = next(rest)
                leaves.append(int(computed) if kind.is_size else computed)
            else:
                leaves.append(inputs[kind.index] if isinstance(kind, _Passed) else kind.value)
        return pytree.tree_unflatten(leaves, self._spec)


@record
class _Computed:
    """A result that the model computes: a tensor, or a size, which is an ``int`` to the caller."""

    is_size: bool


@record
class _Passed:
    """A result that is an input."""

    index: int


@record
class _Plain:
    """A result that is part of the module."""

    value: Any


class _Input:
    """The mark of a leaf that is an input."""

    def __repr__(self) -> str:
        return "<input>"


INPUT = _Input()


def _leaf_of(leaf: Any, inputs: Sequence[Any]) -> _Computed | _Passed | _Plain:
    """Return what a leaf of the results is; raise :class:`UnsupportedError` if no session can give it."""
    for index, value in enumerate(inputs):
        if leaf is value:
            return _Passed(index)
    if isinstance(leaf, (torch.Tensor, torch.SymInt)):
        return _Computed(is_size=isinstance(leaf, torch.SymInt))
    if isinstance(leaf, _PLAIN):
        return _Plain(leaf)
    raise UnsupportedError(
        f"a result is a {type(leaf).__name__}, neither a tensor nor plain",
        hint="register the class with torch.utils._pytree.register_pytree_node, or do not return it (use_cache=False)",
    )


def _bind(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter, further keywords in the order of their names."""
    try:
        arguments = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise InputError(f"the arguments do not fit the module: {error}") from None
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and name in arguments:
            arguments[name] = dict(sorted(arguments[name].items()))
    return arguments


def _by_argument(arguments: Mapping[str, Any], shapes: Any) -> dict[str, Any]:
    """Return the dynamic shapes of each argument, which ``torch.export`` takes by name or in order."""
    if shapes is None:
        return {}
    if isinstance(shapes, Mapping):
        unknown = sorted(set(shapes) - set(arguments))
        if unknown:
            raise InputError(f"dynamic_shapes names '{unknown[0]}', which is no argument of the call")
        return dict(shapes)
    if len(shapes) != len(arguments):
        raise InputError(f"dynamic_shapes has {len(shapes)} entries for {len(arguments)} arguments")
    return dict(zip(arguments, shapes))


def _spread(value: Any, shapes: Any) -> list[Any]:
    """Return the entry of ``shapes`` for each leaf of ``value``; None stands for a whole structure."""
    if pytree.tree_is_leaf(value) or value is None:
        return [shapes]
    children = pytree.tree_flatten(value, is_leaf=lambda each: each is not value)[0]
    if isinstance(value, Mapping):
        entries = [(shapes or {}).get(key) for key in value]
    elif not shapes:
        entries = [None] * len(children)
    else:
        entries = list(shapes.values() if isinstance(shapes, Mapping) else shapes)
    if len(entries) != len(children):
        raise InputError(f"dynamic_shapes has {len(entries)} entries for {len(children)} values of an argument")
    return [entry for child, shape in zip(children, entries) for entry in _spread(child, shape)]


def _input_name(path: Sequence[Any], taken: Mapping[str, Any]) -> str:
    """Return a name of the input at ``path`` that is an identifier and is not ``taken``."""
    text = "_".join(re.sub(r"\W+", "_", pytree.keystr((key,))).strip("_") for key in path)
    name = text if text.isidentifier() else f"input_{text}"
    while name in taken:
        name += "_"
    return name


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
