"""Hostile programs in a session: a result as the format says, or an error of the package's own.

Covers: shaderloom/bundles/program_run, shaderloom/execution/steps, runtime/execution/attachment.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import shaderloom
from shaderloom.bundles import program_run
from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.plan.caps import Caps

from ...support import hostile_programs
from ...support.bundles import copy_bundle, loops_bundle, loops_feeds
from ...support.hostile_programs import REST, alias, attacked
from ...support.programs import parse
from ...support.work import calls_of


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    return loops_bundle(tmp_path_factory.mktemp("loops") / "b")


@pytest.fixture
def run(loops, device, tmp_path):
    """Run the bundle after an attack, and return its outputs by name."""

    def run(attack, feeds, *, caps=None, **ranges):
        path = attacked(copy_bundle(loops, tmp_path / "b"), attack, **ranges)
        with shaderloom.load_bundle(path, device=device, caps=caps) as session:
            names = [port.name for port in session.get_outputs()]
            return dict(zip(names, session.run(names, feeds)))

    return run


def test_results_of_loops_that_carry_the_same_name(run):
    feeds = loops_feeds(4, 3, 7)
    outputs = run(hostile_programs.same_names, feeds)
    np.testing.assert_array_equal(outputs["y"], feeds["x"])
    np.testing.assert_array_equal(outputs["z"], feeds["limit"])


def test_rows_that_are_inputs(run):
    feeds = loops_feeds(4, 3, 5)
    outputs = run(hostile_programs.rows_of_inputs, feeds)
    np.testing.assert_array_equal(outputs["rows"], np.broadcast_to(feeds["x"], (5, 4)))
    np.testing.assert_array_equal(outputs["steps"], np.arange(5))


def test_an_alias_of_another_type_has_the_same_bytes(run):
    feeds = loops_feeds(4, 3, 7)
    feeds["x"][:2] = np.array([3], np.int64).view(np.float32)
    outputs = run(hostile_programs.alias_of_another_shape, feeds)
    assert outputs["steps"].dtype == np.int64 and outputs["steps"].shape == () and outputs["steps"] == 3
    np.testing.assert_array_equal(outputs["y"], feeds["x"])


def test_dispatches_of_all_iterations_count(run):
    with pytest.raises(shaderloom.InputError, match=r"at most 4,194,304 steps .* stage of 'Loop_1.body/f'"):
        run(hostile_programs.tiring_stages, loops_feeds(3, 100, 40))


def test_loops_in_loops_count(run, monkeypatch):
    monkeypatch.setattr(program_run, "MOST_WORK", 1000)
    with pytest.raises(shaderloom.InputError, match=r"at most 1,000 steps and dispatches; .* its loop of 'a'"):
        run(hostile_programs.loops_in_loops, loops_feeds(3, 1, 40))


def test_an_output_alone_whose_program_has_further_names(loops, device, tmp_path):
    """Names that nothing reads then are those of values that are gone."""
    path = attacked(copy_bundle(loops, tmp_path / "b"), hostile_programs.same_names)
    feeds = loops_feeds(4, 3, 7)
    with shaderloom.load_bundle(path, device=device) as session:
        np.testing.assert_array_equal(session.run(["z"], feeds)[0], feeds["limit"])


def test_what_steps_read_takes_linear_time(loops, device, tmp_path):
    """A chain of names: that each step looks at all behind it would be eight million looks."""
    feeds, work = loops_feeds(4, 3, 1), {}
    for length in (500, 4000):

        def chain(steps, plans, length=length):
            names = ["x", *(f"n{number}" for number in range(length))]
            chained = [alias(name, source) for source, name in pairwise(names)]
            return [*chained, alias("y", names[-1]), alias("z", "y"), *REST]

        path = attacked(copy_bundle(loops, tmp_path / f"{length}"), chain)
        with shaderloom.load_bundle(path, device=device) as session:
            (y,) = session.run(["y"], feeds)
            np.testing.assert_array_equal(y, feeds["x"])
            work[length] = calls_of(lambda session=session: session.run(["y"], feeds))
    assert work[4000] < 9 * work[500]


@pytest.mark.parametrize(
    ("caps", "text"),
    [(Caps(tensor_elements=100), "the cap is 100"), (Caps(device_memory=4096), r"with 60,000 iterations .* is 4,096")],
)
def test_rows_are_refused_before_the_first_iteration(run, caps, text):
    with pytest.raises(shaderloom.LimitError, match=text) as caught:
        run(hostile_programs.rows_of_inputs, loops_feeds(9, 3, 60_000), caps=caps, k=(0, 65_536))
    assert caught.value.tensor == "rows"


def test_an_output_in_the_memory_of_an_input_that_later_stages_read(device, tmp_path):
    """An in-place call: what the first stage writes must not be what the second reads as the input."""
    model = parse("""g (float[6] x) => (float[6] v, float[m] y) {
        v = Exp(x)  n = NonZero(x)  t = Transpose(n)  y = GatherND(x, t) }""")
    compile_bundle(model, tmp_path / "b")
    x = np.array([1, 0, 2, 0, 0, 3], np.float32)
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        tensor = shaderloom.Tensor.from_numpy(x, device)
        v, y = session.run(["v", "y"], {"x": tensor}, outputs={"v": tensor})
        np.testing.assert_array_equal(y, [1, 2, 3])
        np.testing.assert_allclose(tensor.numpy(), np.exp(x), rtol=1e-6)
        assert v is tensor
