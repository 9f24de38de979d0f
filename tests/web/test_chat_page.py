"""The chat page with a tiny model: answers of Python, the stop button, stored weights, and texts that are markup.

Covers: shaderloom/generate/bundling, examples/web_chat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from examples.web_chat.site import TOOLS, build_page, serve
from shaderloom import Generator
from shaderloom.convert.gguf_decoder import convert_gguf
from shaderloom.generate.bundling import compile_generator

from ..support.bundles import copy_bundle, seal
from ..support.environments import absent
from ..support.tiny_gguf import write_tiny_gguf
from .chromium import Chromium, Page
from .conftest import PICTURES

LENGTH = 520


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    convert_gguf(write_tiny_gguf(folder / "t.gguf", kind="Q8_0", tied=False).path, folder / "folder")
    compile_generator(folder / "folder", folder / "b", max_length=LENGTH, target="web-software")
    return folder / "b"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (TOOLS / "@huggingface").is_dir():
        absent("./dev web-check has not installed the page's packages")
    return build_page(tmp_path_factory.mktemp("page") / "page")


@pytest.fixture
def open_chat(browser: Chromium, built: Path) -> Iterator[Any]:
    """``open_chat(bundle)``: the page, once the model is there."""
    with ExitStack() as stack:

        def opened(bundle: Path) -> Page:
            site = stack.enter_context(serve(built, bundle))
            page = stack.enter_context(browser.open(site.url))
            page.wait_for("!document.querySelector('#question').disabled || document.querySelector('#status.bad')")
            assert page.evaluate("document.querySelector('#status').textContent") == ""
            return page

        yield opened


def ask(page: Page, question: str, **options: Any) -> None:
    """Send a question, as a person does, with these options."""
    page.call("""(question, options) => {
      for (const [id, value] of Object.entries(options)) document.getElementById(id).value = value;
      document.querySelector("#question").value = question;
      document.querySelector("#send").click();
    }""", question, options)  # fmt: skip


def last(page: Page, part: str) -> str:
    return page.evaluate(f"[...document.querySelectorAll('#log .{part}')].at(-1).textContent")


def finish(page: Page) -> str:
    page.wait_for("document.querySelector('#stop').disabled")
    return page.evaluate("document.querySelector('#status').textContent")


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_a_conversation_has_the_answers_of_python(open_chat: Any, bundle: Path, device: Any):
    page = open_chat(bundle)
    with Generator(bundle, device=device) as generator:
        first = generator.generate(user("the <i>thing</i>"), max_new_tokens=12, stream=False)
        ask(page, "the <i>thing</i>", maxNewTokens=12)
        assert finish(page) == ""
        assert last(page, "text") == first.text
        assert f"{len(first.tokens)} tokens" in last(page, "note")
        assert "first token after" in last(page, "note")
        messages = [*user("the <i>thing</i>"), {"role": "assistant", "content": first.text}, *user("and in 𝄞?")]
        second = generator.generate(messages, max_new_tokens=8, stream=False)
        ask(page, "and in 𝄞?", maxNewTokens=8)
        assert finish(page) == ""
        assert last(page, "text") == second.text
        assert ", 0 of them before" not in last(page, "note")
    assert page.evaluate("document.querySelectorAll('#log i').length") == 0
    assert page.evaluate("document.querySelectorAll('#log li').length") == 4
    hosts = {request.split("/")[2] for request in page.requests if not request.startswith(("data:", "blob:"))}
    assert hosts == {page.evaluate("location.host")}
    assert page.messages == []
    picture = Image.open(page.screenshot(PICTURES / "chat.png"))
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 50
    page.resize(360, 740, mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_an_answer_is_stopped_and_the_chat_goes_on(open_chat: Any, bundle: Path):
    page = open_chat(bundle)
    page.evaluate("""new MutationObserver((_, observer) => {
      if ([...document.querySelectorAll("#log .assistant .text")].at(-1)?.textContent.length > 1) {
        observer.disconnect();
        document.querySelector("#stop").click();
      }
    }).observe(document.querySelector("#log"), { childList: true, subtree: true, characterData: true })""")
    ask(page, "the", maxNewTokens=400, temperature=2, seed=4)
    assert finish(page) == "Stopped"
    assert last(page, "note").endswith("stopped")
    assert len(last(page, "text")) > 1
    ask(page, "again", maxNewTokens=3, temperature=0)
    assert finish(page) == ""


def test_draws_depend_on_the_seed(open_chat: Any, bundle: Path):
    page = open_chat(bundle)
    answers = []
    for seed in (7, 7, 8):
        ask(page, "a thing", temperature=1.5, seed=seed, maxNewTokens=12)
        assert finish(page) == ""
        answers.append(last(page, "text"))
        assert f"seed {seed}" in last(page, "note")
        page.evaluate("document.querySelector('#reset').click()")
        assert page.evaluate("document.querySelectorAll('#log li').length") == 0
    assert answers[0] == answers[1] != answers[2]


def test_a_page_that_is_opened_again_has_the_weights(open_chat: Any, bundle: Path):
    page = open_chat(bundle)
    weights = [request for request in page.requests if "weights-" in request]
    assert weights
    page.evaluate("globalThis.isOld = true")
    page.send("Page.reload")
    page.wait_for("!globalThis.isOld && document.querySelector('#question')?.disabled === false")
    assert [request for request in page.requests if "weights-" in request] == weights
    ask(page, "the", maxNewTokens=2)
    assert finish(page) == ""


def with_markup(tokenizer: dict[str, Any]) -> None:
    """Every token of a byte is markup that would run a script."""
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    begin = "<img src=x onerror=globalThis.isRun=1>"
    tokenizer["model"]["vocab"] = {
        name if len(name) == 1 or token < 3 else f"{begin}{name}": token for name, token in vocabulary.items()
    }
    tokenizer["model"]["merges"] = []
    del merges
    tokenizer["added_tokens"] += [
        {"id": token, "content": f"{begin}{token}", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": False}
        for token in vocabulary.values() if token >= 3
    ]  # fmt: skip


@pytest.mark.slow
def test_words_of_the_bundle_are_no_markup(open_chat: Any, bundle: Path, tmp_path: Path):
    path = copy_bundle(bundle, tmp_path / "b")
    file = path / "assets" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    with_markup(tokenizer)
    file.write_text(json.dumps(tokenizer))
    template = "<img src=y onerror=globalThis.isRun=1>{{ raise_exception('<b>no</b>') if messages|length > 1 }}"
    (path / "assets" / "chat_template.jinja").write_text(template)
    seal(path)
    page = open_chat(path)
    ask(page, "the", maxNewTokens=6)
    assert finish(page) == ""
    assert "<img" in last(page, "text")
    ask(page, "the", maxNewTokens=6)
    assert "<b>no</b>" in finish(page)
    assert page.evaluate("document.querySelectorAll('main img, main b').length") == 0
    assert page.evaluate("globalThis.isRun") is None


@pytest.mark.slow
def test_a_template_that_never_ends_is_ended(open_chat: Any, bundle: Path, tmp_path: Path):
    path = copy_bundle(bundle, tmp_path / "b")
    loops = "{% for i in range(10000) %}" * 4 + "{% endfor %}" * 4
    (path / "assets" / "chat_template.jinja").write_text("{% if messages|length == 1 %}" + loops + "{% endif %}")
    seal(path)
    page = open_chat(path)
    ask(page, "the")
    assert "took more than 20 s" in finish(page)
    assert page.evaluate("document.querySelector('#question').disabled") is False
