"""What is embedded in the page that ``inspect --html`` writes."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any


def unpack(html: str, name: str) -> Any:
    """Return the data that the page has under ``name``."""
    packed = re.search(rf'id="{name}">([^<]+)<', html)
    assert packed is not None, f"the page has no data '{name}'"
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))
