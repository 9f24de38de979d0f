"""Random mutations of real bundles: of their values, and of their bytes."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from .hostile import WRONG, Seed


def mutated(seed: Seed, generator: random.Random, *, aimed: bool = False) -> tuple[bytes, bytes]:
    """Return the files with one to four random changes of their values, or of their bytes.

    With ``aimed`` a third of the changes are of the manifest's programs, and a third of a step of a program or of a
    range that a call binds, each kind of which is as likely.
    """
    made = copy.deepcopy(seed)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        _mutate(made, generator, _aim(made, generator) if aimed else None)
    manifest, plan = made.files()
    if generator.random() < 0.1:
        plan = _with_other_bytes(plan, generator)
    elif generator.random() < 0.1:
        manifest = _with_other_bytes(manifest, generator)
    return manifest, plan


def _aim(seed: Seed, generator: random.Random) -> Any:
    """Return what to change a part of; None for anything."""
    share = generator.random()
    if share < 1 / 3:
        programs = seed.manifest.get("programs")
        return programs if isinstance(programs, list) and programs else None
    if share < 2 / 3:
        parts: dict[str, list[Any]] = {}
        for record in (*_records(seed.manifest), *_records(seed.plan)):
            kind = "range" if "buffer" in record else record.get("kind")
            if isinstance(kind, str):
                parts.setdefault(kind, []).append(record)
        return generator.choice(parts[generator.choice(sorted(parts))]) if parts else None
    return None


def _records(root: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects below a value that have a kind or name a buffer."""
    values = root.values() if isinstance(root, dict) else root if isinstance(root, list) else ()
    if isinstance(root, dict) and not root.keys().isdisjoint(("kind", "buffer")):
        yield root
    for value in values:
        yield from _records(value)


def _mutate(seed: Seed, generator: random.Random, root: Any = None) -> None:
    """Change something below ``root``, or anywhere."""
    root = getattr(seed, generator.choice(("manifest", "plan", "plan"))) if root is None else root
    container, name = _choose(root, generator)
    kind = generator.randrange(6)
    value = container[name]
    if kind == 0:
        container[name] = copy.deepcopy(generator.choice(WRONG))
    elif kind == 1:
        del container[name]
    elif kind == 2 and isinstance(value, (int, float)) and abs(value) < 1 << 60:
        container[name] = generator.choice(
            (value + 1, value - 1, value * 2, -value, value * 16, value // 2, float(value))
        )
    elif kind == 3:
        source, place = _choose(getattr(seed, generator.choice(("manifest", "plan"))), generator)
        container[name] = copy.deepcopy(source[place])
    elif kind == 4 and isinstance(container, list):
        container.insert(name, copy.deepcopy(value))
    elif isinstance(container, dict):
        container[generator.choice(("__proto__", "constructor", "novelty", "0", "n", "y"))] = copy.deepcopy(value)
    else:
        container[name] = ["max", value, generator.choice((0, 4, "n", 1 << 30))]


def _choose(root: Any, generator: random.Random) -> tuple[Any, Any]:
    """Return a container and a name in it, at a random depth."""
    while True:
        names = list(root) if isinstance(root, dict) else list(range(len(root)))
        if not names:
            return {"": None}, ""
        name = generator.choice(names)
        if not isinstance(root[name], (dict, list)) or not root[name] or generator.random() < 0.15:
            return root, name
        root = root[name]


_PIECES = (b"NaN", b"Infinity", b"1e999", b"-0", b"1e3", b"9007199254740993", b'"\\ud800"', b"\xef\xbb\xbf", b"\xff",
           b'{"a":1,"a":2}', b"\x00", b"[" * 200, b"-", b"01", b'"\\u0000"', b"1" * 5000, b" ", b"\n")  # fmt: skip


def _with_other_bytes(content: bytes, generator: random.Random) -> bytes:
    start = generator.randrange(len(content))
    kind = generator.randrange(3)
    if kind == 0:
        return content[:start]
    if kind == 1:
        return content[:start] + bytes([content[start] ^ 1 << generator.randrange(8)]) + content[start + 1 :]
    end = start
    if generator.random() < 0.7:  # instead of a number
        digits = [
            index for index in range(start, min(start + 400, len(content))) if content[index : index + 1].isdigit()
        ]
        start = end = digits[0] if digits else start
        while end < len(content) and content[end : end + 1].isdigit():
            end += 1
    return content[:start] + generator.choice(_PIECES) + content[end:]
