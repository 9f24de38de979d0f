"""Which adapter a worker of Ray uses: the one of the GPU that Ray has assigned to it.

``CUDA_VISIBLE_DEVICES`` hides nothing from Vulkan, and adapters tell neither uuid nor PCI address.  Where GPUs are
numbered by their PCI bus, as ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` asks for, the number of a GPU is that of its adapter
among those of the machine.  That is an assumption, so it is looked at: the memory of that card grows when weights are
uploaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..notices import notify
from ..runtime.device.adapters import OPENGL, AdapterDescription
from ..runtime.plan.errors import DeviceError


def assigned_adapter(gpus: Sequence[int], adapters: Sequence[AdapterDescription]) -> int | None:
    """Return the index of the adapter of the first GPU of ``gpus``; None: the default one.

    Without GPUs on the machine a worker takes what there is, whatever Ray was told.  Raises :class:`DeviceError` for a
    GPU without an adapter.
    """
    hardware = [each for each in adapters if not each.is_software and each.backend != OPENGL]
    if not gpus or not hardware:
        return None
    if gpus[0] >= len(hardware):
        raise DeviceError(
            f"Ray assigned GPU {gpus[0]}, the machine has adapters for {len(hardware)}",
            hint="shaderloom devices lists the adapters",
        )
    return hardware[gpus[0]].index


def card_memory(gpu: int) -> int | None:
    """Return the bytes in use of an NVIDIA card by its number on the PCI bus; None if nothing tells."""
    try:
        import pynvml  # of nvidia-ml-py

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(gpu)).used)
    except Exception:  # not installed, no driver, no such card: its classes of errors are its own
        return None


def check_card(gpu: int, upload: Callable[[], int], memory: Callable[[int], int | None] = card_memory) -> bool:
    """Upload, which returns a number of bytes; return whether the memory of the card grew by most of it, else warn."""
    before = memory(gpu)
    size = upload()
    after = memory(gpu)
    if before is not None and after is not None and after - before >= size // 2:
        return True
    reason = "nvidia-ml-py is not installed" if before is None else "its memory has not grown"
    notify(f"whether the device of this worker is GPU {gpu}, which Ray has assigned, is not known: {reason}")
    return False
