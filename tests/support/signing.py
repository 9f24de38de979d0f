"""Keys of signatures for tests, from seeds."""

from __future__ import annotations

from pathlib import Path

import pytest


def key_pair(folder: Path, seed: int) -> tuple[Path, Path]:
    """Write the private and the public Ed25519 key of a seed; skip where the package cryptography is not installed."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    private, public = folder / f"key{seed}.pem", folder / f"public{seed}.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public
