"""Some hundred models of every format that a front end reads, with inputs: for what is said of any model.

ONNX's own cases (also those that are refused), random models with control flow, networks; StableHLO texts and
artifacts; language models as GGUF; modules of PyTorch where it is installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fakes import onnx_suite, small_models, small_networks, stablehlo_suites
from fakes.language_models import Form
from fuzz.flow.models import make_case
from tilewright.base import dtypes

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NODE_STRIDE, OTHER_STRIDE, HLO_STRIDE, FLOW = 16, 9, 60, 40


@dataclass(frozen=True, eq=False)
class Sample:
    """A model.

    Attributes:
        source: what `compile` takes, made when it is asked for.
        inputs: of a call, by name; None: it has none, or any will do.
        options: for `compile` and `coverage`.
    """

    name: str
    source: Callable[[], Any]
    inputs: Callable[[], Mapping[str, np.ndarray] | None] = lambda: None
    options: Callable[[], Mapping[str, Any]] = dict


def samples() -> dict[str, Sample]:
    """All of them by name."""
    every = (*_onnx_cases(), *_flow(), *_networks(), *_stablehlo(), *_gguf(), *_torch())
    return {sample.name: sample for sample in every}


def _onnx_cases() -> Iterator[Sample]:
    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator"):
        stride = NODE_STRIDE if kind == "node" else OTHER_STRIDE
        for name in onnx_suite.names(kind)[::stride]:
            yield _onnx_case(kind, name)
    # Some that are refused: strings, images, sequences, gradients, randomness, an old opset.
    for name in (
        "test_string_concat", "test_strnormalizer_nostopwords_nochangecase", "test_equal_string",
        "test_image_decoder_decode_jpeg_rgb", "test_sequence_insert_at_back", "test_identity_opt",
        "test_if_opt", "test_loop13_seq", "test_sequence_map_identity_1_sequence",
        "test_regex_full_match_basic", "test_not_2d",
    ):  # fmt: skip
        yield _onnx_case("node", name)


def _onnx_case(kind: str, name: str) -> Sample:
    def case() -> onnx_suite.Case:
        return onnx_suite.cases(kind, name)[0]

    def inputs() -> Mapping[str, np.ndarray]:
        return {n: np.asarray(v) for n, v in case().inputs.items()}

    return Sample(f"onnx {kind} {name}", lambda: case().model, inputs)


def _flow() -> Iterator[Sample]:
    for number in range(FLOW):
        yield Sample(
            f"flow {number}",
            lambda n=number: make_case(n).model,
            lambda n=number: make_case(n).calls[-1],
        )


def _networks() -> Iterator[Sample]:
    f32 = dtypes.f32
    models: dict[str, Callable[[], Any]] = {
        "attention": lambda: small_networks.attention(f32),
        "convolutions": lambda: small_networks.convolutions(f32),
        "recurrent": lambda: small_networks.recurrent(f32),
        "decoder": lambda: small_networks.decoder(dtypes.f16),
        "quantized": small_networks.quantized,
        "control": small_networks.control,
        "mlp": small_models.mlp,
    }
    for name, make in models.items():
        yield Sample(f"network {name}", make)
    for path in onnx_suite.light_models():
        yield Sample(f"light {path.stem}", lambda p=path: p)


def _stablehlo() -> Iterator[Sample]:
    for path in sorted((GOLDEN / "stablehlo").glob("*.mlirbc")):
        yield Sample(f"stablehlo {path.name}", lambda p=path: p)
    if not stablehlo_suites.is_there():
        return
    for suite, stride in (("interpret", 4), ("testdata", HLO_STRIDE)):
        for name in sorted(stablehlo_suites.texts(suite))[::stride]:
            yield Sample(
                f"stablehlo {suite} {name}",
                lambda s=suite, n=name: stablehlo_suites.texts(s)[n].encode(),
            )


def _gguf() -> Iterator[Sample]:
    forms: dict[str, Callable[[], Form]] = {
        "floats": Form,
        "Q4_1": lambda: Form(kinds={"weight": "Q4_1"}),
        "Q4_0": lambda: Form(kinds={"weight": "Q4_0"}),
        "Q8_0": lambda: Form(kinds={"weight": "Q8_0"}),
        "Q5_0": lambda: Form(kinds={"weight": "Q5_0"}),
        "qwen2": lambda: Form(architecture="qwen2", biases=True),
        "qwen3": lambda: Form(architecture="qwen3", head_norms=True),
        "phi3": lambda: Form(architecture="phi3", fused=True),
        "mamba": lambda: Form(metadata={"general.architecture": "mamba"}),
    }
    for name, form in forms.items():
        yield Sample(f"gguf {name}", lambda f=form: f().data())


def _torch() -> Iterator[Sample]:
    """One of PyTorch's functions each; `svd`, for one, is refused or runs on the host."""
    if importlib.util.find_spec("torch") is None:
        return
    for name in (
        "linear",
        "softmax",
        "sort",
        "quantile",
        "fft",
        "svd",
        "bessel",
        "nonzero",
    ):
        yield Sample(f"torch {name}", lambda n=name: _module(n), options=_arguments)


def _arguments() -> Mapping[str, Any]:
    import torch

    return {"args": (torch.ones(3, 4),)}


def _module(name: str) -> Any:
    import torch
    from torch import nn

    class Chosen(nn.Module):
        def forward(self, x: Any) -> Any:
            return functions[name](x)

    functions: dict[str, Callable[[Any], Any]] = {
        "softmax": lambda x: torch.einsum("ij,kj->ik", x, x).softmax(-1),
        "sort": lambda x: torch.sort(x, -1),
        "quantile": lambda x: torch.quantile(x, 0.5),
        "fft": lambda x: torch.fft.rfft(x).abs(),
        "svd": torch.linalg.svdvals,
        "bessel": torch.special.bessel_j0,
        "nonzero": torch.nonzero,
    }
    linear = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5))
    return (linear if name == "linear" else Chosen()).eval()
