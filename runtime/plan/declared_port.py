"""Inputs and outputs as a model declares them, before any shapes are bound."""

from __future__ import annotations

from .record import record


@record
class DeclaredPort:
    """An input or output of a model.

    ``dims`` is None where the rank is not declared, ``dtype``, the name of an element type, where that is not
    (outputs).  ``denotations`` say what the dimensions mean (``DATA_BATCH``), where the model does.
    ``type_text`` is the type in ONNX's words where ``dtype`` cannot say it: ``seq(tensor(float))``.
    """

    name: str
    dtype: str | None
    dims: tuple[int | str | None, ...] | None
    denotations: tuple[str | None, ...] | None = None
    type_text: str | None = None
