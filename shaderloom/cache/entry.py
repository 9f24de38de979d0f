"""One entry of the disk cache as bytes, authenticated and bounded.

::

    shaderloom-cache 3 <kind> <"hmac" or "sha256"> <digest of the kind and the body> <bytes of the body>\\n
    <body: zlib-compressed JSON {"key": {...the named entries...}, "value": ...}>

With a secret the digest is HMAC-SHA256 (RFC 2104): only who has the secret can make an entry that :func:`decode`
accepts, and the named entries in the body make one for another model, compiler or device useless.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping
from typing import Any

_MAGIC = "shaderloom-cache 3"

#: Bytes of the text of an entry, and of its file: a plan of a thousand kernels has a few million
MAX_ENTRY = 32 << 20
#: Levels of the lists and objects of an entry; plans have about ten
MAX_NESTING = 64


def canonical(value: Any) -> str:
    """Return JSON text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def encode(kind: str, entries: Mapping[str, Any], value: Any, secret: bytes | None) -> bytes | None:
    """Return the entry of a JSON value; None for one whose text exceeds :data:`MAX_ENTRY`."""
    text = canonical({"key": entries, "value": value}).encode()
    if len(text) > MAX_ENTRY:
        return None
    body = zlib.compress(text, 3)
    raw = head_of(kind, body, secret) + body
    return raw if len(raw) <= MAX_ENTRY else None


def decode(raw: bytes, kind: str, entries: Mapping[str, Any], secret: bytes | None) -> Any:
    """Return the value of an entry.

    Raises :class:`ValueError`, with the reason, unless it was made for ``kind`` and ``entries`` with the same secret.
    """
    head, newline, body = raw.partition(b"\n")
    if not hmac.compare_digest(head + newline, head_of(kind, body, secret)):
        raise ValueError("it is damaged, of another version, or not authentic")
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(body, MAX_ENTRY)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError(f"it is cut, or has more than {MAX_ENTRY:,} bytes of text")
        content = json.loads(text)
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(content, dict) or "value" not in content:
        raise ValueError("it has no value")
    _check_nesting(content)
    if canonical(content.get("key")) != canonical(entries):
        raise ValueError("it is for another key")
    return content["value"]


def _check_nesting(content: Any) -> None:
    """Raise :class:`ValueError` if lists and objects are nested too deeply for what reads them."""
    level = [content]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_NESTING} deep")


def head_of(kind: str, body: bytes, secret: bytes | None) -> bytes:
    """Return the first line of an entry, which authenticates its kind and its body."""
    signed = f"{_MAGIC} {kind}\n".encode() + body
    if secret is None:
        method, digest = "sha256", hashlib.sha256(signed).hexdigest()
    else:
        method, digest = "hmac", hmac.new(secret, signed, hashlib.sha256).hexdigest()
    return f"{_MAGIC} {kind} {method} {digest} {len(body)}\n".encode()
