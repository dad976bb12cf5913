"""Model families that nothing here was built with, as torch modules with inputs.

Three of them were, since they were slow once: EfficientNet, ShuffleNet and Mixtral.

What it is: one row per family: architecture, configuration, inputs.  Configurations are the
defaults of transformers; ``layers`` says where depth was cut to keep a file small, widths never
are.  Weights are random (fixed seed), sizes of inputs odd where the architecture lets them be.
What it is not: an exporter (``write_files.py``), nor the models that have bars (``models/zoo.py``).
Who calls it: ``write_files.py`` of this package and the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import torch
import transformers
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache

from models.zoo import CachedDecoder, Example, cache_inputs, encoder_inputs, stir
from unseen.shufflenet import ShuffleNet

SEED: Final = 20240229
Inputs = Callable[[], dict[str, Tensor]]
Dynamic = Mapping[str, dict[int, str]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A row of the table.

    Attributes:
        build: Returns module and inputs.
        cut: What of the default configuration was made smaller, for the table.
    """

    build: Callable[[], Example]
    cut: str = ""


FAMILIES: Final[dict[str, Family]] = {}


@final
class TakeFields(nn.Module):
    """Call a transformers model by keyword and return some fields of its answer."""

    def __init__(
        self,
        inner: nn.Module,
        names: tuple[str, ...],
        answers: tuple[str, ...],
        fixed: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.inner = inner
        self.names = names
        self.answers = answers
        self.fixed = dict(fixed)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return the fields."""
        named = dict(zip(self.names, values, strict=True))
        result = self.inner(**named, **self.fixed)
        return tuple(getattr(result, answer) for answer in self.answers)


def enter(
    name: str,
    architecture: str,
    inputs: Inputs,
    *answers: str,
    config: str = "",
    cut: str = "",
    dynamic: Dynamic | None = None,
    fixed: Mapping[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Enter the family that ``architecture`` of transformers makes of its default configuration.

    Args:
        name: Of the row.
        architecture: Class of transformers.
        inputs: Makes the inputs, after the seed is set.
        answers: Fields of the result that become outputs.
        config: Class of the configuration, where the architecture does not say it.
        cut: What of the default configuration was made smaller.
        dynamic: Input name → axis → name of the dimension that stays symbolic.
        fixed: Arguments of every call.
        settings: Changes to the default configuration.
    """

    def build() -> Example:
        kind = getattr(transformers, architecture)
        made = getattr(transformers, config) if config else kind.config_class
        inner = stir(kind(made(**settings)))
        values = inputs()
        module = TakeFields(inner, tuple(values), answers, fixed or {})
        return Example(module=module, inputs=values, dynamic=dict(dynamic or {}))

    FAMILIES[name] = Family(build=build, cut=cut)


def build(name: str) -> Example:
    """Return the family called ``name``, the same one every time."""
    torch.manual_seed(SEED)
    example = FAMILIES[name].build()
    example.module.eval()
    return example


def pixels(*shape: int, name: str = "pixel_values") -> Inputs:
    """Inputs of one image, batch of images or film."""
    return lambda: {name: torch.randn(*shape)}


def tokens(batch: int, count: int, vocabulary: int = 30000) -> Inputs:
    """Inputs of token ids and a mask."""
    return lambda: encoder_inputs(batch, count, vocabulary)


def ids(batch: int, count: int, vocabulary: int = 30000) -> Inputs:
    """Inputs of token ids alone."""
    return lambda: {"input_ids": torch.randint(0, vocabulary, (batch, count))}


BATCH: Final = {0: "batch"}
BATCH_AND_SEQUENCE: Final = {0: "batch", 1: "sequence"}
TEXT: Final = {"input_ids": BATCH_AND_SEQUENCE, "attention_mask": BATCH_AND_SEQUENCE}
HIDDEN: Final = "last_hidden_state"
CLASSES: Final[Mapping[str, Any]] = {"num_labels": 1000}
NO_CACHE: Final[Mapping[str, Any]] = {"use_cache": False}

QWEN2_CUT: Final = "as 0.5B: 3 of 24 layers, vocabulary of 8000"
QWEN2: Final[Mapping[str, Any]] = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 3,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 8000,
}

