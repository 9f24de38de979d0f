"""Models of transformers with small random weights, by configuration: nothing is downloaded.

``python -m tests.shaderloom.torch.zoo`` runs all of them and prints the table of docs/guide/pytorch.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers

import shaderloom
from shaderloom.torch.backend import compiled_graphs, shaderloom_backend

TOLERANCE = 1e-4

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_PICTURE = {"image_size": 32, "patch_size": 8}


class Example(NamedTuple):
    """A model with the keywords of a call."""

    model: torch.nn.Module
    call: dict[str, Any]


def _ids(length: int = 12) -> torch.Tensor:
    return torch.randint(3, 90, (2, length))


def _bert() -> Example:
    config = transformers.BertConfig(vocab_size=99, **_SMALL)
    return Example(transformers.BertModel(config), {"input_ids": _ids(), "attention_mask": torch.ones(2, 12).long()})


def _gpt2() -> Example:
    config = transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    return Example(transformers.GPT2LMHeadModel(config), {"input_ids": _ids(), "use_cache": False})


def _llama() -> Example:
    config = transformers.LlamaConfig(vocab_size=99, num_key_value_heads=2, **_SMALL)
    return Example(transformers.LlamaForCausalLM(config), {"input_ids": _ids(), "use_cache": False})


def _t5() -> Example:
    config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    call = {"input_ids": _ids(), "decoder_input_ids": _ids(6), "use_cache": False}
    return Example(transformers.T5ForConditionalGeneration(config), call)


def _whisper() -> Example:
    sizes = {f"{part}_{what}": size for part in ("encoder", "decoder") for what, size in _WHISPER.items()}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(
        vocab_size=99, d_model=32, num_mel_bins=16, max_source_positions=32, max_target_positions=32, **sizes, **special
    )
    call = {"input_features": torch.randn(2, 16, 64), "decoder_input_ids": _ids(6), "use_cache": False}
    return Example(transformers.WhisperForConditionalGeneration(config), call)


_WHISPER = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}


def _vit() -> Example:
    config = transformers.ViTConfig(**_SMALL, **_PICTURE)
    return Example(transformers.ViTModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)})


def _clip() -> Example:
    text = {"vocab_size": 99, "max_position_embeddings": 32, "eos_token_id": 2, **_SMALL}
    config = transformers.CLIPConfig(
        text_config=text, vision_config={**_SMALL, **_PICTURE, "projection_dim": 32}, projection_dim=32
    )
    call = {"input_ids": _ids(), "pixel_values": torch.randn(2, 3, 32, 32), "attention_mask": torch.ones(2, 12).long()}
    return Example(transformers.CLIPModel(config), call)


ZOO: dict[str, Callable[[], Example]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "vit": _vit,
    "llama": _llama,
    "t5": _t5,
    "whisper": _whisper,
    "clip": _clip,
}


class Compared(NamedTuple):
    """How far a model's results are from eager PyTorch, and what ran it."""

    difference: float
    runs_on: str


def example(name: str) -> Example:
    """Return a model of the zoo in evaluation mode; the same one each time."""
    torch.manual_seed(0)
    made = ZOO[name]()
    made.model.eval()
    return made


def compare_session(name: str, device: Any = None) -> Compared:
    """Compare a model that ``from_torch`` has made with eager PyTorch."""
    model, call = example(name)
    with torch.no_grad():
        expected = model(**call)
        with shaderloom.from_torch(model, (), call, device=device, cache=False) as session:
            result = session(**call)
            return Compared(
                _difference(result, expected), f"{session.stats.calls} calls in {len(session.stats.steps)} step"
            )


def compare_compiled(name: str, device: Any = None) -> Compared:
    """Compare a model that ``torch.compile`` has compiled with eager PyTorch."""
    model, call = example(name)
    torch._dynamo.reset()
    before = compiled_graphs()
    compiled = torch.compile(model, backend=shaderloom_backend, options={"device": device, "cache": False})
    with torch.no_grad():
        expected = model(**call)
        result = compiled(**call)
    graphs = [graph for graph in compiled_graphs() if graph not in before]
    sessions = sum(not graph.refusal for graph in graphs)
    reasons = "; ".join(sorted({graph.refusal for graph in graphs if graph.refusal}))
    return Compared(_difference(result, expected), f"{sessions} of {len(graphs)} graphs {reasons}".strip())


def _difference(result: Any, expected: Any) -> float:
    """Return the largest difference of two structures of tensors; infinite where they do not correspond."""
    leaves, spec = torch.utils._pytree.tree_flatten(result)
    others, other_spec = torch.utils._pytree.tree_flatten(expected)
    if spec != other_spec or not leaves:
        return float("inf")
    pairs = [(a, b) for a, b in zip(leaves, others) if isinstance(b, torch.Tensor)]
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return float("inf")
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


def main() -> None:
    """Print the table."""
    print("| model | `from_torch`: difference | runs as | `torch.compile`: difference | on the device |")
    print("|---|---|---|---|---|")
    for name in ZOO:
        cells = []
        for compare in (compare_session, compare_compiled):
            try:
                compared = compare(name)
                cells += [f"{compared.difference:.1e}", compared.runs_on]
            except Exception as error:  # a row says what went wrong
                cells += ["failed", f"{type(error).__name__}: {error}"]
        print(f"| {' | '.join([name, *cells])} |", flush=True)


if __name__ == "__main__":
    main()
