"""The HTML report: what it says, that it needs no network, and that it works in a browser with mouse and keys."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

from bench.graphs import transformer
from shaderloom.cli import app
from shaderloom.cli.inspect_output import summary
from shaderloom.inspect.inspected_plan import inspect_model
from shaderloom.inspect.report.annotate import annotated, comments
from shaderloom.inspect.report.data import portability, report_data
from shaderloom.inspect.report.page import render_report
from shaderloom.model.model import Model
from shaderloom.plans.graph_layout import place
from shaderloom.plans.profiling import summarise
from shaderloom.runtime.execution.roofline import Roofline
from shaderloom.runtime.execution.timing import CallTime, Profile
from shaderloom.runtime.plan.device_profile import WEB

from ...compiler.precision.test_wide_tensors import ROW, growing
from ...support.reports import unpack
from ...web.chromium import Chromium, find_chromium
from ..check.test_check import NETWORK, build

SHAPES = {"x": (1, 4, 8, 8)}


def inspected_model(text: str = NETWORK, **options):
    return inspect_model(Model(build(text), cache=False, options=options), SHAPES, WEB)


def profiled(inspected):
    calls = inspected.plan.calls
    times = tuple(CallTime(call.kernel[:12], call.label, 1000 * (n + 1), call) for n, call in enumerate(calls))
    roofline = Roofline(1e11, 1e11, "timestamps")
    return summarise(inspected.plan, [Profile("timestamps", times)], {}, roofline), roofline


# -- what it says ------------------------------------------------------------------------------------------------------


def test_calls_and_their_neighbours():
    data = report_data(inspected_model())
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    first = data["calls"][0]
    assert first["anchor"] == ["Conv (main node 0)"]
    assert first["epilogue"] == ["Relu (main node 1)"]
    names = [data["tensors"][operand]["name"] for operand in first["operands"]]
    assert (names[0], names[1], names[-1]) == ("x", "(w1)", "r1")
    edges = {(source, target): reasons for source, target, _, reasons in data["graph"]["edges"]}
    assert [reason.partition(": ")[0] for reason in edges[0, 1]] == ["Relu (main node 1) and MaxPool (main node 2)"]
    assert (0, 2) in edges, "the residual"
    pool = next(call for call in data["calls"] if call["anchor"] == ["MaxPool (main node 2)"])
    assert pool["label"] == "Pool"
    assert data["summary"]["nodes"] == 9


def test_memory_blocks_do_not_overlap_in_time_and_place():
    data = report_data(inspected_model(disabled_passes=["fuse"]))
    blocks = data["memory"]["blocks"]
    overwritten = {call["in_place"] for call in data["calls"]}
    for one in blocks:
        for other in blocks:
            if one is other or one[1] != other[1] or {one[0], other[0]} & overwritten:
                continue
            apart = one[2] + one[3] <= other[2] or other[2] + other[3] <= one[2]
            assert apart or one[5] < other[4] or other[5] < one[4], (one, other)
    sizes = dict(data["memory"]["buffers"])
    assert all(offset + size <= sizes[buffer] for _, buffer, offset, size, *_ in blocks)


def test_profiles_are_shown():
    inspected = inspected_model()
    result, roofline = profiled(inspected)
    data = report_data(inspected, result, roofline)
    assert data["calls"][1]["ns"] == 2000
    assert data["calls"][0]["roofline"] == pytest.approx(
        max(data["calls"][0]["flops"], data["calls"][0]["bytes"]) / 1e5
    )
    assert data["profile"]["method"] == "timestamps"


def test_alternatives_have_costs():
    text = "p (float[64,48] x) => (float[64,64] y) <float[48,64] w> { y = MatMul (x, w) }"
    inspected = inspect_model(Model(build(text), cache=False), {"x": (64, 48)}, WEB)
    (call,) = report_data(inspected)["calls"]
    costs = [item["cost"] for item in call["alternatives"]]
    assert len(costs) >= 2 and costs[0] == 1 and costs == sorted(costs)
    assert [bool(item.get("chosen")) for item in call["alternatives"]] == [True, *[False] * (len(costs) - 1)]


def test_a_kernel_without_a_choice_has_no_alternatives():
    text = "p (float[64,48] x) => (float[64,48] y) { y = Relu (x) }"
    inspected = inspect_model(Model(build(text), cache=False), {"x": (64, 48)}, WEB)
    (call,) = report_data(inspected)["calls"]
    assert call["alternatives"] == [] and call["decision"] is None


def test_comments_name_nodes_and_tensors():
    inspected = inspected_model()
    plan = inspected.plan
    wgsl = next(kernel.wgsl for kernel in plan.kernels if kernel.key == plan.calls[0].kernel)
    text = annotated(wgsl, comments(plan, 0))
    assert "// x: float32 1x4x8x8, NCHW, input\n@group(0) @binding(0)" in text
    assert re.search(r"// computes Conv \(main node 0\)\n@compute", text)
    assert re.search(r"// applies Relu \(main node 1\)\nfn store", text)
    assert re.search(r"// reads x\nfn load_a", text)
    without = "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("// "))
    own = "".join(line for line in wgsl.splitlines(keepends=True) if not line.lstrip().startswith("// "))
    assert without.rstrip("\n") == own.rstrip("\n"), "comments change no code"


def test_portability():
    kernel = inspected_model().plan.kernels[0]
    assert portability(kernel) == []
    large = replace(kernel, workgroup=(512, 1, 1), workgroup_bytes=20000, features=("subgroup",))
    assert portability(large) == [
        "512 threads in a workgroup",
        "20,000 bytes of workgroup memory",
        "512 threads along x",
        "subgroup",
    ]
    assert portability(replace(kernel, wgsl="enable f16;\n" + kernel.wgsl)) == ["shader-f16"]


# -- the graph ---------------------------------------------------------------------------------------------------------


def check_places(sizes, edges, places):
    for source, target in edges:
        assert places[source][1] + sizes[source][1] < places[target][1], "data flow downwards"
    rows: dict[float, list[int]] = {}
    for box, (_, y) in enumerate(places):
        rows.setdefault(y, []).append(box)
    for row in rows.values():
        row.sort(key=lambda box: places[box][0])
        for left, right in itertools.pairwise(row):
            assert places[left][0] + sizes[left][0] <= places[right][0]


def test_places():
    sizes = [(100.0, 20.0 + 5 * (n % 3)) for n in range(8)]
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (0, 4), (5, 4), (4, 6), (4, 7)]
    places = place(sizes, edges)
    check_places(sizes, edges, places)
    assert place(sizes, edges) == places
    assert place([], []) == []
    with pytest.raises(ValueError, match="cycle"):
        place(sizes[:2], [(0, 1), (1, 0)])


def test_deep_graphs_do_not_lean():
    """Blocks with a branch that joins two layers further down."""
    edges, last = [], 0
    for block in range(500):
        a, b, c, join = (4 * block + step for step in (1, 2, 3, 4))
        edges += [(last, a), (a, b), (b, join), (last, c), (c, join)]
        last = join
    sizes = [(230.0, 40.0)] * (last + 1)
    places = place(sizes, edges)
    check_places(sizes, edges, places)
    assert max(x for x, _ in places) < 2000


# -- the file ----------------------------------------------------------------------------------------------------------


def test_equal_subjects_give_equal_bytes():
    html = render_report(inspected_model())
    assert render_report(inspected_model()) == html
    assert "http://" not in html and "https://" not in html
    assert "src=" not in html and "@import" not in html
    assert len(unpack(html, "texts")["wgsl"]) == len(unpack(html, "data")["kernels"])


def test_names_are_text_and_no_markup():
    evil = "</script><img src=x onerror=alert(1)>"
    model = build(NETWORK)
    model.graph.node[0].name = evil
    html = render_report(inspect_model(Model(model, cache=False), SHAPES, WEB))
    assert evil not in html
    assert any(evil in origin for origin in unpack(html, "data")["calls"][0]["origins"])


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_what_is_float32_is_shown_with_its_reason(precision: str):
    """``b`` leaves the range: the file declares it float16, or half precision would have it so."""
    opened = growing()
    if precision == "float16":
        text = "g (float[1,4] x) => (float[1,4] y) { a = MatMul (x, w) b = MatMul (a, w) y = MatMul (b, v) }"
        opened = build(text)
        for name, factor in (("w", 300), ("v", 1e-3)):
            opened.graph.initializer.append(
                numpy_helper.from_array(np.eye(4, dtype=np.float32) * np.float32(factor), name)
            )
    model = Model(opened, cache=False, options={"precision": precision})
    model.calibrate_on_host({"x": (1, 4)}, WEB, {"x": ROW.astype(model.header.inputs[0].dtype)})
    inspected = inspect_model(model, {"x": (1, 4)}, WEB)
    html = render_report(inspected)
    data = unpack(html, "data")
    ((heading, rows),) = data["full_precision"]
    assert f"<summary>{heading}</summary>" in html and heading in summary(inspected.describe())
    (why,) = [row["why"] for row in rows if row["tensor"] == "b"]
    assert f"<td>b</td><td>{why}</td>" in html
    assert {tensor["name"]: tensor["float32"] for tensor in data["tensors"] if "float32" in tensor}["b"] == why


def test_dynamic_dimensions_are_shown():
    text = "d (float[N,32] x) => (float[N,32] y) { a = Relu (x) b = Softmax (a) y = Mul (b, x) }"
    for declared, shown in (((1, 9), [1, 9]), ((1, 11, 3), [1, 10, 3])):
        inspected = inspect_model(Model(build(text), cache=False, dynamic={"N": declared}), {"x": (4, 32)}, WEB)
        data = report_data(inspected)
        assert data["dynamic"] == {"N": shown}
        assert data["tensors"][0]["shape"] == "Nx32"
        assert "symbols" in [name for name, *_ in data["kernels"][0]["bindings"]]


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium")
    with Chromium(program) as found:
        yield found


def open_report(browser, path, html: str):
    path.write_text(html, encoding="utf-8")
    page = browser.open(path.as_uri(), width=1400, height=900)
    page.wait_for("document.documentElement.dataset.state === 'complete'")
    return page


def press(page, key: str, code: str = "") -> None:
    text = key if len(key) == 1 else ""
    for kind in ("keyDown", "keyUp"):
        page.send("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": code or key, "text": text})


def selected(page) -> int:
    return page.evaluate("selection.call")


def picture(page, selector: str) -> np.ndarray:
    from PIL import Image

    clip = page.call(
        "(s) => { const b = document.querySelector(s).getBoundingClientRect();"
        " return {x: b.x, y: b.y, width: b.width, height: b.height, scale: 1}; }",
        selector,
    )
    shot = page.send("Page.captureScreenshot", {"format": "png", "clip": clip})
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB"))


def assert_quiet(page) -> None:
    assert page.messages == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture
def page(browser, tmp_path):
    inspected = inspected_model()
    result, roofline = profiled(inspected)
    html = render_report(inspected, device="a device", profile=result, roofline=roofline)
    with open_report(browser, tmp_path / "report.html", html) as opened:
        yield opened
        assert_quiet(opened)


def test_it_is_drawn(page):
    graph, memory = picture(page, "#canvas"), picture(page, "#memory")
    assert len(np.unique(graph.reshape(-1, 3), axis=0)) > 30, "boxes, edges and text"
    assert len(np.unique(memory.reshape(-1, 3), axis=0)) > 5
    assert "9 ONNX nodes" in page.evaluate("document.querySelector('header').innerText")


def test_keys_alone_reach_everything(page):
    press(page, "/", "Slash")
    assert page.evaluate("document.activeElement.id") == "search"
    for letter in "maxpool":
        press(page, letter)
    assert (
        page.evaluate("byId('count').textContent") == f"1 of {page.evaluate('window.report.data.calls.length')} calls"
    )
    press(page, "Enter")
    assert page.evaluate("document.activeElement.id") == "list"
    assert selected(page) == 1
    assert "MaxPool (main node 2)" in page.evaluate("byId('details').innerText")
    page.evaluate("byId('search').value = ''; byId('search').dispatchEvent(new Event('input'))")
    press(page, "ArrowDown")
    assert selected(page) == 2
    press(page, "Home")
    assert selected(page) == 0
    page.evaluate("byId('canvas').focus()")
    press(page, "ArrowDown")
    assert selected(page) == 1, "along the data"
    press(page, "ArrowUp")
    assert selected(page) == 0
    press(page, "Enter")
    assert page.evaluate("document.activeElement.id") == "details"
    reached = page.evaluate(
        "[...document.querySelectorAll('input, select, button, canvas[tabindex], [role=listbox], summary')]"
        ".every((item) => item.tabIndex >= 0)"
    )
    assert reached


def test_a_click_on_a_group_shows_its_kernel(page):
    place = page.evaluate(
        "(() => { const b = byId('canvas').getBoundingClientRect(), [x, y, w, h] = window.report.graph.screen(2);"
        " return [b.x + x + w / 2, b.y + y + h / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.send(
            "Input.dispatchMouseEvent",
            {"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1},
        )
    assert selected(page) == 2
    text = page.evaluate("byId('details').innerText")
    assert "fn main" in text
    assert "// computes Conv (main node 3)" in text
    assert "Why neighbours are kernels of their own" in text
    assert "of the roofline" in text
    assert page.evaluate("document.querySelectorAll('#details pre .keyword').length") > 5
    assert page.evaluate("location.hash") == "#call-2"


def test_zoom_pan_and_colours_change_the_picture(page):
    before = picture(page, "#canvas")
    page.evaluate("byId('in').click()")
    zoomed = picture(page, "#canvas")
    assert (before != zoomed).any()
    page.evaluate("byId('canvas').focus()")
    press(page, "0")
    page.evaluate("byId('colour').value = 'ns'; byId('colour').dispatchEvent(new Event('change'))")
    assert (picture(page, "#canvas") != before).any()
    page.evaluate("byId('sort').value = 'ns'; byId('sort').dispatchEvent(new Event('change'))")
    last = page.evaluate("byId('rows').firstChild.id")
    assert last == f"row-{page.evaluate('window.report.data.calls.length') - 1}", "the last call took longest"


#: What one frame of the graph asks of the canvas
COUNT_DRAWING = """(() => {
  const counts = {}, prototype = CanvasRenderingContext2D.prototype;
  for (const name of ["fill", "stroke", "fillText"]) {
    const original = prototype[name];
    prototype[name] = function (...rest) { counts[name] = (counts[name] ?? 0) + 1; return original.apply(this, rest); };
  }
  window.report.graph.paint();
  return counts;
})()"""


def test_two_thousand_nodes(browser, tmp_path):
    model = Model(transformer(2000).SerializeToString(), cache=False, options={"disabled_passes": ["fuse"]})
    html = render_report(inspect_model(model, model.default_shapes(), WEB))
    assert len(html) < 5_000_000
    with open_report(browser, tmp_path / "large.html", html) as page:
        count = page.evaluate("window.report.data.calls.length")
        assert count > 2000
        assert page.evaluate("byId('rows').childElementCount") < 60, "only rows that are seen"
        page.evaluate(f"selection.set({count - 1}, 'test')")
        assert f"Call {count - 1}" in page.evaluate("byId('details').innerText")
        page.evaluate("byId('fit').click()")
        drawn = page.evaluate(COUNT_DRAWING)
        assert count <= drawn["fill"] <= drawn["stroke"] < 2 * count, "a box once, all edges together"
        assert "fillText" not in drawn, "no text too small to read"
        assert_quiet(page)


# -- the command -------------------------------------------------------------------------------------------------------


def test_command(device, tmp_path, cache_folder, monkeypatch):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    path, target = tmp_path / "network.onnx", tmp_path / "report.html"
    path.write_bytes(build(NETWORK).SerializeToString())

    def run(*arguments: object, status: int = 0):
        result = CliRunner().invoke(app, ["inspect", str(path), *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    run("--html", target, "--profile")
    html = target.read_text(encoding="utf-8")
    data = unpack(html, "data")
    assert all(call["ns"] >= 0 for call in data["calls"])
    assert device.name in html
    run("--html", target)
    first = target.read_bytes()
    run("--html", target, "--no-cache")
    assert target.read_bytes() == first
    assert "cannot write" in run("--html", tmp_path / "none" / "report.html", status=1).stderr
    assert "--web or --profile" in run("--html", target, "--web", "--profile", status=1).stderr
