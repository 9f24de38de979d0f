"""Read the text of a picture; see ``python -m examples.ocr --help``."""

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shaderloom.runtime.plan.errors import ShaderloomError

from .images import annotate, draw_sample, load_picture, save_picture
from .pipeline import ModelPaths, OcrPipeline, TextLine
from .report import model_table
from .session import MakeSession, Session

DEFAULT_OUTPUT = Path("build/demo/annotated.png")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.ocr", description="Read the text of a picture.")
    parser.add_argument("picture", nargs="?", type=Path, help="a picture file; without one, a picture is drawn")
    parser.add_argument("--runtime", choices=["shaderloom", "onnxruntime"], default="shaderloom")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="read it N times, for the times (default 3)")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, metavar="FILE", help="the annotated picture")
    arguments = parser.parse_args()
    if arguments.repeat < 1:
        parser.error("--repeat needs at least 1")
    return arguments


def session_maker(runtime: str) -> MakeSession:
    """The function that loads a model file. Exits if the runtime is not installed."""
    if runtime == "onnxruntime":
        try:
            import onnxruntime
        except ModuleNotFoundError:
            sys.exit("error: onnxruntime is not installed; it comes with pip install '.[cpu]'")

        def make_reference(path: Path) -> Session:
            return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

        return make_reference

    import shaderloom

    def make(path: Path) -> Session:
        return shaderloom.InferenceSession(path)

    return make


def text_table(lines: Sequence[TextLine]) -> Table:
    table = Table(title="Text")
    table.add_column("line")
    table.add_column("score", justify="right")
    table.add_column("box score", justify="right")
    table.add_column("turned", justify="right")
    for line in lines:
        table.add_row(line.text, f"{line.score:.3f}", f"{line.box_score:.3f}", "180°" if line.upside_down else "")
    return table


def read(arguments: argparse.Namespace, progress: Console) -> None:
    """Read the picture ``--repeat`` times, print both tables and write the annotated picture.

    Raises RuntimeError if a later reading is not equal to the first, to the last bit of its scores.
    """
    picture = load_picture(arguments.picture) if arguments.picture else draw_sample()
    make_session = session_maker(arguments.runtime)
    with progress.status("fetching the models") as status:
        paths = ModelPaths.fetch()
        status.update("loading the models")
        pipeline = OcrPipeline(make_session, paths)
        status.update("compiling and reading")
        lines = pipeline(picture)
        for number in range(2, arguments.repeat + 1):
            status.update(f"reading again, {number} of {arguments.repeat}")
            if pipeline(picture) != lines:
                raise RuntimeError(f"reading number {number} differs from the first")
    console = Console()
    console.print(text_table(lines) if lines else "no text was found")
    console.print(model_table(pipeline.models))
    save_picture(annotate(picture, lines), arguments.output)
    console.print(f"wrote {arguments.output}", highlight=False)


def main() -> int:
    errors = Console(stderr=True)
    # One line, without the place in the code.
    warnings.showwarning = lambda message, *_: errors.print(f"warning: {message}", markup=False, soft_wrap=True)
    try:
        read(parse_arguments(), errors)
    except FileNotFoundError as error:
        missing = f"error: there is no file '{error.filename}' [name a picture, or none for the one it brings]"
        errors.print(missing, style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    except (OSError, RuntimeError, ShaderloomError) as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
