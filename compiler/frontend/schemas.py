"""Operator schemas of the ONNX standard: an operator's version at an opset, and its number of operands."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from importlib.util import find_spec
from typing import Any

from ...runtime.plan import bytecode_file
from ...runtime.plan.errors import ModelError, UnsupportedError
from ...runtime.plan.record import record
from ..ops.registry import registry
from .messages import AttributeProto, OperatorSetIdProto

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
    deprecated: bool = False
    has_body: bool = False  #: whether other operators define it


@functools.cache
def signature(op: str, domain: str, opset: int) -> OperatorSignature | None:
    """Return the signature of an operator at an opset, or None for domains that onnx does not describe.

    Raises :class:`ModelError` when the operator is not part of that opset.
    """
    first = _OF_ANY_OPSET.get(op, opset) if domain == "" else opset
    versions = _versions().get((domain, op), ())
    fitting = [version for version in versions if version[0] <= max(opset, first)]
    if fitting:
        return OperatorSignature(*fitting[-1])
    # onnxruntime has operators of its own in the standard's domain
    if domain not in _STANDARD_DOMAINS or (registry.find(op, domain) and not versions):
        return None
    raise ModelError(f"operator '{op}' is not part of opset {opset}", hint=hint_for(op, domain, opset))


def canonical(domain: str) -> str:
    """Return the name of a domain by which operators of the standard are looked up."""
    return "" if domain == "ai.onnx" else domain


def same_at(op: str, domain: str, opset: int, other: int) -> bool:
    """Return whether the standard has an operator in the same version at two opsets."""
    lower, upper = sorted((opset, other))
    versions = [version[0] for version in _versions().get((domain, op), ())]
    return bool(versions) and versions[0] <= lower and not any(lower < version <= upper for version in versions)


def has_body(op: str, domain: str, opset: int) -> bool:
    """Return whether the standard defines an operator by other operators at an opset."""
    fitting = [version for version in _versions().get((domain, op), ()) if version[0] <= opset]
    return bool(fitting) and OperatorSignature(*fitting[-1]).has_body


def hint_for(op: str, domain: str, opset: int) -> str:
    """Suggest a remedy for an unknown operator: of a newer opset, on the CPU only, removed, or misspelt."""
    versions = [OperatorSignature(*version) for version in _versions().get((domain, op), ())]
    if versions and not versions[-1].deprecated and versions[0].version <= opset:
        return "providers=['wgpu', 'cpu'] leaves it to the cpu; shaderloom.register_operator adds one"
    if versions and not versions[-1].deprecated:
        since = f"it is part of {domain or 'ai.onnx'} from opset {versions[0].version} on"
        return f"{since}: onnx.version_converter raises the opset"
    gone = f"it is deprecated since opset {versions[-1].version}; " if versions else ""
    return gone + registry.nearest(op, domain)


#: Fields of an :class:`OperatorSignature`
_Fields = tuple[Any, ...]


def _versions() -> Mapping[tuple[str, str], tuple[_Fields, ...]]:
    """Map each (domain, operator) to the signatures of its versions, oldest first."""
    return _standard()[1]


@functools.cache
def _standard() -> tuple[int, Mapping[tuple[str, str], tuple[_Fields, ...]]]:
    """Return the newest opset of ai.onnx that the installed onnx knows, and the signatures of all operators.

    They are kept in ``__pycache__``: onnx makes its schemas, and all that the package imports, in every process anew.
    """
    path = bytecode_file.path_of(os.path.dirname(__file__), "onnx.schemas.table")
    checksum = _library()
    stored = None if checksum is None else bytecode_file.load(path, checksum)
    if isinstance(stored, tuple):
        return stored
    standard = read_standard()
    if checksum is not None:
        bytecode_file.store(path, checksum, standard)
    return standard


def _library() -> str | None:
    """Return what tells one table of schemas from another: its fields, and name, size and time of the library's files.

    Return None for a library without a file.
    """
    spec = find_spec("onnx")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        try:
            with os.scandir(folder) as entries:
                files = [(entry.name, entry.stat()) for entry in entries if entry.name.startswith("onnx_cpp2py_export")]
        except OSError:
            continue
        if files:
            states = sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)
            return repr(([item.name for item in fields(OperatorSignature)], states))
    return None


def read_standard() -> tuple[int, dict[tuple[str, str], tuple[_Fields, ...]]]:
    """Return what :func:`_standard` does, from onnx."""
    import onnx.defs

    option = onnx.defs.OpSchema.FormalParameterOption.Single
    history: dict[tuple[str, str], list[_Fields]] = {}
    schema: Any
    for schema in onnx.defs.get_all_schemas_with_history():
        kinds = {name: AttributeProto.AttributeType.Value(item.type.name) for name, item in schema.attributes.items()}
        signature_fields = (
            schema.since_version,
            schema.min_input,
            schema.max_input,
            schema.max_output,
            tuple(position for position, item in enumerate(schema.inputs) if item.option == option),
            tuple(sorted(name for name, item in schema.attributes.items() if item.required)),
            tuple(item.name for item in schema.inputs),
            kinds,
            schema.deprecated,
            schema.has_function or schema.has_context_dependent_function,
        )
        history.setdefault((schema.domain, schema.name), []).append(signature_fields)
    operators = {key: tuple(sorted(versions, key=lambda fields: fields[0])) for key, versions in history.items()}
    return onnx.defs.onnx_opset_version(), operators


def read_opsets(imports: Iterable[OperatorSetIdProto]) -> Mapping[str, int]:
    """Return the version of each domain.  Duplicates are tolerated: the newest counts.

    Raises :class:`UnsupportedError` for an opset of the standard that the installed onnx does not know yet.
    """
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = canonical(entry.domain)
        opsets[domain] = max(entry.version, opsets.get(domain, 0))
    newest, _ = _standard()
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
