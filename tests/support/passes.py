"""Running a part of the compiler's passes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation, Observer
from shaderloom.compiler.driver import compile_unit, model_unit
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.graph import Graph
from shaderloom.compiler.options import CompileOptions
from shaderloom.compiler.passes.lowering import CompilationUnit, Lowering
from shaderloom.compiler.passes.pipeline import LAST_REWRITE, LOWERED, PIPELINE
from shaderloom.compiler.remarks import Remark
from shaderloom.compiler.target import target_of
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile

#: The first of the passes that rewrite expanded graphs
FIRST_REWRITE = "dead-code"
#: The passes that rewrite expanded graphs, and those of them that may be disabled
REWRITES = PIPELINE.names[PIPELINE.position(FIRST_REWRITE) : PIPELINE.position(LAST_REWRITE) + 1]
OPTIONAL_REWRITES = tuple(name for name in REWRITES if name in PIPELINE.optional)


def run_rewrites(
    graph: Graph,
    *,
    disabled: Collection[str] = (),
    verify: bool = False,
    remarks: list[Remark] | None = None,
    observer: Observer | None = None,
) -> None:
    """Run the rewrites on an expanded graph; it is changed."""
    lowering = Lowering(CompilationUnit(lambda _: graph))
    lowering.graph = graph
    options = CompileOptions(tuple(disabled), verify=verify)
    compilation = Compilation(options=options, remarks=remarks, observer=observer)
    PIPELINE.run(lowering, compilation, start=FIRST_REWRITE, until=LAST_REWRITE)


def lower_model(
    model: onnx.ModelProto | bytes,
    shapes: Mapping[str, Sequence[int]],
    profile: DeviceProfile = WEB,
    *,
    dynamic: Mapping[str, Sequence[int]] | None = None,
    remarks: list[Remark] | None = None,
    observer: Observer | None = None,
    **options: Any,
) -> Lowering:
    """Compile a model up to the groups of kernels; ``verify`` is on."""
    imported = load_model(model)
    chosen = CompileOptions(verify=True, **options)
    compilation = Compilation(target_of(profile), chosen, remarks=remarks, observer=observer)
    return compile_unit(model_unit(imported, bind_shapes(imported, shapes, dynamic)), compilation, until=LOWERED)
