"""What a generator opens: the model of a folder, its tokenizer, its template and what else texts may need."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..runtime.plan.errors import UnsupportedError
from .chat_template import ChatTemplate
from .chooser import DeviceChoice
from .decoder import CachedDecoder
from .encoded_decoder import EncodedDecoder
from .folder import ModelFolder
from .grammar import GrammarProcess
from .model_source import open_choice
from .text import Tokenizer
from .verification import Verification


class OpenedModel:
    """A folder's model on a device with its tokenizer and template: what forks of a generator have in common.

    ``users`` counts them; the last one closes it.
    """

    def __init__(self, folder: ModelFolder, decoder: CachedDecoder | EncodedDecoder, cache: Any) -> None:
        self.folder = folder
        self.decoder = decoder
        self.users = 1
        self.cache = cache
        self._choice: DeviceChoice | None = None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self.folder.open_tokenizer()

    @cached_property
    def writer(self) -> Tokenizer:
        """Another process of the tokenizer, for the thread of a scheduler: texts do not wait for a prompt."""
        return self.folder.open_tokenizer()

    @cached_property
    def grammars(self) -> GrammarProcess:
        """The process that follows grammars."""
        return self._open_grammars()

    @cached_property
    def thread_grammars(self) -> GrammarProcess:
        """Another process, for the thread of a scheduler."""
        return self._open_grammars()

    def _open_grammars(self) -> GrammarProcess:
        return GrammarProcess(self.tokenizer, self.decoder.form.vocabulary, self.folder.ends)

    @cached_property
    def template(self) -> ChatTemplate:
        """The template of chats.  Raises :class:`UnsupportedError` where the model has none."""
        if self.folder.template is None:
            raise UnsupportedError(
                "the model has no chat template", hint="pass a text or token ids, formatted as the model wants them"
            )
        return ChatTemplate(self.folder.template, dict(self.folder.special))

    def choice(self) -> DeviceChoice:
        """Return the choice for the decoder's logits."""
        if self._choice is None:
            decoder = self.decoder
            token = decoder.token if isinstance(decoder, CachedDecoder) else None
            self._choice = DeviceChoice(open_choice(self.folder, decoder.logits, self.cache), decoder.logits, token)
        return self._choice

    @cached_property
    def verification(self) -> Verification:
        """Runs that verify drafts."""
        assert isinstance(self.decoder, CachedDecoder), "drafts were checked"
        return Verification(self.decoder, self.cache)

    def close(self) -> None:
        """Free all."""
        self.decoder.close()
        if self._choice is not None:
            self._choice.close()
        for name in ("template", "tokenizer", "writer", "grammars", "thread_grammars", "verification"):
            opened = self.__dict__.get(name)
            if opened is not None:
                opened.close()
