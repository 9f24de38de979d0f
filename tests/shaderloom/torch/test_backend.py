"""The backend of ``torch.compile``, compared with eager PyTorch.

Covers: shaderloom/torch/backend.py, shaderloom/torch/compiled_graph.py, shaderloom/torch/graph_inputs.py,
shaderloom/torch/graph_views.py.
"""

import copy
import importlib.metadata

import pytest

from shaderloom import ShaderloomError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from shaderloom.torch.backend import compiled_graphs, shaderloom_backend  # noqa: E402  # imports torch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the only adapter is")]


@pytest.fixture(autouse=True)
def graphs(fresh_notices):
    """A function that returns the graphs that this test has compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    before = compiled_graphs()
    yield lambda: [graph for graph in compiled_graphs() if graph not in before]
    torch._dynamo.reset()


@pytest.fixture
def compiled(device):
    """Compile a module for this backend; returns it with a copy that eager PyTorch runs."""

    def make(module, dynamic=None, **options):
        module = module.eval()
        settings = {"device": device, "cache": False, "fallback": False, **options}
        return torch.compile(module, backend=shaderloom_backend, dynamic=dynamic, options=settings), copy.deepcopy(
            module
        )

    return make


class Branches(torch.nn.Module):
    """A graph break between two graphs."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        torch._dynamo.graph_break()
        return torch.softmax(y, -1), y + x, x.shape[0] * 2


class Caching(torch.nn.Module):
    """Writes to a buffer, and gives a view of its input."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("sums", torch.zeros(8))
        self.register_buffer("scale", torch.rand(8))

    def forward(self, x):
        y = self.linear(x) * self.scale
        self.sums.add_(y.sum(0))
        return y, self.sums * 2, x.view(-1)


@pytest.mark.parametrize("sizes", [(4, 5, 6, 7, 1, 4)])
def test_graphs_around_a_break_are_sessions(compiled, graphs, sizes):
    module, eager = compiled(Branches())
    with torch.no_grad():
        for size in sizes:
            x = torch.randn(size, 8)
            torch.testing.assert_close(module(x), eager(x))
    made = graphs()
    assert {graph.refusal for graph in made} == {""}
    assert sum(graph.runs for graph in made) == 2 * len(sizes)
    ranges = {name for graph in made for session in graph.sessions for name in session.stats.ranges}
    assert any("5 to 8" in name for name in ranges), "sizes from the third on are one plan"


def test_declared_bounds_are_declared_to_the_session(compiled, graphs):
    module, eager = compiled(torch.nn.Linear(8, 8))
    with torch.no_grad():
        for size in (4, 9):
            x = torch.randn(size, 8)
            torch._dynamo.mark_dynamic(x, 0, min=2, max=32)
            torch.testing.assert_close(module(x), eager(x))
    (graph,) = graphs()
    assert repr(graph).endswith("nodes; runs: 2, sessions: 1>")
    (session,) = graph.sessions
    dynamic = session.report()["dynamic"]
    assert dynamic["mode"] == "declared"
    assert [text.split(" ", 1)[1] for text in dynamic["ranges"]] == ["2 to 32"]
    assert len(session.stats.keys) == 1


def test_dynamic_graphs_have_the_sizes_that_may_differ(compiled, graphs):
    """With ``dynamic=True`` PyTorch traces every size as a symbol, of which that of the features is a number."""
    module, eager = compiled(torch.nn.Linear(8, 8), dynamic=True)
    with torch.no_grad():
        for size in (4, 9, 1):
            x = torch.randn(size, 8)
            torch.testing.assert_close(module(x), eager(x))
    assert {graph.refusal for graph in graphs()} == {""}
    rows, features = zip(*(session.get_inputs()[0].shape for graph in graphs() for session in graph.sessions))
    assert features == (8, 8) and {isinstance(each, str) for each in rows} == {True, False}


class Scaled(torch.nn.Module):
    """A norm and a factor: floats that PyTorch passes as tensors to a dynamic graph."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.factor = 0.5

    def forward(self, x):
        return self.norm(x) * self.factor


def test_floats_of_dynamic_graphs_are_compiled_in(compiled, graphs):
    module, eager = compiled(Scaled(), dynamic=True)
    with torch.no_grad():
        for size, factor in ((4, 0.5), (9, 0.5), (4, 2.5), (9, 0.5)):
            module.factor = eager.factor = factor
            x = torch.randn(size, 8)
            torch.testing.assert_close(module(x), eager(x))
    assert {graph.refusal for graph in graphs()} == {""}
    assert sum(len(graph.sessions) for graph in graphs()) == 2, "one for each factor"


