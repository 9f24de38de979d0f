"""ONNX's protobuf messages, without what else the package onnx imports: parsers of mail, sockets, archives, ...

A model is read with the messages alone, whose module needs nothing but protobuf.  It is loaded from its file under a
name of its own; the classes are the same ones that the package has when a program imports it, before or after that.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING

#: The module of the package onnx that has the messages, in wheels and in builds with operators of ai.onnx.ml
_MODULE = "onnx_ml_pb2"


def load_messages() -> ModuleType:
    """Return a module with the classes of messages: the package onnx where that is imported, or has them elsewhere."""
    spec = None if "onnx" in sys.modules else find_spec("onnx")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = os.path.join(folder, f"{_MODULE}.py")
        if os.path.isfile(path):
            own = spec_from_file_location(f"{__package__}.{_MODULE}", path)
            assert own is not None, "the name ends with .py"
            assert own.loader is not None, "the name ends with .py"
            module = module_from_spec(own)
            own.loader.exec_module(module)
            return module
    return import_module("onnx")


if TYPE_CHECKING:
    import onnx as _messages
else:
    _messages = load_messages()

AttributeProto = _messages.AttributeProto
FunctionProto = _messages.FunctionProto
GraphProto = _messages.GraphProto
ModelProto = _messages.ModelProto
NodeProto = _messages.NodeProto
OperatorSetIdProto = _messages.OperatorSetIdProto
SparseTensorProto = _messages.SparseTensorProto
TensorProto = _messages.TensorProto
TensorShapeProto = _messages.TensorShapeProto
TypeProto = _messages.TypeProto
ValueInfoProto = _messages.ValueInfoProto
