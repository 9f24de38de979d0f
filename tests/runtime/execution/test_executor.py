"""The executor, the weight pool and the guards, with plans written by hand."""

from __future__ import annotations

import dataclasses
import json
import threading

import numpy as np
import pytest

from shaderloom.runtime.device import native, wgsl_guard
from shaderloom.runtime.device.adapters import AdapterDescription, choose_adapter
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.device.opening import open_device
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.plan.caps import Caps, MemoryAccount
from shaderloom.runtime.plan.errors import (
    ClosedError,
    DeviceError,
    DeviceLost,
    InputError,
    InternalError,
    LimitError,
    ModelError,
)
from shaderloom.runtime.plan.plan import (
    ComputePass,
    ConstantOutput,
    KernelCall,
    OutputAlias,
    Plan,
    Port,
    Range,
    SourceRef,
)

from ...support.plans import DOUBLE, dynamic_plan, kernel, span, two_call_plan

BIAS = np.arange(10, dtype=np.float32)


def make_pool(device: Device, cap: int = 1 << 30, **options) -> WeightPool:
    return WeightPool(device, lambda reference: BIAS, MemoryAccount(cap), **options)


def expected(x: np.ndarray) -> np.ndarray:
    return (x * 2 + 2 * np.tile(BIAS, len(x) // 10)) * 2


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).random(100, np.float32)


@pytest.mark.parametrize("use_native", [True, False])
@pytest.mark.parametrize("checked", [True, False])
def test_a_plan_runs_by_both_paths(each_device, x, use_native, checked):
    if use_native:
        assert native.AVAILABLE, "the direct path must exist with the pinned wgpu"
    pool = make_pool(each_device)
    with Executor(each_device, two_call_plan(), pool, use_native=use_native, checked=checked) as executor:
        for factor in (1, 2, 3):
            result = executor.run({"x": x * np.float32(factor)})
            np.testing.assert_array_equal(result["y"], expected(x * np.float32(factor)))
    pool.close()
    assert pool.account.used == 0


def test_web_limits_suffice(web_device, x):
    with Executor(web_device, two_call_plan(), make_pool(web_device)) as executor:
        np.testing.assert_array_equal(executor.run({"x": x})["y"], expected(x))


def test_input_need_not_be_contiguous(device, x):
    with Executor(device, two_call_plan(), make_pool(device)) as executor:
        wide = np.repeat(x, 2)[::2]
        assert not wide.flags.c_contiguous
        np.testing.assert_array_equal(executor.run({"x": wide})["y"], expected(x))


def test_results_do_not_share_memory(device, x):
    with Executor(device, two_call_plan(), make_pool(device)) as executor:
        first = executor.run({"x": x})["y"]
        executor.run({"x": x * 0})
        np.testing.assert_array_equal(first, expected(x))


def test_a_warm_run_makes_no_device_objects(device, x, monkeypatch):
    with Executor(device, two_call_plan(), make_pool(device)) as executor:
        executor.run({"x": x})
        for name in ("create_buffer", "create_bind_group", "create_compute_pipeline", "create_shader_module"):
            monkeypatch.setattr(device.gpu, name, lambda *a, name=name, **k: pytest.fail(f"{name} was called"))
        np.testing.assert_array_equal(executor.run({"x": x})["y"], expected(x))


def test_dynamic_dims_reuse_the_plan(each_device):
    with Executor(each_device, dynamic_plan(), make_pool(each_device)) as executor:
        for n in (5, 0, 7, 300, 1, 5, 1000):
            x = np.random.default_rng(n).random((n, 3), np.float32)
            result = executor.run({"x": x})["y"]
            assert result.shape == (n, 3)
            np.testing.assert_array_equal(result, x + x)


def test_dynamic_dims_are_bounded(device):
    with (
        Executor(device, dynamic_plan(low=2, high=4), make_pool(device)) as executor,
        pytest.raises(InputError, match="'n' is 5; it was declared 2 to 4"),
    ):
        executor.run({"x": np.zeros((5, 3), np.float32)})


def test_wrong_feeds_are_refused(device, x):
    with Executor(device, two_call_plan(), make_pool(device)) as executor:
        for feeds, message in (
            ({}, "no value"),
            ({"x": x.astype(np.float64)}, "float64"),
            ({"x": x[None]}, "rank 2"),
            ({"x": x[:50]}, "dimension 0 is 50, expected 100"),
        ):
            with pytest.raises(InputError, match=message):
                executor.run(feeds)
        np.testing.assert_array_equal(executor.run({"x": x})["y"], expected(x))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "float16", "int32", "int64", "float32"])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 9])
