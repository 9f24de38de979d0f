"""What the ONNX standard says about an operator at an opset: its version, and how many operands it takes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx.defs

from ...runtime.errors import ModelError, UnsupportedError

_STANDARD_DOMAINS = ("", "ai.onnx.ml")


@dataclass(frozen=True, slots=True)
class Signature:
    """``required`` are positions of inputs that must not be omitted; maxima count variadic operands as many."""

    version: int
    min_inputs: int
    max_inputs: int
    max_outputs: int
    required: tuple[int, ...]
    required_attributes: tuple[str, ...]


@functools.cache
def signature(op: str, domain: str, opset: int) -> Signature | None:
    """The signature of an operator at an opset, or None for domains that onnx does not describe.

    Raises :class:`ModelError` when the operator is not part of that opset.
    """
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        if domain not in _STANDARD_DOMAINS:
            return None
        raise ModelError(f"operator '{op}' is not part of opset {opset}", hint=_first_version(op, domain)) from None
    option = onnx.defs.OpSchema.FormalParameterOption.Single
    required = tuple(position for position, item in enumerate(schema.inputs) if item.option == option)
    attributes = tuple(sorted(name for name, item in schema.attributes.items() if item.required))
    return Signature(schema.since_version, schema.min_input, schema.max_input, schema.max_output, required, attributes)


def _first_version(op: str, domain: str) -> str | None:
    try:
        newest = onnx.defs.get_schema(op, onnx.defs.onnx_opset_version(), domain)
    except onnx.defs.SchemaError:
        return None
    state = "is deprecated" if newest.deprecated else f"has its newest form in opset {newest.since_version}"
    return f"the operator {state}"


def read_opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> Mapping[str, int]:
    """Domain -> version.  Duplicates are tolerated: the newest counts.

    Raises :class:`UnsupportedError` for an opset of the standard that the installed onnx does not know yet.
    """
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        opsets[domain] = max(entry.version, opsets.get(domain, 0))
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", 0) > newest:
        raise UnsupportedError(
            f"the model uses opset {opsets['']}; the installed onnx knows opsets up to {newest}",
            hint="install a newer version of the package onnx, or export with an older opset",
        )
    return opsets


def opset_of(domain: str, opsets: Mapping[str, int]) -> int:
    """The version of ``domain``; raises :class:`ModelError` when the model does not import it."""
    version = opsets.get(domain)
    if version is None:
        label = f"'{domain}'" if domain else "the default domain"
        raise ModelError(f"the model uses operators of {label} without importing an opset of it")
    return version
