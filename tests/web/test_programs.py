"""Programs of bundles in the browser, beside sessions of their models.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle

from ..support.bundles import (
    GROWING,
    LOOPS,
    SCANS,
    STEPS,
    growing_bundle,
    growing_feeds,
    half_program,
    half_program_feeds,
    loops_bundle,
    loops_feeds,
    scans_bundle,
    scans_feeds,
    steps_bundle,
)
from ..support.comparing import COMPARING
from ..support.deciding import DECIDING
from ..support.model_inputs import speech
from ..support.models import trained_model
from ..support.programs import parse
from .chromium import PageError

#: Typed arrays of what :func:`for_page` gives
TYPED = """(feeds) => Object.fromEntries(Object.entries(feeds).map(([name, { array, data, dims }]) =>
  [name, { data: new globalThis[array](array.startsWith("Big") ? data.map(BigInt) : data), dims }]))"""

RUN = f"""async (feeds, options) => {{
  const {{ load }} = await import("/shaderloom.js");
  globalThis.session ??= await load("/bundle/");
  const outputs = await session.run(({TYPED})(feeds), options);
  return Object.fromEntries(Object.entries(outputs).map(([name, {{ dtype, dims, data }}]) =>
    [name, {{ dtype, dims, data: Array.from(data, Number) }}]));
}}"""


def fed(n: int = 2, keep: float = 0.3, *, taken: bool = True) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(n)
    x = draw.standard_normal((5, 40)).astype(np.float32) * (draw.random((5, 40)) < keep)
    return {"x": x, "c": np.array(taken), "w": draw.standard_normal((n, 3)).astype(np.float32)}


def for_page(feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    arrays = {"float32": "Float32Array", "bool": "Uint8Array", "int32": "Int32Array", "int64": "BigInt64Array"}
    return {
        name: {
            "array": arrays[array.dtype.name],
            # as text, since numbers of JSON are no integers of 64 bits
            "data": [str(each) if array.dtype == np.int64 else each for each in array.ravel().tolist()],
            "dims": list(array.shape),
        }
        for name, array in feeds.items()
    }


@pytest.fixture(scope="module")
def reference():
    model = onnx.parser.parse_model(STEPS)
    with shaderloom.InferenceSession(model, cache=False, dynamic={"n": (1, 9)}) as session:
        yield session


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return steps_bundle(tmp_path_factory.mktemp("steps") / "b")


def assert_alike(outputs: dict, session, feeds: dict[str, np.ndarray], *, half: bool = False) -> None:
    names = [port.name for port in session.get_outputs()]
    for name, expected in zip(names, session.run(names, feeds), strict=True):
        assert (outputs[name]["dtype"], outputs[name]["dims"]) == (expected.dtype.name, list(expected.shape))
        actual = np.array(outputs[name]["data"]).reshape(expected.shape)
        largest = np.abs(expected).max(initial=1) if expected.dtype.kind == "f" and half else 0
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6 + 5e-3 * largest)


def test_counts_branches_and_sizes(open_bundle, bundle, reference):
    page = open_bundle(bundle)
    for feeds in (fed(), fed(9, taken=False), fed(1, 0), fed(3, 1, taken=False)):
        assert_alike(page.call(RUN, for_page(feeds), {}), reference, feeds)


def test_runs_take_turns(open_bundle, bundle, reference):
    page = open_bundle(bundle)
    inputs = [fed(size, 0.1 * size, taken=size % 2 == 0) for size in (1, 5, 2, 8)]
    results = page.call(
        f"async (feeds) => {{ const run = {RUN}; await run(feeds[0], {{}});"
        " return Promise.all(feeds.map((each) => run(each, {}))); }",
        [for_page(feeds) for feeds in inputs],
    )
    for outputs, feeds in zip(results, inputs, strict=True):
        assert_alike(outputs, reference, feeds)


def test_outputs_stay_on_the_device_and_are_fed_again(open_bundle, bundle, reference):
    page = open_bundle(bundle)
    feeds = fed()
    outputs = page.call(
        """async (given) => {
          const { load } = await import("/shaderloom.js");
          const session = await load("/bundle/", { prepare: true });
          const feeds = (TYPED)(given);
          const first = await session.run(feeds, { location: "gpu", outputs: ["e", "two"] });
          const outputs = await session.run({ ...feeds, w: first.e });
          for (const { buffer } of Object.values(first)) buffer.destroy();
          return { names: Object.keys(first), e: Array.from(outputs.e.data), z: Array.from(outputs.z.data) };
        }""".replace("TYPED", TYPED),
        for_page(feeds),
    )
    assert outputs["names"] == ["e", "two"]
    np.testing.assert_allclose(outputs["e"], np.exp(np.exp(feeds["w"])).ravel(), rtol=1e-4)
    np.testing.assert_allclose(outputs["z"], np.exp(feeds["x"][feeds["x"] != 0]), rtol=1e-4)


def test_each_output_of_a_program_has_its_location(open_bundle, bundle, reference):
    """In a buffer of the caller's, as a view and as an array; a buffer that is too small is refused."""
    page = open_bundle(bundle)
    feeds = fed()
    outputs = page.call(
        """async (values) => {
          const { load } = await import("/shaderloom.js");
          const session = await load("/bundle/", { prepare: true });
          const feeds = (TYPED)(values);
          const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
          const into = { e: session.device.createBuffer({ size: 1024, usage }) };
          const outputs = await session.run(feeds, { into, location: { z: "view" } });
          const same = outputs.e.buffer === into.e;
          const z = Array.from(outputs.z.data);
          outputs.z.release();
          const { e } = await session.run({ ...feeds, w: outputs.e }, { outputs: ["e"] });
          into.e = session.device.createBuffer({ size: 16, usage });
          const refused = await session.run(feeds, { into }).catch(({ kind, message }) => `${kind}: ${message}`);
          return { same, z, left: outputs.z.data.length, e: Array.from(e.data), refused, two: outputs.two.data.length };
        }""".replace("TYPED", TYPED),
        for_page(feeds),
    )
    names = [port.name for port in reference.get_outputs()]
    expected = dict(zip(names, reference.run(names, feeds), strict=True))
    assert (outputs["same"], outputs["left"], outputs["two"]) == (True, 0, expected["two"].size)
    np.testing.assert_allclose(outputs["z"], expected["z"].ravel(), rtol=1e-4)
    np.testing.assert_allclose(outputs["e"], np.exp(expected["e"]).ravel(), rtol=1e-4)
    assert outputs["refused"].startswith("input: 'e' has ")


