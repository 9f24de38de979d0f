"""The adapter of the GPU that a scheduler has assigned."""

from __future__ import annotations

from dataclasses import replace

import pytest

import shaderloom
from shaderloom.distributed.assigned_device import assigned_adapter, check_card
from shaderloom.runtime.device.adapters import AdapterDescription
from shaderloom.runtime.plan.errors import DeviceError

CARD = AdapterDescription(0, "A card", "driver", "discrete", "Vulkan", (), {})


def adapters(*kinds: str) -> list[AdapterDescription]:
    return [replace(CARD, index=index, kind=kind) for index, kind in enumerate(kinds)]


def test_gpus_are_adapters_in_the_same_order():
    assert assigned_adapter([1], adapters("discrete", "discrete", "cpu")) == 1
    assert assigned_adapter([0], [replace(CARD, index=3, backend="OpenGL"), replace(CARD, index=5)]) == 5
    assert assigned_adapter([], adapters("discrete")) is None
    assert assigned_adapter([2], adapters("cpu")) is None
    with pytest.raises(DeviceError, match="GPU 2"):
        assigned_adapter([2], adapters("discrete", "discrete", "cpu"))


@pytest.mark.parametrize(("memory", "is_known"), [((100, 1100), True), ((100, 101), False), ((None, None), False)])
def test_the_memory_of_the_card_tells_whether_it_is_the_one(memory, is_known, fresh_notices):
    answers = iter(memory)

    def check() -> bool:
        return check_card(1, lambda: 1000, lambda gpu: next(answers))

    if is_known:
        assert check()
    else:
        with pytest.warns(shaderloom.ShaderloomWarning, match="GPU 1, which Ray has assigned, is not known"):
            assert not check()
