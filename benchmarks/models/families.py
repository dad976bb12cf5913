"""Further families that have bars: measured by ``make bench``, not compiled by the tests of the model set.

What it is: the second part of the zoo; importing it enters its rows.  Configurations are the defaults of
transformers unless a row says otherwise; sizes of images are odd where the architecture lets them be.
What it is not: models that nothing was built with (``unseen/families.py``).
Who calls it: ``export.py``.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import transformers
from torch import nn

from zoo import Example, TakeField, encoder_inputs, model, stir

FAMILIES: Final = (
    "resnet18_odd",
    "regnet",
    "efficientnet_b0",
    "segformer_b0",
    "swin_tiny",
    "clip_vision",
    "t5_encoder",
    "wav2vec2",
)


def classifier(architecture: str, height: int, width: int, **changes: Any) -> Example:
    """Return a classifier of a thousand classes and one image."""
    config = getattr(transformers, f"{architecture}Config")(num_labels=1000, **changes)
    inner = getattr(transformers, f"{architecture}ForImageClassification")(config)
    return with_field(inner, {"pixel_values": torch.randn(1, 3, height, width)}, "logits")


def with_field(inner: nn.Module, inputs: dict[str, torch.Tensor], answer: str) -> Example:
    """Return a module that gives back one field."""
    return Example(module=TakeField(stir(inner), tuple(inputs), answer), inputs=inputs)


@model("resnet18_odd")
def resnet18_odd() -> Example:
    """ResNet-18, an image of 203 x 251."""
    return classifier(
        "ResNet",
        203,
        251,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
    )


@model("regnet")
def regnet() -> Example:
    """RegNetY-040."""
    return classifier("RegNet", 224, 224)


@model("efficientnet_b0")
def efficientnet_b0() -> Example:
    """EfficientNet-B0: transformers' default is B7."""
    return classifier(
        "EfficientNet",
        224,
        224,
        image_size=224,
        width_coefficient=1.0,
        depth_coefficient=1.0,
        hidden_dim=1280,
        dropout_rate=0.2,
    )


@model("segformer_b0")
def segformer_b0() -> Example:
    """SegFormer-B0 for segmentation, an image of 224 x 288."""
    inner = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig())
    return with_field(inner, {"pixel_values": torch.randn(1, 3, 224, 288)}, "logits")


@model("swin_tiny")
def swin_tiny() -> Example:
    """Swin-tiny."""
    return classifier("Swin", 224, 224)


@model("clip_vision")
def clip_vision() -> Example:
    """The image tower of CLIP ViT-B/32."""
    inner = transformers.CLIPVisionModel(transformers.CLIPVisionConfig())
    pixels = {"pixel_values": torch.randn(1, 3, 224, 224)}
    return with_field(inner, pixels, "last_hidden_state")


@model("t5_encoder")
def t5_encoder() -> Example:
    """The encoder of T5-small, 123 tokens."""
    inner = transformers.T5EncoderModel(transformers.T5Config())
    return with_field(inner, encoder_inputs(1, 123, 30000), "last_hidden_state")


@model("wav2vec2")
def wav2vec2() -> Example:
    """wav2vec 2.0 base, one second of sound."""
    inner = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config())
    return with_field(inner, {"input_values": torch.randn(1, 16001)}, "last_hidden_state")
