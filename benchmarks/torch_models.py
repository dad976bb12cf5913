"""Models of PyTorch at their real sizes: compiled from torch beside inductor, and beside their ONNX export compiled by us.

Random weights, one thread, tensors in and out of all three, calls in turns; each figure is the median of the processor
time of a call (on a machine with others the least is steadier: `--least`).  Bars, as geometric means: 0.75 of inductor's
time, 1.02 of the ONNX export's.  Needs the extra `torch`, `onnxscript` and a C++ compiler::

    TILEWRIGHT_THREADS=1 python benchmarks/torch_models.py
    TILEWRIGHT_THREADS=1 python benchmarks/torch_models.py --only bert resnet --no-inductor
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tilewright as tw

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")

ROUNDS: Final = 15
SECONDS: Final = 20.0
"""A model gets no more time than this for its calls."""
BARS: Final = {"inductor": 0.75, "onnx": 1.02}
_SUMMARY: Final = "Models of PyTorch beside inductor and beside their ONNX export."
Made = tuple[Any, tuple[Any, ...]]


def _tokens(length: int, words: int = 30_000) -> Any:
    return torch.randint(5, words, (1, length))


def _pixels(size: int = 224) -> Any:
    return torch.randn(1, 3, size, size)


class First(torch.nn.Module):
    """The first result of a model, which is all that an export needs."""

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, *arguments: Any) -> Any:
        """The first of what the model gives."""
        return self.model(*arguments, **self.options)[0]


def _of(family: str, kind: str, arguments: tuple[Any, ...], **sizes: Any) -> Made:
    """A model of transformers with its default configuration, or with these sizes."""
    config = getattr(transformers, f"{family}Config")(**sizes)
    return First(getattr(transformers, kind)(config), return_dict=False), arguments


def _network(name: str, size: int) -> Made:
    """A network of images in the style of torchvision's."""
    tools = str(Path(__file__).resolve().parents[1] / "tools")
    sys.path.append(tools)
    networks: Any = importlib.import_module("torch_networks")
    build, _ = networks.NETWORKS[name]
    return build(), (_pixels(size),)


def _decoder(family: str, kind: str, **sizes: Any) -> Made:
    """Scores of every place of a prompt, without a cache."""
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, kind)(config)
    return First(model, use_cache=False, return_dict=False), (_tokens(64),)


def _whisper() -> Made:
    """The encoder of the tiny one, over thirty seconds."""
    sizes = {
        "d_model": 384,
        "encoder_layers": 4,
        "encoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
    }
    config = transformers.WhisperConfig(**sizes)
    model = transformers.WhisperModel(config).get_encoder()
    return First(model, return_dict=False), (torch.randn(1, 80, 3000),)


MODELS: Final[Mapping[str, Callable[[], Made]]] = {
    "bert-base": lambda: _of("Bert", "BertModel", (_tokens(128),)),
    "distilbert": lambda: _of("DistilBert", "DistilBertModel", (_tokens(128),)),
    "modernbert-base": lambda: _of("ModernBert", "ModernBertModel", (_tokens(128),)),
    "gpt2-small": lambda: _decoder("GPT2", "GPT2LMHeadModel"),
    "llama-6-layers": lambda: _decoder(
        "Llama", "LlamaForCausalLM", hidden_size=768, intermediate_size=2048,
        num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4, vocab_size=32000,
    ),
    "t5-small-encoder": lambda: _of("T5", "T5EncoderModel", (_tokens(128),)),
    "vit-base": lambda: _of("ViT", "ViTModel", (_pixels(),)),
    "dinov2-base": lambda: _of("Dinov2", "Dinov2Model", (_pixels(),)),
    "swin-tiny": lambda: _of("Swin", "SwinModel", (_pixels(),)),
    "resnet-50": lambda: _of("ResNet", "ResNetModel", (_pixels(),)),
    "convnext-tiny": lambda: _of("ConvNext", "ConvNextModel", (_pixels(),)),
    "mobilenet-v2": lambda: _of("MobileNetV2", "MobileNetV2Model", (_pixels(),)),
    "segformer-b0": lambda: _of("Segformer", "SegformerModel", (_pixels(512),)),
    "whisper-tiny-encoder": _whisper,
    "wav2vec2-base": lambda: _of("Wav2Vec2", "Wav2Vec2Model", (torch.randn(1, 16000),)),
    "unet-bilinear": lambda: _network("U-Net style, bilinear", 128),
}  # fmt: skip


