"""JSON objects of answers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from ...generate.scheduler import TextRequest
from ..errors import RequestError

#: Types of errors by status
_TYPES = {429: "rate_limit_error"}


def error_body(error: RequestError) -> dict[str, Any]:
    """Return an error as clients read it."""
    kind = _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return {"error": {"message": error.message, "type": kind, "param": error.field, "code": error.code}}


def usage(requests: Sequence[TextRequest]) -> dict[str, Any]:
    """Return the numbers of tokens."""
    prompt, answer = (sum(counts) for counts in zip(*((each.prompt_tokens, len(each.tokens)) for each in requests)))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": sum(each.reused_tokens for each in requests)},
    }


def finish_reason(request: TextRequest) -> str:
    """Return why a text ended: "length", or "stop" at a token or a text that ends answers."""
    return "length" if request.ended_by == "length" else "stop"


class Envelope:
    """What objects of one answer have in common.  ``chat``: they are those of a chat."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._chat = chat
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, requests: Sequence[TextRequest]) -> dict[str, Any]:
        """Return the answer in one object."""
        choices = []
        for place, request in enumerate(requests):
            content: dict[str, Any] = {"text": request.text}
            if self._chat:
                content = {"message": {"role": "assistant", "content": request.text, "refusal": None}}
            choices.append({"index": place, **content, "logprobs": None, "finish_reason": finish_reason(request)})
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": usage(requests)}

    def part(self, place: int, text: str, *, finish: str | None = None, first: bool = False) -> dict[str, Any]:
        """Return a part of a streamed answer; the first of a chat tells the role."""
        content: dict[str, Any] = {"text": text}
        if self._chat:
            role = {"role": "assistant"} if first else {}
            content = {"delta": {**role, "content": text} if text or first else {}}
        return self._chunk([{"index": place, **content, "logprobs": None, "finish_reason": finish}])

    def counts(self, requests: Sequence[TextRequest]) -> dict[str, Any]:
        """Return the last part of a streamed answer, which has the numbers of tokens alone."""
        return {**self._chunk([]), "usage": usage(requests)}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices}
