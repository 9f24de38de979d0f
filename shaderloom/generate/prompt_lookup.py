"""Drafts of what may follow a text: what followed its last tokens where they stood before (Saxena, 2023)."""

from __future__ import annotations

from collections.abc import Sequence

#: Tokens that must have stood before, the most first: the longer, the likelier is the draft
SIZES = (4, 3, 2)


class PromptLookup:
    """The places of runs of tokens in one text, which grows."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}  # the place behind the last run of these tokens
        self._seen = 0

    def draft(self, text: Sequence[int], most: int) -> list[int]:
        """Return up to ``most`` tokens that may follow a text, which begins with that of the last call.

        A draft that reaches the end of the text goes on with itself, so that repetitions have any length.
        """
        for end in range(self._seen + 1, len(text)):
            for size in SIZES:
                if size <= end:
                    self._ends[tuple(text[end - size : end])] = end
        self._seen = max(len(text) - 1, 0)
        ends = (self._ends.get(tuple(text[-size:])) for size in SIZES if size < len(text))
        begin = next((end for end in ends if end is not None), None)
        if begin is None:
            return []
        period = len(text) - begin
        return [text[begin + place % period] for place in range(max(most, 0))]
