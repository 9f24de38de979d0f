"""Formats chats, turns texts into tokens and follows grammars in a process of its own.

A template is a program that comes with a model.  A tokenizer, and a grammar that a client sends, have regular
expressions and rules that can ask for any time and memory.  Jinja's sandbox takes everything else from a template;
these are limited by the process: by the system where it can, and by whoever waits (:mod:`.limited_process`).  It is
``python -m shaderloom.generate.text_worker``.  Each line of the input is a request in JSON, each line of the output its
answer, or ``error``:

* ``template`` and ``variables``: ``text``;
* ``tokenizer`` (a path) and ``text``, with ``special`` or without: ``ids``;
* ``tokenizer`` and ``ids``, a list of lists: ``texts``, without special tokens;
* ``grammar`` and what :func:`.grammar_matchers.allowed_tokens` takes besides: ``mask``.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from functools import cache
from typing import Any

#: Bytes of memory, and of a result
MEMORY = 2 << 30
RESULT = 16 << 20


def render(template: str, variables: dict[str, Any]) -> str:
    """Format a chat; raise what Jinja raises."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template).render(**variables)


@cache
def open_tokenizer(path: str) -> Any:
    """Return the tokenizer of a file, which changes no length of texts; raise what the package tokenizers raises."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """Return what a request asks for, or ``error``."""
    if "template" in request:
        answer: dict[str, Any] = {"text": render(request["template"], request["variables"])}
    elif "grammar" in request:
        from .grammar_matchers import allowed_tokens

        answer = {"mask": allowed_tokens(request)}
    elif "ids" in request:
        tokenizer = open_tokenizer(request["tokenizer"])
        answer = {"texts": [tokenizer.decode(ids, skip_special_tokens=True) for ids in request["ids"]]}
    else:
        tokenizer = open_tokenizer(request["tokenizer"])
        answer = {"ids": tokenizer.encode(request["text"], add_special_tokens=request["special"]).ids}
    size = max((len(value) for value in answer.values()), default=0)
    size = max(size, *(len(text) for text in answer.get("texts", [""])))
    return answer if size <= RESULT else {"error": f"the result has {size:,} characters or tokens"}


def main() -> None:
    """Answer requests until the input ends."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # a system without this limit: time alone is limited
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for line in sys.stdin.buffer:
        try:
            answer = answer_request(json.loads(line))
        except (
            BaseException
        ) as error:  # whatever a file makes the packages raise; a panic of tokenizers is no Exception
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
