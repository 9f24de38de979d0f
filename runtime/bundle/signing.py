"""Signatures of bundles: Ed25519 (RFC 8032) of the digest of a manifest, whose hashes cover the bytes of all files.

Keys are PEM files as ``openssl genpkey -algorithm ed25519`` writes them, their public halves as ``openssl pkey
-pubout`` does.  They are read by the package ``cryptography``, the extra ``sign``.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..plan.errors import BundleError, InputError, UnsupportedError
from .format import SIGNATURE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: A PEM file, or its content
Key = str | os.PathLike[str] | bytes

#: What stands in front of the digest in a message, so that a signature of anything else is none of a bundle
CONTEXT = b"shaderloom bundle\n"
#: Bytes that are read of a file, which are more than any key has
_LARGEST_KEY = 1 << 16


def read_private_key(key: Key) -> Ed25519PrivateKey:
    """Return the key of a PEM file; raise :class:`InputError` for what is no Ed25519 key without a password."""
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _content(key)
    try:
        private = load_pem_private_key(content, None)
    except (ValueError, TypeError):  # no PEM, and one with a password
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise InputError(
            f"{_name(key)} is no private Ed25519 key without a password",
            hint="openssl genpkey -algorithm ed25519 makes one",
        )
    return private


def read_public_key(key: Key) -> Ed25519PublicKey:
    """Return the key of a PEM file; raise :class:`InputError` for what is no public Ed25519 key."""
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _content(key)
    try:
        public = load_pem_public_key(content)
    except ValueError:
        public = None
    if not isinstance(public, Ed25519PublicKey):
        raise InputError(f"{_name(key)} is no public Ed25519 key", hint="openssl pkey -pubout writes that of a key")
    return public


def sign(digest: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return the content of ``manifest.signature`` for that of ``manifest.sha256``."""
    return key.sign(CONTEXT + digest).hex().encode() + b"\n"


def verify(signature: bytes, digest: bytes, key: Ed25519PublicKey) -> None:
    """Raise :class:`BundleError` unless ``signature`` is what :func:`sign` returns for the other half of the key."""
    from cryptography.exceptions import InvalidSignature

    try:
        content = bytes.fromhex(signature.decode("ascii"))
        if signature != content.hex().encode() + b"\n":
            raise ValueError("spelt in another way")
        key.verify(content, CONTEXT + digest)
    except (ValueError, InvalidSignature):
        raise BundleError(
            f"'{SIGNATURE}' is no signature of this bundle by the key",
            hint="check that the key is that of whoever made the bundle, and that the bundle is from them",
        ) from None


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise UnsupportedError("signatures need the package cryptography", hint="pip install 'shaderloom[sign]'")


def _content(key: Key) -> bytes:
    """Return the bytes of a key; raise :class:`InputError` for a file that cannot be read."""
    if isinstance(key, bytes):
        return key
    try:
        with Path(key).open("rb") as file:
            return file.read(_LARGEST_KEY)
    except (OSError, TypeError) as error:
        reason = f"cannot read the key '{key}': {getattr(error, 'strerror', None) or error}"
        raise InputError(reason, hint="check the path") from None


def _name(key: Key) -> str:
    return "the key" if isinstance(key, bytes) else f"'{key}'"
