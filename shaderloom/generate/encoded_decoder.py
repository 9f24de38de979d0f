"""A decoder of what an encoder returns, for models of speech and of texts into texts.

The first run of a text reads the encoder's results and returns keys and values of them besides those of its tokens,
right-padded to one of :data:`.decoder.CHUNKS`.  Later runs have one token, because exporters trace them so.  The first
one is told by ``use_cache_branch``, or is a model of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..model.compiled import Progress
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.decoder_ports import (
    BRANCH,
    ENCODED,
    ENCODED_PAST,
    ENCODER_PART,
    ENDS,
    HIDDEN,
    HIDDEN_MASK,
    IDS,
    LOGITS,
    LOGITS_ROWS,
    MASK,
    PAST,
    TOKEN,
)
from ..runtime.plan.errors import InputError
from ..session.session import InferenceSession
from .cache import KeyValueCache
from .decoder import CHUNKS, LENGTH, cache_layout, cache_pairs, checked_length, logits_form
from .decoder_runs import DecoderRun, tokens_title
from .folder import ModelFolder
from .model_source import OPTIONS, read_header

EncoderInputs = Mapping[str, Any]
#: What a padded first run of each size takes, in later runs of one token, by the measurements of :data:`.decoder.LEAST`
COSTS = {1: 1, 16: 6, 128: 18}
COSTS_ON_PROCESSORS = {1: 1, 16: 6, 128: 37}


class EncodedForm:
    """What a folder's files say of the decoder: ``layout`` has sizes of caches, ``presents`` their outputs by run."""

    def __init__(self, folder: ModelFolder, max_length: int | None, cache: Any) -> None:
        """Read the headers.  Raises :class:`InputError` for a length beyond the model's context."""
        self.max_length = checked_length(folder, max_length)
        assert folder.encoder is not None, "the form is that of a decoder behind one"
        self._folder, self._encoder, self._cache = folder, folder.encoder, cache
        first = read_header(folder.model, cache)
        later = first if folder.later is None else read_header(folder.later, cache)
        caches = {port.name: port for port in later.inputs if len(port.dims or ()) == 4}
        self.layout = {name: cache_layout(port, folder) for name, port in caches.items()}
        self.presents = cache_pairs(folder, caches, {port.name for port in first.outputs})
        self.vocabulary, self.logits_type = logits_form(first)
        self.own = {name: sizes for name, sizes in self.layout.items() if ENCODER_PART not in name}
        ranges = {PAST: (0, self.max_length), ENCODED_PAST: (0, LENGTH), ENCODED: (1, LENGTH)}
        #: of the first run and of later ones
        self.inputs = tuple({port.name for port in header.inputs} for header in (first, later))
        hidden = next((port.dims or () for port in first.inputs if port.name == HIDDEN), ())
        #: the size of an encoded row
        self.hidden = hidden[-1] if hidden and isinstance(hidden[-1], int) else 0
        self.dynamic = tuple(
            {name: ranges[name] for port in header.inputs for name in port.dims or () if name in ranges}
            for header in (first, later)
        )

    @property
    def is_merged(self) -> bool:
        """Whether a flag tells the first run of one model from later ones."""
        return BRANCH in self.inputs[0]

    def encoder_shapes(self, rows: int, stated: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return shapes of what the encoder reads: ``rows`` tokens, or the features that file or folder state.

        Raises :class:`InputError` for sizes that neither they nor ``stated`` have.
        """
        shapes = {}
        for port in read_header(self._encoder, self._cache, {}).inputs:
            dims = (port.dims or ())[1:]
            other = (rows,) if port.name in (IDS, MASK) else self._folder.features or dims
            sizes = [dim if isinstance(dim, int) else size for dim, size in zip(dims, other)]
            stated_sizes = [size for size in sizes if isinstance(size, int)]
            if port.name not in stated and len(stated_sizes) < len(dims):
                raise InputError(
                    "neither the file nor the folder states its sizes",
                    tensor=port.name,
                    hint=f"--shape {port.name}=1x80x3000, for example",
                )
            shapes[port.name] = stated.get(port.name, (1, *stated_sizes))
        return shapes

    def runs(self, rows: int, stated: Mapping[str, tuple[int, ...]]) -> list[DecoderRun]:
        """Return the runs of an answer to :meth:`encoder_shapes`, whose results have as many rows."""
        folder = self._folder
        runs = [DecoderRun("the encoder", self._encoder, self.encoder_shapes(rows, stated))]
        for tokens in first_sizes(self):
            runs.append(self._run(f"first {tokens_title(tokens)}", folder.model, tokens, rows, is_first=True))
        runs.append(self._run(f"later {tokens_title(1)}", folder.later or folder.model, 1, rows, is_first=False))
        return runs

    def _run(self, title: str, model: Path, tokens: int, rows: int, *, is_first: bool) -> DecoderRun:
        past, encoded_past = (0, 0) if is_first else (min(CHUNKS[1], self.max_length - 1), rows)
        shapes: dict[str, tuple[int, ...]] = {IDS: (1, tokens), ENDS: (1,), LOGITS_ROWS: (1, 1), BRANCH: (1,)}
        shapes |= {HIDDEN: (1, rows, self.hidden), HIDDEN_MASK: (1, rows)}
        for name, (batch, heads, size, _) in self.layout.items():
            shapes[name] = (batch, heads, past if name in self.own else encoded_past, size)
        names = self.inputs[not is_first]
        values = {BRANCH: np.array([not is_first])} if self.is_merged else {}
        shapes = {name: shape for name, shape in shapes.items() if name in names}
        return DecoderRun(title, model, shapes, self.dynamic[not is_first], OPTIONS, values)


def first_sizes(form: EncodedForm) -> tuple[int, ...]:
    """Return the tokens that first runs have."""
    most = form.max_length if LOGITS_ROWS in form.inputs[0] else 1
    return tuple(size for size in CHUNKS if size <= most)


class EncodedDecoder:
    """The models of a folder on a device: an encoder, and a decoder that serves any number of caches in turns."""

    def __init__(
        self,
        folder: ModelFolder,
        *,
        device: Any = None,
        max_length: int | None = None,
        cache: Any = True,
        progress: Progress | None = None,
    ) -> None:
        """Open the models for texts up to ``max_length`` tokens.  Raises what sessions raise."""
        self.folder = folder
        self.form = form = EncodedForm(folder, max_length, cache)
        shared: dict[str, Any] = {"cache": cache, "progress": progress}
        self.session = InferenceSession(folder.model, device=device, options=OPTIONS, dynamic=form.dynamic[0], **shared)
        device = self.session.device
        self._later = self.session
        if folder.later is not None:
            self._later = InferenceSession(
                folder.later, device=device, options=OPTIONS, dynamic=form.dynamic[1], **shared
            )
        self.encoder = InferenceSession(folder.encoder, device=device, **shared)
        self.logits = Tensor.empty((1, 1, form.vocabulary), form.logits_type, device)
        self._token = Tensor.empty((1, 1), "int64", device)

    @property
    def sessions(self) -> tuple[InferenceSession, ...]:
        """Those of the decoder, each once, and of the encoder."""
        return (*dict.fromkeys((self.session, self._later)), self.encoder)

    @property
    def reads_text(self) -> bool:
        """Whether the encoder reads tokens."""
        return any(port.name == IDS for port in self.encoder.get_inputs())

    def new_cache(self) -> KeyValueCache:
        """Return a cache without tokens."""
        return KeyValueCache(self.form.own, self.session.device, in_place=False)

    def checked(self, inputs: EncoderInputs) -> dict[str, Any]:
        """Return what the encoder is fed: without a mask all is valid.  Raises :class:`InputError` for other names."""
        names = {port.name for port in self.encoder.get_inputs()}
        feeds = dict(inputs)
        if MASK in names and MASK not in feeds and feeds:
            feeds[MASK] = np.ones(np.shape(next(iter(feeds.values())))[:2], np.int64)
        if set(feeds) != names:
            raise InputError(
                f"the encoder reads {', '.join(sorted(names))}, not {', '.join(sorted(feeds)) or 'nothing'}",
                hint="pass encoder_inputs={name: array}",
            )
        for name, value in feeds.items():
            if not np.shape(value) or np.shape(value)[0] != 1:
                raise InputError("one text is generated at a time: its first size is 1", tensor=name)
        return feeds

    def encode(self, feeds: EncoderInputs, cache: KeyValueCache) -> None:
        """Run the encoder; its results are what texts in ``cache`` depend on from now on."""
        name = self.encoder.get_outputs()[0].name
        (hidden,) = self.encoder.run([name], feeds, outputs={name: "gpu-buffer"})
        if not isinstance(hidden, Tensor):
            hidden = Tensor.from_numpy(hidden, self.session.device)
        encoded = {HIDDEN: hidden}
        if any(HIDDEN_MASK in names for names in self.form.inputs):
            mask = feeds.get(MASK, np.ones(hidden.shape[:2], np.int64))
            encoded[HIDDEN_MASK] = Tensor.from_numpy(np.asarray(mask, np.int64), self.session.device)
        cache.rewind(0)
        cache.forget_encoded()
        cache.add_encoded(encoded)

    def read(self, ids: Sequence[int], cache: KeyValueCache, length: int) -> int:
        """Run ``ids`` behind the first ``length`` rows of a cache; return the token of the greatest logits.

        The logits are in :attr:`logits` then.  ``ids`` are not empty and fit into the longest text.
        """
        done = 0
        if not length:
            done = self._read_first(ids, cache)
        for place in range(done, len(ids)):
            self._run(self._later, [ids[place]], 0, cache, length + place)
        return int(self._token.numpy()[0, 0])

    def first_size(self, wanted: int) -> int:
        """Return the tokens of the first run, more than are wanted where padding takes less than runs behind it."""
        costs = COSTS_ON_PROCESSORS if self.session.device.profile.is_software else COSTS
        return min(first_sizes(self.form), key=lambda size: (costs[size] + max(wanted - size, 0), -size))

    def _read_first(self, ids: Sequence[int], cache: KeyValueCache) -> int:
        """Run the first of ``ids``, as many as one run takes; return their number."""
        run = self.first_size(len(ids))
        part = list(ids[:run])
        self._run(self.session, [*part, *[part[-1]] * (run - len(part))], len(part) - 1, cache, 0)
        cache.rewind(len(part))
        return len(part)

    def _run(self, session: InferenceSession, ids: Sequence[int], row: int, cache: KeyValueCache, length: int) -> None:
        is_first = not length
        form, names = self.form, self.form.inputs[not is_first]
        end = length + len(ids)
        feeds: dict[str, Any] = {IDS: np.array([ids]), ENDS: np.array([end]), LOGITS_ROWS: np.array([[row]])}
        feeds[BRANCH] = np.array([not is_first])
        feeds = {name: array for name, array in feeds.items() if name in names}
        feeds |= {name: tensor for name, tensor in (*cache.tensors.items(), *cache.encoded.items()) if name in names}
        if is_first:
            feeds |= {
                name: np.zeros((batch, heads, 0, size), kind)
                for name, (batch, heads, size, kind) in form.layout.items()
                if name in names
            }
        targets: dict[str, Any] = {TOKEN: self._token, LOGITS: self.logits}
        continued = {name: form.presents[name] for name in (form.layout if is_first else form.own)}
        targets |= dict.fromkeys(continued.values(), "gpu-buffer")
        results: dict[str, Any] = dict(zip(targets, session.run(list(targets), feeds, outputs=targets)))
        cache.replace({name: results[form.presents[name]] for name in form.own}, end)
        if is_first:
            cache.add_encoded({name: results[present] for name, present in continued.items() if name not in form.own})

    def close(self) -> None:
        """Free the weights and plans."""
        for session in self.sessions:
            session.close()
        for tensor in (self.logits, self._token):
            tensor.dispose()
