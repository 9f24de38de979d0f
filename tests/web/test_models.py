"""Bundles of models in the browser give what the Python session gave, and the page of ``shaderloom serve`` says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.bundle.format import MANIFEST

from ..support.bundles import copy_bundle, seal
from ..support.models import filled_model, trained_model
from .chromium import Page
from .conftest import PICTURES

#: Pipelines of a large model take software drivers a minute.

MODELS = {
    "squeezenet1_1": (filled_model, {"input": (1, 3, 224, 224)}),
    "bert_small": (filled_model, {}),
    "unet_small": (filled_model, {"input": (1, 3, 64, 64)}),
    "ppocr_cls": (trained_model, {"x": (1, 3, 48, 192)}),
    "ppocr_rec": (trained_model, {"x": (1, 3, 48, 320)}),
}

RUN = """async (software) => {
  const { load } = await import("/shaderloom.js");
  const { compare } = await import("/values.js");
  const session = await load("/bundle/", { software });
  const { inputs, outputs, tolerance } = await session.sample(0);
  const first = await session.run(inputs);
  const second = await session.run(inputs);
  const results = Object.entries(outputs).map(([name, expected]) => ({
    name, elements: expected.data.length, ...compare(first[name], expected, tolerance),
    same: first[name].data.every((value, index) => Object.is(value, second[name].data[index])),
  }));
  session.dispose();
  return results;
}"""


def bundle_of(name: str, path: Path, device, precision: str = "float32") -> Path:
    locate, shapes = MODELS[name]
    compile_bundle(
        locate(name), path, shapes=[shapes] if shapes else (), sample=True, device=device, precision=precision
    )
    return path


def settle(page: Page, condition: str) -> None:
    """Wait for the condition, and until the page takes orders again."""
    page.wait_for(f"({condition}) && !document.body.hasAttribute('aria-busy')")


def click(page: Page, selector: str) -> None:
    page.evaluate(f"document.querySelector({selector!r}).click()")


@pytest.mark.parametrize(
    ("name", "software"),
    # The browser of these tests computes on the CPU, where kernels for GPUs take long to compile.
    [*((name, True) for name in MODELS), ("bert_small", False), ("ppocr_cls", False)],
)
def test_results_are_those_of_the_python_session(open_bundle, device, tmp_path, name, software):
    page = open_bundle(bundle_of(name, tmp_path / "b", device))
    results = page.call(RUN, software)
    assert results
    for result in results:
        assert result["agrees"], result
        assert result["same"], "two runs differ"
    assert page.messages == []


@pytest.mark.parametrize("name", ["ppocr_cls", "bert_small"])
def test_half_precision_agrees_with_the_full_one(open_bundle, device, tmp_path, name):
    """The samples have the results of the float32 model."""
    page = open_bundle(bundle_of(name, tmp_path / "b", device, "float16"))
    results = page.call(RUN)
    assert results
    for result in results:
        assert result["agrees"] and result["same"], result
    assert page.messages == []


@pytest.fixture(scope="module")
def small_picture_model(tmp_path_factory, device):
    """The angle classifier: an input of pictures, two scores."""
    return bundle_of("ppocr_cls", tmp_path_factory.mktemp("cls") / "angle.shaderbundle", device)


def test_the_page_of_serve(open_bundle, small_picture_model, tmp_path):
    page = open_bundle(small_picture_model, "")
    settle(page, "document.querySelectorAll('#kernels li').length > 0")
    assert page.evaluate("document.title") == "angle.shaderbundle"
    click(page, "#run")
    settle(page, "document.body.dataset.sample")
    assert page.evaluate("document.body.dataset.sample") == "agrees"
    assert "agrees" in page.evaluate("document.querySelector('#outputs').innerText")

    page.evaluate("document.getElementById('repeat').value = 2")
    click(page, "#time")
    settle(page, "document.querySelectorAll('#times dd').length")
    assert "Timed 2 runs" in page.evaluate("document.getElementById('status').textContent")

    click(page, "#kernels summary")
    page.wait_for("document.querySelector('#kernels pre').textContent.includes('@compute')")

    picture = tmp_path / "grey.png"
    Image.new("RGB", (300, 100), (90, 90, 90)).save(picture)
    page.choose_files("#file", [picture])
    settle(page, "document.querySelectorAll('#picture-outputs li').length")
    assert page.evaluate("document.querySelectorAll('#picture-outputs li').length") == 2

    shot = Image.open(page.screenshot(PICTURES / "serve.png"))
    assert len(shot.convert("RGB").getcolors(1 << 24)) > 50
    assert {request.split("/")[2] for request in page.requests} == {page.evaluate("location.host")}
    assert page.messages == []

    page.resize(360, 740, mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.screenshot(PICTURES / "serve-phone.png")


def test_every_control_of_the_page_has_a_name(open_bundle, small_picture_model):
    page = open_bundle(small_picture_model, "")
    settle(page, "document.querySelectorAll('#kernels li').length > 0")
    page.send("Accessibility.enable")
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    controls = {"button", "combobox", "spinbutton", "textbox", "progressbar", "DisclosureTriangle", "image"}
    found = [node for node in nodes if node.get("role", {}).get("value") in controls and not node["ignored"]]
    assert len(found) > 10
    assert [node["role"]["value"] for node in found if not node.get("name", {}).get("value")] == []


def test_the_page_says_what_is_wrong(open_bundle, small_picture_model, tmp_path):
    folder = copy_bundle(small_picture_model, tmp_path / "b")
    sample = folder / json.loads((folder / MANIFEST).read_bytes())["samples"][0]["file"]
    data = sample.read_bytes()
    sample.write_bytes(data[:-4] + b"\0\0\0\x40")  # an expected score of 2
    page = open_bundle(folder, "")
    settle(page, "!document.getElementById('run').disabled")
    click(page, "#run")
    settle(page, "document.getElementById('status').className === 'bad'")
    assert "is damaged" in page.evaluate("document.getElementById('status').textContent")

    seal(folder)
    page = open_bundle(folder, "")
    settle(page, "!document.getElementById('run').disabled")
    click(page, "#run")
    settle(page, "document.body.dataset.sample")
    assert page.evaluate("document.body.dataset.sample") == "differs"
