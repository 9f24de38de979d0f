"""The models of a folder as sessions: compiled from its files, or ready in a bundle, which takes no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bundles.plans import model_header
from ..bundles.session import load_bundle
from ..runtime.bundle.reader import Bundle
from ..session.session import InferenceSession
from .folder import CHOICE, DRAFT_CHOICE, ModelFolder

if TYPE_CHECKING:
    from ..model.compiled import Progress
    from ..model.header import ModelHeader
    from ..runtime.memory.tensor import Tensor

#: The form of a decoder that answers with tokens
OPTIONS = {"logits": "token"}


def read_header(model: Path, cache: Any = True, options: Mapping[str, Any] = OPTIONS) -> ModelHeader:
    """Return the header of a decoder's file, in the form that generation takes unless ``options`` say another one."""
    from ..model.model import Model

    return Model(model, cache=cache, options=options).header


def decoder_header(folder: ModelFolder, cache: Any) -> ModelHeader:
    """Return the header of a folder's decoder."""
    if not folder.is_bundle:
        return read_header(folder.model, cache)
    with Bundle(folder.path) as bundle:
        return model_header(bundle.manifest)


def open_decoder(
    folder: ModelFolder,
    dynamic: Mapping[str, tuple[int, ...]],
    *,
    device: Any,
    cache: Any,
    progress: Progress | None,
) -> InferenceSession:
    """Open a folder's decoder, whose sizes have the ranges ``dynamic``."""
    if folder.is_bundle:
        return load_bundle(folder.path, device=device, progress=progress, trust=folder.is_trusted)
    return InferenceSession(
        folder.model, device=device, cache=cache, progress=progress, options=OPTIONS, dynamic=dynamic
    )


def open_choice(folder: ModelFolder, logits: Tensor, cache: Any) -> InferenceSession:
    """Open the model that chooses tokens by ``logits`` [batch, 1, vocabulary], on their device.

    Of a bundle ``batch`` is 1, or the rows of a draft.
    """
    batch, _, vocabulary = logits.shape
    if folder.is_bundle:
        name = CHOICE if batch == 1 else DRAFT_CHOICE
        return load_bundle(folder.path, device=logits.device, model=name, trust=folder.is_trusted)
    from .choice_model import build_choice

    model = build_choice(vocabulary, logits.element_type, batch)
    return InferenceSession(model, device=logits.device, cache=cache, dynamic="off")
