"""Make the weights of a model smaller.

Called by users (`tilewright.quantize`) and the CLI; what is rounded, and how, is the front end's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.base.errors import UserError
from tilewright.base.output_file import check_output, is_regular_output, open_output
from tilewright.compiler.compile_options import SILENT, Progress
from tilewright.compiler.frontends import onnx
from tilewright.compiler.frontends.onnx.quantize_weights import (
    KeptNode,
    QuantizedModel,
    QuantizedNode,
    WeightFormat,
    quantize_weights,
    serialized,
)

__all__ = ["KeptNode", "QuantizedModel", "QuantizedNode", "quantize"]


def quantize(  # noqa: PLR0913 - keyword-only options
    model: onnx.Source,
    output: str | Path | None = None,
    *,
    bits: int = 4,
    block: int = 32,
    symmetric: bool = True,
    int8_activations: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    progress: Progress = SILENT,
) -> QuantizedModel:
    """Store the weights of products (`MatMul`, `Gemm`) in 4 or 8 bits, a scale to each block of them.

    Args:
        model: an ONNX model: a path, bytes or proto.
        output: where to write the new model (.onnx); None: it is only returned.
        bits: of a weight, 4 or 8.
        block: weights along the sum that share a scale: 16, 32, 64, 128 or 256.
        symmetric: zero is the middle of the range; else each block has a zero point, which costs half a
            byte or one and makes errors smaller where weights have one sign.
        int8_activations: permit in the model that activations are rounded to 8 bits where they meet these weights
            (`accuracy_level` 4): two to three times as fast on AVX2; each is off by at most a 254th of the largest of 32 beside it.
        include: patterns of names of nodes, such as `*mlp*`; none: every product.
        exclude: patterns of names of nodes that keep their weights.
        progress: who watches.

    Returns: the model (`.model`, for `tilewright.compile`), what became of each product (`.nodes`, `.kept`),
        and the bytes of all weights before and after.
    Raises: UserError for options that do not fit, and files that cannot be written; ModelError for models
        without products by known weights.
    """
    form = WeightFormat(
        bits=bits,
        block=block,
        symmetric=symmetric,
        int8_activations=int8_activations,
        include=tuple(include),
        exclude=tuple(exclude),
    )
    inputs = [model] if isinstance(model, str | Path) else []
    if output is not None:
        if is_regular_output(output) and Path(output).suffix.lower() != ".onnx":
            raise UserError(
                "is no name of an ONNX model, expected one that ends in .onnx",
                location=output,
            )
        check_output(output, inputs=inputs)
    progress.phase("quantize")
    found = quantize_weights(model, form, progress.advance)
    if output is not None:
        with open_output(output, inputs=inputs) as file:
            file.write(serialized(found.model))
    return found