def test_loops_carry_tensors_and_stack_rows(open_bundle, tmp_path):
    page = open_bundle(loops_bundle(tmp_path / "b"))
    with shaderloom.InferenceSession(onnx.parser.parse_model(LOOPS), cache=False, dynamic={"n": (1, 9)}) as session:
        for feeds in (loops_feeds(3, 100, 7), loops_feeds(9, 1, 40), loops_feeds(1, 1e6, 1)):
            assert_alike(page.call(RUN, for_page(feeds), {}), session, feeds)
    outputs = page.call(RUN, for_page(loops_feeds(4, 1, 0)), {})
    assert [outputs[name]["dims"] for name in ("z", "rows", "numbers")] == [[4], [0, 4], [0]]
    with pytest.raises(PageError, match="'iterations of y' is 31; it was declared 0 to 30"):
        page.call(RUN, for_page(loops_feeds(3, 3e38, 2)), {})


def test_loops_carry_more_and_more(open_bundle, tmp_path):
    page = open_bundle(growing_bundle(tmp_path / "b"))
    with shaderloom.InferenceSession(onnx.parser.parse_model(GROWING), cache=False, dynamic={"n": (1, 5)}) as session:
        for n, k, limit in ((3, 4, 30), (1, 0, 0), (5, 9, 55), (2, 1, 8)):
            feeds = growing_feeds(n, k, limit)
            assert_alike(page.call(RUN, for_page(feeds), {}), session, feeds)
    with pytest.raises(PageError, match="'size of rows' is 60; it was declared 0 to 55"):
        page.call(RUN, for_page(growing_feeds(5, 2, 1e6)), {})