def test_every_width_survives_the_border(device, dtype, count):
    """Words are copied by the shader; element counts that do not fill a word are padded."""
    words = (count * np.dtype(dtype).itemsize + 15) // 16 * 4
    copy = kernel(
        DOUBLE.replace("f32", "u32").replace("x[id.x] + x[id.x]", "x[id.x]").replace("COUNT", f"{words}u"),
        "read",
        "read_write",
    )
    call = KernelCall(copy.key, (Range("input:x", 0, words * 4), Range("output:y", 0, words * 4)), (1, 1, 1))
    plan = Plan(
        "copy",
        (Port("x", dtype, (count,)),),
        (Port("y", dtype, (count,)),),
        (),
        (copy,),
        (),
        (),
        (ComputePass((call,)),),
        (),
    )
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, count).astype(dtype)
    with Executor(device, plan, make_pool(device)) as executor:
        result = executor.run({"x": values})["y"]
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result, values)


def test_constants_and_aliases_need_no_kernel(device, x):
    base = two_call_plan()
    seven = SourceRef("seven", None, 0, 8, "int64", (1,), np.array([7], np.int64).tobytes())
    plan = dataclasses.replace(
        base,
        outputs=(
            *base.outputs,
            Port("c", "int64", (1,)),
            Port("x2", "float32", (100,)),
            Port("y2", "float32", (100,)),
            Port("y3", "float32", (100,)),
        ),
        constants=(ConstantOutput("c", seven),),
        aliases=(
            OutputAlias("x2", "input:x", 400),
            OutputAlias("y2", "output:y3", 400),
            OutputAlias("y3", "output:y", 400),
        ),
    )
    with Executor(device, plan, make_pool(device)) as executor:
        result = executor.run({"x": x})
    assert result["c"].tolist() == [7]
    np.testing.assert_array_equal(result["x2"], x)
    np.testing.assert_array_equal(result["y2"], expected(x))
    assert not np.shares_memory(result["x2"], x)
    assert not np.shares_memory(result["y2"], result["y"])


def test_weights_are_uploaded_once(device, x):
    pool = make_pool(device)
    with Executor(device, two_call_plan(), pool):
        assert (pool.uploaded_bytes, pool.transform_calls) == (40, 1)
        with Executor(device, two_call_plan(count=50, key="other"), pool) as second:
            assert (pool.uploaded_bytes, pool.transform_calls) == (40, 1)
            np.testing.assert_array_equal(second.run({"x": x[:50]})["y"], expected(x[:50]))
    assert pool.account.used == pool.bytes == 48


def test_equal_kernels_share_a_pipeline(device):
    pool = make_pool(device)
    with Executor(device, two_call_plan(), pool) as first, Executor(device, two_call_plan(), pool) as second:
        call = first.plan.calls[0]
        assert first._binder.pipeline(call) is second._binder.pipeline(call)


def test_a_failed_weight_leaves_nothing(device):
    pool = WeightPool(device, lambda reference: BIAS[:3], MemoryAccount(1 << 20))
    with pytest.raises(ModelError, match="12 bytes instead of 40"):
        Executor(device, two_call_plan(), pool)
    assert pool.account.used == 0


def test_invalid_wgsl_is_a_device_error(device):
    plan = two_call_plan()
    broken = dataclasses.replace(plan.kernels[0], wgsl="fn main( {")
    pool = make_pool(device)
    with pytest.raises(DeviceError, match=f"kernel {broken.id}.*expected identifier"):
        Executor(device, dataclasses.replace(plan, kernels=(broken, *plan.kernels[1:])), pool)
    pool.close()
    assert pool.account.used == 0


