"""Formats chats in a process of its own: ``python -m shaderloom.generate.template_worker``.

A template is a program that comes with a model.  Jinja's sandbox takes everything from it but time and memory, and
these are limited by the process: by the system where it can, and by whoever waits (:mod:`.chat_template`).  Each line
of the input is JSON with a template and its variables, each line of the output JSON with ``text`` or ``error``.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

#: Bytes of memory, and of a result
MEMORY = 1 << 30
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


def main() -> None:
    """Answer requests until the input ends."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # a system without this limit: time alone is limited
    for line in sys.stdin.buffer:
        try:
            request = json.loads(line)
            text = render(request["template"], request["variables"])
            answer = {"text": text} if len(text) <= RESULT else {"error": f"the text has {len(text):,} characters"}
        except Exception as error:  # whatever a template makes Jinja raise
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
