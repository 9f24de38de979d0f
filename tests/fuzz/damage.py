"""Damaged copies of files, drawn from a seed: flipped bits and truncations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

#: One copy in so many is a truncation
_TRUNCATED = 40
_MOST_FLIPS = 3


def damaged(files: Mapping[str, bytes], seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield (name of a file, damaged content) without end: one to three flipped bits, or the beginning of a file."""
    draw = random.Random(seed)
    names = sorted(files)
    while True:
        name = draw.choice(names)
        content = bytearray(files[name])
        if draw.randrange(_TRUNCATED) == 0:
            del content[draw.randrange(len(content)) :]
        else:
            for _ in range(draw.randint(1, _MOST_FLIPS)):
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        yield name, bytes(content)
