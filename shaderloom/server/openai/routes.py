"""Routes of the API: models, chats and completions, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ..errors import RequestError, as_request_error
from ..limits import ServerLimits
from ..metrics import Reading
from ..requests import Bodies, parse_json, while_connected
from .answers import Answers, TextModel
from .objects import Envelope, error_body, finish_reason
from .parameters import TextParameters, chat_parameters, completion_parameters


class OpenAiApi:
    """Generation with one model, which clients call ``name``."""

    open_paths: frozenset[str] = frozenset()

    def __init__(self, model: TextModel, name: str, limits: ServerLimits) -> None:
        self._model, self._name, self._limits = model, name, limits
        self._bodies = Bodies(limits)
        self._created = int(time.time())

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._one_model),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/completions", self._completions, methods=["POST"]),
        ]

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered: not when the device is lost."""
        return self._model.is_ready

    def error_body(self, error: RequestError) -> dict[str, Any]:
        return error_body(error)

    def readings(self) -> Iterable[Reading]:
        scheduler, counters = self._model.scheduler, self._model.scheduler.counters
        yield "shaderloom_waiting_requests", "Requests in the queue", scheduler.waiting
        yield "shaderloom_active_requests", "Requests that are being answered", scheduler.active
        yield "shaderloom_prompt_tokens_total", "Tokens of prompts", counters.prompt_tokens
        yield "shaderloom_reused_tokens_total", "Tokens of prompts that were in a cache", counters.reused_tokens
        yield "shaderloom_generated_tokens_total", "Tokens of answers", counters.new_tokens
        yield "shaderloom_steps_total", "Runs of the batch", counters.steps
        yield "shaderloom_step_seconds_total", "Time of the batch's runs", counters.step_seconds
        yield "shaderloom_failures_total", "Runs that failed", counters.failures
        yield "shaderloom_device_bytes", "Device memory of the model", self._model.device_bytes

    def close(self) -> None:
        self._model.close()

    def _described(self) -> dict[str, Any]:
        return {"id": self._name, "object": "model", "created": self._created, "owned_by": "shaderloom"}

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._described()]})

    async def _one_model(self, request: Request) -> Response:
        self._check_name(request.path_params["name"])
        return JSONResponse(self._described())

    def _check_name(self, name: str) -> None:
        if name != self._name:
            problem = f"there is no model '{name:.200}'; the model is called '{self._name}'"
            raise RequestError(404, problem, field="model", code="model_not_found")

    async def _chat(self, request: Request) -> Response:
        if not self._model.generator.has_template:
            problem = "the model has no chat template; /v1/completions continues a text"
            raise RequestError(400, problem, field="messages", code="no_chat_template")
        return await self._answer(request, is_chat=True)

    async def _completions(self, request: Request) -> Response:
        return await self._answer(request, is_chat=False)

    async def _answer(self, request: Request, *, is_chat: bool) -> Response:
        deadline = asyncio.get_running_loop().time() + self._limits.request_seconds
        async with self._bodies.read(request) as body:
            read = chat_parameters if is_chat else completion_parameters
            parameters = read(parse_json(body, self._limits.depth))
            self._check_name(parameters.model)
            answers = await self._model.answers(parameters, "messages" if is_chat else "prompt")
        envelope = Envelope(self._name, chat=is_chat)
        if parameters.is_stream:
            return _EventStream(self._events(answers, envelope, parameters, deadline), answers)
        try:
            await while_connected(request, self._wait(answers, deadline))
        finally:
            answers.cancel()
        return JSONResponse(envelope.whole(answers.requests))

    async def _wait(self, answers: Answers, deadline: float) -> None:
        try:
            async for _ in answers.pieces(deadline):
                pass
        except TimeoutError:
            raise self._late() from None

    async def _events(
        self, answers: Answers, envelope: Envelope, parameters: TextParameters, deadline: float
    ) -> AsyncIterator[str]:
        try:
            for place in range(len(answers.requests)):
                yield _event(envelope.part(place, "", first=True))
            async for piece in answers.pieces(deadline):
                if piece.text:
                    yield _event(envelope.part(piece.place, piece.text))
                if piece.is_last:
                    yield _event(envelope.part(piece.place, "", finish=finish_reason(piece.request)))
            if parameters.has_usage:
                yield _event(envelope.counts(answers.requests))
            yield "data: [DONE]\n\n"
        except TimeoutError:
            yield _event(error_body(self._late()))
        except Exception as error:
            yield _event(error_body(as_request_error(error)))

    def _late(self) -> RequestError:
        seconds = self._limits.request_seconds
        return RequestError(504, f"the answer was not complete after {seconds:g} seconds", code="timeout")


class _EventStream(StreamingResponse):
    """Server-sent events of answers, which are cancelled when it ends, in whatever way."""

    def __init__(self, events: AsyncIterator[str], answers: Answers) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answers.cancel()


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
