"""Bundles that generate text: the decoder's plans, the choice of a token, and what tells words from tokens."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.plan.errors import InputError
from .chat_template import ChatTemplate
from .decoder import CHUNKS, VERIFIED, DecoderForm
from .folder import CHOICE, DRAFT_CHOICE, GENERATION, TEMPLATE, TOKENIZER, ModelFolder
from .model_source import OPTIONS

if TYPE_CHECKING:
    from ..runtime.bundle.manifest import Manifest


def compile_generator(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    max_length: int | None = None,
    file: str | None = None,
    drafts: bool = False,
    options: dict[str, Any] | None = None,
    **bundle: Any,
) -> Manifest:
    """Write a bundle of the decoder in ``folder`` to ``path``, for :class:`Generator` and for pages.

    ``max_length`` and ``file`` are those of :class:`Generator`, ``options`` those of :class:`InferenceSession`, and
    ``bundle`` other arguments of :func:`.compile_bundle`.  The bundle has the decoder's plans for runs of each number
    of :data:`.CHUNKS` tokens, the model :data:`.CHOICE`, and the assets ``generation.json``, ``tokenizer.json`` and
    ``chat_template.jinja``; with ``drafts`` also the plan that verifies these, and :data:`.DRAFT_CHOICE`.  Raises
    :class:`UnsupportedError` for a decoder with an encoder, and for drafts of one that computes one row of logits.
    """
    from ..bundles.compile import compile_bundle
    from .choice_model import build_choice

    settings = ModelFolder.read(Path(folder), file)
    if settings.is_bundle:
        raise InputError(f"'{folder}' is a bundle already", hint="name the folder of a model")
    form = DecoderForm(settings, max_length, False)
    shapes = [form.shapes(tokens) for tokens in CHUNKS]
    models = {CHOICE: build_choice(form.vocabulary, form.logits_type)}
    if drafts:
        form.check_drafts()
        shapes.append(form.shapes(VERIFIED, VERIFIED))
        models[DRAFT_CHOICE] = build_choice(form.vocabulary, form.logits_type, VERIFIED)
    assets = {GENERATION: json.dumps(replace(settings, context=form.max_length).settings(), indent=1).encode()}
    if settings.has_tokenizer:
        settings.open_tokenizer().close()  # rather than a page that cannot read it
        assets[TOKENIZER] = (settings.path / TOKENIZER).read_bytes()
    if settings.template is not None:
        ChatTemplate(settings.template, {})
        assets[TEMPLATE] = settings.template.encode()
    return compile_bundle(
        settings.model,
        path,
        shapes=shapes,
        dynamic=form.dynamic,
        options={**(options or {}), **OPTIONS},
        models=models,
        assets=assets,
        **bundle,
    )