def test_programs_in_half_precision(open_bundle, tmp_path):
    """Stages, both sides of a branch and a loop store halves; the page gives what a Python session of them gives."""
    model, options = half_program()
    shapes = [options.pop("shapes")]
    feeds = half_program_feeds(0, 3)
    compile_bundle(model, tmp_path / "b", shapes=shapes, precision="float16", sample_inputs=feeds, **options)
    page = open_bundle(tmp_path / "b")
    with shaderloom.InferenceSession(model, cache=False, dynamic=options["dynamic"]) as session:
        for seed, trips, taken in ((0, 3, True), (1, 1, False), (2, 12, True)):
            feeds = half_program_feeds(seed, trips, taken=taken)
            assert_alike(page.call(RUN, for_page(feeds), {}), session, feeds, half=True)


def test_loops_of_halves_carry_more_and_more(open_bundle, tmp_path):
    first = growing_feeds(3, 4, 30)
    page = open_bundle(growing_bundle(tmp_path / "b", precision="float16", sample_inputs=first))
    with shaderloom.InferenceSession(onnx.parser.parse_model(GROWING), cache=False, dynamic={"n": (1, 5)}) as session:
        for feeds in (first, growing_feeds(5, 9, 55)):
            assert_alike(page.call(RUN, for_page(feeds), {}), session, feeds, half=True)


@pytest.mark.parametrize(
    "name",
    ["If on an input in a Loop", "counts in a Loop", "two selections by one mask", "an axis", "a Range of floats",
     "scales that floats decide", "bounds from either end",
     "axes from either end", "sizes beside known ones", "transforms of lengths that runs decide",
     "steps of frames", "filters of numbers that runs decide",
     "filters that runs stretch", "as many integers as a step reads", "windows of what runs decide",
     "aspect ratios of sizes that runs decide",
     "shapes that are fed", "heads", "parts that are fed", "Expand to what is fed", "one row or as many",
     "a fraction of what there is", "steps", "bounds beyond any size", "a side in a Loop"],
)  # fmt: skip
def test_what_decides_is_data(open_bundle, tmp_path, name):
    model = {**DECIDING, **COMPARING}[name]
    shapes = [{port: array.shape for port, array in model.feeds[0].items()}]
    compile_bundle(parse(model.text), tmp_path / "b", shapes=shapes, **model.options)
    page = open_bundle(tmp_path / "b")
    with shaderloom.InferenceSession(parse(model.text), cache=False) as session:
        for feeds in model.feeds:
            assert_alike(page.call(RUN, for_page(feeds), {}), session, feeds)


def test_sizes_that_do_not_agree_are_refused(open_bundle, tmp_path):
    model = COMPARING["parts that are fed"]
    compile_bundle(parse(model.text), tmp_path / "b", shapes=[{"x": (9, 3), "split": (3,)}], **model.options)
    page = open_bundle(tmp_path / "b")
    feeds = {**model.feeds[0], "split": np.array([3, 5, 2])}
    with pytest.raises(PageError, match=r"parts of sizes .* do not make up"):
        page.call(RUN, for_page(feeds), {})


def test_scans_of_lengths_that_runs_decide(open_bundle, tmp_path):
    page = open_bundle(scans_bundle(tmp_path / "b"))
    with shaderloom.InferenceSession(onnx.parser.parse_model(SCANS), cache=False, dynamic={"n": (0, 9)}) as session:
        for n, k in ((5, 7), (1, 0), (9, 20), (0, 3)):
            assert_alike(page.call(RUN, for_page(scans_feeds(n, k)), {}), session, scans_feeds(n, k))


def test_an_endless_loop_can_be_cancelled(open_bundle, tmp_path):
    page = open_bundle(loops_bundle(tmp_path / "b", ranges={"iterations of y": (0, 65536)}))
    reason = page.call(
        """async (given) => {
          const { load } = await import("/shaderloom.js");
          const session = await load("/bundle/");
          const controller = new AbortController();
          setTimeout(() => controller.abort("enough"), 300);
          return session.run((TYPED)(given), { signal: controller.signal }).then(() => "", (reason) => reason);
        }""".replace("TYPED", TYPED),
        for_page({**loops_feeds(3, np.inf, 2), "x": np.zeros(3, np.float32)}) | {
            "limit": {"array": "Float32Array", "data": [1], "dims": []}},
    )  # fmt: skip
    assert reason == "enough"


