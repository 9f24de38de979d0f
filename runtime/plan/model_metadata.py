"""Metadata that a model file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from .record import record


@record(slots=False)
class ModelMetadata:
    """The metadata of a model file, by onnxruntime's names."""

    producer_name: str = ""
    domain: str = ""
    description: str = ""
    graph_name: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, proto: Any) -> ModelMetadata:
        """Return the metadata of an ``onnx.ModelProto``."""
        return cls(
            proto.producer_name,
            proto.domain,
            proto.doc_string,
            proto.graph.name,
            proto.graph.doc_string,
            proto.model_version,
            {entry.key: entry.value for entry in proto.metadata_props},
        )
