"""Formats messages of a chat by the template of a model, which is not trusted: see :mod:`.text_worker`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..runtime.plan.errors import InputError, ModelError
from .limited_process import LimitedProcess

#: Seconds that a template may take
SECONDS = 20.0
#: Characters of a template
LENGTH = 1 << 18

Message = Mapping[str, Any]


class ChatTemplate:
    """The template of a model, with the texts of its special tokens."""

    def __init__(self, template: str, special: Mapping[str, str], seconds: float = SECONDS) -> None:
        if len(template) > LENGTH:
            raise ModelError(f"the chat template has {len(template):,} characters", hint="check what it is")
        self._template = template
        self._special = dict(special)
        self._process = LimitedProcess("the chat template", seconds)

    def format(self, messages: Sequence[Message]) -> str:
        """Return the text of a chat that the model goes on with.

        Raises :class:`InputError` for what is no message, and :class:`ModelError` if the template fails, takes more
        than :data:`SECONDS`, or more memory than its process may have.
        """
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InputError(f"a message is a dict with 'role' and 'content', not {message!r:.80}")
        variables = {**self._special, "messages": list(messages), "add_generation_prompt": True}
        try:
            answer = self._process.ask({"template": self._template, "variables": variables})
        except (TypeError, ValueError, RecursionError) as error:
            if isinstance(error, ModelError):
                raise
            raise InputError(f"a message does not consist of JSON values: {error}") from None
        if "error" in answer:
            raise ModelError(f"the chat template: {answer['error']}", hint="check the roles of the messages")
        return str(answer["text"])

    def close(self) -> None:
        """End the process."""
        self._process.close()
