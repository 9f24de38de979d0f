"""The models of a folder as sessions: compiled from its files, or ready in a bundle, which takes no compiler.

A decoder alone is one model.  One that reads an encoder's results has three parts: the encoder, the first run of a
text, and later runs.  These two are sides of one file, or two files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bundles.plans import model_header
from ..bundles.session import load_bundle
from ..runtime.bundle.reader import Bundle
from ..runtime.plan.decoder_ports import IDS
from ..session.session import InferenceSession
from .folder import BATCH_CHOICE, CHOICE, DRAFT_CHOICE, ENCODER, FIRST, ModelFolder

if TYPE_CHECKING:
    from ..model.compiled import Progress
    from ..model.header import ModelHeader
    from ..runtime.memory.tensor import Tensor

#: The form of a decoder that answers with tokens, and that of the first run behind an encoder
OPTIONS = {"logits": "token"}
FIRST_OPTIONS = {"logits": "first-token"}
#: The part of a folder's model that all have: a decoder, or that of later runs
DECODER = ""


def part_file(folder: ModelFolder, part: str) -> tuple[Path, dict[str, Any]]:
    """Return the file of a part of a folder's model, and the options that it is compiled with."""
    if part == ENCODER:
        assert folder.encoder is not None, "the part is asked for where there is one"
        return folder.encoder, {}
    return (folder.model, FIRST_OPTIONS) if part == FIRST else (folder.later or folder.model, OPTIONS)


def read_header(model: Path, cache: Any = True, options: Mapping[str, Any] = OPTIONS) -> ModelHeader:
    """Return the header of a decoder's file, in the form that generation takes unless ``options`` say another one."""
    from ..model.model import Model

    return Model(model, cache=cache, options=options).header


def part_header(folder: ModelFolder, part: str, cache: Any) -> ModelHeader:
    """Return the header of a part of a folder's model."""
    if not folder.is_bundle:
        file, options = part_file(folder, part)
        return read_header(file, cache, options)
    with Bundle(folder.path, model=part or None) as bundle:
        return model_header(bundle.manifest)


def compiled_sizes(folder: ModelFolder, part: str) -> list[int]:
    """Return the numbers of tokens that a bundle's plans of a part read."""
    with Bundle(folder.path, model=part or None) as bundle:
        sizes = [shapes[IDS][1] for shapes in bundle.manifest.shapes if IDS in shapes]
    return [size for size in sizes if isinstance(size, int)]


def open_part(
    folder: ModelFolder,
    part: str,
    dynamic: Mapping[str, tuple[int, ...]] | str,
    *,
    device: Any,
    cache: Any,
    progress: Progress | None,
) -> InferenceSession:
    """Open a part of a folder's model, whose sizes have the ranges ``dynamic``, or are seen to change."""
    if folder.is_bundle:
        return load_bundle(folder.path, device=device, progress=progress, trust=folder.is_trusted, model=part or None)
    file, options = part_file(folder, part)
    return InferenceSession(file, device=device, cache=cache, progress=progress, options=options, dynamic=dynamic)


def open_choice(folder: ModelFolder, logits: Tensor, cache: Any) -> InferenceSession:
    """Open the model that chooses tokens by ``logits`` [batch, 1, vocabulary], on their device.

    Of a bundle ``batch`` is 1, the texts that it computes together, or the rows of a draft.
    """
    batch, _, vocabulary = logits.shape
    if folder.is_bundle:
        name = {1: CHOICE, folder.batch: BATCH_CHOICE}.get(batch, DRAFT_CHOICE)
        return load_bundle(folder.path, device=logits.device, model=name, trust=folder.is_trusted)
    from .choice_model import build_choice

    model = build_choice(vocabulary, logits.element_type, batch)
    return InferenceSession(model, device=logits.device, cache=cache, dynamic="off")
