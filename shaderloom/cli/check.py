"""``shaderloom check``: compare what a model's kernels compute with a reference, and locate faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..check.graph_instance import MAIN_GRAPH, GraphInstance
from ..runtime.plan.errors import InputError
from .command import as_command
from .common import count_text, print_json
from .options import CompilerOptions, DeviceOption, InputOptions, JsonOption, ModelArgument, OptionGroup
from .session import make_feeds, open_with_cpu
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..check.diagnosis import Diagnosis
    from ..check.index_check import IndexFault
    from ..check.plan_check import ComparedTensor, NonFiniteResult
    from ..check.run_check import CheckResult


@dataclass(frozen=True, kw_only=True)
class CheckOptions(OptionGroup):
    """Options of the comparison: tensors, reference and tolerance."""

    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="onnxruntime|reference|FILE.npz",
            help="Reference to compare with: onnxruntime, onnx's reference evaluator, or tensors by name.",
        ),
    ] = "onnxruntime"
    per_node: Annotated[
        bool, typer.Option("--per-node", help="Compare every ONNX tensor that a kernel writes, not only the outputs.")
    ] = False
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            min=0.0,
            help="Largest error over largest magnitude of a tensor. Default: 1e-4 for float32, 4e-3 for float16, 2e-2 "
            "with --f16, and four times the change by the reference's own optimisations.",
        ),
    ] = None
    inputs_file: Annotated[
        Path | None, typer.Option("--inputs", metavar="FILE.npz", help="Values of several inputs by name.")
    ] = None
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE.npz",
            help="With --f16: calibrate on these inputs what stays float32, instead of on those that are checked.",
        ),
    ] = None


@as_command
def command(
    model: ModelArgument,
    *,
    check: CheckOptions,
    inputs: InputOptions,
    compiler: CompilerOptions,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare a model's results with a reference. The exit status is 1 if they differ.

    If they do, the first kernel and ONNX node at fault are located: kernels are recomputed from the operands
    that they had, and passes are disabled. Kernels that make NaN or infinite numbers are named in any case
    when tensors inside the graph are compared. Indices out of range, which kernels clamp, are named and count as a
    difference. A model whose shapes or control flow depend on data, or that leaves nodes to the cpu, is followed
    through one run, stage by stage and step by step.

    [bold]Examples[/bold]

      shaderloom check resnet50.onnx

      shaderloom check detector.onnx --shape x=1x3x640x640 --input x=picture.npy --per-node

      shaderloom check model.onnx --against expected.npz
    """
    if check.calibration is not None and not compiler.f16:
        raise InputError("--calibration is for half precision", hint="add --f16")
    from ..check.check import Checker
    from ..check.onnx_model import OnnxModel
    from ..check.references import open_reference
    from ..compiler.target import target_of
    from ..model.model import Model

    with progress(quiet=as_json) as report:
        source = OnnxModel(model, compiler.chosen.get("logits", "all"))
        with open_with_cpu(model, device=device, dynamic=inputs.dynamic, cache=False) as session:
            feeds = make_feeds(session, inputs, _read_inputs(check.inputs_file))
            chosen = session.device
        keeps = compiler.chosen.get("activations") == "float" or not target_of(chosen.profile).byte_products
        reference = open_reference(check.against, source, rounds_activations=not keeps)
        opened = Model(
            model, dynamic=inputs.dynamic, cache=False, options=compiler.chosen, keep_refused=True, progress=report
        )
        with Checker(
            opened,
            source,
            reference,
            chosen,
            feeds,
            tolerance=check.tolerance,
            calibration=_read_inputs(check.calibration) or None,
        ) as checker:
            result = checker.run(per_node=check.per_node)
    if as_json:
        print_json(to_json(result))
    else:
        _print(result, check.per_node)
    if not result.is_close:
        raise typer.Exit(1)


def _read_inputs(path: Path | None) -> dict[str, Any]:
    from ..check.references import FileReference

    if path is None:
        return {}
    if path.suffix != ".npz":
        raise InputError(f"--inputs wants a .npz file, not '{path}'", hint="--input NAME=FILE.npy gives one input")
    return FileReference(path).arrays


def to_json(result: CheckResult) -> dict[str, Any]:
    """Return the result as JSON values; infinite errors become null."""
    diagnosis = result.diagnosis
    return {
        "against": result.against,
        "device": result.device,
        "close": result.is_close,
        "stages": result.stages,
        "tensors": [_row_json(row) for row in result.rows],
        "skipped": result.skipped,
        "unknown": result.unknown,
        "indices": [_fault_json(fault) for fault in result.indices],
        "not_finite": [
            {
                **_location(item),
                "call": item.call,
                "kernel": item.kernel,
                "tensor": item.tensor,
                "what": item.what,
                "origins": list(item.origins),
                "expected": item.expected,
            }
            for item in result.non_finite
        ],
        "diagnosis": None
        if diagnosis is None
        else {
            "kind": diagnosis.kind,
            **_location(diagnosis),
            "tensor": diagnosis.tensor,
            "call": diagnosis.call,
            "kernel": diagnosis.kernel,
            "node": diagnosis.node,
            "origins": list(diagnosis.origins),
            "pass": diagnosis.pass_name,
            "findings": diagnosis.findings,
        },
    }


