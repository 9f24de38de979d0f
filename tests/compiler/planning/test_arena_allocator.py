"""Buffer plans: checked by an oracle that shares no code with the planner, and by poisoning freed memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.options import CompileOptions
from shaderloom.compiler.planning import arena_allocator
from shaderloom.compiler.planning.arena_allocator import Allocation, ArenaBuffer, Buffer, LiveRange, OutputBuffer
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.dimensions import serialise
from shaderloom.compiler.target import target_of
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile
from shaderloom.runtime.plan.dimension import evaluate
from shaderloom.runtime.plan.errors import NotKnownError
from shaderloom.runtime.plan.plan import Binding, ComputePass, Kernel, KernelCall, Plan, Range

from ...fuzz.drawing.graphs import RandomGraph, random_graphs
from ...support.effort import quick_first
from ...support.models import filled_model, trained_model
from ...support.running import compile_for, run_plan

ALIGNMENT = 256

# -- random lifetimes ------------------------------------------------------------------------------------------------


@st.composite
def lifetimes(draw: st.DrawFn) -> list[LiveRange]:
    """A straight program: every call writes one tensor and reads some that are live; a few are written again."""
    count = draw(st.integers(1, 24))
    sizes = st.sampled_from((16, 48, 256, 272, 1000 * 16, 4096, 65536))
    written: list[set[int]] = []
    read: list[set[int]] = []
    for call in range(count):
        if written and draw(st.integers(0, 5)) == 0:  # in place: the block of an earlier tensor is written again
            written[draw(st.integers(0, len(written) - 1))].add(call)
        else:
            written.append({call})
            read.append(set())
        for operand in draw(st.lists(st.integers(0, len(written) - 1), max_size=4, unique=True)):
            if call not in written[operand]:
                read[operand].add(call)
    tensors = []
    for by, used in zip(written, read):
        last = max(by | used)
        tensors.append(LiveRange(draw(sizes), min(by), last, frozenset(by), frozenset(used)))
    return tensors


def assert_sound(tensors: Sequence[LiveRange], allocation: Allocation, *, apart: bool = True) -> None:
    """Mark every 16 bytes of every arena with the tensor that owns them, call by call: an oracle of its own.

    ``apart``: several arenas are there to keep what a call reads from what it writes.
    """
    calls = max(tensor.last for tensor in tensors) + 1
    for call in range(calls):
        owners = [np.full(int(size) // 16, -1) for size in allocation.arenas]
        for number, (tensor, (buffer, offset)) in enumerate(zip(tensors, allocation.locations, strict=True)):
            assert isinstance(buffer, ArenaBuffer)
            arena = buffer.number
            assert offset % ALIGNMENT == 0
            assert offset + int(tensor.size) <= int(allocation.arenas[arena])
            if tensor.first <= call <= tensor.last:
                cells = owners[arena][offset // 16 : (offset + int(tensor.size)) // 16]
                assert (cells == -1).all(), f"call {call}: two tensors overlap"
                cells[:] = number
        reads = {allocation.locations[number][0] for number, tensor in enumerate(tensors) if call in tensor.read}
        writes = {allocation.locations[number][0] for number, tensor in enumerate(tensors) if call in tensor.written}
        shared = reads & writes
        assert not shared or not apart or len(allocation.arenas) == 1, f"call {call} reads and writes arena {shared}"


@settings(max_examples=300, deadline=None)
@given(lifetimes())
def test_tensors_that_live_together_never_overlap(tensors: list[LiveRange]) -> None:
    allocation = arena_allocator.allocate(tensors, ALIGNMENT)
    assert_sound(tensors, allocation)
    assert sum(map(int, allocation.arenas)) >= arena_allocator.lower_bound(tensors)
    assert arena_allocator.allocate(tensors, ALIGNMENT) == allocation


@settings(max_examples=200, deadline=None)
@given(lifetimes(), st.sampled_from((4096, 20_000, 66_000, 140_000)))
def test_no_arena_is_larger_than_a_buffer(tensors: list[LiveRange], most: int) -> None:
    """But for one with a single tensor that is larger itself."""
    allocation = arena_allocator.allocate(tensors, ALIGNMENT, most=most)
    assert_sound(tensors, allocation, apart=False)
    largest = max(-(-int(tensor.size) // ALIGNMENT) * ALIGNMENT for tensor in tensors)
    assert max(map(int, allocation.arenas)) <= max(most, largest)


@settings(max_examples=200, deadline=None)
@given(lifetimes(), st.integers(1, 4))
def test_buffers_of_outputs_hold_what_dies_before(tensors: list[LiveRange], count: int) -> None:
    """The last tensors are outputs, read at the end; others may lie in their buffers, within their size."""
    end = max(tensor.last for tensor in tensors) + 1
    inner, outputs = tensors[:-count], [replace(tensor, last=end) for tensor in tensors[-count:]]
    allocation = arena_allocator.allocate(inner, ALIGNMENT, outputs)
    arenas = len(allocation.arenas)
    place: list[tuple[Buffer, int]] = [
        (buffer if isinstance(buffer, ArenaBuffer) else ArenaBuffer(arenas + buffer.number), offset)
        for buffer, offset in allocation.locations
    ]
    place += [(ArenaBuffer(arenas + number), 0) for number in range(len(outputs))]
    sizes = [*allocation.arenas, *(tensor.size for tensor in outputs)]
    assert_sound([*inner, *outputs], Allocation(sizes, place), apart=False)
    assert sum(map(int, sizes)) >= arena_allocator.lower_bound([*inner, *outputs])


def test_a_chain_before_an_output_of_twice_the_size_stays_apart() -> None:
    """Halves before an output of floats: its buffer has the second of three, and no call reads what it writes."""
    chain = [LiveRange(4096, call, call + 1, frozenset({call}), frozenset({call + 1})) for call in range(3)]
    output = LiveRange(8192, 3, 4, frozenset({3}), frozenset())
    allocation = arena_allocator.allocate(chain, ALIGNMENT, [output])
    assert allocation.arenas == [4096]
    assert [buffer for buffer, _ in allocation.locations] == [ArenaBuffer(0), OutputBuffer(0), ArenaBuffer(0)]


@settings(max_examples=200, deadline=None)
@given(lifetimes(), st.integers(1, 40))
def test_tensors_of_declared_dimensions_never_overlap(tensors: list[LiveRange], size: int) -> None:
    """Sizes that are known at run time: the plan must hold for every one of them."""
    symbol = ix.variable("n", 1, 40)
    symbolic = [
        replace(tensor, size=ix.multiply(symbol, int(tensor.size))) if number % 2 == 0 else tensor
        for number, tensor in enumerate(tensors)
    ]
    allocation = arena_allocator.allocate(symbolic, ALIGNMENT)
    at = {"n": size}
    real = [replace(tensor, size=evaluate(serialise(tensor.size), at)) for tensor in symbolic]
    arenas = [evaluate(serialise(arena), at) for arena in allocation.arenas]
    assert_sound(real, Allocation(list(arenas), allocation.locations))


def test_the_oracle_sees_mistakes() -> None:
    tensors = [
        LiveRange(256, 0, 1, frozenset({0}), frozenset({1})),
        LiveRange(256, 1, 2, frozenset({1}), frozenset({2})),
    ]
    first, second = ArenaBuffer(0), ArenaBuffer(1)
    with pytest.raises(AssertionError, match="overlap"):
        assert_sound(tensors, Allocation([512], [(first, 0), (first, 0)]))
    with pytest.raises(AssertionError, match="reads and writes"):
        assert_sound(tensors, Allocation([512, 256], [(first, 0), (first, 256)]))
    assert_sound(tensors, Allocation([256, 256], [(first, 0), (second, 0)]))
    assert_sound(tensors, Allocation([512], [(first, 0), (first, 256)]))


def test_lower_bound_is_the_largest_sum_of_live_tensors() -> None:
    tensors = [
        LiveRange(100, 0, 2, frozenset({0}), frozenset({2})),
        LiveRange(50, 1, 1, frozenset({1}), frozenset()),
        LiveRange(70, 2, 3, frozenset({2}), frozenset({3})),
    ]
    assert arena_allocator.lower_bound(tensors) == 170


# -- real plans ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """One binding of a range of an arena in one call."""

    call: int
    arena: str
    start: int
    end: int
    writes: bool  #: whether the call writes here; it may also read, in place
    access: str  #: how it binds the range


def uses_of(plan: Plan) -> list[Use]:
    kernels = {kernel.key: kernel for kernel in plan.kernels}
    found = []
    for number, call in enumerate(plan.calls):
        for binding, item in zip(kernels[call.kernel].bindings, call.ranges, strict=True):
            if item.buffer.startswith(("arena:", "output:")):
                offset, size = evaluate(item.offset, {}), evaluate(item.size, {})
                writes = binding.name.startswith("y")
                assert not writes or binding.access == "read_write"
                found.append(Use(number, item.buffer, offset, offset + size, writes, binding.access))
    return found


def dead_ranges(plan: Plan) -> dict[int, list[Use]]:
    """After which call which written ranges are never read again before they are written anew."""
    uses = uses_of(plan)
    dead: dict[int, list[Use]] = {}
    for number, use in enumerate(uses):
        later = [other for other in uses[number + 1 :] if other.arena == use.arena and other.call > use.call]
        touching = [other for other in later if other.start < use.end and use.start < other.end]
        if not touching and use.arena.startswith("output:"):
            continue  # the caller reads it
        if not touching or (touching[0].writes and not _reads(plan, touching[0])):
            dead.setdefault(use.call, []).append(use)
    return dead


def _reads(plan: Plan, use: Use) -> bool:
    """Whether the kernel of a writing use may read that range: in-place kernels load from their output."""
    calls = plan.calls
    kernel = next(kernel for kernel in plan.kernels if kernel.key == calls[use.call].kernel)
    name = "y"
    stores = sum(line.strip().startswith(f"{name}[") for line in kernel.wgsl.splitlines())
    return kernel.wgsl.count(f"{name}[") > stores


def assert_arenas_sound(plan: Plan) -> None:
    """No call binds one arena both read-only and for writing, and every read finds what was written there last."""
    owner: dict[tuple[str, int], int] = {}
    by_call: dict[int, list[Use]] = {}
    for use in uses_of(plan):
        by_call.setdefault(use.call, []).append(use)
    for call, uses in by_call.items():
        read = {use.arena for use in uses if use.access == "read"}
        written = {use.arena for use in uses if use.access == "read_write"}
        assert not read & written, f"call {call} binds {read & written} both ways"
        for use, other in itertools.combinations(uses, 2):
            apart = use.arena != other.arena or use.end <= other.start or other.end <= use.start
            assert apart or use.access == other.access == "read", f"call {call} writes a range that it binds twice"
        for use in uses:
            if not use.writes:
                writers = {owner.get((use.arena, cell)) for cell in range(use.start // 16, use.end // 16)}
                assert len(writers) == 1 and None not in writers, f"call {call} reads what calls {writers} wrote"
        for use in uses:
            if use.writes:
                owner.update({(use.arena, cell): call for cell in range(use.start // 16, use.end // 16)})


MODELS = {
    "squeezenet1_1": {"input": (1, 3, 64, 64)},
    "mobilenet_v2": {"input": (1, 3, 64, 64)},
    "resnet18": {"input": (1, 3, 64, 64)},
    "efficientnet_b0": {"input": (1, 3, 64, 64)},
    "vit_tiny_patch16_224": {"input": (1, 3, 224, 224)},
    "bert_small_dynamic": {"input_ids": (1, 24), "attention_mask": (1, 24)},
}


def model_plan(name: str, *disabled: str) -> Plan:
    imported = load_model(filled_model(name))
    shapes = dict(MODELS[name])
    for port in imported.inputs:  # image models of one size only
        if all(isinstance(dim, int) for dim in port.dims or ()):
            shapes[port.name] = tuple(port.dims or ())  # type: ignore[arg-type]
    return compile_model(imported, bind_shapes(imported, shapes), Compilation(options=CompileOptions(disabled)))


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("name", quick_first(MODELS))
def test_the_plan_of_a_model_is_sound(name: str, in_place: bool) -> None:
    plan = model_plan(name) if in_place else model_plan(name, "in-place")
    assert_arenas_sound(plan)
    memory = plan.notes.memory
    assert memory.planned_bytes <= memory.naive_bytes
    assert memory.planned_bytes >= memory.lower_bound_bytes
    assert memory.planned_bytes <= 1.2 * memory.lower_bound_bytes
    assert (memory.in_place > 0) <= in_place


#: Models that other runtimes are compared on, with the sizes of that comparison
COMPARED: dict[str, dict[str, tuple[int, ...]]] = {
    "squeezenet1_1": {"input": (1, 3, 224, 224)},
    "mobilenet_v2": {"input": (1, 3, 224, 224)},
    "resnet18": {"input": (1, 3, 224, 224)},
    "resnet50": {"input": (1, 3, 224, 224)},
    "efficientnet_b0": {"input": (1, 3, 224, 224)},
    "vit_tiny_patch16_224": {"input": (1, 3, 224, 224)},
    "bert_small": {"input_ids": (1, 128), "attention_mask": (1, 128)},
    "gpt2_small": {"input_ids": (1, 64)},
    "ppocr_det": {"x": (1, 3, 320, 480)},
    "ppocr_cls": {"x": (1, 3, 48, 192)},
    "ppocr_rec": {"x": (1, 3, 48, 320)},
}
LAVAPIPE = DeviceProfile(kind="cpu", driver="lavapipe", features=frozenset({"subgroup"}), subgroup_size=8)


@pytest.mark.slow
@pytest.mark.parametrize("profile", [WEB, LAVAPIPE], ids=["web", "lavapipe"])
@pytest.mark.parametrize("name", COMPARED)
def test_memory_stays_near_the_lower_bound(name: str, profile: DeviceProfile) -> None:
    """Activation memory with outputs is at most 1.2 times the largest sum of tensors that live at one call."""
    imported = load_model(trained_model(name) if name.startswith("ppocr") else filled_model(name))
    plan = compile_model(imported, bind_shapes(imported, COMPARED[name]), Compilation(target_of(profile)))
    assert_arenas_sound(plan)
    memory = plan.notes.memory
    assert memory.lower_bound_bytes <= memory.planned_bytes <= 1.2 * memory.lower_bound_bytes


@pytest.mark.slow
@settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(random_graphs())
def test_plans_of_random_graphs_are_sound(graph: RandomGraph) -> None:
    try:
        plan = compile_for(graph.model(), graph.feeds)
    except NotKnownError:
        return  # a program of several plans
    assert_arenas_sound(plan)


# -- poison ----------------------------------------------------------------------------------------------------------

POISON = """
@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&memory); i += 64u * 256u) { memory[i] = 0xFFFFFFFFu; }
}
"""


def poisoned(plan: Plan) -> Plan:
    """The plan with calls in between that overwrite every range of an arena after its last use."""
    kernel = Kernel("poison", "poison", POISON, (64, 1, 1), (Binding("memory", "read_write", "u32"),))
    dead = dead_ranges(plan)
    calls: list[KernelCall] = []
    for number, call in enumerate(plan.calls):
        calls.append(call)
        for use in dead.get(number, ()):
            calls.append(KernelCall(kernel.key, (Range(use.arena, use.start, use.end - use.start),), (256, 1, 1)))
    return replace(plan, kernels=(*plan.kernels, kernel), commands=(ComputePass(tuple(calls)),))


def small_network():
    """Branches that meet again, so that tensors of several sizes live and die at different times."""
    rng = np.random.default_rng(5)
    constants = {
        "w1": rng.standard_normal((8, 4, 3, 3)).astype(np.float32),
        "w2": rng.standard_normal((8, 8, 3, 3)).astype(np.float32),
        "w3": rng.standard_normal((4, 16, 1, 1)).astype(np.float32),
        "w4": rng.standard_normal((12, 12)).astype(np.float32),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
        node("Add", ["b", "c"], ["d"]),
        node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1]),
        node("Concat", ["d", "e"], ["f"], axis=1),
        node("Conv", ["f", "w3"], ["g"]),
        node("Softmax", ["g"], ["h"], axis=-1),
        node("MatMul", ["h", "w4"], ["i"]),
        node("Exp", ["i"], ["j"]),
        node("Add", ["j", "x"], ["k"]),
        node("ReduceMean", ["k"], ["m"], axes=[2, 3], keepdims=1),
        node("Mul", ["k", "m"], ["n"]),
        node("Transpose", ["n"], ["o"], perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["o", "s"], ["y"], axis=-1),
    ]
    constants["s"] = np.ones(4, np.float32)
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", 1, (1, 4, 12, 12))],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": rng.standard_normal((1, 4, 12, 12)).astype(np.float32) / 4}


@pytest.mark.parametrize(("fusion", "tight"), [(True, False), (True, True), (False, False)])
def test_nothing_reads_freed_memory(fusion: bool, tight: bool, each_device, monkeypatch) -> None:
    """Also where calls read and write one arena, and buffers of outputs hold activations."""
    if tight:
        monkeypatch.setattr(arena_allocator, "_APART", 0.0)
        monkeypatch.setattr(arena_allocator, "_conflicts", lambda tensors: [set() for _ in tensors])
    model, feeds = small_network()
    plan = compile_for(model, feeds, each_device.profile, disabled_passes=() if fusion else ("fuse",))
    assert_arenas_sound(plan)
    shared = [use for use in uses_of(plan) if not use.writes and use.access == "read_write"]
    assert shared or not tight
    assert dead_ranges(plan)
    (before,) = run_plan(each_device, plan, model, feeds)
    (after,) = run_plan(each_device, poisoned(plan), model, feeds)
    assert np.isfinite(before).all()
    np.testing.assert_array_equal(before, after)


def test_poison_is_seen(device) -> None:
    """Poisoning memory that is still needed changes the result: the test above can fail."""
    model, feeds = small_network()
    plan = compile_for(model, feeds, device.profile)
    (before,) = run_plan(device, plan, model, feeds)
    first = next(use for use in uses_of(plan) if use.writes)
    broken = poisoned(plan)
    extra = KernelCall("poison", (Range(first.arena, first.start, first.end - first.start),), (256, 1, 1))
    calls = broken.calls
    position = next(index for index, call in enumerate(calls) if call is plan.calls[first.call]) + 1
    broken = replace(broken, commands=(ComputePass((*calls[:position], extra, *calls[position:])),))
    (after,) = run_plan(device, broken, model, feeds)
    assert not np.array_equal(before, after)