def test_reading_and_writing_one_buffer_is_a_device_error(device, x):
    plan = two_call_plan()
    first, second = plan.calls
    clash = dataclasses.replace(second, ranges=(span("arena:0", 100), span("arena:0", 100, 512)))
    plan = dataclasses.replace(plan, commands=(ComputePass((first, clash)),), arenas=(1024,))
    with Executor(device, plan, make_pool(device)) as executor, pytest.raises(DeviceError, match="encoding a run"):
        executor.run({"x": x})


@pytest.mark.parametrize("bad", [Range("output:y", 0, 0), Range("output:y", 256, 400), Range("nowhere:1", 0, 400)])
def test_ranges_outside_their_buffer_never_reach_wgpu(device, bad, x):
    plan = two_call_plan()
    first, second = plan.calls
    wrong = dataclasses.replace(second, ranges=(second.ranges[0], bad))
    plan = dataclasses.replace(plan, commands=(ComputePass((first, wrong)),))
    with Executor(device, plan, make_pool(device)) as executor, pytest.raises(InternalError):
        executor.run({"x": x})


def test_a_kernel_beyond_the_device_is_refused(device):
    plan = two_call_plan()
    huge = 1 + device.profile.limit("max-compute-workgroup-storage-size")
    for change, error in (
        ({"features": ("warp-drive",)}, DeviceError),
        ({"workgroup_bytes": huge}, LimitError),
        ({"workgroup": (4096, 1, 1)}, LimitError),
    ):
        # A comment makes the text new, so that no pipeline of another test is reused.
        wgsl = f"// {sorted(change)}\n{plan.kernels[0].wgsl}"
        changed = dataclasses.replace(plan.kernels[0], wgsl=wgsl, **change)
        with pytest.raises(error):
            Executor(device, dataclasses.replace(plan, kernels=(changed, *plan.kernels[1:])), make_pool(device))


def test_the_memory_cap_holds(device, x):
    for cap in (100, 700, 1000):
        pool = make_pool(device, cap=cap)
        with (
            pytest.raises(LimitError, match=f"the cap is {cap:,}"),
            Executor(device, two_call_plan(), pool) as executor,
        ):
            executor.run({"x": x})
        pool.close()
        assert pool.account.used == 0
    pool = make_pool(device)
    with (
        pytest.raises(LimitError, match="cap is 99"),
        Executor(device, two_call_plan(), pool, caps=Caps(tensor_elements=99)),
    ):
        pass


@pytest.mark.parametrize("use_native", [True, False])
def test_use_after_close(device, x, use_native):
    executor = Executor(device, two_call_plan(), make_pool(device), use_native=use_native)
    executor.run({"x": x})
    executor.close()
    executor.close()
    with pytest.raises(ClosedError):
        executor.run({"x": x})
    with pytest.raises(ClosedError):
        executor.profile({"x": x})


def test_a_closed_pool_makes_no_weights(device):
    pool = make_pool(device)
    pool.close()
    with pytest.raises(ClosedError):
        Executor(device, two_call_plan(), pool)


def test_threads_may_share_an_executor(device, x):
    results: dict[int, np.ndarray] = {}
    with Executor(device, two_call_plan(), make_pool(device)) as executor:

        def work(index: int) -> None:
            for _ in range(20):
                results[index] = executor.run({"x": x * np.float32(index)})["y"]

        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for index in range(4):
        np.testing.assert_array_equal(results[index], expected(x * np.float32(index)))


def test_a_lost_device_raises_and_is_not_handed_out_again(x):
    adapter = next(iter(_adapters()))
    gpu = adapter.request_device_sync()
    device = Device.from_wgpu(gpu)
    executor = Executor(device, two_call_plan(), make_pool(device))
    executor.run({"x": x})
    gpu.destroy()
    with pytest.raises(DeviceLost):
        executor.run({"x": x})
    assert device.lost
    executor.close()


