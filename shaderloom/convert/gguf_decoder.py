"""A GGUF file of the llama or qwen2 family as the folder of an ONNX decoder."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import numpy as np

from ..runtime.plan.errors import InputError, ModelError, UnsupportedError, unwritable
from .block_weights import Weight, read_weight, take_rows
from .decoder_writer import DecoderSizes, write_decoder
from .gguf_file import BLOCKS, GgufFile
from .gguf_tokenizer import write_tokenizer

#: Families, and whether their rows of queries and keys are in pairs of neighbours that turn together
FAMILIES = {"llama": True, "qwen2": False}
_FACTORS = "rope_freqs.weight"
#: Parts of a layer in the words of GGUF
_PARTS = {
    "norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "out": "attn_output",
    "inner_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
#: Elements of the tables of angles
_ANGLES = 1 << 26
_WHOLE = {"embedding": "token_embd.weight", "head": "output.weight", "norm": "output_norm.weight"}


def convert_gguf(file: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Write the decoder of a GGUF file as a folder that :class:`shaderloom.Generator` opens.

    Weights keep their codes and scales.  The folder may exist if it is empty; it is complete or not there.  Raises
    :class:`UnsupportedError` for another family, tokenizer or type of numbers, by its name, :class:`ModelError` for a
    file that is damaged, and :class:`InputError` for a folder that cannot be written.
    """
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"'{target}' is there already", hint="name another folder")
    with GgufFile(Path(file)) as source:
        decoder = _Source(source)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as name:
                written = Path(name) / "folder"
                written.mkdir()
                ends, begin = write_tokenizer(written, source.settings)
                write_decoder(written, decoder.sizes, decoder.weight, ends, begin)
                if target.exists():
                    target.rmdir()
                written.rename(target)
        except OSError as error:
            raise unwritable(target, error) from None


