"""The process of one device: it opens a session, answers chunks of items, and ends with its connection."""

from __future__ import annotations

import itertools
import os
import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from ..batching.joined import JoinedOutputs
from ..batching.requests import Request
from ..batching.row_runner import RowRunner
from ..bundles.session import open_session
from ..notices import show_by
from ..runtime.plan.errors import DeviceLost, RunError, ShaderloomError, UnsupportedError
from ..runtime.plan.record import record
from ..session.session import InferenceSession
from .answers import Answer, packed_answers
from .channel import Channel, Received
from .chunk import Chunk, unpacked
from .shared_memory import SharedMemory

#: Gives the answers to a chunk, of all its items in any order
Answers = Callable[[Chunk], list[Answer]]


@record
class WorkerJob:
    """What a worker opens.  ``batch``: rows of a batch; ``is_asked``: the caller wants batches, or an error."""

    model: Any
    device: str | int | None
    options: Mapping[str, Any]
    batch: int
    is_asked: bool


def run_worker(connection: Connection[Any, Any], memories: Sequence[SharedMemory], job: WorkerJob) -> None:
    """Serve chunks of items until the connection ends.

    Messages in: :data:`ChunkMessage` with its stacks.  Messages out: ``("ready", name of the device, whether items are
    joined)`` or ``("failed", error)`` once, then ``("answers", AnswerMessage)`` with stacks for each chunk, in its
    memory, and ``("lost", reason)`` before the process of a lost device ends.  At any time there may be ``("notice",
    (text, category))``, which is for the program to show.
    """
    channel = Channel(connection, memories)
    show_by(lambda text, category: channel.send(("notice", (text, category))))
    with suppress(BrokenPipeError):  # of a program that has ended
        try:
            session, answer = open_answers(job)
        except Exception as error:
            channel.send(("failed", portable(error)))
            return
        name = session.device.name if "wgpu" in session.get_providers() else "cpu"
        channel.send(("ready", name, isinstance(answer, _JoinedAnswers)))
        answering = threads_for(session.as_rows().in_flight)
        threading.Thread(target=_receive, args=(channel, answer, answering), daemon=True).start()
        threading.Event().wait()


def threads_for(in_flight: int) -> int:
    """Return the number of threads that answer chunks, where a device has so many at a time.

    While a GPU has some, another one is joined and written, and another one answered.
    """
    return in_flight + 2 if in_flight > 1 else 1


def _receive(channel: Channel, answer: Answers, answering: int) -> None:
    """Answer what comes, in so many threads; end the process when nothing more will."""
    with ThreadPoolExecutor(answering) as threads:
        while True:
            try:
                received = channel.receive()
            except (EOFError, OSError):
                os._exit(0)  # nobody is left who would read what is in flight
            threads.submit(_serve, channel, answer, received)
            del received  # or its arrays stay while no other comes


def _serve(channel: Channel, answer: Answers, received: Received) -> None:
    chunk = unpacked(received.message, received.stacks)
    try:
        answers = answer(chunk)
    except Exception as error:
        answers = [([number], [portable(error)]) for number, _ in chunk.items()]
    outcomes = (each for _, answer in answers if isinstance(answer, list) for each in answer)
    lost = next((each for each in outcomes if isinstance(each, DeviceLost)), None)
    try:
        if lost is None:
            message, stacks = packed_answers(answers)
            channel.send(("answers", message), received.slot, received.end, stacks)
            return
        channel.send(("lost", str(lost)))
    except OSError:
        pass
    os._exit(0)


def open_answers(job: WorkerJob) -> tuple[InferenceSession, Answers]:
    """Open the session of a job; return it with what answers chunks, joined where rows are independent.

    Raises what opening it raises, and :class:`UnsupportedError` where batches are asked for and rows are not.
    """
    session = open_session(job.model, device=job.device, **job.options)
    return session, answers_of(session, job.batch, is_asked=job.is_asked)


