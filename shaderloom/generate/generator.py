"""Generation of text: a decoder, its tokenizer and the tokens so far."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..api.arguments import entries, functions, integer, is_integer, path
from ..runtime.plan.decoder_ports import IDS
from ..runtime.plan.errors import ClosedError, InputError, UnsupportedError
from .answer import Generation, Pieces, Statistics
from .batch import BatchDecoder, unpadded
from .cache import common_prefix
from .chat_template import Message
from .decoder import VERIFIED, CachedDecoder
from .encoded_decoder import EncodedDecoder, EncoderInputs
from .folder import ModelFolder
from .grammar import Grammar, TextConstraint
from .groups import GroupBatch
from .opened_model import OpenedModel
from .sampling import Sampling
from .scheduler import Scheduler, TextRequest
from .slots import SlotBatch
from .text import StopTexts, TextStream
from .text_row import LogitsProcessor, TextRow, TextTask, TokenRule
from .text_tokens import TextTokens, Tokens

if TYPE_CHECKING:
    from ..model.compiled import Progress
    from .cache import KeyValueCache

Prompt = str | Sequence[int] | Sequence[Message]
_PROMPT = "a prompt is a text, a list of token ids, or a list of messages"


class Generator:
    """Generates text with the decoder of a folder.  For one thread; close it, or use it in ``with``.

    The tokens of the last prompt and its answer stay in a cache on the device: the next prompt is computed from the
    first token on that differs.

    ``folder``
        a folder that onnxruntime-genai's builder, optimum, transformers.js or ``shaderloom convert`` has written, or a
        bundle of ``shaderloom compile --generate``, which takes no compiler.
    ``device``
        as for :class:`InferenceSession`.
    ``max_length``
        the most tokens of a prompt and its answer; None: 4096, or the model's context if that is less; of a bundle
        what it was compiled for.
    ``file``
        the model in the folder, where there are several.
    ``cache``
        the disk cache, as for :class:`InferenceSession`.
    ``trust``
        whether a bundle's shaders run without bounds checks, as for :func:`.load_bundle`.
    ``progress``
        a function that is called as ``progress(what, done, total)`` while the model is compiled.

    Raises the project's errors, among them :class:`UnsupportedError` for a folder of another kind of model.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        device: Any = None,
        max_length: int | None = None,
        file: str | None = None,
        cache: bool | str | os.PathLike[str] = True,
        trust: bool = False,
        progress: Progress | None = None,
    ) -> None:
        settings = ModelFolder.read(path("folder", folder), file, trust=trust)
        kind = CachedDecoder if settings.encoder is None else EncodedDecoder
        decoder = kind(settings, device=device, max_length=max_length, cache=cache, progress=progress)
        self._begin(OpenedModel(settings, decoder, cache), decoder.new_cache(), [])

    def _begin(self, shared: OpenedModel, cache: KeyValueCache, ids: list[int]) -> None:
        self._shared = shared
        self._cache = cache
        self._ids = ids  # those whose rows are in the cache
        self._active: Generation | None = None
        self._closed = False

    @property
    def max_length(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self._shared.decoder.form.max_length

    @property
    def has_template(self) -> bool:
        """Whether the model says how a chat is formatted."""
        return self._shared.folder.template is not None

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens in the cache."""
        return tuple(self._ids)

    @property
    def device_name(self) -> str:
        """The name of the device that the model runs on."""
        return self._shared.decoder.session.device.name

    @property
    def is_device_lost(self) -> bool:
        """Whether the device is gone: every call raises :class:`DeviceLost` then; open another generator."""
        return self._shared.decoder.session.device.check_lost()

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory: weights, plans and this generator's cache."""
        models = sum(session.device_bytes for session in self._shared.decoder.sessions)
        return models + self._cache.nbytes

    @property
    def plans(self) -> int:
        """The number of the model's plans so far."""
        return sum(len(session.stats.keys) for session in self._shared.decoder.sessions)

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a text, of the messages of a chat, or those that are passed.

        Raises :class:`InputError` for what is none of these, or tokens that the model does not have.
        """
        self._live()
        if isinstance(prompt, str):
            return self._checked(self._shared.tokenizer.encode(prompt))
        listed = entries(prompt, _PROMPT)
        if listed and all(isinstance(entry, Mapping) for entry in listed):
            text = self._shared.template.format(listed)
            return self._checked(self._shared.tokenizer.encode(text, special=False))
        for entry in listed:
            if not is_integer(entry):
                raise InputError(f"{_PROMPT}; {entry!r:.80} is no token id")
        return self._checked([int(entry) for entry in listed])

    def _checked(self, ids: list[int]) -> list[int]:
        vocabulary = self._shared.decoder.form.vocabulary
        wrong = [token for token in ids if not 0 <= token < vocabulary]
        if wrong:
            raise InputError(f"the model has tokens 0 to {vocabulary - 1}, not {wrong[0]}")
        if not ids:
            raise InputError("the prompt has no tokens", hint="pass at least one token")
        return ids

    def generate(
        self,
        prompt: Prompt = (),
        *,
        encoder_inputs: EncoderInputs | None = None,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        processors: Sequence[LogitsProcessor] = (),
        json_schema: str | Mapping[str, Any] | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        prompt_lookup_num_tokens: int = 0,
        stream: bool = True,
    ) -> Generation:
        """Return an iterator of the pieces of an answer; without ``stream`` one that has run to its end.

        ``prompt``
            a text, token ids, or messages of a chat, which the model's template formats.  With an encoder of text and
            no ``encoder_inputs`` it is what the encoder reads; else what the answer begins with, by default the tokens
            that the folder states.
        ``encoder_inputs``
            what the encoder reads, arrays [1, ...] by name, like ``input_features``; None: the same as the last time.
        ``max_new_tokens``
            None: as many as fit.
        ``temperature``
            0 takes the most probable token; see :class:`.Sampling` for this and ``top_k`` to ``repetition_penalty``.
        ``seed``
            of the draws, which depend on nothing else on one device; None takes another one each time.
        ``stop``
            texts that end the answer; they are no part of it.
        ``processors``
            functions of the tokens so far and the logits, which return the logits that count.  With any, the logits of
            every token go to the host, which chooses.
        ``json_schema``, ``regex``, ``grammar``
            what the answer is, one of these: JSON of a schema, a text that matches, or one of a grammar in Lark's form;
            of at most 262,144 characters.  Tokens that cannot lead there are not chosen; an answer that ends with
            ``max_new_tokens`` or ``stop`` may be the beginning of one.
        ``prompt_lookup_num_tokens``
            up to 15: how many tokens a run may verify besides the one that it computes.  Drafts are what followed the
            last tokens where the text had them before; tokens and draws are those of single runs.

        Raises :class:`InputError` if prompt and answer are longer than :attr:`max_length`, and
        :class:`UnsupportedError` for drafts with an encoder, a model of one row of logits, or a bundle without them.
        """
        ids, encoded = self._decoder_prompt(prompt, encoder_inputs)
        options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        options |= {"repetition_penalty": repetition_penalty, "seed": _drawn(seed), "processors": processors}
        options |= {"json_schema": json_schema, "regex": regex, "grammar": grammar}
        row = TextRow(self._task(ids, max_new_tokens=max_new_tokens, stop=stop, **options))
        if self._active is not None:
            self._active.close()
        statistics = Statistics(prompt_tokens=len(ids), seed=row.task.rule.sampling.seed)
        shared, most = self._shared, self._checked_draft(prompt_lookup_num_tokens)
        tokens = TextTokens(shared.decoder, shared.choice, self._cache, self._ids)
        each = tokens.drafted(row, most, shared.verification, statistics) if most else tokens.each(row)
        self._active = Generation(self._pieces(row, each, encoded, statistics, tokens.go_on), statistics, row)
        if not stream:
            for _ in self._active:
                pass
        return self._active

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        attention_mask: Sequence[Sequence[int]] | None = None,
        seed: int | Sequence[int] | None = None,
        **options: Any,
    ) -> list[Generation]:
        """Return answers to several prompts, computed together: the ones of :meth:`generate` with these arguments.

        ``attention_mask``
            for prompts of token ids that are padded to one length, on either side: 0 where one is padding.
        ``seed``
            of all rows, or one for each; None: another for each.
        ``options``
            ``max_new_tokens`` to ``grammar`` of :meth:`generate`.

        They have a cache of their own, whose memory is freed behind them.  A bundle computes as many together as it was
        compiled for, and further ones behind them.  Raises :class:`UnsupportedError` for a decoder with an encoder, a
        bundle for one text alone, and for prompts of unequal length if the model takes no padding.
        """
        decoder, folder = self._plain_decoder(), self._shared.folder
        if folder.is_bundle and not folder.batch:
            reason = "the bundle has plans for one text alone"
            raise UnsupportedError(reason, hint="compile it with --texts, or generate the answers one after another")
        listed = entries(prompts, "prompts are a list of prompts")
        texts = [self.encode(prompt) for prompt in unpadded(listed, attention_mask)]
        rows = [TextRow(self._task(ids, seed=each, **options)) for ids, each in zip(texts, _seeds(seed, len(texts)))]
        most = folder.batch if folder.is_bundle else len(rows)
        for first in range(0, len(rows), max(most, 1)):
            together = rows[first : first + most]
            together += [_filler(rows[first]) for _ in range(most - len(together))]  # a bundle's number, always
            batch = BatchDecoder(decoder, together, self._shared.cache)
            try:
                for _ in batch.generate():
                    pass
            finally:
                batch.close()
        return [_finished(row) for row in rows]

    def scheduler(self, *, slots: int = 8, queue: int = 64) -> Scheduler:
        """Return what generates up to ``slots`` texts at once, while up to ``queue`` wait, in a thread of its own.

        Close it before the generator.  Until then the generator is for :meth:`encode` and :meth:`request` alone.
        Raises :class:`UnsupportedError` for a decoder behind an encoder, and for a bundle.
        """
        if self._shared.folder.is_bundle:
            raise UnsupportedError("a bundle has no plans for texts that join and leave", hint="serve the folder of it")
        decoder, cache = self._plain_decoder(), self._shared.cache
        batch = SlotBatch(decoder, slots, cache) if decoder.form.in_place else GroupBatch(decoder, slots, cache)
        return Scheduler(batch, queue)

    def request(
        self,
        prompt: Prompt,
        changed: Callable[[], None],
        *,
        seed: int | None = None,
        **options: Any,
    ) -> TextRequest:
        """Return a request for :meth:`scheduler`; ``options`` are those of :meth:`generate_batch`."""
        task = self._task(self.encode(prompt), seed=_drawn(seed), for_thread=True, **options)
        return TextRequest(task, changed)

    def _checked_draft(self, tokens: int) -> int:
        """Return the tokens of a draft; raise an error if there can be none of so many."""
        if not is_integer(tokens) or not 0 <= tokens < VERIFIED:
            raise InputError(f"prompt_lookup_num_tokens is from 0 to {VERIFIED - 1}, not {tokens!r}")
        if tokens:
            decoder, folder = self._shared.decoder, self._shared.folder
            if isinstance(decoder, EncodedDecoder):
                reason = "the model has an encoder, so that no draft is verified"
                raise UnsupportedError(reason, hint="leave prompt_lookup_num_tokens at 0")
            decoder.form.check_drafts()
            if folder.is_bundle and not folder.has_drafts:
                reason = "the bundle has no plan that verifies drafts"
                raise UnsupportedError(reason, hint="compile it with --drafts, or leave prompt_lookup_num_tokens at 0")
        return tokens

    def _plain_decoder(self) -> CachedDecoder:
        """Return the decoder of a batch; raise :class:`UnsupportedError` for one that takes one text at a time."""
        decoder = self._shared.decoder
        if isinstance(decoder, EncodedDecoder):
            raise UnsupportedError("the model has an encoder", hint="generate the answers one after another")
        return decoder

    def _task(
        self,
        ids: list[int],
        *,
        max_new_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        processors: Sequence[LogitsProcessor] = (),
        json_schema: str | Mapping[str, Any] | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        prompt_lookup_num_tokens: int = 0,
        for_thread: bool = False,
        **sampling: Any,
    ) -> TextTask:
        """Return what to generate behind ``ids``; ``for_thread`` says that a scheduler's thread does it."""
        if prompt_lookup_num_tokens:
            reason = "drafts are verified for one text at a time"
            raise UnsupportedError(reason, hint="leave prompt_lookup_num_tokens at 0, or call generate for each text")
        unknown = sampling.keys() - {field.name for field in fields(Sampling)}
        if unknown:
            reason = f"there is no argument '{min(unknown)}' for several texts"
            raise InputError(reason, hint="max_new_tokens to grammar of generate are the ones that there are")
        shared, words, constraint = self._shared, None, None
        chosen, stops = Sampling(**sampling), StopTexts(stop)
        count = self._checked_count(ids, max_new_tokens)
        follows = Grammar.of(json_schema=json_schema, regex=regex, grammar=grammar)
        if follows is not None:
            shared.grammars.check(follows)
            process = shared.thread_grammars if for_thread else shared.grammars
            constraint = TextConstraint(process, follows, len(ids))
        if shared.folder.has_tokenizer:
            words = TextStream(shared.writer if for_thread else shared.tokenizer, ids)
        rule = TokenRule(chosen, functions("processors", processors), constraint)
        return TextTask(ids, count, shared.folder.ends, words, stops, rule)

    def _checked_count(self, ids: Sequence[int], wanted: int | None) -> int:
        """Return how many tokens may follow; raise :class:`InputError` if fewer fit than are wanted."""
        wanted = None if wanted is None else integer("max_new_tokens", wanted)
        room = self.max_length - len(ids)
        if room < 1 or (wanted is not None and wanted > room):
            raise InputError(
                f"{len(ids):,} tokens and {wanted or 1:,} new ones exceed the length of {self.max_length:,}",
                hint="open the generator with a greater max_length, or shorten the prompt",
            )
        if wanted is not None and wanted < 1:
            raise InputError(f"max_new_tokens is at least 1, not {wanted}")
        return min(room, wanted or room)

    def _decoder_prompt(
        self, prompt: Prompt, encoder_inputs: EncoderInputs | None
    ) -> tuple[list[int], EncoderInputs | None]:
        """Return the tokens that the decoder begins with, and what is to be encoded before."""
        self._live()
        decoder = self._shared.decoder
        if not isinstance(decoder, EncodedDecoder):
            if encoder_inputs is not None:
                raise InputError("the model has no encoder", hint="leave encoder_inputs out")
            return self.encode(prompt), None
        is_read = encoder_inputs is None and decoder.reads_text and len(prompt) > 0
        if is_read:
            encoder_inputs = {IDS: np.array([self.encode(prompt)])}
        if encoder_inputs is None and not self._cache.encoded:
            decoder.checked({})  # nothing to go on from
        ids = list(self._shared.folder.starts) if is_read or not len(prompt) else self.encode(prompt)
        return self._checked(ids), None if encoder_inputs is None else decoder.checked(encoder_inputs)

    def _encode(self, inputs: EncoderInputs) -> None:
        self._live()
        decoder = self._shared.decoder
        assert isinstance(decoder, EncodedDecoder), "it has an encoder"
        decoder.encode(inputs, self._cache)
        self._ids.clear()

    def _pieces(
        self,
        row: TextRow,
        tokens: Tokens,
        encoded: EncoderInputs | None,
        statistics: Statistics,
        go_on: Callable[[], None],
    ) -> Pieces:
        begun = time.perf_counter()
        shown = 0
        try:
            if encoded is not None:
                self._encode(encoded)
            statistics.reused_tokens = common_prefix(self._ids, row.ids)
            self.rewind(statistics.reused_tokens)
            with closing(tokens):
                while not row.ended_by:
                    self._live()
                    token = next(tokens)
                    now = time.perf_counter()
                    if not statistics.new_tokens:
                        statistics.first_token_seconds = now - begun
                        begun = now
                    statistics.decode_seconds = now - begun
                    row.take(token, go_on)
                    statistics.new_tokens += 1
                    piece, shown = row.text[shown:], len(row.text)
                    if piece:
                        yield piece
        except KeyboardInterrupt:  # it may leave a run halfway, and with it the cache
            self.rewind()
            raise
        statistics.ended_by = row.ended_by

    def rewind(self, length: int = 0) -> None:
        """Forget the tokens in the cache but for the first ``length``."""
        self._live()
        if not 0 <= integer("length", length) <= len(self._ids):
            raise InputError(f"the cache has {len(self._ids)} tokens; it cannot be rewound to {length}")
        self._cache.rewind(length)
        del self._ids[length:]

    def fork(self) -> Generator:
        """Return a generator with the same tokens in a cache of its own; both share weights and plans."""
        self._live()
        other = object.__new__(type(self))
        other._begin(self._shared, self._cache.copy(), list(self._ids))
        self._shared.users += 1
        return other

    def close(self) -> None:
        """Free the cache, and with the last fork all else.  Closing twice has no effect."""
        if self._closed:
            return
        self._closed = True
        self._cache.dispose()
        self._shared.users -= 1
        if not self._shared.users:
            self._shared.close()

    def _live(self) -> None:
        if self._closed:
            raise ClosedError("the generator is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _drawn(seed: int | None) -> int:
    """Return a seed: the stated one, or another each time."""
    return secrets.randbits(32) if seed is None else seed


def _seeds(seed: int | Sequence[int] | None, count: int) -> Sequence[int]:
    """Return a seed for each row."""
    if seed is None:
        return [_drawn(None) for _ in range(count)]
    if not isinstance(seed, Iterable):
        return [seed] * count
    seeds = entries(seed, "seed is an integer, or one for each prompt")
    if len(seeds) != count:
        raise InputError(f"seed is an integer, or one for each of the {count} prompts, not {len(seeds)}")
    return seeds


def _filler(row: TextRow) -> TextRow:
    """Return a text that takes the place of one in a batch, beside ``row``: a token of no use."""
    return TextRow(TextTask(row.task.prompt, 1, (), None, StopTexts(()), TokenRule()))


def _finished(row: TextRow) -> Generation:
    """Return the answer of a row, which has run to its end."""
    seed = row.task.rule.sampling.seed
    statistics = Statistics(row.prompt_tokens, new_tokens=len(row.tokens), ended_by=row.ended_by, seed=seed)
    generation = Generation((piece for piece in [row.text] if piece), statistics, row)
    for _ in generation:
        pass
    return generation
