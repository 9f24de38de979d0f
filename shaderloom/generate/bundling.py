"""Bundles that generate text: the decoder's plans, the choice of a token, and what tells words from tokens."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.plan.decoder_ports import IDS, MASK
from ..runtime.plan.errors import InputError, UnsupportedError
from .chat_template import ChatTemplate
from .decoder import CHUNKS, LENGTH, VERIFIED, DecoderForm
from .encoded_decoder import EncodedForm
from .folder import (
    BATCH,
    BATCH_CHOICE,
    CHOICE,
    DRAFT_CHOICE,
    ENCODER,
    FIRST,
    GENERATION,
    MOST_TEXTS,
    TEMPLATE,
    TOKENIZER,
    ModelFolder,
)
from .model_source import DECODER, OPTIONS, part_file, part_header

if TYPE_CHECKING:
    from ..bundles.compile import FurtherModel
    from ..model.feeds import Dynamic
    from ..runtime.bundle.manifest import Manifest


def compile_generator(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    max_length: int | None = None,
    file: str | None = None,
    drafts: bool = False,
    batch: int = 0,
    options: dict[str, Any] | None = None,
    **bundle: Any,
) -> Manifest:
    """Write a bundle of the decoder in ``folder`` to ``path``, for :class:`Generator` and for pages.

    ``max_length`` and ``file`` are those of :class:`Generator`, ``options`` those of :class:`InferenceSession`, and
    ``bundle`` other arguments of :func:`.compile_bundle`.  The bundle has the decoder's plans for runs of each number
    of :data:`.CHUNKS` tokens, the model :data:`.CHOICE`, and the assets ``generation.json``, ``tokenizer.json`` and
    ``chat_template.jinja``; with ``drafts`` also the plan that verifies these, and :data:`.DRAFT_CHOICE`; with a
    ``batch`` plans and the choice for so many texts together, :data:`.BATCH` and :data:`.BATCH_CHOICE`.  Behind an
    encoder it has the decoder's plan for later runs, and the models :data:`.FIRST`, of the least and the most tokens of
    a first run, and :data:`.ENCODER`.  Raises :class:`UnsupportedError` for drafts of a decoder with an encoder, or of
    one that computes one row of logits.
    """
    from ..bundles.compile import FurtherModel, compile_bundle
    from .choice_model import build_choice

    settings = ModelFolder.read(Path(folder), file)
    if settings.is_bundle:
        raise InputError(f"'{folder}' is a bundle already", hint="name the folder of a model")
    if settings.encoder is None:
        plain = DecoderForm(settings, max_length, False)
        parts = _of_decoder(settings, plain, options or {}, drafts=drafts, batch=batch)
        settings = replace(settings, batch=batch, padding=plain.padding if batch else "")
    elif batch:
        raise UnsupportedError(
            "the model has an encoder, so that it takes one text at a time", hint="leave out --texts"
        )
    else:
        parts = _behind_encoder(settings, EncodedForm(settings, max_length, False), options or {}, drafts=drafts)
    form = parts.form
    choices = {CHOICE: 1, **({DRAFT_CHOICE: VERIFIED} if drafts else {}), **({BATCH_CHOICE: batch} if batch else {})}
    models = {
        name: FurtherModel(build_choice(form.vocabulary, form.logits_type, rows)) for name, rows in choices.items()
    }
    assets = {GENERATION: json.dumps(replace(settings, context=form.max_length).settings(), indent=1).encode()}
    if settings.has_tokenizer:
        settings.open_tokenizer().close()  # rather than a page that cannot read it
        assets[TOKENIZER] = (settings.path / TOKENIZER).read_bytes()
    if settings.template is not None:
        ChatTemplate(settings.template, {})
        assets[TEMPLATE] = settings.template.encode()
    return compile_bundle(
        part_file(settings, DECODER)[0],
        path,
        shapes=parts.shapes,
        dynamic=parts.dynamic,
        options={**(options or {}), **OPTIONS},
        models={**models, **parts.models},
        assets=assets,
        **bundle,
    )


@dataclass(frozen=True)
class _Parts:
    """What a bundle has of a decoder: the shapes and ranges of its own model, and further ones."""

    form: DecoderForm | EncodedForm
    shapes: Sequence[Mapping[str, Sequence[int]]]
    dynamic: Mapping[str, tuple[int, ...]]
    models: Mapping[str, FurtherModel] = field(default_factory=dict)


def _of_decoder(
    settings: ModelFolder, form: DecoderForm, options: Mapping[str, Any], *, drafts: bool, batch: int
) -> _Parts:
    from ..bundles.compile import FurtherModel

    if batch and not 2 <= batch <= MOST_TEXTS:
        raise InputError(f"a bundle computes 2 to {MOST_TEXTS} texts together, not {batch}", hint="--texts 4")
    if batch and options.get("precision", "float32") != "float32":
        raise UnsupportedError(
            "plans for several texts are compiled in full precision", hint="leave out --f16 or --texts"
        )
    shapes = [form.shapes(tokens) for tokens in CHUNKS]
    if drafts:
        form.check_drafts()
        shapes.append(form.shapes(VERIFIED, VERIFIED))
    models = {}
    if batch:
        several = [form.shapes(tokens, batch=batch) for tokens in CHUNKS]
        models[BATCH] = FurtherModel(settings.model, several, form.dynamic, {**options, **OPTIONS})
    return _Parts(form, shapes, form.dynamic, models)


def _behind_encoder(settings: ModelFolder, form: EncodedForm, options: Mapping[str, Any], *, drafts: bool) -> _Parts:
    """Return the parts of a decoder of an encoder's results: of up to ``max_length`` tokens where that reads text."""
    from ..bundles.compile import FurtherModel

    if drafts:
        raise UnsupportedError("the model has an encoder, so that no draft is verified", hint="leave out --drafts")
    if options.get("precision", "float32") != "float32":
        reason = "bundles of a decoder with an encoder are compiled in full precision"
        raise UnsupportedError(reason, hint="leave out --f16")
    ports = part_header(settings, ENCODER, False).inputs
    tokens = [port for port in ports if port.name in (IDS, MASK)]
    rows = form.max_length if tokens else LENGTH
    sizes: dict[str, tuple[int, ...]] = {}
    for port in tokens:
        size = (port.dims or (None, None))[1]
        if size is None:
            raise UnsupportedError(
                "the file has no name for its number of tokens", tensor=port.name, hint="export it with dynamic axes"
            )
        if isinstance(size, str):
            sizes[size] = (1, rows)
    first, later = form.dynamic(rows)
    some = min(CHUNKS[1], rows)

    def further(part: str, shapes: Sequence[Mapping[str, Sequence[int]]], dynamic: Dynamic) -> FurtherModel:
        file, own = part_file(settings, part)
        return FurtherModel(file, shapes, dynamic, {**options, **own})

    runs = [form.shapes(FIRST, size, some) for size in sorted({form.first_sizes[0], form.first_sizes[-1]})]
    models = {
        FIRST: further(FIRST, runs, first),
        ENCODER: further(ENCODER, [form.encoder_shapes(some, {})], sizes),
    }
    return _Parts(form, [form.shapes(DECODER, 1, some)], later, models)
