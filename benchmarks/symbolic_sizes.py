"""Print what it costs that sizes are known at the call only: networks and kernels, compiled for symbols and for numbers.

What it is: each model twice, once with symbols for some of its dimensions and once with the numbers of the call; the two
take turns, the first of a round changes; the ratio is the speed with symbols over that without, by the medians of
the rounds, and by the least times beside it.
What it is not: a measure against other runtimes (``bench.py``).
Who calls it: developers::

    python benchmarks/symbolic_sizes.py --models build/models    # whole models, too
    python benchmarks/symbolic_sizes.py --only softmax
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

import tilewright

BAR: Final = 0.85
_HEAD: Final = '<ir_version: 10, opset_import: ["" : 18]>'
_ROUND_NS: Final = 2_000_000
Shape = Sequence[int | str]
Call = Callable[[], object]


@final
@dataclass(frozen=True, slots=True)
class Subject:
    """A model, and the shapes of its inputs with symbols in them; what they stand for is in `sizes`."""

    name: str
    model: onnx.ModelProto | Path
    shapes: Mapping[str, Shape]
    sizes: Mapping[str, int]

    def numbers(self) -> dict[str, list[int]]:
        """The shapes of a call."""
        return {
            name: [self.sizes[d] if isinstance(d, str) else d for d in shape]
            for name, shape in self.shapes.items()
        }


def main() -> None:
    """Print a row per subject, the ratio beside the bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, help="folder of exported models")
    parser.add_argument("--only", default="", help="subjects whose name has this")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each subject")
    options = parser.parse_args()
    table = Table("subject", "numbers µs", "symbols µs", "speed", "of least times")
    subjects = [*kernels(), *(networks(options.models) if options.models else ())]
    missed = 0
    for subject in subjects:
        if options.only in subject.name:
            known, symbols, ratio, least = measure(
                calls_of(subject, options.threads), options.seconds
            )
            missed += max(ratio, least) < BAR
            figures = (f"{known:.1f}", f"{symbols:.1f}", f"{ratio:.2f}", f"{least:.2f}")
            table.add_row(subject.name, *figures)
    console = Console()
    console.print(table)
    console.print(f"bar {BAR} of the speed with known sizes, {missed} below it")


def kernels() -> Iterator[Subject]:
    """One op each, and what is fused with it; some of the sizes are symbols."""
    product = "float[768,3072] w) => (float[m,3072] y) { t = MatMul (x, w) y = Relu (t) }"
    yield _subject("matmul of m rows", product, ["m", 768], m=128)
    yield _subject("matmul of few rows", product, ["m", 768], m=3)
    inner = "float[k,256] v) => (float[m,256] y) { y = MatMul (x, v) }"
    shapes: dict[str, Shape] = {"x": ["m", "k"], "v": ["k", 256]}
    model = onnx.parser.parse_model(f"{_HEAD} f (float[m,k] x, {inner}")
    yield Subject("matmul, both sizes", model, shapes, {"m": 77, "k": 311})
    image: Shape = ["n", 64, "h", "w"]
    convolved = (
        "float[64,64,{0},{0}] f) => (float[n,64,h,w] y)"
        " {{ t = Conv <pads = [{1},{1},{1},{1}]> (x, f) y = Relu (t) }}"
    )
    sizes = {"n": 1, "h": 57, "w": 43}
    yield _subject("conv 3x3", convolved.format(3, 1), image, **sizes)
    yield _subject("conv 1x1", convolved.format(1, 0), image, **sizes)
    scores: Shape = ["n", 12, "m", "m"]
    text = "float z) => (float[n,12,m,m] y) { t = Mul (x, z) y = Softmax <axis = -1> (t) }"
    yield _subject("softmax", text, scores, n=1, m=128)
    text = (
        "float[768] s, float[768] b) => (float[n,m,768] y)"
        " { y = LayerNormalization <axis = -1> (x, s, b) }"
    )
    yield _subject("layer norm", text, ["n", "m", 768], n=1, m=128)
    text = "float one) => (float[m,k] y) { t = Tanh (x) u = Add (t, one) y = Mul (u, x) }"
    yield _subject("elementwise", text, ["m", "k"], m=513, k=767)
    text = (
        "float[1] s) => (float[n,m] y) { r = ReduceMax <keepdims = 1> (x) y = Sub (x, r) }"
    )
    yield _subject("largest of all", text, ["n", "m"], n=400, m=601)
    text = (
        "float z) => (float[m,k,n] y) { t = Transpose <perm = [1,2,0]> (x) y = Mul (t, z) }"
    )
    yield _subject("transpose", text, ["n", "m", "k"], n=65, m=77, k=91)


