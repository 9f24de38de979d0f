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
from ...support.hostile_shaders import EXPANDING, doubled, shader
from ...support.verdicts import JavaScript, python_excess

pytestmark = pytest.mark.skipif(not JavaScript.is_available(), reason="Node.js is not installed")

GOLDENS = {path.stem: path.read_text() for path in sorted((FOLDER / "wgsl").glob("*.wgsl"))}

#: By name: texts at the edges of what the guards read
EDGES = {
    "nothing": "",
    "a type that is cut off": "let a = " + "array<" * 20,
    "pointers that are cut off": "let a: " + "ptr<" * 33,
    "a count that begins with a zero": shader("", "var p: array<f32, 007>;"),
    "a count beyond nine digits": shader("", "var p: array<f32, 1000000000>;"),
    "a count in hexadecimals": shader("", "var p: array<f32, 0x400i>; var q: array<f32, 0X401u>;"),
    "aliases beyond doubles, none of them": shader(
        "alias A0 = f32;" + "".join(f"alias A{i + 1} = {'array<' * 30}A{i}{', 999999999>' * 30};" for i in range(3))
        + "alias B = array<A3, 0>;", "var b: B; " + " ".join(doubled(11)) + " var q = c11;"),
    "a circle of aliases": shader("alias A = array<B, 999999999>; alias B = array<A, 999999999>;"),
    "names of prototypes": shader("const __proto__ = array(1, 1); const constructor = array(__proto__, __proto__);"),
    "comments": "a/* b // */c/* /* */ ((( */d//e\r(//f\n\u2028//\u2028h/* x",
    "letters beyond ASCII": "let \u00e4 = 1;",
    "letters beyond sixteen bits": "// \U0001f600\nlet a = 1; /* \U0001f600 */ let \U0001d4d0 = 2;",
    "closing brackets": "}}}))]];" + shader(),
    "the end of a name": "let a = vec3",
}  # fmt: skip

_PIECE = re.compile(r"\w+|\s+|.", re.ASCII | re.DOTALL)
_WORDS = (
    *"(){}[]<>,;:=@.+&*", "//", "/*", "*/", "\n", "->", "array", "array<", "array(c, c)", "vec4<f32>", "mat4x4f",
    "ptr<", "struct", "fn", "let", "const", "var", "var<private>", "var<storage>", "override", "alias", "return", "f32",
    "0", "7", "0x20u", "1024", "@align(16)", "\u00e9",
)  # fmt: skip


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
            [], [generator.choice(_WORDS)], [generator.choice(names or ["a"])], repeated,
            other[at : at + generator.choice((1, 4, 30))], pieces[end : end + 20] + pieces[start:end],
        ))  # fmt: skip
    return "".join(pieces)


@pytest.mark.slow
@pytest.mark.fuzz
def test_random_mutations(javascript):
    """For 4 seconds, in a soak for 120; a failure names the number that draws it again."""
    texts = [text for text in (*GOLDENS.values(), *EXPANDING.values(), *EDGES.values()) if 0 < len(text) < 8000]
    first = 0 if not SOAK else random.SystemRandom().randrange(1 << 40)
    end, number, verdicts = time.monotonic() + (120 if SOAK else 4), first, Counter()
    while time.monotonic() < end:
        text = mutated(texts, random.Random(number))
        verdict = python_excess(text)
        assert javascript.excess(text) == verdict, number
        verdicts[verdict] += 1
        number += 1
    assert number - first >= 20 and len(verdicts) > 3, verdicts
