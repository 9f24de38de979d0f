"""Texts of a scheduler, as a coroutine of the event loop reads them."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from queue import Full
from typing import Any

from ...generate.generator import Generator
from ...generate.scheduler import Scheduler, TextRequest
from ...runtime.plan.errors import ClosedError, DeviceLost, InputError, ShaderloomError, UnsupportedError
from ..errors import RequestError
from ..recovery import Recovery
from .parameters import TextParameters, wrong


@dataclass
class TextPiece:
    """What has come of a prompt's text, by the place of the prompt.  ``request`` is done with ``is_last``."""

    place: int
    text: str
    is_last: bool
    request: TextRequest


class Answers:
    """The texts of one request of a client.  Cancel them when they are not wanted any more."""

    def __init__(self, scheduler: Scheduler, requests: Sequence[TextRequest], changed: asyncio.Event) -> None:
        self.requests = requests
        self._scheduler = scheduler
        self._changed = changed

    async def pieces(self, deadline: float) -> AsyncIterator[TextPiece]:
        """Yield what comes until all texts are done.

        Raises the error of one that ended with one, and TimeoutError behind the deadline, on the loop's clock.
        """
        sent = [0] * len(self.requests)
        open_places = list(range(len(self.requests)))
        while open_places:
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
            self._changed.clear()
            for place in list(open_places):
                request = self.requests[place]
                is_last = request.is_done  # read before the text, which does not change behind it
                text = request.text[sent[place] :]
                sent[place] += len(text)
                if is_last:
                    open_places.remove(place)
                    if request.error is not None:
                        raise request.error
                if text or is_last:
                    yield TextPiece(place, text, is_last, request)

    def cancel(self) -> None:
        """Free the places of what is not done."""
        for request in self.requests:
            if not request.is_done:
                self._scheduler.cancel(request)


class TextModel:
    """A model that answers many at once.  When its device is lost it is opened again."""

    def __init__(self, open_generator: Callable[[], Generator], *, slots: int, queue: int) -> None:
        """Open the generator.  Raises :class:`UnsupportedError` for one that cannot answer many."""
        self._open = open_generator
        self._slots, self._queue = slots, queue
        self._encoding = threading.Lock()  # the tokenizer and the process of the template are for one thread
        self._start()
        self._recovery = Recovery(lambda: self.generator.is_device_lost, self._restart)

    def _start(self) -> None:
        self.generator = self._open()
        try:
            self.scheduler = self.generator.scheduler(slots=self._slots, queue=self._queue)
        except BaseException:
            self.generator.close()
            raise

    def _restart(self) -> None:
        self.scheduler.close()
        self.generator.close()
        self._start()

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered: not when the device is lost, until the model is opened again."""
        return self._recovery.check() and self.scheduler.is_running

    async def answers(self, parameters: TextParameters, field: str) -> Answers:
        """Queue the prompts of a client.

        Raises :class:`RequestError` with status 400 for a prompt that is wrong or too long, and 429 if the queue is
        full; neither costs the device anything.  Raises :class:`DeviceLost` until the model is opened again.
        """
        if not self._recovery.check():
            raise DeviceLost("the device of the model was lost")
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def changed() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        if self.scheduler.waiting >= self.scheduler.queue:
            raise self._full()
        requests = await asyncio.to_thread(self._requests, parameters, changed, field)
        try:
            self.scheduler.submit(requests)
        except Full:
            raise self._full() from None
        return Answers(self.scheduler, requests, event)

    def _requests(self, parameters: TextParameters, changed: Any, field: str) -> list[TextRequest]:
        with self._encoding:
            try:
                ids = [self.generator.encode(prompt) for prompt in parameters.prompts]
            except ClosedError:
                raise
            except ShaderloomError as error:  # the template's too, which refuses orders of messages
                raise RequestError(400, error.reason, field=field, code="invalid_prompt") from None
        room = self.generator.max_length
        most = parameters.arguments["max_new_tokens"] or 1
        for each in ids:
            if len(each) + most > room:
                raise RequestError(
                    400,
                    f"the model's context has {room:,} tokens; the prompt has {len(each):,}, and {most:,} may follow",
                    field=field,
                    code="context_length_exceeded",
                )
        try:
            return [self.generator.request(each, changed, **parameters.arguments) for each in ids]
        except (InputError, UnsupportedError) as error:  # what else there is was checked
            if "json_schema" not in parameters.arguments:
                raise
            raise wrong("response_format", error.reason, "invalid_json_schema") from None

    def _full(self) -> RequestError:
        """Return the error for a full queue, with the seconds after which places should be free."""
        counters = self.scheduler.counters
        steps_a_text = counters.new_tokens / max(counters.texts, 1)
        seconds = steps_a_text * counters.step_seconds / max(counters.steps, 1) * self.scheduler.waiting / self._slots
        headers = {"Retry-After": str(min(max(math.ceil(seconds), 1), 60))}
        return RequestError(429, "the queue of requests is full", code="queue_full", headers=headers)

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory: weights, plans and caches."""
        return self.generator.device_bytes + self.scheduler.nbytes

    def close(self) -> None:
        """End what runs, and free the model."""
        self._recovery.wait()
        self.scheduler.close()
        self.generator.close()
