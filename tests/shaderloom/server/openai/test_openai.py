"""Text generation over HTTP, with the client that programs use: answers, streams, errors, and clients that leave.

Covers: shaderloom/server/openai, shaderloom/server.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest

from shaderloom.generate.generator import Generator
from shaderloom.generate.scheduler import Scheduler
from shaderloom.server.errors import RequestError
from shaderloom.server.openai.answers import TextModel
from shaderloom.server.openai.parameters import SCHEMA_LENGTH, chat_parameters
from shaderloom.server.openai.routes import OpenAiApi
from shaderloom.server.running import ApiServer

from ....support.held_steps import held_steps
from ....support.patience import PATIENCE
from ..conftest import LIMITS, QUEUE, SLOTS

MESSAGES: Any = [{"role": "system", "content": "in"}, {"role": "user", "content": "the cat"}]


@pytest.fixture(scope="module")
def client(served: ApiServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=str(LIMITS.key), max_retries=0, timeout=PATIENCE) as client:
        yield client


def wait_until_idle(model: TextModel) -> None:
    """Let short requests pass until no other is there."""
    while True:
        done = threading.Event()
        model.scheduler.submit([model.generator.request([3], done.set, max_new_tokens=1)])
        assert done.wait(PATIENCE)
        if not model.scheduler.active and not model.scheduler.waiting:
            return


def test_models(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "shaderloom"
    with pytest.raises(openai.NotFoundError, match="'tiny'"):
        client.models.retrieve("other/model")


def test_chats_are_those_of_the_generator(client: openai.OpenAI, generator: Generator):
    wanted = generator.generate(MESSAGES, max_new_tokens=9, stream=False)
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_completion_tokens=9, temperature=0, n=1, logprobs=False, user="me"
    )
    assert answer.choices[0].message.content == wanted.text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (wanted.statistics.prompt_tokens, 9)
    parts: Any = [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]
    in_parts: Any = [{"role": "developer", "content": "in"}, {"role": "user", "content": parts}]
    again = client.chat.completions.create(model="tiny", messages=in_parts, max_tokens=9, temperature=0)
    assert again.choices[0].message.content == wanted.text


def test_streams(client: openai.OpenAI, generator: Generator):
    wanted = generator.generate(MESSAGES, max_new_tokens=12, temperature=0.9, top_p=0.9, seed=5, stream=False)
    options: Any = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": 12,
        "temperature": 0.9,
        "top_p": 0.9,
        "seed": 5,
    }
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == wanted.text
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1
    stop = wanted.text[3:5]
    chunks = list(client.chat.completions.create(**options, stream=True, stop=stop))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == wanted.text[: wanted.text.index(stop)]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is None


def test_completions(client: openai.OpenAI, generator: Generator):
    """Several prompts, as texts and as token ids; whole and streamed."""
    wanted = [generator.generate(text, max_new_tokens=7, stream=False).text for text in ("the cat", "a")]
    answer = client.completions.create(model="tiny", prompt=["the cat", "a"], max_tokens=7, temperature=0)
    assert [choice.text for choice in answer.choices] == wanted
    ids = [generator.encode(text) for text in ("the cat", "a")]
    texts = ["", ""]
    for chunk in client.completions.create(model="tiny", prompt=ids, max_tokens=7, temperature=0, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == wanted
    one = client.completions.create(model="tiny", prompt=ids[0], temperature=0, extra_body={"top_k": 3})
    assert one.usage is not None and one.usage.completion_tokens <= 16


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": schema}}


CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("model", {"model": "other"}), ("model", {"model": None}), ("model", {"model": 3}),
    ("messages", {"messages": []}), ("messages", {"messages": "the cat"}), ("messages", {"messages": None}),
    ("messages[0]", {"messages": ["the cat"]}), ("messages[0].role", {"messages": [{"content": "a"}]}),
    ("messages[0].role", {"messages": [{"role": "tool", "content": "a"}]}),
    ("messages[0].role", {"messages": [{"role": 1, "content": "a"}]}),
    ("messages[0].content", {"messages": [{"role": "user"}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 1}]}),
    ("messages[0].content", {"messages": [{"role": "assistant", "content": None}]}),
    ("messages[0].unheard", {"messages": [{"role": "user", "content": "a", "unheard": 1}]}),
    ("messages[0].refusal", {"messages": [{"role": "assistant", "content": "", "refusal": "a"}]}),
    ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    ("messages[0].tool_calls", {"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]}),
    ("messages", {"messages": [{"role": "user", "content": "a" * 3000}]}),
    ("messages", {"max_tokens": 10_000}), ("max_tokens", {"max_tokens": 0}), ("max_tokens", {"max_tokens": 1.5}),
    ("max_tokens", {"max_tokens": True}), ("max_completion_tokens", {"max_completion_tokens": "9"}),
    ("temperature", {"temperature": -1}), ("temperature", {"temperature": 10**400}),
    ("temperature", {"temperature": {}}),
    ("top_p", {"top_p": 2}), ("seed", {"seed": 1 << 70}), ("seed", {"seed": "a"}), ("stop", {"stop": [""]}),
    ("stop", {"stop": [1]}), ("stop", {"stop": ["a"] * 99}), ("stream", {"stream": 1}),
    ("stream_options", {"stream_options": []}),
    ("stream_options.include_usage", {"stream_options": {"include_usage": 1}}),
    ("n", {"n": 2}), ("n", {"n": True}), ("logprobs", {"logprobs": True}), ("logprobs", {"logprobs": 0}),
    ("top_logprobs", {"top_logprobs": 2}), ("tools", {"tools": [{"type": "function"}]}),
    ("tool_choice", {"tool_choice": "required"}), ("tool_choice", {"tool_choice": {"type": "function"}}),
    ("function_call", {"function_call": {"name": "a"}}), ("reasoning_effort", {"reasoning_effort": "high"}),
    ("verbosity", {"verbosity": "low"}), ("prediction", {"prediction": {"type": "content", "content": "a"}}),
    ("max_tokens", {"max_completion_tokens": 3}),
    ("response_format", {"response_format": {"type": "xml"}}),
    ("response_format.unheard", {"response_format": {"type": "json_object", "unheard": 1}}),
    ("response_format", {"response_format": "text"}),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
    ("response_format", {"response_format": schema_format({"type": "objct"})}),
    ("logit_bias", {"logit_bias": {"3": 1}}),
    ("frequency_penalty", {"frequency_penalty": 1}), ("unheard", {"unheard": 1}), ("x" * 80, {"x" * 200: 1}),
]  # fmt: skip


class Pet(pydantic.BaseModel):
    """What answers are."""

    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["cat", "dog"]
    legs: Literal[2, 4]


def test_answers_follow_a_json_schema(client: openai.OpenAI, generator: Generator):
    """More clients than slots, one without a schema; the client itself reads what it has asked for."""
    seeds = range(SLOTS + 2)

    def parsed(seed: int) -> Any:
        options: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 60, "seed": seed}
        if seed == 1:
            return client.chat.completions.create(**options)
        return client.chat.completions.parse(response_format=Pet, **options)

    with ThreadPoolExecutor(len(seeds)) as pool:
        answers = list(pool.map(parsed, seeds))
    assert all(isinstance(answers[seed].choices[0].message.parsed, Pet) for seed in seeds if seed != 1)
    free = generator.generate(MESSAGES, max_new_tokens=60, temperature=1.0, seed=1, stream=False)
    assert answers[1].choices[0].message.content == free.text
    whole = generator.generate(
        MESSAGES, max_new_tokens=60, temperature=1.0, seed=2, json_schema=Pet.model_json_schema(), stream=False
    )
    assert answers[2].choices[0].message.content == whole.text
    some: Any = {"type": "json_object"}
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=9, response_format=some)
    assert str(answer.choices[0].message.content).startswith("{")


def test_fields_that_change_nothing_may_be_there():
    """Each of these alone is the request without it; a message keeps the name of who says it."""
    plain = chat_parameters(CHAT)
    for changed in (
        {"user": "me"}, {"store": True}, {"tool_choice": "auto"}, {"function_call": "none"}, {"verbosity": "medium"},
        {"reasoning_effort": "none"}, {"response_format": {"type": "text"}}, {"max_completion_tokens": 2},
    ):  # fmt: skip
        assert chat_parameters(CHAT | changed) == plain
    named = [{"role": "user", "content": "a", "name": "Ada"}]
    assert chat_parameters(CHAT | {"messages": named}).prompts == [named]


def test_the_size_of_a_schema_is_limited():
    schema = schema_format({"enum": ["x" * SCHEMA_LENGTH]})
    with pytest.raises(RequestError, match="65,536 characters"):
        chat_parameters({"model": "tiny", "messages": MESSAGES, "response_format": schema})


def test_wrong_requests_are_refused_by_name(served: ApiServer):
    headers = {"Authorization": f"Bearer {LIMITS.key}"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=PATIENCE) as client:
        for field, changed in WRONG:
            answer = client.post("/v1/chat/completions", json=CHAT | changed)
            assert answer.status_code == (404 if field == "model" and changed["model"] != 3 else 400), (field, changed)
            error = answer.json()["error"]
            assert (error["type"], error["param"]) == ("invalid_request_error", field), changed
            assert field[:40] in error["message"] or error["code"] in ("model_not_found", "context_length_exceeded")
        for prompt in (None, "", [], [[]], [1, "a"], [[1], 2], 3, {}, [9999], [-1], ["a"] * 99, [1.5], [1 << 70]):
            answer = client.post("/v1/completions", json={"model": "tiny", "prompt": prompt})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt"), prompt
        for content in (b"", b"[]", b"{", b"\xff", b"[" * 9999, b'{"model": "tiny", "messages": "\\udc00"}'):
            assert client.post("/v1/chat/completions", content=content).status_code == 400
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
        assert client.get("/v1/chat/completions").status_code == 405
    wrong_key = openai.OpenAI(base_url=f"{served.url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        wrong_key.models.list()


def test_sixteen_clients_of_which_half_leave(
    client: openai.OpenAI, model: TextModel, generator: Generator, served: ApiServer
):
    """Those that stay get what they get alone; the slots of the others are free, and the memory is as before."""
    prompts = [f"the {'cat in a theatre '[: 2 + place]}" for place in range(16)]
    options: Any = {"model": "tiny", "temperature": 0, "max_tokens": 20}
    wanted = [generator.generate(prompt, max_new_tokens=20, stream=False).text for prompt in prompts]
    wait_until_idle(model)
    before = model.device_bytes
    together = threading.Barrier(len(prompts))

    def ask(place: int) -> str:
        together.wait(PATIENCE)
        if place % 4 == 0:
            return client.completions.create(prompt=prompts[place], **options).choices[0].text
        stream = client.completions.create(prompt=prompts[place], stream=True, **options)
        text = ""
        for chunk in stream:
            text += chunk.choices[0].text
            if place % 4 in (1, 3) and text:
                stream.close()
                return "left"
        return text

    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(ask, range(len(prompts))))
    for place, answer in enumerate(answers):
        assert answer == ("left" if place % 2 else wanted[place])
    wait_until_idle(model)
    assert model.device_bytes == before
    names = {thread.name for thread in threading.enumerate()}
    assert {"shaderloom-generate", "shaderloom-http"} <= names


def test_a_client_that_leaves_frees_its_slot(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch):
    """While a step is held, so that no token comes any more when it leaves."""
    cancelled = threading.Event()
    original = Scheduler.cancel

    def cancel(self: Scheduler, request: Any) -> None:
        original(self, request)
        cancelled.set()

    monkeypatch.setattr(Scheduler, "cancel", cancel)
    with held_steps():
        stream = client.completions.create(model="tiny", prompt="a", max_tokens=500, stream=True)
        assert next(stream).choices[0].text == ""
        stream.close()
        assert cancelled.wait(PATIENCE)


def test_a_full_queue_is_told(client: openai.OpenAI, model: TextModel):
    wait_until_idle(model)
    done = threading.Event()
    blocking = [model.generator.request([3], done.set, max_new_tokens=1) for _ in range(SLOTS + QUEUE)]
    with held_steps() as begun:
        model.scheduler.submit(blocking[:SLOTS])
        assert begun.wait(PATIENCE)
        model.scheduler.submit(blocking[SLOTS:])
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(model="tiny", prompt="a")
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert caught.value.code == "queue_full"
    while not all(request.is_done for request in blocking):
        assert done.wait(PATIENCE)
        done.clear()
    assert client.completions.create(model="tiny", prompt="a", max_tokens=1).choices[0].finish_reason


def test_metrics_tell_of_tokens(client: openai.OpenAI, served: ApiServer):
    client.completions.create(model="tiny", prompt="a", max_tokens=3)
    text = httpx.get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {LIMITS.key}"}).text
    numbers = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
    assert float(numbers["shaderloom_generated_tokens_total"]) >= 1
    assert float(numbers["shaderloom_device_bytes"]) > 0


def test_events_have_one_line_each(served: ApiServer):
    """The form of server-sent events: data lines of JSON, and [DONE] at the end."""
    headers = {"Authorization": f"Bearer {LIMITS.key}"}
    body = CHAT | {"stream": True, "max_tokens": 5}
    answer = httpx.post(f"{served.url}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    for event in events[:-2]:
        assert json.loads(event.removeprefix("data: "))["object"] == "chat.completion.chunk"


def test_a_model_whose_device_is_lost_is_opened_again(folder: Path, device: Any):
    """In-flight answers end with an error that says so; nothing is ready until the model has another device."""
    doomed, may_go = device.sibling(), threading.Event()
    opened = []

    def open_generator() -> Generator:
        opened.append(doomed if not opened else device)
        if len(opened) > 1:
            assert may_go.wait(PATIENCE)
        return Generator(folder, device=opened[-1])

    model = TextModel(open_generator, slots=SLOTS, queue=QUEUE)
    headers = {"Authorization": f"Bearer {LIMITS.key}"}
    request = {"model": "tiny", "messages": MESSAGES, "max_tokens": 4, "temperature": 0}
    with (
        ApiServer(OpenAiApi(model, "tiny", LIMITS), LIMITS) as server,
        httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE) as client,
    ):

        def ask() -> httpx.Response:
            return client.post("/v1/chat/completions", json=request)

        first = ask().json()["choices"]
        assert client.get("/health").status_code == 200
        with ThreadPoolExecutor(1) as pool, held_steps() as begun:
            in_flight = pool.submit(ask)
            assert begun.wait(PATIENCE)
            doomed.gpu.destroy()
            assert client.get("/health").status_code == 503  # though no step has failed
        for answer in (in_flight.result(PATIENCE), ask()):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "device_lost"
        may_go.set()
        while client.get("/health").status_code != 200:
            pass
        assert ask().json()["choices"] == first