#: A cache with a new row, which is read in one of two ways as the row decides, one of which also reads LATE
CACHED = """<ir_version: 13, opset_import: ["" : 24]>
cached (float[1, 6, 4] past, float[1, 1, 4] row, int64[1] place)
    => (float[1, 6, 4] present, float[1, 6, 4] y) <float zero = {0}> {
    sum = ReduceSum<keepdims = 0>(row)
    c = Greater(sum, zero)
    present = TensorScatter<axis = 1>(past, row, place)
    y = If (c) < then_branch = a () => (float[1, 6, 4] t) { t = Tanh(present) },
                 else_branch = b () => (float[1, 6, 4] e) { e = Add(present, LATE) } >
}"""


@pytest.mark.parametrize(("late", "precision"), [("past", "float32"), ("row", "float32"), ("row", "float16")])
def test_states_of_programs_take_over_fed_buffers(open_bundle, tmp_path, late, precision):
    """Unless a later step may read what is fed; what is fed is float32 in any precision."""
    compile_bundle(onnx.parser.parse_model(CACHED.replace("LATE", late)), tmp_path / "b", precision=precision)
    page = open_bundle(tmp_path / "b")
    draw = np.random.default_rng(0)
    past = draw.standard_normal((1, 6, 4)).astype(np.float32)
    for in_place in (False, True):
        for taken in (True, False):
            row = (draw.random((1, 1, 4)).astype(np.float32) + 1) * (1 if taken else -1)
            expected = past.copy()
            expected[:, 2] = row[:, 0]
            is_same, present, y, fed = page.call(
                """async (past, row, inPlace) => {
                  const { load } = await import("/shaderloom.js");
                  globalThis.session ??= await load("/bundle/");
                  const { device } = session;
                  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
                  const buffer = device.createBuffer({ size: 96, usage });
                  device.queue.writeBuffer(buffer, 0, new Float32Array(past));
                  const feeds = { past: buffer, row: new Float32Array(row), place: new BigInt64Array([2n]) };
                  const { present, y } = await session.run(feeds, { inPlace, location: "gpu" });
                  const read = async (source) => {
                    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
                    const staging = device.createBuffer({ size: 96, usage });
                    const encoder = device.createCommandEncoder();
                    encoder.copyBufferToBuffer(source, 0, staging, 0, 96);
                    device.queue.submit([encoder.finish()]);
                    await staging.mapAsync(GPUMapMode.READ);
                    return Array.from(new Float32Array(staging.getMappedRange()));
                  };
                  const buffers = [present.buffer, y.buffer, buffer];
                  return [present.buffer === buffer, ...await Promise.all(buffers.map(read))];
                }""",
                past.ravel().tolist(), row.ravel().tolist(), in_place,
            )  # fmt: skip
            assert is_same == (in_place and late == "row")
            np.testing.assert_array_equal(np.float32(present), expected.ravel())
            np.testing.assert_array_equal(np.float32(fed), (expected if is_same else past).ravel())
            other = np.tanh(expected) if taken else expected + (past if late == "past" else row)
            np.testing.assert_allclose(y, other.ravel(), rtol=1e-5 if precision == "float32" else 1e-3, atol=1e-6)
    assert page.messages == []


