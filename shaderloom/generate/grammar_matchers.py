"""Which tokens a grammar allows behind others, by the package llguidance; in the process of :mod:`.text_worker`.

A request says all of an answer's tokens.  The matcher of a text stays where the last request has left it, and goes back
or forward from there: requests depend on nothing before them, and cost what is new.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

#: Texts whose matchers stay, and grammars
TEXTS, GRAMMARS = 512, 64
#: The form of JSON between its values: that of Python's package json, without lines of their own
_FORM: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass
class _Text:
    matcher: Any
    tokens: list[int] = field(default_factory=list)


_texts: OrderedDict[tuple[Any, ...], _Text] = OrderedDict()


def allowed_tokens(request: dict[str, Any]) -> str:
    """Return the bit mask of the tokens that may follow, a bit of each byte's 8 a token, in base64.

    Of a request: ``tokenizer``, a path; ``vocabulary``, its least number of tokens; ``ends``, those that end an answer;
    ``grammar``, its kind and text; ``text``, a number; ``tokens``, the answer so far.  If the grammar does not allow
    these, nothing may follow.  Raises ValueError for what is no grammar, and one that asks for too much.
    """
    compiled = (request["tokenizer"], request["vocabulary"], tuple(request["ends"]), *request["grammar"])
    name = (request["text"], *compiled)
    text = _texts.pop(name, None) or _Text(_matcher(*compiled).deep_copy())
    tokens, matcher = request["tokens"], text.matcher
    same = next((at for at, pair in enumerate(zip(text.tokens, tokens)) if pair[0] != pair[1]), None)
    same = min(len(text.tokens), len(tokens)) if same is None else same
    matcher.rollback(len(text.tokens) - same)
    new = tokens[same:]
    valid = matcher.validate_tokens(new)
    matcher.consume_tokens(new[:valid])
    text.tokens = tokens[: same + valid]
    mask = matcher.compute_bitmask() if valid == len(new) else bytes(4 * (request["vocabulary"] // 32 + 1))
    _check(matcher)
    _texts[name] = text
    if len(_texts) > TEXTS:
        _texts.popitem(last=False)
    return base64.b64encode(mask).decode()


@lru_cache(maxsize=GRAMMARS)
def _matcher(tokenizer: str, vocabulary: int, ends: tuple[int, ...], kind: str, grammar: str) -> Any:
    from llguidance import LLMatcher, LLParserLimits

    if kind == "json_schema":
        compiled = LLMatcher.grammar_from_json_schema(grammar, defaults=_FORM)
    else:
        compiled = (LLMatcher.grammar_from_regex if kind == "regex" else LLMatcher.grammar_from_lark)(grammar)
    limits = LLParserLimits(verbose_errors=False)
    matcher = LLMatcher(_tokenizer(tokenizer, vocabulary, ends), compiled, log_level=0, limits=limits)
    _check(matcher)
    return matcher


@cache
def _tokenizer(path: str, vocabulary: int, ends: tuple[int, ...]) -> Any:
    from llguidance import LLTokenizer

    try:
        return LLTokenizer(path, n_vocab=vocabulary, eos_token=list(ends))
    except ValueError:  # of a tokenizer with more tokens than the model
        return LLTokenizer(path, eos_token=list(ends))


def _check(matcher: Any) -> None:
    if matcher.is_error():
        raise ValueError(matcher.get_error())