# ── images ───────────────────────────────────────────────────────────────────────────────────
image = "ForImageClassification"
enter("convnextv2", f"ConvNextV2{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter("mobilevit", f"MobileViT{image}", pixels(1, 3, 256, 256), "logits", **CLASSES)
enter("levit", f"Levit{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter("pvt_v2", f"PvtV2{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter("poolformer", f"PoolFormer{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter("focalnet", f"FocalNet{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter("swinv2", f"Swinv2{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter("cvt", f"Cvt{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter("bit", f"Bit{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter("mobilenet_v1", f"MobileNetV1{image}", pixels(1, 3, 192, 192), "logits", **CLASSES)
enter("efficientnet", f"EfficientNet{image}", pixels(1, 3, 224, 224), "logits", **CLASSES)
enter(
    "dinov2",
    "Dinov2Model",
    pixels(1, 3, 182, 238),
    HIDDEN,
    cut="6 of 12 layers",
    num_hidden_layers=6,
)
enter(
    "beit",
    f"Beit{image}",
    pixels(1, 3, 224, 224),
    "logits",
    cut="6 of 12 layers",
    num_hidden_layers=6,
    use_relative_position_bias=True,
    **CLASSES,
)
enter(
    "yolos",
    "YolosForObjectDetection",
    pixels(1, 3, 256, 432),
    "logits",
    "pred_boxes",
    cut="4 of 12 layers",
    num_hidden_layers=4,
    image_size=(256, 432),
)
enter(
    "detr",
    "DetrForObjectDetection",
    pixels(1, 3, 320, 416),
    "logits",
    "pred_boxes",
    cut="3 + 3 of 6 + 6 layers",
    encoder_layers=3,
    decoder_layers=3,
    use_timm_backbone=False,
    use_pretrained_backbone=False,
    backbone=None,
    backbone_config=transformers.ResNetConfig.from_dict({"out_features": ["stage4"]}),
)
enter(
    "dpt",
    "DPTForDepthEstimation",
    pixels(1, 3, 224, 224),
    "predicted_depth",
    cut="6 of 12 layers, image of 224",
    num_hidden_layers=6,
    backbone_out_indices=[1, 2, 4, 5],
    image_size=224,
)
enter(
    "sam_encoder",
    "SamVisionModel",
    pixels(1, 3, 512, 512),
    HIDDEN,
    config="SamVisionConfig",
    cut="4 of 12 layers, image of 512",
    num_hidden_layers=4,
    global_attn_indexes=[1, 3],
    image_size=512,
)
enter(
    "timesformer",
    "TimesformerModel",
    pixels(1, 8, 3, 112, 112),
    HIDDEN,
    cut="3 of 12 layers, image of 112",
    num_hidden_layers=3,
    image_size=112,
)


def masked_autoencoder() -> dict[str, Tensor]:
    """An image and the noise that orders its patches."""
    return {"pixel_values": torch.randn(1, 3, 224, 224), "noise": torch.rand(1, 196)}


enter(
    "vit_mae",
    "ViTMAEForPreTraining",
    masked_autoencoder,
    "logits",
    "mask",
    cut="4 + 4 of 12 + 8 layers",
    num_hidden_layers=4,
    decoder_num_hidden_layers=4,
)

# ── sound ────────────────────────────────────────────────────────────────────────────────────
enter(
    "hubert",
    "HubertModel",
    pixels(1, 31111, name="input_values"),
    HIDDEN,
    cut="4 of 12 layers",
    num_hidden_layers=4,
)
enter(
    "audio_spectrogram",
    "ASTForAudioClassification",
    pixels(1, 512, 128, name="input_values"),
    "logits",
    cut="4 of 12 layers, 512 frames",
    num_hidden_layers=4,
    max_length=512,
    num_labels=527,
)

# ── text: encoders ───────────────────────────────────────────────────────────────────────────
enter("electra", "ElectraModel", tokens(2, 71), HIDDEN, dynamic=TEXT)
enter(
    "mpnet",
    "MPNetModel",
    tokens(1, 93),
    HIDDEN,
    cut="6 of 12 layers",
    num_hidden_layers=6,
    dynamic=TEXT,
)
enter(
    "deberta_v2",
    "DebertaV2Model",
    tokens(1, 93),
    HIDDEN,
    cut="3 of 24 layers, vocabulary of 32000",
    num_hidden_layers=3,
    vocab_size=32000,
    relative_attention=True,
    pos_att_type=["c2p", "p2c"],
    position_buckets=256,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
)
enter(
    "funnel",
    "FunnelBaseModel",
    tokens(1, 96),
    HIDDEN,
    cut="blocks of 2 layers instead of 4",
    block_sizes=[2, 2, 2],
)
enter("fnet", "FNetModel", ids(1, 128), HIDDEN, cut="6 of 12 layers", num_hidden_layers=6)
enter(
    "roformer",
    "RoFormerModel",
    tokens(1, 101),
    HIDDEN,
    cut="6 of 12 layers, vocabulary of 30000",
    num_hidden_layers=6,
    vocab_size=30000,
)
enter(
    "longformer",
    "LongformerModel",
    tokens(1, 512),
    HIDDEN,
    cut="2 of 12 layers, windows of 128",
    num_hidden_layers=2,
    attention_window=[128, 128],
    max_position_embeddings=514,
)

# ── text: decoders ───────────────────────────────────────────────────────────────────────────
enter(
    "opt",
    "OPTModel",
    tokens(2, 33),
    HIDDEN,
    cut="6 of 12 layers",
    num_hidden_layers=6,
    fixed=NO_CACHE,
    dynamic=TEXT,
)
enter(
    "bloom",
    "BloomModel",
    tokens(1, 57),
    HIDDEN,
    cut="hidden size 1024, 4 layers, vocabulary of 32000 (as 560m)",
    hidden_size=1024,
    n_layer=4,
    n_head=16,
    vocab_size=32000,
    fixed=NO_CACHE,
)
enter(
    "phi",
    "PhiModel",
    ids(1, 61, 8000),
    HIDDEN,
    cut="2 of 24 layers, vocabulary of 8000",
    num_hidden_layers=2,
    vocab_size=8000,
    fixed=NO_CACHE,
)
enter(
    "qwen2",
    "Qwen2Model",
    ids(1, 65, 8000),
    HIDDEN,
    cut=QWEN2_CUT,
    **QWEN2,
    fixed=NO_CACHE,
)
enter(
    "mixtral",
    "MixtralModel",
    ids(1, 128, 8000),
    HIDDEN,
    cut="hidden size 512, 2 of 32 layers, vocabulary of 8000, experts as one product",
    hidden_size=512,
    intermediate_size=1792,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=4,
    vocab_size=8000,
    experts_implementation="batched_mm",
    fixed=NO_CACHE,
)
enter(
    "gemma",
    "GemmaModel",
    ids(1, 49, 8000),
    HIDDEN,
    cut="hidden size 2048 as 2B, 2 of 18 layers, vocabulary of 8000",
    hidden_size=2048,
    intermediate_size=16384,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=1,
    head_dim=256,
    vocab_size=8000,
    fixed=NO_CACHE,
)
enter(
    "gpt_neox",
    "GPTNeoXModel",
    ids(1, 83, 8000),
    HIDDEN,
    cut="as pythia-410m: 4 of 24 layers, vocabulary of 8000",
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=4,
    num_attention_heads=16,
    vocab_size=8000,
    fixed=NO_CACHE,
)
enter(
    "mamba",
    "MambaModel",
    ids(1, 24, 8000),
    HIDDEN,
    cut="4 of 32 layers, vocabulary of 8000",
    num_hidden_layers=4,
    vocab_size=8000,
    fixed=NO_CACHE,
)
enter(
    "rwkv",
    "RwkvModel",
    ids(1, 24, 8000),
    HIDDEN,
    cut="hidden size 768 as 169m, 4 of 12 layers, vocabulary of 8000",
    hidden_size=768,
    attention_hidden_size=768,
    num_hidden_layers=4,
    vocab_size=8000,
    fixed=NO_CACHE,
)


def two_texts() -> dict[str, Tensor]:
    """Ids of a text that is read and of one that is written."""
    return {
        "input_ids": torch.randint(0, 30000, (1, 47)),
        "decoder_input_ids": torch.randint(0, 30000, (1, 19)),
    }


enter(
    "bart",
    "BartModel",
    two_texts,
    HIDDEN,
    cut="3 + 3 of 12 + 12 layers, vocabulary of 30000",
    vocab_size=30000,
    encoder_layers=3,
    decoder_layers=3,
    fixed=NO_CACHE,
    dynamic={"input_ids": {1: "source"}, "decoder_input_ids": {1: "target"}},
)
enter("t5", "T5Model", two_texts, HIDDEN, fixed=NO_CACHE)


@final
class WhisperStep(nn.Module):
    """One step of Whisper's decoder over caches that are graph inputs and outputs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, token: Tensor, state: Tensor, *flat: Tensor) -> tuple[Tensor, ...]:
        """Return the hidden state, then the new keys and values."""
        pairs = list(zip(flat[0::2], flat[1::2], strict=True))
        half = len(pairs) // 2
        cache = EncoderDecoderCache(DynamicCache(pairs[:half]), DynamicCache(pairs[half:]))
        for layer in range(half):
            cache.is_updated[layer] = True
        position = torch.full_like(token, pairs[0][0].shape[2])
        result = self.inner(
            input_ids=token,
            encoder_hidden_states=state,
            past_key_values=cache,
            position_ids=position,
            use_cache=True,
        )
        layers = result.past_key_values.self_attention_cache.layers
        halves = [value for layer in layers for value in (layer.keys, layer.values)]
        return (result.last_hidden_state, *halves)


def whisper_step() -> Example:
    """Whisper-tiny's decoder, one token after 31 in the cache, 1500 frames heard."""
    inner = stir(transformers.WhisperModel(transformers.WhisperConfig()).decoder)
    own = cache_inputs(4, 6, 31, 64)
    heard = {f"heard_{name}": value for name, value in cache_inputs(4, 6, 1500, 64).items()}
    inputs = {"token": torch.randint(0, 50000, (1, 1)), "state": torch.randn(1, 1500, 384)}
    return Example(module=WhisperStep(inner), inputs=inputs | own | heard)


FAMILIES["whisper_step"] = Family(build=whisper_step)


def qwen2_step() -> Example:
    """One token of a Qwen2 decoder of 0.5B's width after 63 in the cache."""
    config = transformers.Qwen2Config(**QWEN2)
    inner = stir(transformers.Qwen2Model(config))
    token = {"input_ids": torch.randint(0, 8000, (1, 1))}
    past = cache_inputs(3, 2, 63, 64)
    dynamic = {name: {2: "past"} for name in past}
    module = CachedDecoder(inner, "input_ids", HIDDEN)
    return Example(module=module, inputs=token | past, dynamic=dynamic)


FAMILIES["qwen2_step"] = Family(build=qwen2_step, cut=QWEN2_CUT)


def shufflenet() -> Example:
    """ShuffleNet v2, as torchvision has it."""
    return Example(module=stir(ShuffleNet()), inputs={"x": torch.randn(1, 3, 224, 224)})


FAMILIES["shufflenet"] = Family(build=shufflenet)