@pytest.mark.slow
def test_silero_hears_at_both_rates(open_bundle, tmp_path):
    """Its branches on the rate take sounds of their own lengths; states stay on the device from frame to frame."""
    path = trained_model("silero_both")
    shapes = [{"input": (1, 36 * rate), "state": (2, 1, 128), "sr": ()} for rate in (16, 8)]
    compile_bundle(path, tmp_path / "b", shapes=shapes)
    page = open_bundle(tmp_path / "b")
    with shaderloom.InferenceSession(path, cache=False) as session:
        for rate in (16, 8):
            frames = [speech(36 * rate, seed, rate * 1000)[None] for seed in range(3)]
            state, expected = np.zeros((2, 1, 128), np.float32), []
            for frame in frames:
                feeds = {"input": frame, "state": state, "sr": np.array(rate * 1000)}
                output, state = session.run(None, feeds)
                expected.append(output.item())
            outputs = page.call(
                """async (frames, sr) => {
                  const { load } = await import("/shaderloom.js");
                  globalThis.session ??= await load("/bundle/");
                  let state = { data: new Float32Array(256), dims: [2, 1, 128] };
                  const heard = [];
                  for (const frame of frames) {
                    const input = { data: new Float32Array(frame), dims: [1, frame.length] };
                    const feeds = { input, state, sr: new BigInt64Array([BigInt(sr)]) };
                    const { output, stateN } = await session.run(feeds, { location: "gpu" });
                    const [value] = await read(session.device, output.buffer);
                    heard.push(value);
                    state = stateN;
                  }
                  return heard;
                  async function read(device, buffer) {
                    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
                    const staging = device.createBuffer({ size: 4, usage });
                    const encoder = device.createCommandEncoder();
                    encoder.copyBufferToBuffer(buffer, 0, staging, 0, 4);
                    device.queue.submit([encoder.finish()]);
                    await staging.mapAsync(GPUMapMode.READ);
                    return new Float32Array(staging.getMappedRange());
                  }
                }""",
                [frame.ravel().tolist() for frame in frames],
                rate * 1000,
            )
            np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("session.run({ ...feeds, x: { data: new Float32Array(200).fill(1), dims: [5, 40] } })",
         "input: 'm' is 200; it was declared 0 to 50"),
        ("session.run(feeds, { outputs: ['q'] })", "input: the model has no output 'q'"),
        ("session.run({ ...feeds, x: { data: new Float32Array(100), dims: [5, 20] } })",
         "input: the bundle was not compiled for"),
        ("session.run(feeds, { outputs: 'y' })", "input: outputs is a list of names"),
        ("session.run(feeds, { into: { y: new Float32Array(4) } })", "input: into['y'] is no GPUBuffer"),
        ("session.run({ x: feeds.x })", "input: the feeds lack c, w"),
        ("(session.dispose(), session.run(feeds))", "closed: the session was disposed of"),
    ],
)  # fmt: skip
def test_what_a_program_refuses(open_bundle, tmp_path, expression, told):
    model = onnx.parser.parse_model(STEPS)
    shapes = [{"x": (5, 40), "c": (), "w": (2, 3)}]
    compile_bundle(model, tmp_path / "b", shapes=shapes, ranges={"m": (0, 50)})
    page = open_bundle(tmp_path / "b")
    reason = page.call(
        f"""async (given) => {{
          const feeds = ({TYPED})(given);
          const {{ load }} = await import("/shaderloom.js");
          const session = await load("/bundle/");
          return {expression}.then(() => "", (error) => `${{error.kind}}: ${{error.message}}`);
        }}""",
        for_page(fed(keep=0.1)),
    )
    assert reason.startswith(told)


def test_bundles_of_plans_load_no_programs(open_bundle, bundle, tmp_path):
    compile_bundle(onnx.parser.parse_model("<ir_version: 8, opset_import: [\"\" : 17]> g (float[2] x) => (float[2] y)"
                                           " { y = Exp(x) }"), tmp_path / "b")  # fmt: skip
    loaded = []
    for path in (tmp_path / "b", bundle):
        page = open_bundle(path)
        loaded.append(page.evaluate(
            "import('/shaderloom.js').then(({ load }) => load('/bundle/')).then(() => performance"
            ".getEntriesByType('resource').some(({ name }) => name.endsWith('/programs.js')))"))  # fmt: skip
    assert loaded == [False, True]


def test_the_page_of_serve_runs_the_sample_of_a_program(open_bundle, device, tmp_path):
    feeds = fed()
    path = steps_bundle(tmp_path / "b", sample=True, sample_inputs=feeds, device=device)
    page = open_bundle(path, "")
    settled = "document.querySelectorAll('#kernels li').length > 0 && !document.body.hasAttribute('aria-busy')"
    page.wait_for(settled)
    page.evaluate("document.querySelector('#run').click()")
    page.wait_for("document.body.dataset.sample && !document.body.hasAttribute('aria-busy')")
    assert page.evaluate("document.body.dataset.sample") == "agrees"
    assert page.messages == []
