"""What is measured, and the bar that each figure must pass.

What it is: the one table of models and bars.
What it is not: a measurement (``measure.py``, ``processes.py``).
Who calls it: ``rows.py`` and ``bench.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from tilewright.base.target import Target

OURS: Final = "tilewright"
LEVELS: Final = "tilewright-levels"
ROUNDED: Final = "tilewright-bf16"
PEER: Final = "onnxruntime"
PEERS: Final = (PEER, "openvino")
CONTENDERS: Final = (OURS, *PEERS)


@final
@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model that is timed in rounds.

    Attributes:
        measure: "peak" (share of the FMA peak), "stream" (share of streaming read) or "peer"
            (our time over that of the faster peer).
        bar: a least share, or a most ratio; None for rows that only inform.
    """

    subset: str
    model: str
    title: str
    measure: str
    bar: float | None = None


@final
@dataclass(frozen=True, slots=True)
class TwinRow:
    """A model in few bits whose time is held against that of the model in f32 that it was made from."""

    model: str
    twin: str
    title: str
    bar: float


HOST: Final = Target.host()
INT8_BAR: Final = 0.45 if HOST.features & {"avx512vnni", "avxvnni"} else 0.65
"""Lower where four products of bytes are one instruction."""

MODEL_ROWS: Final = (
    ModelRow("ops", "matmul_1024", "matmul 1024³", "peak", 0.92),
    ModelRow(
        "ops",
        "matmul_128x768x3072",
        "matmul 128×768×3072, constant right operand",
        "peak",
        0.92,
    ),
    ModelRow(
        "ops", "matmul_128x768x768", "matmul 128×768×768, constant right operand", "peak"
    ),
    ModelRow("ops", "conv3x3_64_56", "conv 3×3 64→64 at 56×56", "peak", 0.88),
    ModelRow("ops", "depthwise3x3_144_56", "depthwise 3×3, 144 ch, 56×56", "peer"),
    ModelRow("ops", "gemv_4096", "gemv 4096²", "stream"),
    ModelRow("ops", "softmax_12x128x128", "softmax 12×128×128", "peer"),
    ModelRow("ops", "layernorm_128x768", "layer norm 128×768", "peer"),
    ModelRow("ops", "mlp_b1", "MLP 784-256-256-10, batch 1, call from Python", "peer", 1.0),
    ModelRow("ops", "mlp_b64", "MLP, batch 64", "peer"),
    ModelRow("int8", "resnet50_qdq", "ResNet-50 int8", "peer", 0.9),
    ModelRow("int8", "bert_base_qdq", "BERT-base int8", "peer", 0.9),
    ModelRow("int8", "mobilenetv2_qdq", "MobileNetV2 int8", "peer", None),
    ModelRow("int8", "minilm_l6_dynamic", "MiniLM dynamic int8", "peer", None),
    ModelRow("int8", "gpt2_decode_int4", "GPT-2 decode, weights int4", "peer", None),
    ModelRow("int8", "llama_decode_int4", "Llama-style decode, weights int4", "peer", None),
    ModelRow(
        "int8",
        "gpt2_decode_int4_int8",
        "GPT-2 decode, weights int4, activations int8",
        "peer",
        None,
    ),
    ModelRow(
        "int8",
        "llama_decode_int4_int8",
        "Llama-style decode, weights int4, activations int8",
        "peer",
        None,
    ),
    ModelRow("models", "resnet50", "ResNet-50", "peer", 0.85),
    ModelRow("models", "resnet18_odd", "ResNet-18, 203×251", "peer", 0.85),
    ModelRow("models", "regnet", "RegNetY-040", "peer", 0.85),
    ModelRow("models", "bert_base", "BERT-base, 128 tokens", "peer", 0.82),
    ModelRow("models", "vit_b16", "ViT-B/16", "peer", 0.82),
    ModelRow("models", "minilm_l6", "MiniLM-L6 3×41, symbolic dims", "peer", 0.82),
    ModelRow("models", "gpt2_prefill", "GPT-2 prefill, 128 tokens", "peer", 0.82),
    ModelRow("models", "swin_tiny", "Swin-tiny", "peer", 0.82),
    ModelRow("models", "clip_vision", "CLIP ViT-B/32, images", "peer", 0.82),
    ModelRow("models", "t5_encoder", "T5-small encoder", "peer", 0.82),
    ModelRow("models", "wav2vec2", "wav2vec 2.0 base", "peer", 0.82),
    ModelRow("models", "mobilenetv2", "MobileNetV2", "peer", 0.80),
    ModelRow("models", "convnext_tiny", "ConvNeXt-tiny", "peer", 0.80),
    ModelRow("models", "efficientnet_b0", "EfficientNet-B0", "peer", 0.80),
    ModelRow("models", "segformer_b0", "SegFormer-B0", "peer", 0.80),
    ModelRow("models", "yolo_detector", "YOLO-style detector", "peer", 0.80),
    ModelRow("models", "whisper_tiny_encoder", "Whisper-tiny encoder", "peer", 0.65),
    ModelRow("models", "unet_diffusion", "U-Net of a diffusion model", "peer", 1.0),
    ModelRow("decode", "gpt2_decode", "GPT-2 decode", "stream", 0.95),
    ModelRow("decode", "llama_decode", "Llama-style decode", "stream", 0.95),
)
MEAN_BAR: Final = 0.78
"""For the geometric mean over the models and decoders, our time over the faster peer's."""
MEAN_SUBSETS: Final = ("models", "decode")
TWIN_ROWS: Final = (
    TwinRow("resnet50_qdq", "resnet50", "ResNet-50 int8", INT8_BAR),
    TwinRow("bert_base_qdq", "bert_base", "BERT-base int8", INT8_BAR),
    TwinRow("gpt2_decode_int4", "gpt2_decode", "GPT-2 decode, weights int4", 0.25),
    TwinRow("llama_decode_int4", "llama_decode", "Llama-style decode, weights int4", 0.25),
    TwinRow(
        "gpt2_decode_int4_int8",
        "gpt2_decode",
        "GPT-2 decode, weights int4, activations int8",
        0.25,
    ),
    TwinRow(
        "llama_decode_int4_int8",
        "llama_decode",
        "Llama-style decode, weights int4, activations int8",
        0.25,
    ),
)
ROUNDED_MODELS: Final = ("bert_base",)
ROUNDED_BAR: Final = 0.60 if HOST.features & {"avx512bf16"} else None
"""Of operands in bf16 against f32, where the processor multiplies pairs of them."""
ROUNDED_ERROR: Final = 3e-2
"""An operand of 8 significant bits is off by 2^-9; sums of a hundred layers of them by some times that."""
LEVEL_MODELS: Final = ("resnet50", "bert_base", "mobilenetv2")
LEVEL_BAR: Final = 1.03
"""Of one artifact for several x86-64 levels against one for the host."""
THREAD_ROWS: Final = (("resnet50", "ResNet-50"), ("bert_base", "BERT-base"))
THREAD_BAR: Final = 0.6
COMPILED_MODEL: Final = "resnet50"
COMPILE_BARS_S: Final = (3.5, 1.0, 0.150)
IMPORT_BARS_S: Final = (("tilewright", 0.150), ("tilewright.runtime", 0.080))
MEMORY_MODELS: Final = ("resnet50", "bert_base")
