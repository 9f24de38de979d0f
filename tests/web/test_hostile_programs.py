"""Hostile programs in Chromium: a result as the format says, or an error of the runner's own.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ..support import hostile_programs
from ..support.bundles import (
    comparing_bundle,
    copy_bundle,
    growing_bundle,
    loops_bundle,
    loops_feeds,
    open_windows_bundle,
    steps_bundle,
)
from ..support.effort import SOAK
from ..support.hostile_programs import attacked
from .attempts import try_mutations
from .test_programs import TYPED, for_page

#: Feeds of the models with programs, as JavaScript
FEEDS = {
    "steps": "{ x: { data: Float32Array.from({ length: 200 }, (_, i) => i % 3), dims: [5, 40] },"
    " c: { data: new Uint8Array(1), dims: [] }, w: { data: new Float32Array(6).fill(1), dims: [2, 3] } }",
    "loops": "{ x: { data: new Float32Array(3).fill(1), dims: [3] }, limit: { data: new Float32Array([50]), dims: [] },"
    " k: { data: new BigInt64Array([4n]), dims: [] } }",
    "growing": "{ x: { data: new Float32Array(9).fill(1), dims: [3, 3] },"
    " limit: { data: new Float32Array([50]), dims: [] },"
    " k: { data: new BigInt64Array([4n]), dims: [] } }",
    "comparing": "{ x: { data: new Float32Array(3).fill(1), dims: [1, 3] }, shape: BigInt64Array.of(4n, 3n) }",
    "windows": "{ x: { data: new Float32Array(6400).fill(1), dims: [100, 64] } }",
}

BUNDLES = {
    "steps": steps_bundle,
    "loops": loops_bundle,
    "growing": growing_bundle,
    "comparing": comparing_bundle,
    "windows": open_windows_bundle,
}

#: Outputs by name, or the text of an error
OUTCOME = f"""async (feeds, options) => {{
  const {{ load, ShaderloomError }} = await import("/shaderloom.js");
  try {{
    const session = await load("/bundle/", options);
    const outputs = await session.run(({TYPED})(feeds));
    return Object.fromEntries(Object.entries(outputs).map(([name, {{ data }}]) => [name, Array.from(data, Number)]));
  }} catch (error) {{
    return error instanceof ShaderloomError ? `${{error.kind}}: ${{error.message}}` : `foreign: ${{error.stack}}`;
  }}
}}"""


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    return loops_bundle(tmp_path_factory.mktemp("loops") / "b")


@pytest.fixture
def run(loops, open_bundle, tmp_path):
    """Run the bundle after an attack, and return what comes of it."""

    def run(attack, feeds: dict[str, np.ndarray], options: Any = None, **ranges: tuple[int, int]) -> Any:
        path = attacked(copy_bundle(loops, tmp_path / "b"), attack, **ranges)
        return open_bundle(path).call(OUTCOME, for_page(feeds), options or {})

    return run


def test_results_of_loops_that_carry_the_same_name(run):
    feeds = loops_feeds(4, 3, 7)
    outputs = run(hostile_programs.same_names, feeds)
    np.testing.assert_array_equal(np.float32(outputs["y"]), feeds["x"])
    assert outputs["z"] == [3]


def test_values_that_are_swapped(run):
    feeds = loops_feeds(4, 3, 7)
    outputs = run(hostile_programs.swapped, feeds)
    for name in ("y", "z"):
        np.testing.assert_array_equal(np.float32(outputs[name]), feeds["x"])


def test_rows_that_are_inputs(run):
    feeds = loops_feeds(4, 3, 5)
    outputs = run(hostile_programs.rows_of_inputs, feeds)
    np.testing.assert_array_equal(np.float32(outputs["rows"]), np.tile(feeds["x"], 5))
    assert outputs["steps"] == [0, 1, 2, 3, 4]


def test_an_alias_of_another_type_has_the_same_bytes(run):
    feeds = loops_feeds(4, 3, 7)
    feeds["x"][:2] = np.array([3], np.int64).view(np.float32)
    outputs = run(hostile_programs.alias_of_another_shape, feeds)
    assert outputs["steps"] == [3]
    np.testing.assert_array_equal(np.float32(outputs["y"]), feeds["x"])


def test_dispatches_of_all_iterations_count(run):
    outcome = run(hostile_programs.tiring_stages, loops_feeds(3, 100, 40))
    assert outcome == (
        "input: a run carries out at most 4194304 steps and dispatches; this one has more with its stage of "
        "'Loop_1.body/f'"
    )


def test_rows_are_refused_before_they_are_allocated(run):
    feeds = loops_feeds(9, 3, 40)
    outcome = run(hostile_programs.rows_of_inputs, feeds, {"maxDeviceBytes": 1500})
    assert re.fullmatch(r"device: 'loop 1 row . \d+ of '(rows|steps)'' needs \d+ bytes beside \d+; .* is 1500", outcome)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("name", FEEDS)
def test_random_mutations_end(browser, tmp_path, name):
    """200 of each kind, most of them of programs, or of windows with sizes that a run knows."""
    folder = BUNDLES[name](tmp_path / "b", target="web-software")
    kinds = try_mutations(browser, folder, FEEDS[name], 2000 if SOAK else 200)
    assert kinds["ran"] and kinds["bundle"] > 50, kinds