def _adapters():
    import wgpu

    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
    if not found:
        pytest.skip("no Vulkan adapter")
    return found


def test_profile_names_every_call(each_device, x):
    with Executor(each_device, two_call_plan(), make_pool(each_device)) as executor:
        profile = executor.profile({"x": x})
    assert profile.method == ("timestamps" if "timestamp-query" in each_device.profile.features else "wall")
    assert [call.label for call in profile.calls] == ["scale", "double"]
    assert profile.nanoseconds == sum(call.nanoseconds for call in profile.calls) > 0


def test_profile_without_timestamps_is_wall_time(web_device, x):
    with Executor(web_device, two_call_plan(), make_pool(web_device)) as executor:
        profile = executor.profile({"x": x})
    assert profile.method == "wall"
    assert all(call.nanoseconds > 0 for call in profile.calls)


def test_the_device_is_shared():
    try:
        first = open_device()
    except DeviceError as error:
        pytest.skip(str(error))
    assert open_device() is first
    assert open_device(0) is first
    assert open_device(first) is first


def test_plans_survive_json():
    for plan in (two_call_plan(), dynamic_plan()):
        text = json.dumps(plan.to_json())
        again = Plan.from_json(json.loads(text))
        assert again == plan
        assert again.digest == plan.digest
    full = dataclasses.replace(
        two_call_plan(),
        constants=(ConstantOutput("c", SourceRef("k", None, 0, 3, "uint8", (3,), b"\0\xff\x01")),),
        aliases=(OutputAlias("a", "input:x", ["*", "n", 4]),),
        kernels=(dataclasses.replace(two_call_plan().kernels[0], config=(("tile", (8, 8)), ("vec", True))),),
    )
    assert Plan.from_json(json.loads(json.dumps(full.to_json()))) == full


def test_damaged_plans_are_refused():
    def damage(path: tuple[str | int, ...], value: object) -> None:
        data = json.loads(json.dumps(two_call_plan().to_json()))
        target = data
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        with pytest.raises(ValueError):
            Plan.from_json(data)

    damage(("key",), 3)
    damage(("inputs", 0, "shape"), "N")
    damage(("kernels", 0, "workgroup"), [1, 2])
    damage(("commands", 0, "calls", 0, "grid"), [["?", 1], 1, 1])
    damage(("commands", 0, "kind"), "host")
    damage(("commands", 0, "calls", 0, "ranges", 0, "size"), 1.5)
    damage(("sources", 0, "data"), {"base64": "!"})
    with pytest.raises(ValueError):
        Plan.from_json([])


def test_wgsl_that_would_end_the_process_is_refused():
    wgsl_guard.check("fn f() -> i32 { return " + "(" * 900 + "1" + ")" * 900 + "; }", 1 << 20, "k")
    with pytest.raises(LimitError, match="nests deeper"):
        wgsl_guard.check("(" * 5000 + ")" * 5000, 1 << 20, "k")
    with pytest.raises(LimitError, match="operators"):
        wgsl_guard.check("let a = " + "1 + " * 20000 + "1;", 1 << 20, "k")
    with pytest.raises(LimitError, match="cap is 10"):
        wgsl_guard.check("fn main() {}", 10, "k")


def test_adapter_choice_by_index_and_name():
    def adapter(index: int, name: str, backend: str = "Vulkan") -> AdapterDescription:
        return AdapterDescription(index, name, "1.0", "cpu", backend, (), {})

    found = [adapter(0, "llvmpipe"), adapter(1, "SwiftShader Device"), adapter(2, "llvmpipe", "OpenGL")]
    assert choose_adapter(None, found).index == 0
    assert choose_adapter("1", found).index == 1
    assert choose_adapter("swift", found).index == 1
    assert choose_adapter("llvmpipe", found).index == 0
    assert choose_adapter("opengl", found).index == 2
    with pytest.raises(DeviceError, match="no adapter matches 'nvidia'"):
        choose_adapter("nvidia", found)
    with pytest.raises(DeviceError, match="mesa-vulkan-drivers"):
        choose_adapter(None, [])
