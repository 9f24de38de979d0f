"""Models of transformers, by configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers

from .example import Example


@dataclass(frozen=True)
class Size:
    """The sizes of a configuration: of a layer, of how many, of a sequence and of a picture."""

    hidden: int
    inner: int
    heads: int
    layers: int
    vocabulary: int
    length: int
    picture: int
    patch: int

    def layer(self) -> dict[str, int]:
        """Return the names that most configurations have for them."""
        return {
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
        }

    def ids(self, length: int | None = None) -> torch.Tensor:
        """Return two sequences of tokens."""
        return torch.randint(3, self.vocabulary, (2, length or self.length))


SMALL = Size(hidden=32, inner=64, heads=4, layers=2, vocabulary=99, length=12, picture=32, patch=8)
BASE = Size(hidden=768, inner=3072, heads=12, layers=4, vocabulary=30522, length=64, picture=224, patch=32)
FEWER = Size(hidden=512, inner=2048, heads=8, layers=3, vocabulary=32000, length=64, picture=224, patch=16)


def bert(size: Size) -> Example:
    """The encoder of BERT with a mask of its padding."""
    config = transformers.BertConfig(vocab_size=size.vocabulary, **size.layer())
    mask = torch.ones(2, size.length, dtype=torch.int64)
    mask[1, size.length // 2 :] = 0
    return Example(transformers.BertModel(config), (), {"input_ids": size.ids(), "attention_mask": mask})


def gpt2(size: Size) -> Example:
    """GPT-2 with logits of all tokens."""
    config = transformers.GPT2Config(
        vocab_size=size.vocabulary, n_embd=size.hidden, n_layer=size.layers, n_head=size.heads, n_positions=256
    )
    return Example(transformers.GPT2LMHeadModel(config), (), {"input_ids": size.ids(), "use_cache": False})


def llama(size: Size) -> Example:
    """Llama with two queries for each key."""
    config = transformers.LlamaConfig(vocab_size=size.vocabulary, num_key_value_heads=size.heads // 2, **size.layer())
    return Example(transformers.LlamaForCausalLM(config), (), {"input_ids": size.ids(), "use_cache": False})


def t5(size: Size) -> Example:
    """T5, encoder and decoder."""
    config = transformers.T5Config(
        vocab_size=size.vocabulary,
        d_model=size.hidden,
        d_kv=size.hidden // size.heads,
        d_ff=size.inner,
        num_layers=size.layers,
        num_heads=size.heads,
    )
    call = {"input_ids": size.ids(), "decoder_input_ids": size.ids(size.length // 2), "use_cache": False}
    return Example(transformers.T5ForConditionalGeneration(config), (), call)


def whisper(size: Size) -> Example:
    """Whisper, encoder and decoder, on a spectrogram of 16 frames for each token."""
    sizes = {"layers": size.layers, "attention_heads": size.heads, "ffn_dim": size.inner}
    parts = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in sizes.items()}
    frames = 8 * size.length
    config = transformers.WhisperConfig(
        vocab_size=size.vocabulary,
        d_model=size.hidden,
        num_mel_bins=80,
        max_source_positions=frames,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        **parts,
    )
    call = {"input_features": torch.randn(2, 80, 2 * frames), "decoder_input_ids": size.ids(6), "use_cache": False}
    return Example(transformers.WhisperForConditionalGeneration(config), (), call)


def vit(size: Size) -> Example:
    """The encoder of a vision transformer."""
    config = transformers.ViTConfig(image_size=size.picture, patch_size=size.patch, **size.layer())
    return Example(transformers.ViTModel(config), (), {"pixel_values": _pictures(size)})


def clip(size: Size) -> Example:
    """CLIP: both encoders, and how alike texts and pictures are."""
    text = {"vocab_size": size.vocabulary, "max_position_embeddings": 77, "eos_token_id": 2, **size.layer()}
    vision = {"image_size": size.picture, "patch_size": size.patch, "projection_dim": size.hidden, **size.layer()}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=size.hidden)
    mask = torch.ones(2, size.length, dtype=torch.int64)
    call = {"input_ids": size.ids(), "pixel_values": _pictures(size), "attention_mask": mask}
    return Example(transformers.CLIPModel(config), (), call)


def _pictures(size: Size) -> torch.Tensor:
    return torch.randn(2, 3, size.picture, size.picture)


MODELS: dict[str, Callable[[], Example]] = {
    "bert": lambda: bert(BASE),
    "gpt2": lambda: gpt2(BASE),
    "t5": lambda: t5(FEWER),
    "whisper": lambda: whisper(FEWER),
    "vit": lambda: vit(BASE),
    "clip": lambda: clip(FEWER),
    "llama": lambda: llama(FEWER),
}

#: The tests of the full tier
SMALL_MODELS: dict[str, Callable[[], Example]] = {
    "bert": lambda: bert(SMALL),
    "gpt2": lambda: gpt2(SMALL),
    "vit": lambda: vit(SMALL),
    "t5": lambda: t5(SMALL),
    "whisper": lambda: whisper(SMALL),
    "clip": lambda: clip(SMALL),
    "llama": lambda: llama(SMALL),
}
