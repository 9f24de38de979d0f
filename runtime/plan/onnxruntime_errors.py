"""onnxruntime's classes of errors, which those of this package have as bases.

Its bindings raise an exception class for each status code, without a common base.  A program that runs with this
package under onnxruntime's name imports these in their place, so that its ``except`` clauses mean the same.
"""

from __future__ import annotations


class Fail(Exception):
    """Status 1: what no other code says, such as an invalid graph or an operator that is not registered."""


class InvalidArgument(Exception):
    """Status 2: names, types or shapes of the caller that do not fit the model."""


class NoSuchFile(Exception):
    """Status 3: there is no file of this name."""


class NoModel(Exception):
    """Status 4: a session without a model."""


class EngineError(Exception):
    """Status 5: an execution engine failed."""


class RuntimeException(Exception):
    """Status 6: a node failed while the model ran."""


class InvalidProtobuf(Exception):
    """Status 7: the file is no serialised model."""


class ModelLoaded(Exception):
    """Status 8: a session that has its model."""


class NotImplemented(Exception):
    """Status 9: no kernel for a node with these types or attributes."""


class InvalidGraph(Exception):
    """Status 10: the graph breaks a rule of ONNX."""


class EPFail(Exception):
    """Status 11: an execution provider failed."""


class ModelLoadCanceled(Exception):
    """Status 12: loading was cancelled."""


class ModelRequiresCompilation(Exception):
    """Status 13: a model that must be compiled ahead of time."""


class NotFound(Exception):
    """Status 14: something that was asked for by name is absent."""


class DeviceReset(Exception):
    """Status 15: the device was reset."""