def _fault_json(fault: IndexFault) -> dict[str, Any]:
    wrong, instance = fault.wrong, fault.instance
    return {
        **({} if instance == MAIN_GRAPH else {"graph": instance.graph, "iterations": list(instance.iterations)}),
        "node": fault.node,
        "input": fault.position,
        "tensor": fault.tensor,
        "index": list(wrong.position),
        "value": wrong.value,
        "allowed": [wrong.low, wrong.high],
        "wrong": wrong.count,
        "elements": fault.elements,
        "error": fault.is_error,
        "outside": fault.outside,
    }


def _finite(number: Any) -> Any:
    return number if not isinstance(number, float) or number - number == 0 else None


def _location(item: ComparedTensor | NonFiniteResult | Diagnosis) -> dict[str, Any]:
    """Return the plan's number (from 1) in a model of several stages, and the graph with its iterations (from 0)."""
    instance = item.instance
    facts: dict[str, Any] = {} if item.stage is None else {"stage": item.stage}
    if instance == MAIN_GRAPH:
        return facts
    return {**facts, "graph": instance.graph, "iterations": list(instance.iterations)}


def _row_json(row: ComparedTensor) -> dict[str, Any]:
    difference = row.difference
    return {
        **_location(row),
        "tensor": row.tensor,
        "node": row.node,
        "call": row.call,
        "kernel": row.kernel,
        "error": _finite(difference.error),
        "tolerance": difference.tolerance,
        "close": difference.is_close,
        "reason": difference.reason,
        "worst": [
            {"index": list(item.index), "got": _finite(item.got), "expected": _finite(item.expected)}
            for item in difference.worst
        ],
    }


def _print(result: CheckResult, per_node: bool) -> None:
    shown = result.rows if per_node else [row for row in result.rows if row.tensor in result.outputs]
    echo(f"{'':2} {'error':>9} {'allowed':>9} {'call':>5}  tensor")
    for row in shown:
        mark = "ok" if row.difference.is_close else "!!"
        call = (row.maker or "-") if row.call is None else _call(row.call, row.stage)
        echo(
            f"{mark} {row.difference.error:9.2e} {row.difference.tolerance:9.2e} {call:>5}  "
            f"{row.tensor}{_at(row.instance)}"
        )
    errors = any(fault.is_error for fault in result.indices)
    for name in result.skipped:
        why = ", or it is computed from an index that is out of range" if errors else ""
        echo(f"-- {'':25}  {name}: {result.against} does not have it{why}")
    for graph, reason in result.unknown.items():
        echo(f"-- {'':25}  the tensors of {graph} are not compared: {reason}")
    for fault in result.indices:
        echo(f"index out of range{'' if fault.is_error else ' (no error)'}: {fault}{_at(fault.instance)}")
    for item in result.non_finite:
        comparison = {None: "", True: "; so has the reference", False: "; the reference has none"}[item.expected]
        echo(f"not finite: call {_call(item.call, item.stage)}, kernel {item.kernel} makes {item.what}{comparison}")
        echo(f"      tensor '{item.tensor}'{_at(item.instance)}: {', '.join(item.origins)}")
    if result.stages is not None:
        echo(
            f"the model runs in stages: {count_text(result.stages, 'plan')}"
            + (f", {count_text(result.on_cpu, 'node')} on the cpu" if result.on_cpu else "")
            + (" (a call is STAGE.CALL)" if result.stages else "")
        )
    count = len(result.rows)
    if result.is_blind:
        echo(f"nothing was compared: {result.against} has no tensor of the model")
        return
    if not result.differing:
        agreeing = "1 tensor agrees" if count == 1 else f"{count} tensors agree"
        echo(f"{agreeing} with {result.against} on {result.device}")
        return
    verb = "differs" if count == 1 else "differ"
    echo(f"{len(result.differing)} of {count_text(count, 'tensor')} {verb} from {result.against} on {result.device}")
    _print_diagnosis(result)


def _call(call: int, stage: int | None) -> str:
    return str(call) if stage is None else f"{stage}.{call}"


def _at(instance: GraphInstance) -> str:
    """Format the path of a tensor in a nested graph; "" for the main graph."""
    return "" if instance == MAIN_GRAPH else f"  ({instance})"


def _print_diagnosis(result: CheckResult) -> None:
    diagnosis = result.diagnosis
    assert diagnosis is not None, "a result that differs has one"
    echo(f"\nfirst difference: tensor '{diagnosis.tensor}'")
    if diagnosis.instance != MAIN_GRAPH:
        echo(f"  graph:     {diagnosis.instance}")
    if diagnosis.stage is not None:
        echo(f"  stage:     {diagnosis.stage} of {result.stages}")
    if diagnosis.call is not None:
        echo(f"  kernel:    call {_call(diagnosis.call, diagnosis.stage)}, {diagnosis.kernel}")
    echo(f"  ONNX node: {diagnosis.node}")
    if diagnosis.pass_name:
        echo(f"  pass:      {diagnosis.pass_name}")
    for finding in diagnosis.findings:
        echo(f"  - {finding}")
    if diagnosis.call is not None and diagnosis.kind in ("kernel", "operator", "rounding"):
        around = diagnosis.instance.iterations
        iteration = f" --iteration {','.join(map(str, around))}" if around else ""
        call = _call(diagnosis.call, diagnosis.stage)
        echo(f"  - shaderloom repro with --call {call}{iteration} cuts the kernel out")
    worst = diagnosis.worst
    if worst is not None:
        if worst.reason:
            echo(f"  {worst.reason}")
        for item in worst.worst:
            echo(f"  at {list(item.index)}: {item.got!r}, expected {item.expected!r}")
