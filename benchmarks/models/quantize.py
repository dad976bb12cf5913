"""Quantize models of the set with onnxruntime, weights of decoders with `tilewright.quantize`.

What it is: a step of ``make models``.  Per model and form it writes ``MODEL_FORM.onnx`` with the inputs
of the model, and as reference outputs those of onnxruntime without rewriting, of exact products.
What it is not: part of the package, or a judgement of accuracy; weights are random as in the set.
Who calls it: developers and ``make models``::

    python benchmarks/models/quantize.py build/models resnet50_qdq
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

import tilewright
from exact_products import with_unsigned_weights

SAMPLES: Final = 2
MODELS: Final = ("resnet50", "mobilenetv2", "bert_base", "minilm_l6")
DECODERS: Final = ("gpt2_decode", "llama_decode")
DECODER_FORMS: Final = {"int4": False, "int4_int8": True}
"""By suffix: whether activations may be rounded to 8 bits where they meet weights of 4."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a model is quantized; ``suffix`` tells the file."""

    suffix: str
    activations: QuantType = QuantType.QUInt8
    weights: QuantType = QuantType.QInt8
    style: QuantFormat = QuantFormat.QDQ
    per_channel: bool = True
    dynamic: bool = False
    symmetric_weights: bool = True


FORMS: Final = (
    Form(suffix="qdq"),
    Form(suffix="qdq_s8s8", activations=QuantType.QInt8),
    Form(
        suffix="qdq_u8u8",
        weights=QuantType.QUInt8,
        per_channel=False,
        symmetric_weights=False,
    ),
    Form(suffix="qoperator", style=QuantFormat.QOperator),
    Form(suffix="dynamic", dynamic=True),
)


class _Samples(CalibrationDataReader):
    """The inputs of the set, and noise of their kind."""

    def __init__(self, inputs: dict[str, np.ndarray]) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter(
            [_varied(inputs, seed) for seed in range(SAMPLES)]
        )

    def get_next(self) -> dict[str, np.ndarray]:
        """One sample after the other; nothing after the last."""
        return next(self._feeds, {})


def _varied(inputs: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The inputs themselves first, then floats like them; whole numbers stay."""
    rng = np.random.default_rng(seed)
    return {
        name: (
            rng.standard_normal(x.shape).astype(x.dtype)
            if seed and x.dtype.kind == "f"
            else x
        )
        for name, x in inputs.items()
    }


def quantize(model: str, form: Form, folder: Path) -> str:
    """Write one quantized model with its inputs and outputs; a line about it."""
    source = folder / f"{model}.onnx"
    target = folder / f"{model}_{form.suffix}.onnx"
    with np.load(folder / f"{model}.inputs.npz") as archive:
        inputs = {name: archive[name] for name in archive.files}
    with tempfile.TemporaryDirectory() as scratch:
        prepared = Path(scratch) / "prepared.onnx"
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if form.dynamic:
            quantize_dynamic(
                prepared, target, weight_type=form.weights, per_channel=form.per_channel
            )
        else:
            quantize_static(
                prepared,
                target,
                _Samples(inputs),
                quant_format=form.style,
                activation_type=form.activations,
                weight_type=form.weights,
                per_channel=form.per_channel,
                extra_options={"WeightSymmetric": form.symmetric_weights},
            )
    _write_companions(folder, model, target, inputs, rounds_activations=True)
    return f"{target.stem:28} {target.stat().st_size / 1e6:7.1f} MB"


def quantize_decoder(model: str, suffix: str, folder: Path) -> str:
    """Write one decoder with weights of 4 bits, with its inputs and outputs; a line about it."""
    target = folder / f"{model}_{suffix}.onnx"
    rounds = DECODER_FORMS[suffix]
    with np.load(folder / f"{model}.inputs.npz") as archive:
        inputs = {name: archive[name] for name in archive.files}
    tilewright.quantize(folder / f"{model}.onnx", target, int8_activations=rounds)
    _write_companions(folder, model, target, inputs, rounds_activations=rounds)
    return f"{target.stem:28} {target.stat().st_size / 1e6:7.1f} MB"


def _write_companions(
    folder: Path,
    model: str,
    target: Path,
    inputs: dict[str, np.ndarray],
    *,
    rounds_activations: bool,
) -> None:
    """The facts, inputs and outputs beside a model, as ``export.py`` writes them.

    Where activations are rounded to bytes, a sum between two of them may fall to either: how far rounding is off
    as a whole is a fact that results are held to.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    loaded = onnx.load(target)
    exact_model = with_unsigned_weights(loaded).SerializeToString()
    session = onnxruntime.InferenceSession(exact_model, options, ["CPUExecutionProvider"])
    outputs = [np.asarray(value) for value in session.run(None, inputs)]
    facts = json.loads((folder / f"{model}.json").read_text())
    nodes = loaded.graph.node
    facts |= {
        "name": target.stem,
        "onnx_bytes": target.stat().st_size,
        "nodes": len(nodes),
        "quantized_from": model,
    }
    if rounds_activations:
        with np.load(folder / f"{model}.ref.npz") as archive:
            exact = [archive[name] for name in archive.files]
        facts["rounding_error"] = max(map(_relative_error, outputs, exact))
    target.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    np.savez(target.with_suffix(".inputs.npz"), allow_pickle=False, **inputs)
    named = {f"o{index}": value for index, value in enumerate(outputs)}
    np.savez(target.with_suffix(".ref.npz"), allow_pickle=False, **named)


def _relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """The Frobenius norm of the difference in that of `want`: what quantizing itself costs."""
    difference = np.linalg.norm((got.astype(np.float64) - want).ravel())
    return float(difference / (np.linalg.norm(want.ravel()) + 1e-30))


def main() -> int:
    """Quantize what is named, or everything that is not there yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for model in MODELS:
        for form in FORMS:
            name = f"{model}_{form.suffix}"
            is_made = (options.folder / f"{name}.ref.npz").exists()
            if name in options.names or (not options.names and not is_made):
                print(quantize(model, form, options.folder), flush=True)
    for model in DECODERS:
        for suffix in DECODER_FORMS:
            name = f"{model}_{suffix}"
            is_made = (options.folder / f"{name}.ref.npz").exists()
            if name in options.names or (not options.names and not is_made):
                print(quantize_decoder(model, suffix, options.folder), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
