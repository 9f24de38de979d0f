"""Answer a question with a trained model; see ``python -m examples.chat --help``."""

import argparse
import sys
from functools import partial

from rich.console import Console
from rich.table import Table

from examples.ocr.fetch import ModelMismatchError, ModelUnavailableError
from shaderloom import Generator, ShaderloomError

from .model import smollm2_folder
from .runtimes import Measured, answer, answer_with_onnxruntime

QUESTION = "What is the capital of France, and what is it known for?"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev chat-demo", description="Answer a question with a trained model.")
    parser.add_argument("question", nargs="?", default=QUESTION, help="the question (default: one about France)")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="the most tokens of an answer (default 64)")
    parser.add_argument("--device", help="part of the name of an adapter (default: the best one)")
    arguments = parser.parse_args()
    if arguments.tokens < 1:
        parser.error("--tokens needs at least 1")
    return arguments


def table(results: list[Measured], device: str) -> Table:
    """Return a row for each runtime; the last column says whether the tokens are those of the first row."""
    drawn = Table(title="SmolLM2-135M-Instruct, weights of 4 bits, the most probable tokens")
    for title in ("runtime", "on", "tokens", "first token", "tokens/s", "same tokens"):
        drawn.add_column(title)
    for result in results:
        own = result.runtime == "shaderloom"
        same = sum(a == b for a, b in zip(result.tokens, results[0].tokens))
        cells = (result.runtime, device if own else "the processor", str(len(result.tokens)))
        times = (f"{result.first_token:.2f} s", f"{result.tokens_per_second:.1f}")
        drawn.add_row(*cells, *times, f"{same} of {len(results[0].tokens)}")
    if len(results) > 1:
        fastest = max(results, key=lambda result: result.tokens_per_second)
        drawn.caption = f"on this machine the better choice is {fastest.runtime}"
    return drawn


def main() -> None:
    arguments = parse_arguments()
    console = Console()
    try:
        folder = smollm2_folder()
        with Generator(folder, device=arguments.device) as generator:
            ids = generator.encode([{"role": "user", "content": arguments.question}])
            console.print(f"> {arguments.question}", markup=False, highlight=False)
            show = partial(console.print, end="", markup=False, highlight=False, soft_wrap=True)
            answer(generator, ids, arguments.tokens, show)
            console.print()
            generator.rewind()
            again = answer(generator, ids, arguments.tokens, lambda piece: None)  # compiled, as in every later run
            device = generator.device_name
    except (ModelUnavailableError, ModelMismatchError, ShaderloomError) as error:
        sys.exit(f"error: {error}")
    other = answer_with_onnxruntime(folder, ids, len(again.tokens))
    console.print(table([again] if other is None else [again, other], device))


if __name__ == "__main__":
    main()
