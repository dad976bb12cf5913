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
import sys
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
from place_files import check_space, files_of_model

SAMPLES: Final = 2
COPIES_OF_SOURCE: Final = 2
"""Of the whole model, which onnxruntime holds in temporary files at once: the prepared one, and that of a step."""
BYTES_TO_ONE: Final = 2
"""A form takes less than one byte in so many of its source: weights become 8 or 4 bits, tables may stay f32."""
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

NAMES: Final = (
    *(f"{model}_{form.suffix}" for model in MODELS for form in FORMS),
    *(f"{model}_{suffix}" for model in DECODERS for suffix in DECODER_FORMS),
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


def quantize(model: str, forms: list[Form], folder: Path) -> Iterator[str]:
    """Write one model in several forms with its inputs and outputs; a line about each.

    Raises: NoSpaceError before the first where there is no room for all.
    """
    source = folder / f"{model}.onnx"
    inputs = _arrays(folder / f"{model}.inputs.npz")
    size = source.stat().st_size
    scratch_folder = Path(tempfile.gettempdir())
    needed = {scratch_folder: COPIES_OF_SOURCE * size}
    needed[folder] = needed.get(folder, 0) + len(forms) * size // BYTES_TO_ONE
    check_space(f"{model} in {len(forms)} forms", needed)
    with tempfile.TemporaryDirectory() as scratch:
        prepared = Path(scratch) / "prepared.onnx"
        # Types and shapes are inferred by the quantizers again, which saves a copy of the model here.
        quant_pre_process(source, prepared, skip_symbolic_shape=True, skip_onnx_shape=True)
        for form in forms:
            with files_of_model(folder) as unfinished:
                target = unfinished / f"{model}_{form.suffix}.onnx"
                _write_quantized(prepared, target, form, inputs)
                _write_companions(folder, model, target, inputs, rounds_activations=True)
                line = f"{target.stem:28} {target.stat().st_size / 1e6:7.1f} MB"
            yield line


def _write_quantized(
    prepared: Path, target: Path, form: Form, inputs: dict[str, np.ndarray]
) -> None:
    if form.dynamic:
        quantize_dynamic(
            prepared, target, weight_type=form.weights, per_channel=form.per_channel
        )
        return
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


def quantize_decoder(model: str, suffix: str, folder: Path) -> str:
    """Write one decoder with weights of 4 bits, with its inputs and outputs; a line about it."""
    source = folder / f"{model}.onnx"
    rounds = DECODER_FORMS[suffix]
    check_space(f"{model}_{suffix}", {folder: source.stat().st_size // BYTES_TO_ONE})
    inputs = _arrays(folder / f"{model}.inputs.npz")
    with files_of_model(folder) as unfinished:
        target = unfinished / f"{model}_{suffix}.onnx"
        tilewright.quantize(source, target, int8_activations=rounds)
        _write_companions(folder, model, target, inputs, rounds_activations=rounds)
        return f"{target.stem:28} {target.stat().st_size / 1e6:7.1f} MB"


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


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
        exact = _arrays(folder / f"{model}.ref.npz").values()
        facts["rounding_error"] = max(map(_relative_error, outputs, exact))
    target.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    np.savez(target.with_suffix(".inputs.npz"), allow_pickle=False, **inputs)
    named = {f"o{index}": value for index, value in enumerate(outputs)}
    np.savez(target.with_suffix(".ref.npz"), allow_pickle=False, **named)


def _relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """The Frobenius norm of the difference in that of `want`: what quantizing itself costs."""
    difference = np.linalg.norm((got.astype(np.float64) - want).ravel())
    return float(difference / (np.linalg.norm(want.ravel()) + 1e-30))


def _lines(folder: Path, names: list[str], *, again: bool) -> Iterator[str]:
    """Make what is named, or everything; what is there already is made again or left."""

    def is_wanted(name: str) -> bool:
        is_there = (folder / f"{name}.ref.npz").exists()
        return (not names or name in names) and (again or not is_there)

    for model in MODELS:
        forms = [form for form in FORMS if is_wanted(f"{model}_{form.suffix}")]
        if forms:
            yield from quantize(model, forms, folder)
    for model in DECODERS:
        for suffix in DECODER_FORMS:
            if is_wanted(f"{model}_{suffix}"):
                yield quantize_decoder(model, suffix, folder)


def main() -> int:
    """Quantize what is named, or everything that is not there yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "names", nargs="*", help="models to quantize again; default: those missing"
    )
    parser.add_argument(
        "--missing", action="store_true", help="of those named, too, only those missing"
    )
    options = parser.parse_intermixed_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no model '{unknown[0]}'; expected {', '.join(NAMES)}")
    logging.disable(logging.WARNING)
    try:
        again = bool(options.names) and not options.missing
        for line in _lines(options.folder, options.names, again=again):
            print(line, flush=True)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
