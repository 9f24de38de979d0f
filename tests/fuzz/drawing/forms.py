"""What is known about an operator at an opset: the standard's schema joined with the registry's entry.

The vocabulary is the registry's: an operator that is registered is drawn, without being named here.  Schemas of the
standard are those of onnx, schemas of contributed operators those of onnxruntime, which evaluates them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.defs

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.ops.registry import OpDef, registry

CONTRIBUTED = "com.microsoft"
#: types of 8 bits and fewer that numpy does not compute with: only moved, converted and quantised
NARROW = (
    *("float8e4m3fn", "int4", "uint4", "float8e5m2", "float4e2m1", "float8e8m0", "float8e4m3fnuz", "float8e5m2fnuz"),
    *("int2", "uint2"),
)
#: element types that are drawn: all that the device holds
TYPES = (
    "float32",
    "int64",
    "bool",
    "int32",
    "float16",
    "uint8",
    "int8",
    "bfloat16",
    "uint32",
    "int16",
    "uint16",
    "uint64",
    *NARROW,
)
_TYPE_OF_TEXT = {
    f"tensor({text})": name
    for text, name in {
        **{name: name for name in TYPES},
        "float": "float32",
    }.items()
}
#: the oldest opset that is drawn
OLDEST = 7


@dataclass(frozen=True)
class Formal:
    """A parameter: ``option`` is Single, Optional or Variadic, ``variable`` names its type parameter."""

    name: str
    option: str
    variable: str
    types: tuple[str, ...]


@dataclass(frozen=True)
class Attribute:
    name: str
    kind: str  #: INT, FLOAT, STRING, INTS ...
    default: Any  #: None: there is none
    required: bool


@dataclass(frozen=True)
class Form:
    """An operator as it is at one opset."""

    definition: OpDef
    version: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: dict[str, Attribute]

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def domain(self) -> str:
        return self.definition.domain

    @property
    def key(self) -> str:
        return f"{self.domain}.{self.name}" if self.domain else self.name

    def input(self, name: str) -> Formal | None:
        return next((formal for formal in self.inputs if formal.name == name), None)


@functools.cache
def _contributed_schemas() -> dict[tuple[str, str], Any]:
    """onnxruntime's schemas, also of what it adds to the standard's domain; none where it is missing."""
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    except ImportError:
        return {}
    return {(schema.domain, schema.name): schema for schema in get_all_operator_schema()}


def drawn_definitions() -> list[OpDef]:
    """Every operator of the registry that a model can have."""
    return [definition for definition in registry.all() if definition.domain in ("", CONTRIBUTED)]


@functools.cache
def form_of(name: str, domain: str, opset: int) -> Form | None:
    """The operator at an opset of the default domain; None where it is no part of it."""
    definition = registry.find(name, domain)
    assert definition is not None
    if domain == CONTRIBUTED or not onnx.defs.has(name, domain):
        schema = _contributed_schemas().get((domain, name))
        return None if schema is None else _form(definition, schema)
    try:
        schema = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else _form(definition, schema)


@functools.cache
def newest_form(name: str, domain: str) -> tuple[Form, int] | None:
    """The form at the newest opset that has the operator, and that opset."""
    for opset in range(onnx.defs.onnx_opset_version(), OLDEST - 1, -1):
        form = form_of(name, domain, opset)
        if form is not None:
            return form, opset
    return None


def _form(definition: OpDef, schema: Any) -> Form:
    constraints = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}

    def formal(item: Any, position: int, own: bool) -> Formal:
        text = getattr(item, "type_str", None) or item.typeStr
        allowed = [_TYPE_OF_TEXT[each] for each in constraints.get(text, [text]) if each in _TYPE_OF_TEXT]
        if own and definition.types and position not in definition.static_inputs:
            supported = definition.types[min(position, len(definition.types) - 1)]
            allowed = [each for each in allowed if each in supported]
        return Formal(item.name, item.option.name, text, tuple(each for each in TYPES if each in allowed))

    attributes = {
        name: Attribute(name, item.type.name, _default(item), item.required) for name, item in schema.attributes.items()
    }
    return Form(
        definition,
        schema.since_version,
        tuple(formal(item, position, True) for position, item in enumerate(schema.inputs)),
        tuple(formal(item, position, False) for position, item in enumerate(schema.outputs)),
        dict(sorted(attributes.items())),
    )


def _default(item: Any) -> Any:
    proto = getattr(item, "default_value", None)
    if proto is None:
        raw = getattr(item, "_default_value", b"")
        if not raw:
            return None
        proto = onnx.AttributeProto.FromString(raw)
    if proto.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(proto)
    return value.decode() if isinstance(value, bytes) else value
