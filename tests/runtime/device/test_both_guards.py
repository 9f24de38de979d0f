"""The Python and the JavaScript guard refuse the same shaders, with the same words.

Covers: runtime/device/wgsl_guard, runtime/device/wgsl_values, runtime/web/shaderloom.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from ...support.effort import SOAK
from ...support.golden import FOLDER
from ...support.hostile_shaders import EDGES, EXPANDING, WORDS
from ...support.verdicts import JavaScript, python_excess

pytestmark = pytest.mark.skipif(not JavaScript.is_available(), reason="Node.js is not installed")

GOLDENS = {path.stem: path.read_text() for path in sorted((FOLDER / "wgsl").glob("*.wgsl"))}

_PIECE = re.compile(r"\w+|\s+|.", re.ASCII | re.DOTALL)


@pytest.fixture(scope="module")
def javascript() -> Iterator[JavaScript]:
    with JavaScript() as running:
        yield running


@pytest.mark.parametrize("texts", [GOLDENS, EXPANDING, EDGES], ids=["goldens", "expanding", "edges"])
def test_texts_have_one_verdict(javascript, texts):
    for name, text in texts.items():
        verdict = python_excess(text)
        assert javascript.excess(text) == verdict, name
        if texts is not EDGES:
            assert (verdict == "") == (texts is GOLDENS), name


def mutated(texts: list[str], generator: random.Random) -> str:
    """Return a text of which some pieces are left out, moved, repeated, or those of another text or a word."""
    pieces = _PIECE.findall(generator.choice(texts))
    names = [piece for piece in pieces if piece.isidentifier()]
    for _ in range(generator.choice((1, 2, 4, 16))):
        start = generator.randrange(len(pieces) + 1)
        end = min(len(pieces), start + generator.choice((0, 1, 1, 2, 8, 40)))
        other = _PIECE.findall(generator.choice(texts))
        at = generator.randrange(len(other))
        repeated = pieces[start:end] * generator.choice((2, 40))
        pieces[start:end] = generator.choice((
            [], [generator.choice(WORDS)], [generator.choice(names or ["a"])], repeated,
            other[at : at + generator.choice((1, 4, 30))], pieces[end : end + 20] + pieces[start:end],
        ))  # fmt: skip
    return "".join(pieces)


@pytest.mark.slow
@pytest.mark.fuzz
def test_random_mutations(javascript):
    """For 20 seconds, in a soak for 300; a failure names the number that draws it again."""
    texts = [text for text in (*GOLDENS.values(), *EXPANDING.values(), *EDGES.values()) if 0 < len(text) < 8000]
    first = 0 if not SOAK else random.SystemRandom().randrange(1 << 40)
    end, number, verdicts = time.monotonic() + (300 if SOAK else 20), first, Counter()
    while time.monotonic() < end:
        text = mutated(texts, random.Random(number))
        verdict = python_excess(text)
        assert javascript.excess(text) == verdict, number
        verdicts[verdict] += 1
        number += 1
    assert number - first >= 20 and len(verdicts) > 3, verdicts
