"""Fields of requests, checked: what is not supported is refused by name, never ignored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import RequestError

#: Fields that change no answer, whatever they say
_IGNORED = frozenset(
    "user metadata store service_tier parallel_tool_calls prompt_cache_key prompt_cache_retention "
    "safety_identifier".split()
)
#: Fields that may say what happens anyway
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "prediction": (),
}
_ROLES = ("system", "developer", "user", "assistant")
#: Texts that end an answer, and their characters
STOPS, STOP_LENGTH = 16, 1024
#: Characters of a JSON schema
SCHEMA_LENGTH = 64 << 10
#: Messages of a chat, and prompts of a request
MESSAGES, PROMPTS = 4096, 64
#: Tokens of a completion where nothing is said, as OpenAI has it
COMPLETION_TOKENS = 16


@dataclass(frozen=True)
class TextParameters:
    """What is asked for: prompts (texts, token ids or messages), and the arguments of their generation."""

    model: str
    prompts: list[Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    is_stream: bool = False
    has_usage: bool = False


class Fields:
    """The fields of an object, which ``place`` names in errors.

    Each is asked for once; :meth:`finish` refuses the rest.  Null is no value.
    """

    def __init__(self, body: Mapping[str, Any], place: str = "") -> None:
        self._place = place and f"{place}."
        self._values = {name: value for name, value in body.items() if value is not None}

    def take(self, name: str, kind: type | tuple[type, ...], meaning: str, default: Any = None) -> Any:
        """Return the value of a field; raise :class:`RequestError` for one of another type."""
        value = self._values.pop(name, default)
        is_right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if value is not default and not is_right:
            raise self.wrong(name, f"is {meaning}, not {shown(value)}")
        return value

    def wrong(self, name: str, problem: str, code: str = "invalid_value") -> RequestError:
        """Return the error for a field."""
        return wrong(self._place + name, problem, code)

    def number(self, name: str, low: float, high: float, default: float | None = None, *, whole: bool = False) -> Any:
        """Return a number in a range."""
        kind = "an integer" if whole else "a number"
        meaning = f"{kind} from {low:,} to {high:,}"
        value = self.take(name, int if whole else (int, float), meaning, default)
        if value is not default and not low <= value <= high:
            raise self.wrong(name, f"is {meaning}, not {shown(value)}")
        return value

    def finish(self) -> None:
        """Refuse fields that nobody has asked for, unless they say what happens anyway."""
        for name, value in self._values.items():
            if name in _ONLY:
                same = [each for each in _ONLY[name] if isinstance(each, bool) == isinstance(value, bool)]
                if value not in same:
                    raise self.wrong(name, f"{shown(value)} is not supported", "unsupported_parameter")
            elif name not in _IGNORED:
                raise self.wrong(name[:80], "is not known", "unknown_parameter")


def wrong(name: str, problem: str, code: str = "invalid_value") -> RequestError:
    """Return the error for a field."""
    return RequestError(400, f"'{name}' {problem}", field=name, code=code)


def shown(value: Any) -> str:
    """Return a value as an error shows it: what may be large is named by its type."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number beyond 64 bits"
    return f"{value!r:.80}"


def chat_parameters(body: Mapping[str, Any]) -> TextParameters:
    """Read a request for ``/v1/chat/completions``."""
    fields = Fields(body)
    messages = fields.take("messages", list, "a list of messages")
    if not messages or len(messages) > MESSAGES:
        raise wrong("messages", f"is a list of 1 to {MESSAGES:,} messages")
    most = fields.number("max_completion_tokens", 1, 1 << 31, whole=True)
    also = fields.number("max_tokens", 1, 1 << 31, whole=True)
    if None not in (most, also) and most != also:
        raise wrong("max_tokens", "is another number than 'max_completion_tokens', which replaces it")
    prompts = [[_message(each, f"messages[{index}]") for index, each in enumerate(messages)]]
    return _parameters(fields, prompts, most or also)


def completion_parameters(body: Mapping[str, Any]) -> TextParameters:
    """Read a request for ``/v1/completions``."""
    fields = Fields(body)
    prompt = fields.take("prompt", (str, list), "a text, token ids, or a list of these")
    prompts = [prompt] if isinstance(prompt, str) or _is_ids(prompt) else prompt or []
    if not 1 <= len(prompts) <= PROMPTS:
        raise wrong("prompt", f"is 1 to {PROMPTS} texts or lists of token ids")
    for each in prompts:
        if not isinstance(each, str) and not _is_ids(each):
            raise wrong("prompt", "is a text, token ids, or a list of these")
    most = fields.number("max_tokens", 1, 1 << 31, COMPLETION_TOKENS, whole=True)
    return _parameters(fields, prompts, most)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(type(each) is int for each in value)


