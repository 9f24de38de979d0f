"""Facts about a model that let a session check inputs and answer queries without parsing the model.

It is made from an imported model once and kept in the disk cache: a second process needs neither protobuf nor onnx.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.memory.source_files import FileState
from ..runtime.plan.checked_operand import CheckedOperand
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.dtypes import BY_NAME
from ..runtime.plan.model_metadata import ModelMetadata
from ..runtime.plan.record import record

if TYPE_CHECKING:
    from ..compiler.frontend.model import ImportedModel, ImportedPort

_ONNX_TYPE_NAMES = {"float32": "float", "float64": "double"}


@record(slots=False)
class NodeArg:
    """An input or output as onnxruntime describes it: ``type`` like ``tensor(float)`` or ``seq(tensor(float))``,
    dimensions as number, name or None.
    """

    name: str
    type: str
    shape: list[int | str | None]


def node_arg(port: DeclaredPort) -> NodeArg:
    """Return the description of a port in onnxruntime's terms."""
    dtype = port.dtype or "undefined"
    text = port.type_text or f"tensor({_ONNX_TYPE_NAMES.get(dtype, dtype)})"
    return NodeArg(port.name, text, list(port.dims or ()))


@record(slots=False)
class ModelHeader:
    """Inputs that must be fed, those with a default, outputs, metadata, and the files that the model consists of."""

    inputs: tuple[DeclaredPort, ...]
    overridable: tuple[DeclaredPort, ...]
    outputs: tuple[DeclaredPort, ...]
    metadata: ModelMetadata
    nodes: int
    files: Mapping[str, FileState]  #: by path relative to the model's folder; "" is the model itself
    refused: int = 0  #: number of nodes, inputs and constants that no device supports
    checked: tuple[CheckedOperand, ...] = ()  #: operands whose indices the last output tells the ranges of
    unchecked: tuple[str, ...] = ()  #: nodes in bodies whose indices were to be checked and are not
    moved: tuple[str, ...] = ()  #: outputs whose elements are those of inputs and constants, bit for bit

    @cached_property
    def feedable(self) -> dict[str, DeclaredPort]:
        """Everything that a caller may feed, by name."""
        return {port.name: port for port in (*self.inputs, *self.overridable)}

    @property
    def public(self) -> ModelHeader:
        """The header as callers see it: without the output that tells the ranges of indices."""
        return replace(self, outputs=self.outputs[:-1]) if self.checked else self

    @classmethod
    def of(cls, model: ImportedModel) -> ModelHeader:
        return cls(
            inputs=tuple(_port(port) for port in model.inputs),
            overridable=tuple(_port(port) for port in model.overridable),
            outputs=tuple(_port(port) for port in model.outputs),
            metadata=model.metadata,
            nodes=model.nodes_in_file,
            files={
                file.relative: FileState(file.identity.size, file.identity.modified_ns, file.identity.inode)
                for file in model.files
            },
            refused=len(model.refused)
            + len(model.graph.foreign)
            + sum(port.refusal is not None for port in (*model.graph.inputs, *model.graph.outputs)),
            checked=model.checked,
            unchecked=model.unchecked,
            moved=tuple(sorted(model.moved_outputs)),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> ModelHeader:
        """Decode the header that :meth:`to_json` wrote.  Raises ValueError if ``data`` is not one."""
        try:
            return cls(
                inputs=tuple(_read_port(port) for port in data["inputs"]),
                overridable=tuple(_read_port(port) for port in data["overridable"]),
                outputs=tuple(_read_port(port) for port in data["outputs"]),
                metadata=ModelMetadata(**data["metadata"]),
                nodes=int(data["nodes"]),
                files={name: FileState(**state) for name, state in data["files"].items()},
                refused=int(data["refused"]),
                checked=tuple(CheckedOperand(**each) for each in data["checked"]),
                unchecked=tuple(data["unchecked"]),
                moved=tuple(data["moved"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a model header: {error}") from None

    def is_current(self, path: Path | None) -> bool:
        """Return whether every file of the model is unchanged since the header was read from it."""
        if path is None:
            return not any(self.files)  # a model in memory; data files need a folder
        try:
            return all(
                FileState.of(os.stat(path.parent / name if name else path)) == state
                for name, state in self.files.items()
            )
        except OSError:
            return False


def _port(port: ImportedPort) -> DeclaredPort:
    dtype = port.dtype.name if port.dtype is not None else None
    return DeclaredPort(port.name, dtype, port.dims, port.denotations, port.type_text)


def _read_port(data: Any) -> DeclaredPort:
    if data["dtype"] is not None and data["dtype"] not in BY_NAME:
        raise ValueError(f"unknown element type {data['dtype']!r}")
    dims, denotations = data["dims"], data["denotations"]
    return DeclaredPort(
        data["name"],
        data["dtype"],
        None if dims is None else tuple(dims),
        None if denotations is None else tuple(denotations),
        data["type_text"],
    )