class _Source:
    """Sizes and weights of a file, checked against each other."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._settings = file.settings
        family = file.settings.get("general.architecture")
        if not isinstance(family, str) or family not in FAMILIES:
            raise UnsupportedError(
                f"the file's architecture is '{family}'", hint=f"supported are {', '.join(FAMILIES)}"
            )
        self._family: str = family
        self.sizes = self._sizes()
        self._check_tensors()

    def weight(self, name: str) -> Weight | None:
        """Return the weight of a name of :data:`.decoder_writer.Weights`."""
        tensor = self._file.tensors.get(_gguf_name(name))
        if tensor is None:
            return None
        weight = read_weight(tensor, self._file.data(tensor))
        part = name.removesuffix(".bias").rpartition(".")[2]
        if FAMILIES[self._family] and part in ("q", "k") and name.startswith("layers."):
            weight = take_rows(weight, _halves(tensor.shape[0], self.sizes.head))
        return weight

    def _sizes(self) -> DecoderSizes:
        hidden, layers = self._number("embedding_length"), self._number("block_count", most=1024)
        heads = self._number("attention.head_count", most=1024)
        shared = self._number("attention.head_count_kv", heads, most=1024)
        if hidden % heads or heads % shared:
            raise ModelError(
                f"{hidden} numbers, {heads} heads and {shared} shared ones do not fit", hint="check the file"
            )
        head = self._number("attention.key_length", hidden // heads)
        for key, value in (("rope.dimension_count", head), ("attention.value_length", head)):
            if self._number(key, value) != value:
                raise UnsupportedError(f"{self._family}.{key} is not the size of a head, {head}", hint="it must be")
        context = self._number("context_length", most=1 << 18)
        if context * head > _ANGLES:
            raise ModelError(
                f"{self._family}.context_length is {context:,} with heads of {head:,}", hint="check the file"
            )
        scaling = self._settings.get(f"{self._family}.rope.scaling.type", "none")
        if scaling != "none":
            raise UnsupportedError(f"{self._family}.rope.scaling.type is '{scaling}'", hint="supported is 'none'")
        embedding = self._file.tensors.get(_WHOLE["embedding"])
        if embedding is None or len(embedding.shape) != 2 or embedding.shape[1] != hidden:
            raise ModelError("the file has no embedding of its sizes", tensor=_WHOLE["embedding"])
        return DecoderSizes(
            self._family,
            hidden,
            self._number("feed_forward_length"),
            layers,
            heads,
            shared,
            head,
            embedding.shape[0],
            context,
            self._real("attention.layer_norm_rms_epsilon", 1e-5),
            self._real("rope.freq_base", 1e4),
            self._factors(head),
        )

    def _factors(self, head: int) -> np.ndarray | None:
        tensor = self._file.tensors.get(_FACTORS)
        if tensor is None:
            return None
        if tensor.kind != "F32" or tensor.shape != (head // 2,):
            raise ModelError(f"it is not F32[{head // 2}]", tensor=_FACTORS)
        return self._file.data(tensor).view(np.float32).reshape(-1)

    def _check_tensors(self) -> None:
        """Raise an error unless the file has the decoder's tensors, of its sizes, and no others."""
        sizes = self.sizes
        queries, keys = sizes.heads * sizes.head, sizes.shared * sizes.head
        inner, hidden = sizes.inner, sizes.hidden
        matrices = {
            "q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "out": (hidden, queries),
            "gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner),
        }  # fmt: skip
        wanted = {_WHOLE["embedding"]: (sizes.vocabulary, hidden), _WHOLE["norm"]: (hidden,)}
        optional = {_WHOLE["head"]: (sizes.vocabulary, hidden), _FACTORS: (sizes.head // 2,)}
        for layer in range(sizes.layers):
            for part in _PARTS:
                name = f"layers.{layer}.{part}"
                wanted[_gguf_name(name)] = matrices.get(part, (hidden,))
                if part in matrices:
                    optional[_gguf_name(f"{name}.bias")] = matrices[part][:1]
        for name, tensor in self._file.tensors.items():
            shape = wanted.get(name, optional.get(name))
            if shape is None:
                raise UnsupportedError(f"a decoder of {self._family} has no such tensor", tensor=name)
            if tensor.shape != shape:
                raise ModelError(f"it has the shape {list(tensor.shape)}, not {list(shape)}", tensor=name)
            kinds = tuple(BLOCKS) if len(shape) == 2 else ("F32", "F16")
            if tensor.kind not in kinds:
                raise UnsupportedError(
                    f"its numbers are {tensor.kind}", tensor=name, hint=f"supported are {', '.join(kinds)}"
                )
        missing = next((name for name in wanted if name not in self._file.tensors), None)
        if missing is not None:
            raise ModelError("the file lacks it", tensor=missing, hint="download the file again")

    def _number(self, key: str, default: int | None = None, most: int = 1 << 22) -> int:
        value = self._settings.get(f"{self._family}.{key}", default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise ModelError(f"{self._family}.{key} is {value!r:.40}, not 1 to {most:,}", hint="check the file")
        return value

    def _real(self, key: str, default: float) -> float:
        value = self._settings.get(f"{self._family}.{key}", default)
        if not isinstance(value, (int, float)) or not 0 < value < 1e12:
            raise ModelError(f"{self._family}.{key} is {value!r:.40}", hint="check the file")
        return float(value)


def _gguf_name(name: str) -> str:
    """Return the name in the file of a weight of :data:`.decoder_writer.Weights`."""
    match = re.fullmatch(r"layers\.(\d+)\.(\w+)(\.bias)?", name)
    if match is None:
        return _WHOLE.get(name, name)
    return f"blk.{match[1]}.{_PARTS[match[2]]}{match[3] or '.weight'}"


def _halves(rows: int, head: int) -> np.ndarray:
    """Return the order of rows in which the first halves of pairs come before the second ones, in each head."""
    return np.arange(rows).reshape(-1, head // 2, 2).swapaxes(1, 2).reshape(-1)
