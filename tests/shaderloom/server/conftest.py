"""A server of the tiny decoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shaderloom.generate.generator import Generator
from shaderloom.server.limits import ServerLimits
from shaderloom.server.openai.answers import TextModel
from shaderloom.server.openai.routes import OpenAiApi
from shaderloom.server.running import ApiServer

#: Requests that are answered at a time, and that may wait
SLOTS, QUEUE = 2, 16
LIMITS = ServerLimits(body=1 << 16, key="secret")


@pytest.fixture(scope="package")
def model(folder: Path, device: Any) -> TextModel:
    """The decoder, which answers the server's requests; close the server alone."""
    return TextModel(lambda: Generator(folder, device=device), slots=SLOTS, queue=QUEUE)


@pytest.fixture(scope="package")
def served(model: TextModel) -> Iterator[ApiServer]:
    """The server of the model ``tiny``."""
    with ApiServer(OpenAiApi(model, "tiny", LIMITS), LIMITS) as server:
        yield server