def answers_of(session: InferenceSession, batch: int, *, is_asked: bool) -> Answers:
    """Return what answers chunks with a session, in batches of up to ``batch`` rows; errors as of open_answers."""
    if batch > 1:
        try:
            runner = RowRunner(session.as_rows(), batch)
            return _JoinedAnswers(runner, batch, None if is_asked else _SingleAnswers(session))
        except UnsupportedError:
            if is_asked:
                raise
    return _SingleAnswers(session)


class _SingleAnswers:
    """Runs the items of a chunk one by one."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def __call__(self, chunk: Chunk) -> list[Answer]:
        return [([number], [self.run(feeds)]) for number, feeds in chunk.items()]

    def run(self, feeds: Mapping[str, Any]) -> Any:
        """Return the outputs of one item, or its error."""
        try:
            return self._session.run(None, feeds)
        except Exception as error:
            return portable(error)


@dataclass(slots=True)
class _Batch:
    """Requests that are joined, with the numbers of their items, and the rows of all."""

    numbers: list[int]
    requests: list[Request]
    rows: int

    def add(self, numbers: Sequence[int], request: Request) -> None:
        self.numbers += numbers
        self.requests.append(request)
        self.rows += request.rows


class _JoinedAnswers:
    """Joins the items of a chunk that have equal shapes.  ``alone`` runs those that cannot be joined, None: none."""

    def __init__(self, runner: RowRunner, most: int, alone: _SingleAnswers | None) -> None:
        self._runner, self._most, self._alone = runner, most, alone

    def __call__(self, chunk: Chunk) -> list[Answer]:
        answers: list[Answer] = []
        lines: dict[Hashable, list[_Batch]] = defaultdict(list)
        singles = list(chunk.singles)
        for group in chunk.groups:
            try:
                requests = self._runner.requests(group.stacks, len(group.numbers))
            except Exception:
                singles += group.items()  # each has its own error
                continue
            numbers = iter(group.numbers)
            for request in requests:
                self._append(lines[request.key], list(itertools.islice(numbers, request.items)), request)
        for number, feeds in singles:
            try:
                request = self._runner.request(feeds)
            except Exception as error:
                answers.append(([number], [portable(error) if self._alone is None else self._alone.run(feeds)]))
            else:
                self._append(lines[request.key], [number], request)
        answers += [(batch.numbers, self._outcomes(batch)) for line in lines.values() for batch in line]
        return answers

    def _append(self, line: list[_Batch], numbers: Sequence[int], request: Request) -> None:
        """Append the items of a request to a line of batches that are full but for the last one."""
        rows = request.rows // request.items
        while True:
            if not line or line[-1].rows + rows > self._most:
                line.append(_Batch([], [], 0))
            room = (self._most - line[-1].rows) // rows or 1
            if room >= request.items:
                line[-1].add(numbers, request)
                return
            line[-1].add(numbers[:room], request.between(0, room))
            numbers, request = numbers[room:], request.between(room, request.items)

    def _outcomes(self, batch: _Batch) -> Iterable[Any]:
        """Return the outcome of each item; outputs stay joined, as the program divides them when it copies them.

        An item that has more rows than a batch is run at once, as in a loop; in parts where it fails, as of a bundle
        that has no plan for so many.
        """
        if self._alone is not None and batch.rows > self._most:
            outcome = self._alone.run(batch.requests[0].feeds)
            if not isinstance(outcome, Exception):
                return [outcome]
        outcomes = self._runner.outcomes(batch.requests)
        if isinstance(outcomes, JoinedOutputs):
            return outcomes
        return [portable(each) if isinstance(each, Exception) else each for each in outcomes]


def portable(error: BaseException) -> BaseException:
    """Return an error that another process can read: itself, or one with its text."""
    try:
        copy = pickle.loads(pickle.dumps(error))
        if str(copy) == str(error):
            return error
    except Exception:
        pass
    if isinstance(error, ShaderloomError):
        return RunError(error.reason, origin=error.origin, tensor=error.tensor, hint=error.hint)
    return RunError(f"{type(error).__name__}: {error}")
