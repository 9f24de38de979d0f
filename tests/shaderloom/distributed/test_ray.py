"""A cluster of three nodes on this machine: data sets, servers, and files that are mapped.

Covers: shaderloom/distributed, shaderloom/ray.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # which listens on the loopback interface alone
ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pyarrow = pytest.importorskip("pyarrow")

from shaderloom.distributed.ray_pool import RayPool  # noqa: E402
from shaderloom.ray import Predictor  # noqa: E402
from shaderloom.runtime.plan.errors import InputError, UnsupportedError  # noqa: E402

from ...support.command_line import run_command  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
SCORES = """
<ir_version: 8, opset_import: ["" : 18]>
scores (float[batch, 4] x) => (float[batch, 4] y) { y = Softmax<axis = -1>(x) }
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ray") / "scores.onnx"
    onnx.save(onnx.parser.parse_model(SCORES), path)
    return path


@pytest.fixture(scope="module")
def cluster():
    """A head and two nodes with a fake GPU each, without reports and dashboard."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = str(ROOT)
    common = {"num_cpus": 1, "object_store_memory": 150_000_000}
    started = Cluster(initialize_head=True, head_node_args={**common, "num_gpus": 0, "include_dashboard": False})
    started.node_options = {**common, "num_gpus": 1}
    started.nodes_with_gpus = [started.add_node(**started.node_options) for _ in range(2)]
    ray.init(address=started.address, log_to_driver=False)
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
    yield started
    ray.shutdown()
    started.shutdown()


def rows_of(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 4), dtype=np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("batch_format", ["numpy", "pyarrow"])
def test_a_data_set_is_mapped(batch_format, model, cluster):
    x = rows_of(300)
    table = pyarrow.table({"features": list(x), "id": range(300)})
    dataset = ray.data.from_arrow(table).map_batches(
        Predictor,
        fn_constructor_kwargs={"model": str(model), "columns": {"x": "features"}},
        batch_format=batch_format,
        batch_size=50,
        concurrency=2,
        num_gpus=1,
        num_cpus=0,
    )
    rows = sorted(dataset.take_all(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(300))
    np.testing.assert_allclose(np.array([row["y"] for row in rows]), softmax(x), rtol=1e-5)


@pytest.mark.parametrize("form", [dict, pyarrow.table])
def test_a_batch_of_no_rows_has_empty_outputs(form, model):
    empty = form({"x": pyarrow.array([], pyarrow.list_(pyarrow.float32(), 4)), "id": np.empty(0)})
    result = Predictor(model, providers=["cpu"])(empty)
    assert len(result["y"]) == 0 and len(result["id"]) == 0
    if form is dict:
        assert result["y"].shape == (0, 4) and result["y"].dtype == np.float32


@pytest.mark.parametrize("form", [dict, pyarrow.table])
def test_a_column_is_not_replaced_by_an_output(form, model):
    with pytest.raises(InputError, match="has a column 'y'"):
        Predictor(model, providers=["cpu"])(form({"x": list(rows_of(2)), "y": [1, 2]}))


def test_each_row_has_its_outputs_or_its_error():
    text = '<ir_version: 8, opset_import: ["" : 18]> m (float[n, k] x) => (float[n, k] y) { y = Neg(x) }'
    predictor = Predictor(onnx.parser.parse_model(text).SerializeToString(), providers=["cpu"])
    rows = [{"x": [1, 2]}, 3, {"x": [4]}, {"x": [5, 6]}, {}, {"x": ["a"]}, {"x": [7], "z": 1}]
    outcomes = predictor.outcomes(rows)
    assert [outcomes[number]["y"].tolist() for number in (0, 2, 3)] == [[-1, -2], [-4], [-5, -6]]
    assert all(isinstance(outcomes[number], InputError) for number in (1, 4, 5, 6))


def test_a_model_that_actors_cannot_open_is_an_error(cluster, tmp_path):
    onnx.save(onnx.parser.parse_model(SCORES.replace("-1", "0")), tmp_path / "mixing.onnx")
    with pytest.raises(UnsupportedError, match="mixes the rows"):
        RayPool(tmp_path / "mixing.onnx", cluster.address, batch=8)


def test_a_cluster_that_is_not_there_is_an_error(model, tmp_path, monkeypatch):
    def refuse(**_):
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    np.save(tmp_path / "x.npy", rows_of(3))
    refused = run_command("map", model, tmp_path / "x.npy", "-o", tmp_path / "out", "--ray", "127.0.0.1:1", status=1)
    assert "no cluster of Ray answers at '127.0.0.1:1'" in refused.output


def test_items_are_mapped_in_order(model, cluster):
    x = rows_of(300)
    items = [{"x": row[np.newaxis]} for row in x]
    items[7] = {"x": np.zeros((1, 4))}
    with RayPool(model, cluster.address) as pool:
        results = list(pool.map(items, on_error="return"))
    assert "float64" in str(results[7])
    rows = [number for number in range(300) if number != 7]
    np.testing.assert_allclose(np.concatenate([results[row][0] for row in rows]), softmax(x[rows]), rtol=1e-5)


def test_files_are_mapped(model, cluster, tmp_path):
    x = rows_of(300)
    np.save(tmp_path / "x.npy", x)
    run_command("map", model, tmp_path / "x.npy", "-o", tmp_path / "out", "--ray", cluster.address)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "part-000000.npz")["y"], softmax(x), rtol=1e-5)


def test_a_model_is_served(model, cluster):
    from ray import serve

    from shaderloom.ray import Deployment

    x = rows_of(40)
    serve.start(http_options={"location": "NoServer"})
    try:
        small = Deployment.options(ray_actor_options={"num_cpus": 0, "num_gpus": 1}, autoscaling_config=None)
        handle = serve.run(small.bind(str(model)), name="scores", route_prefix=None)

        async def ask():
            rows = [*x[:20], np.ones(3), *x[20:]]
            asked = (handle.predict.remote({"x": row}) for row in rows)
            return await asyncio.gather(*asked, return_exceptions=True)

        answers = asyncio.run(ask())
        assert "does not fit" in str(answers.pop(20))
        np.testing.assert_allclose(np.array([answer["y"] for answer in answers]), softmax(x), rtol=1e-5)
    finally:
        serve.shutdown()


@pytest.mark.soak
def test_a_node_that_dies_loses_nothing(model, cluster):
    """5,000 items; a node is killed in the middle and another one comes."""
    x = rows_of(5000)
    with RayPool(model, cluster.address, batch=16) as pool:
        results = []
        for outputs in pool.map({"x": row[np.newaxis]} for row in x):
            results.append(outputs[0])
            if len(results) == 1000:
                cluster.remove_node(cluster.nodes_with_gpus.pop(), allow_graceful=False)
                cluster.nodes_with_gpus.append(cluster.add_node(**cluster.node_options))
    np.testing.assert_allclose(np.concatenate(results), softmax(x), rtol=1e-5)
