"""Operator schemas of the ONNX standard: an operator's version at an opset, and its number of operands."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import onnx
import onnx.defs

from ...runtime.plan.errors import ModelError, UnsupportedError
from ...runtime.plan.record import record
from ..ops.registry import registry

_STANDARD_DOMAINS = ("", "ai.onnx.ml")

#: Operators that onnxruntime's optimiser writes into models of any opset, with the first opset of the standard that has
#: them in this form
_OF_ANY_OPSET = {"LayerNormalization": 17, "ThresholdedRelu": 10}


@record
class OperatorSignature:
    """``required`` are positions of inputs that must not be omitted; maxima count variadic operands as many."""

    version: int
    min_inputs: int
    max_inputs: int
    max_outputs: int
    required: tuple[int, ...]
    required_attributes: tuple[str, ...]
    names: tuple[str, ...] = ()  #: of the inputs
    #: attribute -> its kind, a number of ``AttributeProto.AttributeType``
    kinds: Mapping[str, int] = field(default_factory=dict)


@functools.cache
def signature(op: str, domain: str, opset: int) -> OperatorSignature | None:
    """Return the signature of an operator at an opset, or None for domains that onnx does not describe.

    Raises :class:`ModelError` when the operator is not part of that opset.
    """
    try:
        first = _OF_ANY_OPSET.get(op, opset) if domain == "" else opset
        schema: Any = onnx.defs.get_schema(op, max(opset, first), domain)
    except onnx.defs.SchemaError:
        # onnxruntime has operators of its own in the standard's domain
        if domain not in _STANDARD_DOMAINS or (registry.find(op, domain) and (domain, op) not in _versions()):
            return None
        raise ModelError(f"operator '{op}' is not part of opset {opset}", hint=hint_for(op, domain, opset)) from None
    option = onnx.defs.OpSchema.FormalParameterOption.Single
    required = tuple(position for position, item in enumerate(schema.inputs) if item.option == option)
    attributes = tuple(sorted(name for name, item in schema.attributes.items() if item.required))
    return OperatorSignature(
        schema.since_version,
        schema.min_input,
        schema.max_input,
        schema.max_output,
        required,
        attributes,
        tuple(item.name for item in schema.inputs),
        {name: onnx.AttributeProto.AttributeType.Value(item.type.name) for name, item in schema.attributes.items()},
    )


def hint_for(op: str, domain: str, opset: int) -> str:
    """Suggest a remedy for an unknown operator: of a newer opset, on the CPU only, removed, or misspelt."""
    versions = _versions().get((domain, op), ())
    if versions and not versions[-1][1] and versions[0][0] <= opset:
        return "providers=['wgpu', 'cpu'] leaves it to the cpu; shaderloom.register_operator adds one"
    if versions and not versions[-1][1]:
        since = f"it is part of {domain or 'ai.onnx'} from opset {versions[0][0]} on"
        return f"{since}: onnx.version_converter raises the opset"
    gone = f"it is deprecated since opset {versions[-1][0]}; " if versions else ""
    return gone + registry.nearest(op, domain)


@functools.cache
def _versions() -> dict[tuple[str, str], tuple[tuple[int, bool], ...]]:
    """Map each (domain, operator) to its versions, oldest first, each with a flag for deprecation."""
    history: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        history.setdefault((schema.domain, schema.name), []).append((schema.since_version, schema.deprecated))
    return {key: tuple(sorted(versions)) for key, versions in history.items()}


def read_opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> Mapping[str, int]:
    """Return the version of each domain.  Duplicates are tolerated: the newest counts.

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
    """Return the opset version of ``domain``; raise :class:`ModelError` when the model does not import it."""
    version = opsets.get(domain)
    if version is None:
        label = f"'{domain}'" if domain else "the default domain"
        raise ModelError(f"the model uses operators of {label} without importing an opset of it")
    return version
