"""``shaderloom devices``: the adapters that can run shaders."""

from __future__ import annotations

from .command import as_command
from .common import format_bytes, print_json
from .options import JsonOption
from .terminal import echo


@as_command
def command(as_json: JsonOption = False) -> None:
    """List the adapters, best first; the first is used unless --device or SHADERLOOM_ADAPTER says otherwise.

    Adapters of OpenGL come last: they have no bounds checks, and run one call at a time.

    [bold]Examples[/bold]

      shaderloom devices

      SHADERLOOM_ADAPTER=llvmpipe shaderloom run model.onnx
    """
    from ..compiler.target import target_of
    from ..runtime.device.adapters import AdapterDescription, choose_adapter, list_adapters
    from ..runtime.plan.device_profile import DeviceProfile

    def target(adapter: AdapterDescription) -> str:
        return target_of(DeviceProfile(adapter.kind, adapter.identity, adapter=adapter.name)).name

    adapters = list_adapters()
    if as_json:
        print_json(
            [
                {
                    "index": adapter.index,
                    "name": adapter.name,
                    "driver": adapter.driver,
                    "kind": adapter.kind,
                    "backend": adapter.backend,
                    "target": target(adapter),
                    "features": list(adapter.features),
                    "limits": dict(adapter.limits),
                }
                for adapter in adapters
            ]
        )
        return
    choose_adapter(None, adapters)  # an empty list is an error that says what to install
    for adapter in adapters:
        memory = format_bytes(adapter.limits["max-compute-workgroup-storage-size"])
        echo(f"{adapter.index}: {adapter.name}")
        interface = (
            adapter.driver if adapter.driver.startswith(adapter.backend) else f"{adapter.backend}, {adapter.driver}"
        )
        echo(f"   {adapter.kind}, {interface.removesuffix(', ')}")
        echo(f"   target: {target(adapter)}")
        echo(f"   features: {', '.join(adapter.features) or 'none'}")
        echo(
            f"   largest buffer {format_bytes(adapter.limits['max-buffer-size'])}, "
            f"largest binding {format_bytes(adapter.limits['max-storage-buffer-binding-size'])}, "
            f"workgroup memory {memory}"
        )
