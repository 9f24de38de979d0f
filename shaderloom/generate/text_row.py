"""Texts that are generated: what was asked for, and how far each is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..runtime.plan.errors import ShaderloomError
from .grammar import TextConstraint
from .sampling import Sampling
from .text import StopTexts, TextStream

#: Takes the tokens so far and float32 logits [vocabulary]; returns the logits that count
LogitsProcessor = Callable[[Sequence[int], np.ndarray], np.ndarray]
#: The next token of a text, or why there is none
Choice = int | ShaderloomError


@dataclass(frozen=True)
class TokenRule:
    """How the tokens of a text are chosen.

    The host changes logits by ``processors``, then those alone count that ``constraint`` allows, then ``sampling``
    chooses.
    """

    sampling: Sampling = field(default_factory=Sampling)
    processors: tuple[LogitsProcessor, ...] = ()
    constraint: TextConstraint | None = None

    def allowed(self, ids: Sequence[int]) -> np.ndarray | None:
        """Return the bits of the tokens that may follow prompt and answer; None: all may."""
        return None if self.constraint is None else self.constraint.allowed(ids)

    @property
    def is_on_device(self) -> bool:
        """Whether the host need not look at a text or its logits before a token is chosen."""
        return not self.processors and self.constraint is None

    @property
    def is_greedy(self) -> bool:
        """Whether the greatest of the model's logits is the choice."""
        return self.sampling.is_greedy and self.is_on_device


@dataclass(frozen=True)
class TextTask:
    """A text that is asked for: up to ``count`` tokens behind those of ``prompt``, fewer with one of ``ends``.

    ``words`` turns tokens into text; None: there is no tokenizer.  ``words`` and ``stops`` have the state of this text.
    """

    prompt: Sequence[int]
    count: int
    ends: Sequence[int]
    words: TextStream | None
    stops: StopTexts
    rule: TokenRule


class TextRow:
    """A text as it grows: ``ids`` are the prompt and the answer, ``text`` the answer's words.

    ``ended_by`` is "" until the last token has come; see :class:`.Statistics`.
    """

    def __init__(self, task: TextTask) -> None:
        self.task = task
        self.ids = list(task.prompt)
        self.text = ""
        self.ended_by = ""

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of the prompt."""
        return len(self.task.prompt)

    @property
    def tokens(self) -> list[int]:
        """The answer."""
        return self.ids[self.prompt_tokens :]

    @property
    def new_tokens(self) -> int:
        """The number of tokens of the answer."""
        return len(self.ids) - len(self.task.prompt)

    def take(self, token: Choice, meanwhile: Callable[[], None] | None = None) -> None:
        """Append a token; say in ``ended_by`` if the answer ends with it.  Raise what has come in place of one.

        Calls ``meanwhile`` while the words of the token are made.
        """
        if isinstance(token, ShaderloomError):
            raise token
        task = self.task
        self.ids.append(token)
        is_last = self.new_tokens == task.count
        if token in task.ends:
            self.ended_by = "end"
        else:
            words = "" if task.words is None else task.words.push(token, last=is_last, meanwhile=meanwhile)
            piece, is_stopped = task.stops.push(words)
            self.text += piece
            if is_stopped:
                self.ended_by = "stop"
                return
            self.ended_by = "length" if is_last else ""
        if self.ended_by:
            self.text += task.stops.rest()
