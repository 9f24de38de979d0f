"""A decoder on the device: runs of a few sizes over a cache, so that three plans serve any conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..api.arguments import integer
from ..model.compiled import Progress
from ..model.header import ModelHeader
from ..runtime.execution.repeated_reader import RepeatedReader
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.decoder_ports import CAPACITY, ENDS, IDS, LOGITS, LOGITS_ROWS, MASK, PAST, POSITIONS, TOKEN
from ..runtime.plan.errors import InputError, ModelError, ShapeError, UnsupportedError
from ..session.session import InferenceSession
from .cache import ROWS, KeyValueCache
from .decoder_runs import DecoderRun, tokens_title
from .folder import BATCH, ModelFolder
from .model_source import DECODER, OPTIONS, open_part, part_header, read_header

#: Tokens of a run, each a plan.  The smallest capacity is more than the largest: a run is never a whole cache
CHUNKS = (1, 16, 128)
#: Tokens of a run that verifies a draft, whose last known token is the first of them
VERIFIED = 16
#: Tokens for which a padded run of each size takes less than smaller ones: GPUs take about alike for some rows and for
#: few, processors as many times as long
LEAST = {1: 1, 16: 6, 128: 43}
LEAST_ON_PROCESSORS = {1: 1, 16: 6, 128: 97}
#: Tokens of contexts unless a length is asked for
LENGTH = 4096


class DecoderForm:
    """What is known of a folder's decoder before it is compiled.

    ``in_place``: its caches have a capacity; else every run returns longer ones.  ``dynamic`` is the range of their
    rows, ``layout`` the sizes of each, and ``presents`` the outputs that continue them.
    """

    def __init__(self, folder: ModelFolder, max_length: int | None, cache: Any) -> None:
        """Read the model's header.  Raises :class:`InputError` for a length beyond the model's context."""
        if folder.encoder is not None:
            raise UnsupportedError("the model has an encoder", hint="Generator and shaderloom generate take it")
        self.max_length, self.context = checked_length(folder, max_length), folder.context
        #: the most rows of a cache in place
        self.limit = -(-self.max_length // ROWS) * ROWS
        #: the most rows of a cache that grows: a run has a token behind them
        self.longest_past = max(self.max_length - 1, 1)
        header = part_header(folder, DECODER, cache)
        caches = {port.name: port for port in header.inputs if len(port.dims or ()) == 4}
        first = next(iter(caches.values()))
        self.in_place = (first.dims or ())[2] == CAPACITY
        #: whether a run says which row's logits it wants: those of others have no padding
        self.has_row = any(port.name == LOGITS_ROWS for port in header.inputs)
        self.dynamic: Mapping[str, tuple[int, ...]] = (
            {CAPACITY: (ROWS, self.limit, ROWS)} if self.in_place else {PAST: (0, self.longest_past)}
        )
        self.layout = {name: cache_layout(port, folder) for name, port in caches.items()}
        self.presents = cache_pairs(folder, caches, {port.name for port in header.outputs})
        self.vocabulary, self.logits_type = logits_form(header)
        self._folder, self._file = folder, folder.model

    @cached_property
    def padding(self) -> str:
        """The side on which prompts may be padded: "right", "left", or "" if the model takes none."""
        if self.in_place:
            return "right" if self.has_row else ""
        if self._folder.is_bundle:
            return self._folder.padding
        inputs = {port.name for port in read_header(self._file, options={}).inputs}
        return "left" if inputs >= {MASK, POSITIONS} else ""

    def check_drafts(self) -> None:
        """Raise :class:`UnsupportedError` if no run says which rows of logits it wants."""
        if not self.has_row:
            raise UnsupportedError(
                "the model computes the logits of one row alone, so that no draft is verified",
                hint="leave prompt_lookup_num_tokens at 0, or export the model without prune_lm_head",
            )

    def runs(self) -> list[DecoderRun]:
        """Return the runs of a conversation."""
        return [
            DecoderRun(tokens_title(tokens), self._file, self.shapes(tokens), self.dynamic, OPTIONS)
            for tokens in CHUNKS
        ]

    def shapes(self, tokens: int, wanted: int = 1, batch: int = 1) -> dict[str, tuple[int, ...]]:
        """Return shapes of the inputs of a run of ``tokens`` tokens of each text, over caches of some rows.

        ``wanted`` is the number of rows of logits.
        """
        rows = ROWS if self.in_place else min(ROWS, self.longest_past)
        caches = {name: (batch, heads, rows, size) for name, (_, heads, size, _) in self.layout.items()}
        return {**caches, **self.small_shapes(tokens, wanted, batch)}

    def small_shapes(self, tokens: int, wanted: int = 1, batch: int = 1) -> dict[str, tuple[int, ...]]:
        """Return shapes of the inputs besides caches, all int64; ``wanted`` is the number of rows of logits."""
        return {IDS: (batch, tokens), ENDS: (batch,), **({LOGITS_ROWS: (batch, wanted)} if self.has_row else {})}


class CachedDecoder:
    """The model of a folder on a device, which serves any number of caches in turns."""

    def __init__(
        self,
        folder: ModelFolder,
        *,
        device: Any = None,
        max_length: int | None = None,
        cache: Any = True,
        progress: Progress | None = None,
    ) -> None:
        """Open the model for contexts up to ``max_length`` tokens.  Raises what sessions raise."""
        self.folder = folder
        self.form = form = DecoderForm(folder, max_length, cache)
        self.session = open_part(folder, DECODER, form.dynamic, device=device, cache=cache, progress=progress)
        self._batched: InferenceSession | None = None  #: that of several texts, of a bundle
        device = self.session.device
        self.logits = Tensor.empty((1, 1, form.vocabulary), form.logits_type, device)
        self._greatest = Tensor.empty((1, 1), "int64", device)
        #: the small inputs of runs by their tokens: a run of the same tensors as the one before is only submitted
        self._small = {tokens: self.small_inputs(tokens) for tokens in CHUNKS}
        #: the token [1, 1] that a run of one token reads
        self.token = self._small[1][IDS]
        self.reader = RepeatedReader(self.token)
        #: how many runs have been submitted: each leaves other logits, and mostly another token
        self.runs = 0

    @property
    def sessions(self) -> tuple[InferenceSession, ...]:
        """Those that have weights and plans."""
        return (self.session, *([] if self._batched is None else [self._batched]))

    def session_of(self, batch: int) -> InferenceSession:
        """Return the session that computes ``batch`` texts together."""
        if batch == 1 or not self.folder.is_bundle:
            return self.session
        if self._batched is None:
            options: dict[str, Any] = {"device": self.session.device, "cache": False, "progress": None}
            self._batched = open_part(self.folder, BATCH, self.form.dynamic, **options)
        return self._batched

    def small_inputs(self, tokens: int, wanted: int = 1) -> dict[str, Tensor]:
        """Return tensors for the inputs of a run besides caches."""
        shapes = self.form.small_shapes(tokens, wanted)
        return {name: Tensor.empty(shape, "int64", self.session.device) for name, shape in shapes.items()}

    def new_cache(self) -> KeyValueCache:
        """Return a cache without tokens."""
        return KeyValueCache(self.form.layout, self.session.device, in_place=self.form.in_place)

    def read(self, ids: Sequence[int], cache: KeyValueCache, length: int) -> int:
        """Run ``ids`` behind the first ``length`` rows of a cache; return the token of the greatest logits.

        The logits are in :attr:`logits` then.  ``ids`` are not empty and fit into the longest context.
        """
        self.run(ids, cache, length, is_greedy=True)
        return int(self.reader.begin().numpy()[0, 0])

    def run(self, ids: Sequence[int], cache: KeyValueCache, length: int, *, is_greedy: bool) -> None:
        """Do what :meth:`read` does without waiting: :attr:`token` is the one of the greatest logits, or the last."""
        done = 0
        while done < len(ids):
            run = self.chunk(len(ids) - done, length + done)
            part = list(ids[done : done + run])
            self.token.update(np.array([part[-1:]]))
            if run > 1:
                padding = [part[-1]] * (run - len(part))
                self._small[run][IDS].update(np.array([[*part, *padding]]))
                if self.form.has_row:  # that of a single token is 0, as tensors are at first
                    self._small[run][LOGITS_ROWS].update(np.array([[len(part) - 1]]))
            self._run(run, cache, length + done, is_greedy)
            done += len(part)

    def follow(self, cache: KeyValueCache, length: int, *, is_greedy: bool) -> None:
        """Run :attr:`token` as :meth:`run` does, whatever it is: the host need not know it."""
        self._run(1, cache, length, is_greedy)

    def chunk(self, wanted: int, length: int) -> int:
        """Return the tokens of the next run, more than are wanted where padding has room and takes less than runs."""
        if not (self.form.in_place and self.form.has_row):
            return max(size for size in CHUNKS if size <= wanted)
        least = LEAST_ON_PROCESSORS if self.session.device.profile.is_software else LEAST
        return max(size for size in CHUNKS if self.has_room(length, size) and wanted >= least[size])

    def has_room(self, length: int, tokens: int) -> bool:
        """Tell whether a run of so many tokens, padding included, is possible behind ``length`` rows."""
        form = self.form
        return length + tokens <= (form.limit if form.in_place else form.max_length)

    def _run(self, tokens: int, cache: KeyValueCache, length: int, is_greedy: bool) -> None:
        small, end = self._small[tokens], length + tokens
        self.runs += 1
        small[ENDS].update(np.array([end]))
        cache.rewind(length)
        self.submit(small, {TOKEN: self.token if is_greedy else self._greatest, LOGITS: self.logits}, cache, end)

    def submit(self, small: Mapping[str, Any], results: Mapping[str, Tensor], cache: KeyValueCache, end: int) -> None:
        """Run a decoder once: ``small`` are its inputs besides caches, ``results`` the tensors of its other outputs.

        The cache has ``end`` rows then.
        """
        form = self.form
        if form.in_place:
            cache.grow(end, form.limit)
        targets: dict[str, Any] = dict(results)
        for name, present in form.presents.items():
            targets[present] = cache.tensors[name] if form.in_place else "gpu-buffer"
        try:
            session = self.session_of(small[IDS].shape[0])
            arrays = session.run(list(targets), {**small, **cache.tensors}, outputs=targets)
        except ShapeError as error:
            room = form.context - CHUNKS[-1]
            if form.in_place or form.max_length <= room or room < 1:
                raise
            raise UnsupportedError(
                f"tables of the model end with its context, {form.context:,}, and runs of {CHUNKS[-1]} do not: {error}",
                hint=f"pass max_length={room}, or less",
            ) from error
        if not form.in_place:
            longer: dict[str, Any] = dict(zip(targets, arrays))
            cache.replace({name: longer[present] for name, present in form.presents.items()}, end)

    def close(self) -> None:
        """Free the weights and plans."""
        for session in self.sessions:
            session.close()
        for tensor in (
            self.logits,
            self._greatest,
            *(each for small in self._small.values() for each in small.values()),
        ):
            tensor.dispose()


def checked_length(folder: ModelFolder, max_length: int | None) -> int:
    """Return the most tokens of a text; raise :class:`InputError` for more than the model's context."""
    if max_length is not None and not 1 <= integer("max_length", max_length) <= folder.context:
        raise InputError(f"max_length is from 1 to the context of the model, {folder.context}, not {max_length}")
    return max_length or min(folder.context, LENGTH)


