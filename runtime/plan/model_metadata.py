"""Metadata that a model file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from .record import record

#: The version that onnxruntime gives for a model that declares none
NO_VERSION = (1 << 63) - 1


@record(slots=False)
class ModelMetadata:
    """The metadata of a model file, by onnxruntime's names."""

    producer_name: str = ""
    domain: str = ""
    description: str = ""
    graph_name: str = ""
    graph_description: str = ""
    version: int = NO_VERSION
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)

    def declared(self) -> dict[str, Any]:
        """Return the fields as JSON values, without a version that the model does not declare."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("version", NO_VERSION)}

    @classmethod
    def of(cls, proto: Any) -> ModelMetadata:
        """Return the metadata of an ``onnx.ModelProto``."""
        return cls(
            proto.producer_name,
            proto.domain,
            proto.doc_string,
            proto.graph.name,
            proto.graph.doc_string,
            proto.model_version if proto.HasField("model_version") else NO_VERSION,
            {entry.key: entry.value for entry in proto.metadata_props},
        )
