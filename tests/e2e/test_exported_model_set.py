"""Every model of the set runs from C, without Python, and computes what its session computes, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

import exported_library
from fakes.exported_library import c_compiler

SAMPLE = ("bert_base_dynamic", "gpt2_decode", "minilm_l6", "mobilenetv2", "resnet50")
OTHERS = (
    "bert_base", "conv3x3_64_56", "convnext_tiny", "depthwise3x3_144_56", "gemv_4096", "gpt2_prefill",
    "layernorm_128x768", "llama_decode", "matmul_1024", "matmul_128x768x3072", "matmul_128x768x768",
    "mlp_b1", "mlp_b64", "softmax_12x128x128", "unet_diffusion", "vit_b16", "whisper_tiny_encoder",
    "yolo_detector",
)  # fmt: skip


def check(name: str, models_folder: Path) -> None:
    c_compiler()
    path = models_folder / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"'{name}' was not exported; run 'make models'")
    _, is_equal = exported_library.measure(path, threads=2, seconds=0.01)
    assert is_equal


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_model_of_the_set_runs_from_c(name: str, models_folder: Path) -> None:
    check(name, models_folder)


@pytest.mark.nightly
@pytest.mark.parametrize("name", OTHERS)
def test_every_other_model_of_the_set_runs_from_c(name: str, models_folder: Path) -> None:
    check(name, models_folder)
