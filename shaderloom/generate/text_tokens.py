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
        self._runs_ahead: _RunsAhead | None = None

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
        run = self._runs_ahead = _RunsAhead(row, decoder, self._choice, self._cache, self._ids)
        try:
            while True:
                token = run.next()
                if token < 0:  # the host must choose
                    self._ids.pop()
                    return
                yield token
        finally:
            self._runs_ahead = None
            run.end()

    def go_on(self) -> None:
        """Let the device go on behind the text's last token, which the host still has to look at."""
        if self._runs_ahead is not None:
            self._runs_ahead.go_on()

    def _draft(self, lookup: PromptLookup, row: TextRow, most: int) -> list[int]:
        """Return what may follow a text of which one token is not in the cache, as far as there is room for a run."""
        decoder, length = self._decoder, len(self._ids)
        assert isinstance(decoder, CachedDecoder), "drafts were checked"
        if length != len(row.ids) - 1 or not decoder.has_room(length, VERIFIED):
            return []
        return lookup.draft(row.ids, min(most, row.task.count - row.new_tokens - 1))

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
    """Runs of a text whose tokens stay on the device until they are read.  ``ids`` are those in the cache."""

    def __init__(
        self,
        row: TextRow,
        decoder: CachedDecoder,
        choice: Callable[[], DeviceChoice],
        cache: KeyValueCache,
        ids: list[int],
    ) -> None:
        self._row = row
        self._decoder = decoder
        self._cache = cache
        self._ids = ids
        self._sampling = row.task.rule.sampling
        self._choice = None if self._sampling.is_greedy else choice()
        self._turn = object()
        self._runs = -1  #: the decoder's when its token was ours
        self._read: PendingRead | None = None  #: of the token behind the text
        self._following: PendingRead | None = None  #: of the one behind that
        self._is_ahead = False  #: the text's last token is in the cache, and what can follow was submitted

    def next(self) -> int:
        """Return the token behind the text, or a negative number if the device cannot choose it."""
        self.go_on()
        ids = self._ids
        if self._read is None or len(ids) != len(self._row.ids):  # a first run, or others have rewound the cache
            self.end()
            new = self._row.ids[len(ids) :]
            self._decoder.run(new, self._cache, len(ids), is_greedy=self._choice is None)
            ids += new
            self._read = self._chosen(len(ids))
            if self._row.new_tokens:
                self._follow()
        token = int(self._read.numpy()[0, 0])
        self._read, self._following, self._is_ahead = self._following, None, False
        return token

    def go_on(self) -> None:
        """Submit a run behind the one that is to be read, unless there is one."""
        if self._read is not None and not self._is_ahead and len(self._ids) == len(self._row.ids) - 1:
            self._ids.append(self._row.ids[-1])
            self._is_ahead = True
            self._follow()

    def end(self) -> None:
        """Give up what was not read."""
        for each in (self._read, self._following):
            if each is not None:
                each.discard()
        self._read = self._following = None

    def _follow(self) -> None:
        """Submit a run behind the token that the last one has left, if it will be wanted."""
        is_last = self._row.new_tokens + 1 >= self._row.task.count
        length = len(self._ids)
        if not is_last and self._decoder.runs == self._runs and self._decoder.has_room(length, 1):
            self._decoder.follow(self._cache, length, is_greedy=self._choice is None)
            self._following = self._chosen(length + 1)

    def _chosen(self, length: int) -> PendingRead:
        if self._choice is not None:
            self._choice.begin([self._row.ids], [self._sampling], self._turn)
            self._choice.submit([length], [self._sampling])
        self._runs = self._decoder.runs
        return self._decoder.reader.begin()
