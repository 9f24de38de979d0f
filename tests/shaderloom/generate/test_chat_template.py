"""Templates of chats are programs of strangers: they format messages, and nothing else.

Covers: shaderloom/generate/chat_template, shaderloom/generate/text_worker.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shaderloom.generate.chat_template import ChatTemplate
from shaderloom.runtime.plan.errors import InputError, ModelError

MESSAGES = [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "{{ 7 * 7 }}"}]


@pytest.fixture
def opened() -> Iterator[list[ChatTemplate]]:
    templates: list[ChatTemplate] = []
    yield templates
    for template in templates:
        template.close()


def formatted(opened: list[ChatTemplate], text: str, seconds: float = 60.0) -> str:
    opened.append(ChatTemplate(text, {"bos_token": "<s>"}, seconds))
    return opened[-1].format(MESSAGES)


def test_messages_are_formatted(opened: list[ChatTemplate]):
    text = """{{ bos_token }}{% for m in messages %}
    {%- if m.role == 'user' %}{{ m['content'] | trim }}{% else %}{{ m | tojson }}{% break %}{% endif %}
{% endfor %}{{ add_generation_prompt }}"""
    assert formatted(opened, text) == '<s>Grüße{"role": "assistant", "content": "{{ 7 * 7 }}"}True'
    assert opened[0].format([]) == "<s>True"


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('roles must alternate') }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% include 'x' %}",
        "{% for",
        "{{ nothing.there }}",
    ],
)
def test_what_a_template_may_not_do(opened: list[ChatTemplate], text: str):
    with pytest.raises(ModelError, match="chat template"):
        formatted(opened, text)
    with pytest.raises(ModelError):
        opened[0].format(MESSAGES)  # the process still answers


def test_time_is_limited(opened: list[ChatTemplate]):
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ModelError, match="took more than 2 s"):
        formatted(opened, loops, seconds=2.0)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 4000000000 }}",
        "{% set n = namespace(s='aaaa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
        "{{ 'x' * 20000000 }}",
    ],
)
def test_memory_is_limited(opened: list[ChatTemplate], text: str):
    with pytest.raises(ModelError):
        formatted(opened, text)


def test_messages_are_checked():
    template = ChatTemplate("x", {})
    for wrong in ([{"content": "x"}], ["x"], [{"role": "user", "content": {1, 2}}]):
        with pytest.raises(InputError):
            template.format(wrong)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="characters"):
        ChatTemplate("x" * (1 << 20), {})