def logits_form(header: ModelHeader) -> tuple[int, str]:
    """Return the size of the vocabulary, and the element type of the logits."""
    logits = next(port for port in header.outputs if port.name == LOGITS)
    vocabulary = (logits.dims or (None,))[-1]
    if not isinstance(vocabulary, int):
        raise ModelError("the file does not state the size of the vocabulary", tensor=LOGITS, hint="export it so")
    return vocabulary, logits.dtype or "float32"


def cache_layout(port: DeclaredPort, folder: ModelFolder) -> tuple[int, int, int, str]:
    """Return batch, heads, size and element type of a cache; what the file does not state is the folder's."""
    _, heads, _, size = port.dims or ()
    heads, size = (
        stated if isinstance(stated, int) else other for stated, other in ((heads, folder.heads), (size, folder.size))
    )
    if not heads or not size:
        raise ModelError("neither the file nor the folder states the sizes of the cache", tensor=port.name)
    return 1, heads, size, port.dtype or "float32"


def cache_pairs(folder: ModelFolder, caches: Mapping[str, Any], outputs: set[str]) -> dict[str, str]:
    """Return the output that continues each cache, by the folder's patterns of names."""
    pairs = {}
    for past, present in zip(folder.past, folder.present):
        for layer in range(len(caches)):
            pairs[past % layer] = present % layer
    for name in caches:
        if pairs.get(name) not in outputs:
            raise ModelError(
                f"no output continues the cache; the folder names {', '.join(folder.past)}",
                tensor=name,
                hint="export the model again, with the names in its settings",
            )
    return {name: pairs[name] for name in caches}
