"""Folders of decoders: onnxruntime-genai's (``genai_config.json``), and those of transformers.js and optimum."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..runtime.bundle.files import is_bundle
from ..runtime.bundle.format import MANIFEST
from ..runtime.bundle.reader import Bundle
from ..runtime.plan.decoder_ports import IDS, is_encoded
from ..runtime.plan.errors import InputError, MissingFileError, ModelError, UnsupportedError
from .config_files import SETTINGS_BYTES, Settings, as_text, read_bytes
from .text import TOKENIZER_BYTES, Tokenizer

GENAI = "genai_config.json"
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TEMPLATE = "chat_template.jinja"
#: What a bundle has besides for generation: the settings among its assets, the model that chooses a token, and the one
#: that chooses those of a draft's rows, if the bundle verifies drafts
GENERATION, CHOICE, DRAFT_CHOICE = "generation.json", "choice", "draft-choice"
#: Further models of a bundle whose decoder reads an encoder's results: the encoder, and the first run of a text; the
#: bundle's own model is that of later runs
ENCODER, FIRST = "encoder", "first"
#: Further models of a bundle that computes several texts together: the decoder for so many, and their choice
BATCH, BATCH_CHOICE = "batch", "batch-choice"
#: The most texts that a bundle computes together
MOST_TEXTS = 64
#: Special tokens that templates name
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
#: Parts of a model besides a decoder and an encoder, in the words of onnxruntime-genai
_OTHER_PARTS = ("encoder_decoder_init", "vision", "speech", "audio", "embedding")
#: What files of decoders are called where a folder does not say so, the first that is there
_FILES = ("model.onnx", "decoder_model_merged.onnx")
#: The decoder of an encoder's results, or the two of its first run and of later ones, and the encoder beside it
_MERGED, _FIRST, _LATER, _ENCODER = "decoder_model_merged", "decoder_model", "decoder_with_past_model", "encoder_model"
_GENAI_ENCODER = "encoder.onnx"
_PAST, _PRESENT = ("past_key_values.%d.key", "past_key_values.%d.value"), ("present.%d.key", "present.%d.value")
#: Names of the context's length in ``config.json``
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "max_target_positions", "seq_length")
#: The context of models whose positions are distances, and what tells that they are: no length bounds them
_UNBOUNDED = 1 << 20
_DISTANCES = "relative_attention_num_buckets"
_DISTANCE_MODELS = ("bloom", "falcon", "mpt")
_INPUTS = {IDS: IDS, "attention_mask": "attention_mask", "position_ids": "position_ids"}


@dataclass(frozen=True)
class ModelFolder:
    """What generation needs of a folder.

    ``heads`` and ``size`` are those of a cache that the model's file does not state itself (0: no one does).
    ``past`` and ``present`` are names of caches with ``%d`` for the layer; ``ends`` the tokens that end an answer;
    ``context`` the most positions.  ``template`` formats a chat; None: the model has none.
    """

    path: Path
    model: Path
    context: int
    ends: tuple[int, ...]
    past: tuple[str, ...] = _PAST
    present: tuple[str, ...] = _PRESENT
    template: str | None = None
    #: texts of tokens that templates name, like ``bos_token``
    special: tuple[tuple[str, str], ...] = ()
    heads: int = 0
    size: int = 0
    #: of a model that reads an encoder's results: the encoder, and the decoder of runs with caches if it has one of its
    #: own; the tokens that answers begin with
    encoder: Path | None = None
    later: Path | None = None
    starts: tuple[int, ...] = ()
    #: sizes of the features that it reads of a sound, where the folder states them
    features: tuple[int, ...] = ()
    #: whether ``path`` is a bundle, of which ``context`` is what it was compiled for
    is_bundle: bool = False
    #: whether the bundle's shaders run without bounds checks
    is_trusted: bool = False
    #: whether it was compiled for drafts, too
    has_drafts: bool = False
    #: the texts that it computes together, 0 if it has no plans for that; and the side on which prompts are padded
    batch: int = 0
    padding: str = ""

    @classmethod
    def read(cls, path: str | os.PathLike[str], file: str | None = None, *, trust: bool = False) -> ModelFolder:
        """Read a folder; ``file`` names the model in it where there are several, ``trust`` is for bundles.

        Raises :class:`InputError` for an option of the other kind of folder, :class:`ModelError` for settings that are
        wrong, and :class:`UnsupportedError` for what is not supported.
        """
        folder = Path(path)
        if (folder / MANIFEST).is_file() or (folder.is_file() and is_bundle(folder)):
            if file is not None:
                raise InputError("a bundle has one decoder", hint="leave file out")
            return _read_bundle(folder, trust)
        if trust:
            raise InputError("trust is for bundles: a model's shaders are generated here", hint="leave it out")
        if not folder.is_dir():
            raise (
                MissingFileError(path)
                if not folder.exists()
                else InputError(
                    f"'{path}' is not a folder", hint="shaderloom convert FILE.gguf -o FOLDER makes one of a GGUF file"
                )
            )
        if (folder / GENAI).is_file():
            return _read_genai(folder, file)
        if (folder / CONFIG).is_file():
            return _read_transformers(folder, file)
        raise ModelError(
            f"'{path}' has neither {GENAI} nor {CONFIG}",
            hint="name the folder that onnxruntime-genai's builder, optimum or shaderloom convert has written",
        )

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a tokenizer."""
        if not self.is_bundle:
            return (self.path / TOKENIZER).is_file()
        with Bundle(self.path) as bundle:
            return bundle.has_asset(TOKENIZER)

    def refuse_shapes(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Raise :class:`InputError` for shapes where no encoder has inputs that take them."""
        if shapes and self.encoder is None:
            reason = f"the decoder has no encoder whose inputs {', '.join(shapes)} have a shape"
            raise InputError(reason, hint="leave the shapes out")

    def open_tokenizer(self) -> Tokenizer:
        """Return the tokenizer.  Raises :class:`ModelError` for a file that is none."""
        if not self.is_bundle:
            return Tokenizer(self.path / TOKENIZER)
        with Bundle(self.path) as bundle:
            return Tokenizer.of(bundle.asset(TOKENIZER, TOKENIZER_BYTES))

    def settings(self) -> dict[str, Any]:
        """Return what a bundle says of generation, as JSON; :meth:`read` reads it."""
        return {
            "context": self.context,
            "ends": list(self.ends),
            "past": list(self.past),
            "present": list(self.present),
            "heads": self.heads,
            "size": self.size,
            "special": dict(self.special),
            **({"batch": self.batch, "padding": self.padding} if self.batch else {}),
            **({"starts": list(self.starts), "features": list(self.features)} if self.encoder else {}),
        }


def _read_bundle(path: Path, trust: bool) -> ModelFolder:
    with Bundle(path) as bundle:
        if not bundle.has_asset(GENERATION):
            raise ModelError(
                f"the bundle '{path}' has no {GENERATION}", hint="shaderloom compile FOLDER -o NAME --generate"
            )
        settings = Settings.of(GENERATION, bundle.asset(GENERATION, SETTINGS_BYTES))
        models, template = bundle.models, None
        if bundle.has_asset(TEMPLATE):
            template = as_text(TEMPLATE, bundle.asset(TEMPLATE, SETTINGS_BYTES))
    context, special = settings.integer("context"), settings.section("special")
    if not context:
        raise ModelError(f"{GENERATION}: there is no context", hint="compile the bundle again")
    starts = settings.integers("starts")
    if ENCODER in models and "starts" not in settings:
        raise ModelError(f"{GENERATION}: there are no tokens that answers begin with", hint="compile the bundle again")
    return ModelFolder(
        path=path,
        model=path,
        context=context,
        ends=settings.integers("ends"),
        past=_checked_patterns(GENERATION, settings.texts("past")),
        present=_checked_patterns(GENERATION, settings.texts("present")),
        template=template,
        special=tuple((name, text) for name in _SPECIAL if (text := special.text(name)) is not None),
        heads=settings.integer("heads") or 0,
        size=settings.integer("size") or 0,
        is_bundle=True,
        is_trusted=trust,
        has_drafts=DRAFT_CHOICE in models,
        batch=_batch_of(settings, models),
        padding=settings.text("padding") or "",
        encoder=path if ENCODER in models else None,
        starts=starts,
        features=settings.integers("features"),
    )


def _batch_of(settings: Settings, models: Sequence[str]) -> int:
    """Return how many texts a bundle computes together; raise :class:`ModelError` for a number without its plans."""
    batch = settings.integer("batch") or 0
    if batch > MOST_TEXTS or (batch and not {BATCH, BATCH_CHOICE} <= {*models}):
        raise ModelError(f"{GENERATION}: there are no plans for {batch} texts", hint="compile the bundle again")
    return batch


def _read_genai(folder: Path, file: str | None) -> ModelFolder:
    model = Settings.read(folder / GENAI).section("model")
    decoder = model.section("decoder")
    for part in _OTHER_PARTS:
        if part in model:
            hint = "models of a decoder, alone or behind an encoder, generate text"
            raise UnsupportedError(f"{GENAI} has a part '{part}'", hint=hint)
    if "pipeline" in decoder:
        raise UnsupportedError(f"{GENAI}: the decoder is a pipeline of models", hint="export it as one model")
    if "sliding_window" in decoder:
        _check_window(decoder.section("sliding_window"))
    inputs, outputs = decoder.section("inputs"), decoder.section("outputs")
    for role, name in _INPUTS.items():
        if (inputs.text(role) or name) != name:
            raise UnsupportedError(f"{GENAI} calls '{role}' '{inputs.text(role)}'", hint=f"export it as '{name}'")
    past = tuple(inputs.text(f"past_{part}_names") or name for part, name in zip(("key", "value"), _PAST))
    present = tuple(outputs.text(f"present_{part}_names") or name for part, name in zip(("key", "value"), _PRESENT))
    parts: dict[str, Any] = {}
    if "encoder" in model:
        encoder, start = model.section("encoder"), model.integer("decoder_start_token_id")
        parts = {"encoder": _inside(folder, encoder.text("filename") or _GENAI_ENCODER)}
        parts["starts"] = () if start is None else (start,)
        past += _crossed(inputs, "cross_past")
        present += _crossed(encoder.section("outputs"), "cross_present")
    _checked_patterns(GENAI, (*past, *present))
    context = model.integer("context_length")
    if not context:
        raise ModelError(f"{GENAI}: there is no context_length", hint="export the model again")
    name = file or decoder.text("filename") or _FILES[0]
    ends = model.integers("eos_token_id")
    sizes = (decoder.integer("num_key_value_heads") or 0, decoder.integer("head_size") or 0)
    return ModelFolder(folder, _inside(folder, name), context, ends, past, present, *_chat(folder), *sizes, **parts)


def _check_window(window: Settings) -> None:
    """Raise :class:`UnsupportedError` where the model leaves it to the runtime to move a window over a text.

    Such models have inputs or caches of the window's size.  Those whose attention finds the window itself say no twice.
    """
    for name in ("slide_inputs", "slide_key_value_cache"):
        if window.raw(name) is not False:
            hint = "export the model for a processor or -e webgpu: attention finds the window itself then"
            raise UnsupportedError(f"{GENAI}: the runtime is to move the window of the decoder ({name})", hint=hint)


def _crossed(ports: Settings, prefix: str) -> tuple[str, ...]:
    """Return the names of caches that an encoder returns, and the decoder reads."""
    names = tuple(ports.text(f"{prefix}_{part}_names") for part in ("key", "value"))
    for name in names:
        if name is None or not is_encoded(name):
            raise UnsupportedError(
                f"{GENAI} calls the {prefix} caches of an encoder's results '{name}'",
                hint="supported are encoders that return them, as Whisper's, by names with '_cross_'",
            )
    return tuple(name for name in names if name is not None)


def _checked_patterns(file: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if pattern.count("%d") != 1 or pattern.count("%") != 1:
            raise ModelError(f"{file}: the name '{pattern}' of a cache does not have one %d", hint="export it again")
    return patterns


def _read_transformers(folder: Path, file: str | None) -> ModelFolder:
    config = Settings.read(folder / CONFIG)
    inner = config.section("text_config") if "text_config" in config else config
    context = next((inner.integer(name) for name in _LENGTHS if name in inner), None)
    if context is None and (_DISTANCES in inner or inner.text("model_type") in _DISTANCE_MODELS):
        context = _UNBOUNDED
    if not context:
        raise ModelError(f"{CONFIG}: there is no {_LENGTHS[0]}", hint="add the length of the model's context")
    generation = Settings.read_optional(folder / "generation_config.json")
    ends = generation.integers("eos_token_id") or config.integers("eos_token_id")
    queries = _first(inner, "decoder_attention_heads", "num_attention_heads", "num_heads", "n_head")
    hidden = _first(inner, "hidden_size", "d_model", "n_embd")
    heads = inner.integer("num_key_value_heads") or queries
    size = _first(inner, "head_dim", "d_kv") or hidden // max(queries, 1)
    if not config.raw("is_encoder_decoder"):
        model = _inside(folder, file) if file else _only_model(folder)
        return ModelFolder(folder, model, context, ends, _PAST, _PRESENT, *_chat(folder), heads, size)
    past, present = (
        tuple(name.replace("%d.", f"%d.{part}.") for part in ("decoder", "encoder") for name in names)
        for names in (_PAST, _PRESENT)
    )
    parts, begin = _encoded_parts(folder, file), (_starts(config, generation), _features(config))
    return ModelFolder(folder, parts[0], context, ends, past, present, *_chat(folder), heads, size, *parts[1:], *begin)


def _features(config: Settings) -> tuple[int, ...]:
    """Return the sizes of Whisper's features: of a moment, and the moments, of which two become one position."""
    sizes = (config.integer("num_mel_bins") or 0, 2 * (config.integer("max_source_positions") or 0))
    return sizes if all(sizes) else ()


def _first(settings: Settings, *names: str) -> int:
    """Return the first integer that is stated, or 0."""
    return next((number for number in map(settings.integer, names) if number), 0)


def _encoded_parts(folder: Path, file: str | None) -> tuple[Path, Path, Path | None]:
    """Return the decoder, the encoder, and the decoder of runs with caches if there is one.

    ``file`` names the first of them; the others are beside it, with what is behind ``decoder_model`` in its name if
    they have that.
    """
    if file:
        decoder = _inside(folder, file)
    else:
        places = [place / f"{name}.onnx" for name in (_MERGED, _FIRST) for place in (folder, folder / "onnx")]
        decoder = next((each for each in places if each.is_file()), places[0])
        if not decoder.is_file():
            raise MissingFileError(decoder)
    stem = _MERGED if decoder.stem.startswith(_MERGED) else _FIRST

    def beside(name: str) -> Path:
        alike = decoder.with_name(decoder.name.replace(stem, name, 1))
        path = alike if alike.is_file() else decoder.with_name(f"{name}.onnx")
        if not path.is_file():
            raise MissingFileError(path)
        return path

    return decoder, beside(_ENCODER), None if stem == _MERGED else beside(_LATER)


def _starts(config: Settings, generation: Settings) -> tuple[int, ...]:
    """Return the tokens that answers begin with: the first one, and those that are forced behind it."""
    first = next(
        (each.integer("decoder_start_token_id") for each in (generation, config) if "decoder_start_token_id" in each),
        None,
    )
    if first is None:
        raise ModelError(f"{CONFIG}: there is no decoder_start_token_id", hint="add the token that answers begin with")
    starts = [first]
    forced = generation.raw("forced_decoder_ids")
    for entry in forced if isinstance(forced, list) else ():
        if not (isinstance(entry, list) and len(entry) == 2 and entry[0] == len(starts) and type(entry[1]) is int):
            break  # a token that depends on what is heard, as a language
        starts.append(entry[1])
    return tuple(starts)


def _only_model(folder: Path) -> Path:
    """Return the model of a folder, which is in it or in ``onnx/``."""
    files = [each for place in (folder, folder / "onnx") if place.is_dir() for each in sorted(place.glob("*.onnx"))]
    for name in _FILES:
        named = [each for each in files if each.name == name]
        if named:
            return named[0]
    decoders = [each for each in files if each.name.startswith(("model", "decoder_model_merged"))]
    if len(decoders) == 1:
        return decoders[0]
    names = ", ".join(each.relative_to(folder).as_posix() for each in files[:12]) or "none"
    raise ModelError(f"which model of the folder is not clear; there are: {names}", hint="name one: file=, or --file")


def _inside(folder: Path, name: str) -> Path:
    """Return a file in a folder; raise :class:`ModelError` for a name that leads out of it."""
    relative = PurePosixPath(name.replace("\\", "/"))
    if relative.is_absolute() or ".." in relative.parts or "\0" in name:
        raise ModelError(f"the file '{name}' is not in the folder of the model", hint="name a file of the folder")
    path = folder / relative
    if not path.is_file():
        raise MissingFileError(path)
    return path


def _chat(folder: Path) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """Return the template of chats, and the texts of special tokens that it may name."""
    config = Settings.read_optional(folder / "tokenizer_config.json")
    special = []
    for name in _SPECIAL:
        token = config.raw(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            special.append((name, text))
    own = folder / TEMPLATE
    template = as_text(own.name, read_bytes(own)) if own.is_file() else config.raw("chat_template")
    if isinstance(template, list):  # several, by name
        named = [each for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[-1].get("template") if named else None
    if template is not None and not isinstance(template, str):
        raise ModelError("tokenizer_config.json: 'chat_template' is not a text", hint="export the model again")
    return template, tuple(special)
