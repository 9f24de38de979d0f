"""The names of all models by library, for programs that cannot import the libraries."""

from __future__ import annotations

LIBRARIES = {
    "torchvision": (
        "fasterrcnn_mobilenet_v3_large_320_fpn",
        "ssdlite320_mobilenet_v3_large",
        "swin_t",
        "deeplabv3_mobilenet_v3_large",
        "mobilenet_v3_large",
        "resnet18",
    ),
    "timm": (
        "convnext_tiny",
        "densenet121",
        "efficientnet_b0",
        "eva02_tiny_patch14_224",
        "ghostnet_100",
        "hrnet_w18_small",
        "levit_128s",
        "maxvit_tiny_rw_224",
        "mixer_s32_224",
        "mobilevit_s",
        "poolformer_s12",
        "regnety_008",
        "vit_small_patch16_224",
        "xcit_nano_12_p16_224",
    ),
    "transformers": ("bert", "clip", "gpt2", "llama", "t5", "vit", "whisper"),
}
MODELS = tuple(f"{library}/{name}" for library, names in LIBRARIES.items() for name in names)
