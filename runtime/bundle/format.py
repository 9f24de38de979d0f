"""Names and numbers of the bundle format.  ``docs/guide/bundles.md`` is the specification."""

from __future__ import annotations

import json
import re
from typing import Any

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"
SIGNATURE = "manifest.signature"

#: bytes that share one hash
CHUNK = 4 << 20
#: bytes of the largest file of weights
WEIGHTS_FILE = 128 << 20
#: a manifest larger than this is refused unread
MAX_MANIFEST = 256 << 20

_PART = r"[a-z0-9][a-z0-9._-]*"
_NAME = re.compile(rf"{_PART}(/{_PART})?")
_LONGEST_NAME = 200

#: our names of features -> WebGPU's, where they differ
_WEB_FEATURES = {"subgroup": "subgroups"}
_OWN_FEATURES = {web: own for own, web in _WEB_FEATURES.items()}


def plan_file(key: str) -> str:
    return f"plan-{key}.json"


def shader_file(key: str) -> str:
    return f"shaders/{key}.wgsl"


def weights_file(number: int) -> str:
    return f"weights-{number:05}.safetensors"


def sample_file(key: str) -> str:
    return f"samples/{key}.safetensors"


def model_file(name: str) -> str:
    return f"models/{name}.json"


def asset_file(name: str) -> str:
    return f"assets/{name}"


def is_file_name(name: str) -> bool:
    """Return whether a file of a bundle may have this name: one or two plain parts, nothing that leads elsewhere."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def web_feature(name: str) -> str:
    """Return WebGPU's name of a feature."""
    return _WEB_FEATURES.get(name, name)


def own_feature(name: str) -> str:
    """Return the profile's name of one of WebGPU's features."""
    return _OWN_FEATURES.get(name, name)


def web_limit(name: str) -> str:
    """Return WebGPU's name of a limit: ``maxBufferSize`` for ``max-buffer-size``."""
    first, *others = name.split("-")
    return first + "".join(part.capitalize() for part in others)


def own_limit(name: str) -> str:
    return re.sub("[A-Z]", lambda match: "-" + match[0].lower(), name)


def canonical_json(value: Any) -> bytes:
    """Encode a value as JSON; equal values give equal bytes, in any process."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
