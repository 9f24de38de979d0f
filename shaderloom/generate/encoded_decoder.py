"""A decoder of what an encoder returns, for models of speech and of texts into texts.

The first run of a text reads the encoder's results and returns keys and values of them besides those of its tokens,
right-padded to one of :data:`.decoder.CHUNKS`.  Later runs have one token, because exporters trace them so, and read
these keys and values.  The first one and later ones are models of their own, which share what weights they have in one
file.  An encoder may return these keys and values itself, as onnxruntime-genai's does: then both are alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..model.compiled import Progress
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.decoder_ports import (
    ENCODED,
    ENDS,
    HIDDEN,
    HIDDEN_MASK,
    IDS,
    LOGITS,
    LOGITS_ROWS,
    MASK,
    PAST,
    TOKEN,
    is_encoded,
)
from ..runtime.plan.errors import InputError, ModelError
from ..session.session import InferenceSession
from .cache import KeyValueCache
from .decoder import CHUNKS, LENGTH, cache_layout, cache_pairs, checked_length, logits_form
from .decoder_runs import DecoderRun, tokens_title
from .folder import ENCODER, FIRST, ModelFolder
from .model_source import DECODER, compiled_sizes, open_part, part_file, part_header

EncoderInputs = Mapping[str, Any]
#: What a padded first run of each size takes, in later runs of one token, by the measurements of :data:`.decoder.LEAST`
COSTS = {1: 1, 16: 6, 128: 18}
COSTS_ON_PROCESSORS = {1: 1, 16: 6, 128: 37}


class EncodedForm:
    """What a folder's files say of the decoder: ``layout`` has sizes of caches, ``presents`` the outputs that continue
    them.

    ``own`` are those that runs extend; the others are of the encoder's results, and come of first runs alone, or of the
    encoder: these ``returned`` ones have its outputs.
    """

    def __init__(self, folder: ModelFolder, max_length: int | None, cache: Any) -> None:
        """Read the headers.  Raises :class:`InputError` for a length beyond the model's context."""
        self.max_length = checked_length(folder, max_length)
        self._folder, self._cache = folder, cache
        first, later = (part_header(folder, part, cache) for part in (FIRST, DECODER))
        caches = {port.name: port for port in later.inputs if len(port.dims or ()) == 4}
        self.layout = {name: cache_layout(port, folder) for name, port in caches.items()}
        results = {port.name for port in part_header(folder, ENCODER, cache).outputs}
        self.presents = cache_pairs(folder, caches, {port.name for port in first.outputs} | results)
        self.returned = {name: present for name, present in self.presents.items() if present in results}
        rows = {name: (port.dims or ())[2] for name, port in caches.items()}
        self._stated_rows = {name: size for name, size in rows.items() if isinstance(size, int)}
        self.vocabulary, self.logits_type = logits_form(first)
        self.own = {name: sizes for name, sizes in self.layout.items() if not is_encoded(name)}
        #: of the first run and of later ones
        self.inputs = tuple({port.name for port in header.inputs} for header in (first, later))
        hidden = next((port.dims or () for port in first.inputs if port.name == HIDDEN), ())
        #: the size of an encoded row
        self.hidden = hidden[-1] if hidden and isinstance(hidden[-1], int) else 0
        stated = [{name for port in header.inputs for name in port.dims or ()} for header in (first, later)]
        self._stated = (stated[0] - {PAST}, stated[1])  # a first run has no past

    def dynamic(self, encoded: int = LENGTH) -> tuple[dict[str, tuple[int, ...]], ...]:
        """Return the ranges of sizes, of the first run and of later ones, for up to ``encoded`` rows of the encoder."""
        ranges = {PAST: (0, max(self.max_length - 1, 1)), ENCODED: (1, encoded)}
        return tuple({name: ranges[name] for name in ranges if name in stated} for stated in self._stated)

    @property
    def first_sizes(self) -> tuple[int, ...]:
        """The tokens that first runs have."""
        if self._folder.is_bundle:
            sizes = compiled_sizes(self._folder, FIRST)
            if not {1} <= {*sizes} <= {*CHUNKS}:
                raise ModelError("the bundle's first runs are not those of a decoder", hint="compile it again")
            return tuple(sorted(sizes))
        most = self.max_length if LOGITS_ROWS in self.inputs[0] else 1
        return tuple(size for size in CHUNKS if size <= most)

    def encoder_shapes(self, rows: int, stated: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return shapes of what the encoder reads: ``rows`` tokens, or the features that file or folder state.

        Raises :class:`InputError` for sizes that neither they nor ``stated`` have.
        """
        shapes = {}
        for port in part_header(self._folder, ENCODER, self._cache).inputs:
            dims = (port.dims or ())[1:]
            other = (rows,) if port.name in (IDS, MASK) else self._folder.features or dims
            sizes = [dim if isinstance(dim, int) else size for dim, size in zip(dims, other)]
            stated_sizes = [size for size in sizes if isinstance(size, int)]
            if port.name not in stated and len(stated_sizes) < len(dims):
                raise InputError(
                    "neither the file nor the folder states its sizes",
                    tensor=port.name,
                    hint=f"num_mel_bins and max_source_positions in config.json, or --shape {port.name}=1x80x3000",
                )
            shapes[port.name] = stated.get(port.name, (1, *stated_sizes))
        return shapes

    def runs(self, rows: int, stated: Mapping[str, tuple[int, ...]]) -> list[DecoderRun]:
        """Return the runs of an answer to :meth:`encoder_shapes`, whose results have as many rows."""
        file, options = part_file(self._folder, ENCODER)
        runs = [DecoderRun("the encoder", file, self.encoder_shapes(rows, stated), options=options)]
        runs += [self._run(f"first {tokens_title(size)}", FIRST, size, rows) for size in self.first_sizes]
        return [*runs, self._run(f"later {tokens_title(1)}", DECODER, 1, rows)]

    def _run(self, title: str, part: str, tokens: int, rows: int) -> DecoderRun:
        file, options = part_file(self._folder, part)
        return DecoderRun(title, file, self.shapes(part, tokens, rows), self.dynamic()[part == DECODER], options)

    def shapes(self, part: str, tokens: int, rows: int) -> dict[str, tuple[int, ...]]:
        """Return shapes of the inputs of a run of ``tokens`` tokens, over ``rows`` encoded ones."""
        past = min(CHUNKS[1], self.max_length - 1) if part == DECODER else 0
        shapes: dict[str, tuple[int, ...]] = {IDS: (1, tokens), ENDS: (1,), LOGITS_ROWS: (1, 1)}
        shapes |= {HIDDEN: (1, rows, self.hidden), HIDDEN_MASK: (1, rows)}
        for name, (batch, heads, size, _) in self.layout.items():
            shapes[name] = (batch, heads, past if name in self.own else self._stated_rows.get(name, rows), size)
        return {name: shape for name, shape in shapes.items() if name in self.inputs[part == DECODER]}


def first_size(sizes: Sequence[int], wanted: int, *, on_processor: bool) -> int:
    """Return the tokens of the first run, more than are wanted where padding takes less than runs behind it."""
    costs = COSTS_ON_PROCESSORS if on_processor else COSTS
    return min(sizes, key=lambda size: (costs[size] + max(wanted - size, 0), -size))


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
        self._sizes = form.first_sizes
        options: dict[str, Any] = {"cache": cache, "progress": progress}
        first, later = form.dynamic()
        #: of later runs
        self.session = open_part(folder, DECODER, later, device=device, **options)
        device = self.session.device
        self._first = open_part(folder, FIRST, first, device=device, **options)
        self.encoder = open_part(folder, ENCODER, "auto", device=device, **options)
        self.logits = Tensor.empty((1, 1, form.vocabulary), form.logits_type, device)
        self._token = Tensor.empty((1, 1), "int64", device)

    @property
    def sessions(self) -> tuple[InferenceSession, ...]:
        """Those that have weights and plans."""
        return (self.session, self._first, self.encoder)

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
        read, results = set().union(*self.form.inputs), dict(self.form.returned)
        if HIDDEN in read:
            results[HIDDEN] = self.encoder.get_outputs()[0].name
        arrays = self.encoder.run(list(results.values()), feeds, outputs=dict.fromkeys(results.values(), "gpu-buffer"))
        encoded = {
            name: array if isinstance(array, Tensor) else Tensor.from_numpy(array, self.session.device)
            for name, array in zip(results, arrays)
        }
        if HIDDEN_MASK in read:
            mask = feeds.get(MASK, np.ones(encoded[HIDDEN].shape[:2], np.int64))
            encoded[HIDDEN_MASK] = Tensor.from_numpy(np.asarray(mask, np.int64), self.session.device)
        cache.rewind(0)
        cache.forget_encoded()
        cache.add_encoded(encoded)

    def read(self, ids: Sequence[int], cache: KeyValueCache, length: int) -> int:
        """Run ``ids`` behind the first ``length`` rows of a cache; return the token of the greatest logits.

        The logits are in :attr:`logits` then.  ``ids`` are not empty and fit into the longest text.
        """
        done = 0 if length else self._read_first(ids, cache)
        for place in range(done, len(ids)):
            self._read_next(ids[place], cache, length + place)
        return int(self._token.numpy()[0, 0])

    def _read_first(self, ids: Sequence[int], cache: KeyValueCache) -> int:
        """Run the first of ``ids``, as many as one run takes; return their number."""
        form = self.form
        size = first_size(self._sizes, len(ids), on_processor=self.session.device.profile.is_software)
        part = list(ids[:size])
        padded = [*part, *[part[-1]] * (size - len(part))]
        computed = {name: present for name, present in form.presents.items() if name not in form.returned}
        results = self._run(self._first, padded, len(part) - 1, cache, 0, computed)
        cache.replace({name: results[name] for name in form.own}, size)
        cache.rewind(len(part))
        cache.add_encoded({name: tensor for name, tensor in results.items() if name not in form.own})
        return len(part)

    def _read_next(self, token: int, cache: KeyValueCache, length: int) -> None:
        presents = {name: self.form.presents[name] for name in self.form.own}
        cache.replace(self._run(self.session, [token], 0, cache, length, presents), length + 1)

    def _run(
        self,
        session: InferenceSession,
        ids: Sequence[int],
        row: int,
        cache: KeyValueCache,
        length: int,
        presents: Mapping[str, str],
    ) -> dict[str, Any]:
        """Run tokens behind ``length`` others, for the logits of one row; return what ``presents`` names."""
        small = {IDS: np.array([ids]), ENDS: np.array([length + len(ids)]), LOGITS_ROWS: np.array([[row]])}
        names = self.form.inputs[session is self.session]
        values: dict[str, Any] = {**small, **cache.tensors, **cache.encoded}
        feeds = {name: value for name, value in values.items() if name in names}
        targets: dict[str, Any] = {TOKEN: self._token, LOGITS: self.logits}
        targets |= dict.fromkeys(presents.values(), "gpu-buffer")
        results: dict[str, Any] = dict(zip(targets, session.run(list(targets), feeds, outputs=targets)))
        return {name: results[present] for name, present in presents.items()}

    def close(self) -> None:
        """Free the weights and plans."""
        for session in self.sessions:
            session.close()
        for tensor in (self.logits, self._token):
            tensor.dispose()
