"""ONNX files -> :class:`ImportedModel`."""

from .load import ModelLike, load_model
from .model import ImportedBlock, ImportedGraph, ImportedModel, ImportedNode, ImportedPort

__all__ = [
    "ImportedBlock",
    "ImportedGraph",
    "ImportedModel",
    "ImportedNode",
    "ImportedPort",
    "ModelLike",
    "load_model",
]