def main() -> int:
    """Print a row per model and the geometric means.  Returns: models that failed and bars that were missed."""
    parser = argparse.ArgumentParser(description=_SUMMARY)
    parser.add_argument(
        "--only", nargs="*", default=[], help="models whose name has one of these"
    )
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument(
        "--least", action="store_true", help="the least time, not the median"
    )
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(
            json.dumps(
                measured(options.one, inductor=not options.no_inductor, least=options.least)
            )
        )
        return 0
    names = [n for n in MODELS if not options.only or any(w in n for w in options.only)]
    found = [_in_a_process(name, sys.argv[1:]) for name in names]
    rows = [row for row in found if row is not None]
    return len(found) - len(rows) + bars_missed(rows)


def bars_missed(rows: Sequence[Mapping[str, float]]) -> int:
    """Print the geometric means beside their bars.  Returns: how many are above."""
    missed = 0
    for other, bar in BARS.items():
        ratios = [row["ours"] / row[other] for row in rows if other in row]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            missed += mean > bar
            print(
                f"{len(ratios)} models, geometric mean to {other}: {mean:.3f} (bar {bar})"
            )
    return missed


def _in_a_process(name: str, arguments: Sequence[str]) -> dict[str, float] | None:
    """One model, whose memory is given back afterwards."""
    flags = [a for a in arguments if a.startswith("--") and a != "--only"]
    command = [sys.executable, __file__, "--one", name, *flags]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["nothing"])[-1]
        print(f"{name:24}{last[:120]}", flush=True)
        return None
    found: dict[str, float] = json.loads(ended.stdout.strip().splitlines()[-1])
    times = "".join(f"{other} {value * 1e3:9.2f} ms   " for other, value in found.items())
    ratios = [f"{found['ours'] / found[o]:.2f} of {o}" for o in BARS if o in found]
    print(f"{name:24}{times}{', '.join(ratios)}", flush=True)
    return found


def measured(name: str, *, inductor: bool, least: bool) -> dict[str, float]:
    """Seconds of processor time of a call, by who runs it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    module, arguments = MODELS[name]()
    module = module.eval()
    with torch.no_grad():
        wanted = module(*arguments)
        calls: dict[str, Callable[[], Any]] = {}
        model = tw.compile(module, args=arguments, threads=1)
        calls["ours"] = lambda: model(*arguments)
        calls["onnx"] = _exported(module, arguments)
        if inductor:
            compiled = torch.compile(module)
            calls["inductor"] = lambda: compiled(*arguments)
        for other, call in calls.items():
            check(name, other, call(), wanted)
        return _times(calls, least=least)


def _exported(module: Any, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """The ONNX export, compiled by us, called with tensors."""
    target = io.BytesIO()
    torch.onnx.export(module, arguments, dynamo=True, verbose=False).save(target)
    model = tw.compile(target.getvalue(), threads=1)
    to_tensor = torch.from_numpy

    def call() -> Any:
        found = model(*(argument.numpy() for argument in arguments))
        return to_tensor(found[0] if isinstance(found, list | tuple) else found)

    return call


def check(name: str, other: str, found: Any, wanted: Any) -> None:
    """Raises: AssertionError for a result that is not what eager mode gives."""
    gap = float((found - wanted).abs().max() / wanted.abs().max())
    if not gap < 1e-3:
        raise AssertionError(f"{name}: {other} is {gap:.1e} from eager mode")


def _times(calls: Mapping[str, Callable[[], Any]], *, least: bool) -> dict[str, float]:
    for call in calls.values():
        call()
    found: dict[str, list[float]] = {other: [] for other in calls}
    begin = time.monotonic()
    for _ in range(ROUNDS):
        for other, call in calls.items():
            start = time.process_time()
            call()
            found[other].append(time.process_time() - start)
        if time.monotonic() - begin > SECONDS and len(found["ours"]) > 2:
            break
    choose = min if least else statistics.median
    return {other: choose(values) for other, values in found.items()}


if __name__ == "__main__":
    sys.exit(main())
