"""Words and tokens: a model's tokenizer, texts piece by piece, and texts that end an answer."""

from __future__ import annotations

import importlib.util
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..api.arguments import entries
from ..runtime.plan.errors import InputError, MissingFileError, ModelError, UnsupportedError
from .limited_process import LimitedProcess

#: Bytes of a tokenizer's file
TOKENIZER_BYTES = 128 << 20
#: Seconds that it may take for one text
SECONDS = 60.0
#: What a decoder of bytes writes for a character that is not complete
_INCOMPLETE = "\ufffd"


class Tokenizer:
    """The tokenizer of a folder, as the package tokenizers has it, in a process of its own."""

    def __init__(self, path: Path, seconds: float = SECONDS) -> None:
        """Read ``tokenizer.json``.  Raises :class:`ModelError` for a file that is none."""
        if importlib.util.find_spec("tokenizers") is None:
            raise UnsupportedError(
                "texts need the package tokenizers, which is not installed", hint="pip install 'shaderloom[generate]'"
            )
        if not path.is_file():
            raise MissingFileError(path)
        if path.stat().st_size > TOKENIZER_BYTES:
            raise ModelError(f"'{path.name}' has more than {TOKENIZER_BYTES:,} bytes", hint="check what it is")
        self._path = path.resolve()
        self._process = LimitedProcess(f"'{path.name}'", seconds)
        self.decode([])

    @classmethod
    def of(cls, content: bytes) -> Tokenizer:
        """Read the content of a ``tokenizer.json``, which its process finds in a temporary file."""
        folder = tempfile.TemporaryDirectory(prefix="shaderloom-")
        try:
            path = Path(folder.name, "tokenizer.json")
            path.write_bytes(content)
            tokenizer = cls(path)
        except BaseException:
            folder.cleanup()
            raise
        weakref.finalize(tokenizer, folder.cleanup)
        return tokenizer

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the tokens of a text; with ``special`` those that the model begins texts with, too.

        Raises :class:`InputError` for what is no text, and :class:`ModelError` if the tokenizer cannot do it in time.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"the text has a half of a surrogate pair at {error.start}") from None
        return [int(token) for token in self._ask("ids", text=text, special=special)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""
        return self.decode_each([ids])[0]

    def decode_each(self, texts: Sequence[Sequence[int]], meanwhile: Callable[[], None] | None = None) -> list[str]:
        """Return the text of each of several lists of tokens; call ``meanwhile`` while they are made."""
        ids = [[int(token) for token in ids] for ids in texts]
        return [str(text) for text in self._ask("texts", meanwhile, ids=ids)]

    def _ask(self, what: str, meanwhile: Callable[[], None] | None = None, **request: Any) -> list[Any]:
        answer = self._process.ask({"tokenizer": str(self._path), **request}, meanwhile)
        if "error" in answer:
            raise ModelError(f"'{self._path.name}' as a tokenizer: {answer['error']}", hint="download it again")
        return list(answer[what])

    def close(self) -> None:
        """End the process."""
        self._process.close()


class TextStream:
    """The text of tokens as they come: characters once they are complete."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        """Begin behind the tokens ``before``, which decide whether a word begins with a space."""
        self._tokenizer = tokenizer
        self._ids = list(before[-4:])
        self._begin, self._end = 0, len(self._ids)

    def push(self, token: int, *, last: bool = False, meanwhile: Callable[[], None] | None = None) -> str:
        """Return the text that a token completes; with ``last`` also what is incomplete.

        Calls ``meanwhile`` while the text is made.
        """
        self._ids.append(token)
        window = self._ids[self._begin :]
        before, now = self._tokenizer.decode_each([window[: self._end - self._begin], window], meanwhile)
        if now.endswith(_INCOMPLETE) and not last:
            return ""
        self._begin, self._end = self._end, len(self._ids)
        return now[len(before) :]


class StopTexts:
    """Ends a text at the first of several texts, of which no part is let through."""

    def __init__(self, stops: Sequence[str]) -> None:
        meaning = "stop is a text or a list of texts, none of them empty"
        listed = [stops] if isinstance(stops, str) else entries(stops, meaning)
        if not all(isinstance(stop, str) and stop for stop in listed):
            raise InputError(meaning)
        self._stops = tuple(listed)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Return the text that may be shown now, and whether it ends there."""
        self._held += text
        ends = [self._held.find(stop) for stop in self._stops if stop in self._held]
        if ends:
            return self._held[: min(ends)], True
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        shown = self._held[: len(self._held) - keep]
        self._held = self._held[len(shown) :]
        return shown, False

    def rest(self) -> str:
        """Return what was held back when no more text comes."""
        return self._held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that ``stop`` begins with."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
