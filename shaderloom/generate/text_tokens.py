"""The tokens of one text, one after another: on the device ahead of the host, on the host's word, or by drafts.

What the device chooses it can also go on from: the run behind a token is submitted before the host has the token, so
that words are made and read while the device works.  A token that ends the text has one run behind it for nothing,
whose row in the cache counts for nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from ..runtime.execution.repeated_reader import PendingRead
from .answer import Statistics
from .cache import KeyValueCache
from .chooser import DeviceChoice, TokenChoices
from .decoder import VERIFIED, CachedDecoder
from .encoded_decoder import EncodedDecoder
from .prompt_lookup import PromptLookup
from .text_row import Choice, TextRow
from .verification import Verification

#: Tokens for a text, which has each one before the next is asked for
Tokens = Generator[Choice, None, None]


class TextTokens:
    """Chooses the tokens of texts in a cache that has the rows of ``ids``, a list that grows with them.

    Others may run the decoder between two tokens, and rewind the cache with its ``ids``.  ``choice`` returns the choice
    for the decoder's logits and token; it is asked if there is a use for it.
    """

    def __init__(
        self,
        decoder: CachedDecoder | EncodedDecoder,
        choice: Callable[[], DeviceChoice],
        cache: KeyValueCache,
        ids: list[int],
    ) -> None:
        self._decoder = decoder
        self._choice = choice
        self._cache = cache
        self._ids = ids

    def each(self, row: TextRow) -> Tokens:
        """Yield tokens for a text."""
        decoder = self._decoder
        if isinstance(decoder, CachedDecoder) and decoder.form.in_place and row.task.rule.is_on_device:
            yield from self._ahead(row, decoder)
        choices = self._choices(row)
        while True:
            yield self._next(row, choices)

    def drafted(self, row: TextRow, most: int, verification: Verification, statistics: Statistics) -> Tokens:
        """Yield tokens for a text, by drafts of up to ``most`` where there are some."""
        lookup, choices = PromptLookup(), None
        while True:
            draft = self._draft(lookup, row, most)
            if draft:
                statistics.drafted_tokens += len(draft)
                yield from self._verified(row, draft, verification, statistics)
                choices = None  # which has not seen these tokens
                continue
            if choices is None:
                choices = self._choices(row)
            yield self._next(row, choices)

    def _choices(self, row: TextRow) -> TokenChoices:
        return TokenChoices(self._decoder.logits, self._choice, [row.task.rule])

    def _next(self, row: TextRow, choices: TokenChoices) -> Choice:
        ids = self._ids
        new = row.ids[len(ids) :]
        greatest = self._decoder.read(new, self._cache, len(ids))
        ids += new
        return choices.next([row.ids], [greatest], [0])[0]

    def _ahead(self, row: TextRow, decoder: CachedDecoder) -> Tokens:
        """Yield tokens as long as the device chooses them; the text's last token is not in the cache then."""
        ids, run = self._ids, _RunsAhead(row, decoder, self._choice, self._cache)
        read: PendingRead | None = None
        following: PendingRead | None = None
        try:
            while True:
                if read is not None and len(ids) == len(row.ids) - 1:
                    ids.append(row.ids[-1])
                else:
                    if read is not None:
                        read.discard()
                    read = run.behind(ids)
                if row.tokens and run.can_follow(ids):
                    following = run.follow(ids)
                token = int(read.numpy()[0, 0])
                if token < 0:  # the host must choose
                    ids.pop()
                    return
                yield token
                read, following = following, None
        finally:
            for each in (read, following):
                if each is not None:
                    each.discard()

    def _draft(self, lookup: PromptLookup, row: TextRow, most: int) -> list[int]:
        """Return what may follow a text of which one token is not in the cache, as far as there is room for a run."""
        decoder, length = self._decoder, len(self._ids)
        assert isinstance(decoder, CachedDecoder), "drafts were checked"
        if length != len(row.ids) - 1 or not decoder.has_room(length, VERIFIED):
            return []
        return lookup.draft(row.ids, min(most, row.task.count - len(row.tokens) - 1))

    def _verified(self, row: TextRow, draft: list[int], verification: Verification, statistics: Statistics) -> Tokens:
        """Yield tokens as long as they are those of a draft, and the one behind."""
        ids = self._ids
        tokens = verification.tokens(row.ids, draft, row.task.rule, self._cache, len(ids))
        ids.append(row.ids[-1])
        for token, drafted in zip(tokens, [*draft, None]):
            statistics.accepted_tokens += token == drafted
            yield token
            if drafted is None or token != drafted:
                return
            ids.append(drafted)


class _RunsAhead:
    """Runs of a text whose tokens stay on the device until they are read."""

    def __init__(
        self, row: TextRow, decoder: CachedDecoder, choice: Callable[[], DeviceChoice], cache: KeyValueCache
    ) -> None:
        self._row = row
        self._decoder = decoder
        self._cache = cache
        self._sampling = row.task.rule.sampling
        self._choice = None if self._sampling.is_greedy else choice()
        self._turn = object()
        self._runs = -1  #: the decoder's when its token was ours

    def behind(self, ids: list[int]) -> PendingRead:
        """Read the token behind the text, of which ``ids`` are in the cache; all are then."""
        new = self._row.ids[len(ids) :]
        self._decoder.run(new, self._cache, len(ids), is_greedy=self._choice is None)
        ids += new
        return self._chosen(len(ids))

    def can_follow(self, ids: list[int]) -> bool:
        """Return whether a run can go on from the token that the last one has left, and will be wanted."""
        is_last = len(self._row.tokens) + 1 >= self._row.task.count
        return not is_last and self._decoder.runs == self._runs and self._decoder.has_room(len(ids), 1)

    def follow(self, ids: list[int]) -> PendingRead:
        """Read the token behind the one behind the text, which is on the device."""
        self._decoder.follow(self._cache, len(ids), is_greedy=self._choice is None)
        return self._chosen(len(ids) + 1)

    def _chosen(self, length: int) -> PendingRead:
        if self._choice is not None:
            self._choice.begin([self._row.ids], [self._sampling], self._turn)
            self._choice.submit([length], [self._sampling])
        self._runs = self._decoder.runs
        return self._decoder.reader.begin()