def test_buffers_that_are_written_are_written_back(compiled, graphs):
    module, eager = compiled(Caching())
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 8)
            results = module(x)
            torch.testing.assert_close(results, eager(x))
            assert results[2].data_ptr() == x.data_ptr(), "a view of the input is one"
    torch.testing.assert_close(module.sums, eager.sums)
    (graph,) = graphs()
    assert (graph.refusal, graph.runs, len(graph.sessions)) == ("", 3, 1)


class Sizes(torch.nn.Module):
    """Graphs of sizes alone, of no result at all, and of a buffer that is written and nothing else."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.zeros(8))

    def forward(self, x):
        rows = x.shape[0] * 2
        torch._dynamo.graph_break()
        self.sums.add_(x.sum(0))
        torch._dynamo.graph_break()
        self.sums[:2] = x[0, :2]
        torch._dynamo.graph_break()
        x.numel()
        torch._dynamo.graph_break()
        return rows, x.T


def test_graphs_without_results_of_arithmetic(compiled, graphs):
    module, eager = compiled(Sizes())
    with torch.no_grad():
        for size in (4, 5, 6):
            x = torch.randn(size, 8)
            (rows, view), expected = module(x), eager(x)
            assert rows == expected[0]
            assert view.data_ptr() == x.data_ptr()
            torch.testing.assert_close(module.sums, eager.sums)
    made = graphs()
    assert {graph.refusal for graph in made} == {""}
    assert sum(graph.runs for graph in made) == 2 * 3, "those that write to the buffer"


def test_changed_weights_count(compiled, graphs):
    module, eager = compiled(torch.nn.Linear(8, 8))
    x = torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(module(x), eager(x))
        module.weight.mul_(2)
        eager.weight.mul_(2)
        torch.testing.assert_close(module(x), eager(x))
    (graph,) = graphs()
    assert len(graph.sessions) == 1, "the session for the weights before is closed"


def test_modules_that_share_a_graph_have_their_own_weights(compiled, graphs):
    layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
    layers, eager = layers.eval(), copy.deepcopy(layers)

    @torch.compile(backend=shaderloom_backend, options={"cache": False, "fallback": False})
    def apply(layer, x):
        return layer(x).relu()

    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(2):
            for layer, other in zip(layers, eager):
                torch.testing.assert_close(apply(layer, x), other(x).relu())


def test_the_installed_package_has_a_backend_of_this_name(compiled):
    names = [entry.name for entry in importlib.metadata.entry_points(group="torch_dynamo_backends")]
    if "shaderloom" not in names:
        pytest.skip("the package is not installed here")
    module = torch.nn.Linear(8, 8).eval()
    x = torch.randn(4, 8)
    before = compiled_graphs()
    with torch.inference_mode():
        result = torch.compile(module, backend="shaderloom", options={"cache": False, "fallback": False})(x)
        torch.testing.assert_close(result, module(x))
    assert [graph.runs for graph in compiled_graphs() if graph not in before] == [1]


def test_training_raises_at_once(compiled, graphs):
    module, _ = compiled(torch.nn.Linear(8, 8))
    with pytest.raises(Exception, match=r"runs inference alone.*torch\.inference_mode") as raised:
        module(torch.randn(4, 8))
    assert isinstance(raised.value.__cause__ or raised.value.inner_exception, ShaderloomError)
    with torch.inference_mode():
        assert module(torch.randn(4, 8)).shape == (4, 8)


class Drawing(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


def test_what_no_session_can_run_is_left_to_pytorch_with_a_warning(compiled, graphs):
    module, eager = compiled(Drawing(), fallback=True)
    x = torch.randn(4, 8)
    with torch.no_grad():
        torch.manual_seed(3)
        with pytest.warns(UserWarning, match="PyTorch runs a graph of .* random numbers"):
            result = module(x)
        torch.manual_seed(3)
        torch.testing.assert_close(result, eager(x))
    (graph,) = graphs()
    assert "random numbers" in graph.refusal
    assert graph.runs == 0


def test_without_fallback_the_reason_is_raised(compiled, graphs):
    module, _ = compiled(Drawing())
    with torch.no_grad(), pytest.raises(ShaderloomError, match="random numbers"):
        module(torch.randn(4, 8))


def test_an_unknown_option_is_named(compiled):
    module, _ = compiled(torch.nn.Linear(8, 8), provider=["cpu"])
    with (
        torch.no_grad(),
        pytest.raises(Exception, match=r"no option 'provider' \[the options are fallback, .*providers"),
    ):
        module(torch.zeros(2, 8))