def _message(value: Any, place: str) -> dict[str, str]:
    """Return a message whose content is one text, with the name of who says it, which a template may read."""
    if not isinstance(value, dict):
        raise wrong(place, "is an object with 'role' and 'content'")
    fields = Fields(value, place)
    role = fields.take("role", str, "a text")
    if role not in _ROLES:
        raise fields.wrong("role", f"is one of {', '.join(_ROLES)}")
    content = fields.take("content", (str, list), "a text or a list of parts")
    if content is None:
        raise fields.wrong("content", "is a text or a list of parts, and not left out")
    name = fields.take("name", str, "a text")
    for other in ("refusal", "tool_calls", "function_call", "audio", "tool_call_id"):
        if fields.take(other, object, "nothing"):
            raise fields.wrong(other, "is not supported", "unsupported_parameter")
    fields.finish()
    if isinstance(content, list):
        content = "".join(_part(part, f"{place}.content[{index}]") for index, part in enumerate(content))
    message = {"role": "system" if role == "developer" else role, "content": content}
    return message if name is None else {**message, "name": name}


def _part(value: Any, place: str) -> str:
    if not isinstance(value, dict) or value.get("type") != "text" or not isinstance(value.get("text"), str):
        raise wrong(place, "is not a part of type 'text', the only one that the model reads")
    return str(value["text"])


def _parameters(fields: Fields, prompts: list[Any], most: int | None) -> TextParameters:
    """Read what both kinds of requests have."""
    arguments: dict[str, Any] = {
        "max_new_tokens": most,
        "temperature": fields.number("temperature", 0, 2, 1.0),
        "top_p": max(fields.number("top_p", 0, 1, 1.0), 1e-6),
        "top_k": fields.number("top_k", 0, 1 << 31, 0, whole=True),
        "min_p": fields.number("min_p", 0, 1, 0.0),
        "repetition_penalty": fields.number("repetition_penalty", 0.01, 100, 1.0),
        "stop": _stops(fields.take("stop", (str, list), "a text or a list of texts", [])),
    }
    schema = _schema(fields)
    if schema is not None:
        arguments["json_schema"] = schema
    seed = fields.number("seed", -(1 << 63), (1 << 64) - 1, whole=True)
    arguments["seed"] = None if seed is None else seed % (1 << 64)
    model = fields.take("model", str, "a text", "")
    is_stream = fields.take("stream", bool, "true or false", False)
    options = Fields(fields.take("stream_options", dict, "an object", {}), "stream_options")
    has_usage = options.take("include_usage", bool, "true or false", False)
    options.take("include_obfuscation", bool, "true or false", False)
    options.finish()
    fields.finish()
    return TextParameters(model, prompts, arguments, is_stream, has_usage)


def _schema(fields: Fields) -> str | None:
    """Return the JSON schema that an answer is of, if it is of any."""
    form = Fields(fields.take("response_format", dict, "an object", {}), "response_format")
    kind = form.take("type", object, "a text", "text")
    stated = form.take("json_schema", object, "an object") if kind == "json_schema" else None
    form.finish()
    if kind == "text":
        return None
    if kind == "json_object":
        return '{"type": "object"}'
    if kind != "json_schema" or not isinstance(stated, dict) or not isinstance(stated.get("schema"), dict):
        raise wrong("response_format", "is of type 'text', 'json_object', or 'json_schema' with a schema")
    schema = json.dumps(stated["schema"])
    if len(schema) > SCHEMA_LENGTH:
        raise wrong("response_format", f"has a schema of more than {SCHEMA_LENGTH:,} characters")
    return schema


def _stops(value: str | list[Any]) -> list[str]:
    stops = [value] if isinstance(value, str) else value
    if len(stops) > STOPS or not all(isinstance(each, str) and 1 <= len(each) <= STOP_LENGTH for each in stops):
        raise wrong("stop", f"is up to {STOPS} texts of 1 to {STOP_LENGTH:,} characters")
    return stops


Reader = Callable[[Mapping[str, Any]], TextParameters]
