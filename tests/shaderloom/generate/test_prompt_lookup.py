"""Drafts of n-grams that stood before.

Covers: shaderloom/generate/prompt_lookup.
"""

from __future__ import annotations

import numpy as np
import pytest

from shaderloom.generate.prompt_lookup import SIZES, PromptLookup


@pytest.mark.parametrize(
    ("text", "most", "draft"),
    [
        ([], 4, []),
        ([1], 4, []),
        ([1, 2, 3], 4, []),
        ([1, 2, 3, 1, 2], 4, [3, 1, 2, 3]),  # goes on with itself
        ([1, 2, 3, 1, 2], 2, [3, 1]),
        ([1, 2, 3, 1, 2], 0, []),
        ([1, 2, 7, 1, 2, 8, 1, 2], 1, [8]),  # the last place
        ([5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2], 1, [7]),  # the place of more tokens
        ([4, 4, 4, 4], 3, [4, 4, 4]),
        ([3, 1, 3], 2, []),  # one token is not enough
    ],
)
def test_a_draft_follows_the_last_tokens(text: list[int], most: int, draft: list[int]):
    assert PromptLookup().draft(text, most) == draft


def test_a_text_that_grows_has_the_drafts_of_a_new_one():
    """Whatever part of a text was looked at before: the draft is that of a search through all of it."""
    rng = np.random.default_rng(0)
    text, lookup = rng.integers(0, 3, 2).tolist(), PromptLookup()
    for _ in range(200):
        assert lookup.draft(text, 5) == searched(text, 5) == PromptLookup().draft(text, 5)
        text += rng.integers(0, 3, int(rng.integers(1, 4))).tolist()


def searched(text: list[int], most: int) -> list[int]:
    for size in SIZES:
        for end in range(len(text) - 1, size - 1, -1):
            if size < len(text) and text[end - size : end] == text[-size:]:
                longer = text[end:]
                while len(longer) < most:
                    longer += text[end:]
                return longer[:most]
    return []