def _subject(name: str, text: str, shape: Shape, **sizes: int) -> Subject:
    """A function of `x`; other inputs of `text` have known shapes and become constants."""
    dims = ",".join(map(str, shape))
    model = onnx.parser.parse_model(f"{_HEAD} f (float[{dims}] x, {text}")
    draw = np.random.default_rng(0)
    for value in list(model.graph.input)[1:]:
        known = [d.dim_value for d in value.type.tensor_type.shape.dim]
        array = draw.standard_normal(known).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        model.graph.input.remove(value)
    return Subject(name, model, {"x": shape}, sizes)


def networks(folder: Path) -> Iterator[Subject]:
    """Exported models whose sizes may be anything."""
    words: Shape = ["batch", "sequence"]
    inputs = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), words)
    for name, length in (("minilm_l6", 41), ("bert_base_dynamic", 128)):
        path = folder / f"{name}.onnx"
        taken = {i.name for i in onnx.load(path, load_external_data=False).graph.input}
        shapes = {n: s for n, s in inputs.items() if n in taken}
        yield Subject(name, path, shapes, {"batch": 1, "sequence": length})
    pixels: dict[str, Shape] = {"pixel_values": ["n", 3, "h", "w"]}
    for name in ("resnet50", "mobilenetv2"):
        model = _freed(onnx.load(folder / f"{name}.onnx"), pixels)
        yield Subject(name, model, pixels, {"n": 1, "h": 224, "w": 224})


def _freed(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> onnx.ModelProto:
    """A model whose inputs have symbols where `shapes` have them, and that claims no other sizes."""
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes.get(value.name, ()), strict=False):
            if isinstance(size, str):
                dim.dim_param = size
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model


def calls_of(subject: Subject, threads: int) -> tuple[Call, Call]:
    """A call with known sizes and one with symbols, which give the same up to rounding."""
    draw = np.random.default_rng(1)
    made: list[tilewright.Model] = [
        tilewright.compile(subject.model, input_shapes=shapes, threads=threads)
        for shapes in (subject.numbers(), subject.shapes)
    ]
    shapes = subject.numbers()
    given = {
        spec.name: draw.standard_normal(shapes[spec.name]).astype(np.float32)
        if spec.dtype.is_float
        else np.ones(shapes[spec.name], spec.dtype.numpy)
        for spec in made[0].inputs
    }
    first, second = (model(**given) for model in made)
    for one, other in zip(_results(first), _results(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    return (lambda: made[0](**given)), (lambda: made[1](**given))


def _results(found: Any) -> tuple[np.ndarray, ...]:
    return found if isinstance(found, tuple) else (found,)


def measure(calls: tuple[Call, Call], seconds: float) -> tuple[float, float, float, float]:
    """(median µs with numbers, with symbols, speed by medians, speed by least times)."""
    begin = time.perf_counter_ns()
    calls[0]()
    count = max(1, _ROUND_NS // max(1, time.perf_counter_ns() - begin))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 7:
        for side in (0, 1) if len(times[0]) % 2 else (1, 0):
            start = time.perf_counter_ns()
            for _ in range(count):
                calls[side]()
            times[side].append((time.perf_counter_ns() - start) / count / 1000)
    known, symbols = (statistics.median(t) for t in times)
    return known, symbols, known / symbols, min(times[0]) / min(times[1])


if __name__ == "__main__":
    main()
