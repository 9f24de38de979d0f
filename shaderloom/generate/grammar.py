"""Grammars that answers follow: a JSON schema, a regular expression, or a grammar in Lark's form."""

from __future__ import annotations

import base64
import importlib.util
import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.plan.errors import InputError, ModelError, UnsupportedError
from .limited_process import LimitedProcess
from .text import Tokenizer

#: Characters of a grammar
CHARACTERS = 256 << 10
#: Seconds for what may follow a text, the start of the process included; llguidance's own limits are some milliseconds
SECONDS = 30.0


@dataclass(frozen=True)
class Grammar:
    """What an answer is; ``kind`` is "json_schema", "regex" or "lark"."""

    kind: str
    text: str

    @classmethod
    def of(
        cls, *, json_schema: str | Mapping[str, Any] | None = None, regex: str | None = None, grammar: str | None = None
    ) -> Grammar | None:
        """Return the one that is stated, or None.  Raises :class:`InputError` for two, and for other values."""
        stated = {"json_schema": json_schema, "regex": regex, "grammar": grammar}
        values = {name: value for name, value in stated.items() if value is not None}
        if not values:
            return None
        if len(values) > 1:
            raise InputError(f"an answer follows one grammar, not {' and '.join(values)}", hint="pass one of them")
        ((name, value),) = values.items()
        if name == "json_schema" and not isinstance(value, str):
            try:
                value = json.dumps(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise InputError(f"json_schema is not of JSON's values: {error}") from None
        if not isinstance(value, str):
            raise InputError(f"{name} is a text, not {type(value).__name__}")
        if len(value) > CHARACTERS:
            raise InputError(f"{name} has {len(value):,} characters, more than {CHARACTERS:,}")
        return cls("lark" if name == "grammar" else name, value)


class GrammarProcess:
    """The process that says which tokens a grammar allows, to one thread after another."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, ends: Sequence[int]) -> None:
        """Take the tokens of a model.  Raises :class:`UnsupportedError` without the package, or an end of answers."""
        if importlib.util.find_spec("llguidance") is None:
            raise UnsupportedError(
                "grammars need the package llguidance, which is not installed",
                hint="pip install 'shaderloom[grammar]'",
            )
        if not ends:
            raise UnsupportedError(
                "the model has no token that ends an answer", hint="state eos_token_id in its folder"
            )
        self._tokens = {"tokenizer": str(tokenizer.path), "vocabulary": vocabulary, "ends": list(ends)}
        self._words = mask_words(vocabulary)
        self._process = LimitedProcess("the grammar", SECONDS)
        self._lock = threading.Lock()

    def allowed(self, grammar: Grammar, text: int, tokens: Sequence[int]) -> np.ndarray:
        """Return uint32 [words]: a bit for each token that may follow ``tokens`` in the text of this number.

        Raises :class:`InputError` for a grammar that is none, and one that takes too much time or memory.
        """
        request = {"grammar": [grammar.kind, grammar.text], "text": text, "tokens": [int(token) for token in tokens]}
        try:
            with self._lock:
                answer = self._process.ask({**self._tokens, **request})
        except ModelError as error:
            raise InputError(error.reason, hint="simplify it") from None
        if "error" in answer:
            raise InputError(f"the grammar: {answer['error']}", hint="see llguidance's documentation for what it takes")
        return np.frombuffer(base64.b64decode(answer["mask"]), "<u4", self._words)

    def check(self, grammar: Grammar) -> None:
        """Raise what :meth:`allowed` raises at the beginning of an answer."""
        self.allowed(grammar, 0, [])

    def close(self) -> None:
        """End the process."""
        self._process.close()


class TextConstraint:
    """The grammar of one text, whose answer begins behind ``prompt_tokens`` tokens."""

    _numbers = itertools.count(1)

    def __init__(self, process: GrammarProcess, grammar: Grammar, prompt_tokens: int) -> None:
        self._process, self._grammar, self._prompt_tokens = process, grammar, prompt_tokens
        self._number = next(self._numbers)

    def allowed(self, ids: Sequence[int]) -> np.ndarray:
        """Return the bits of :meth:`GrammarProcess.allowed` behind a text of prompt and answer."""
        return self._process.allowed(self._grammar, self._number, ids[self._prompt_tokens :])


def mask_words(vocabulary: int) -> int:
    """Return the words of 32 bits that have one for each token."""
    return -(-vocabulary // 32)


def masked(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return float32 logits [vocabulary] that are -inf but for the tokens whose bits are set."""
    bits = np.unpackbits(allowed.astype("<u4").view(np.uint8), bitorder="little")[: logits.size].astype(bool)
    return np.where(bits, logits, np.float32(-np.inf))
