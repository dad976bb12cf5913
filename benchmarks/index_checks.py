"""Print what looking at the indices of a call costs: models that embed, with and without checks.

What it is: the exported models whose first op is a Gather, an embedding bag before a small network,
and a gather of single elements; both variants in one process take turns, the first of a round
changes; the ratio is the median of the rounds' ratios, and that of the least times stands beside.
What it is not: a measure against other runtimes (``bench.py``).
Who calls it: developers::

    nice -n -10 python benchmarks/index_checks.py --models build/models
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

import tilewright

BAR: Final = 1.01
EXPORTED: Final = ("bert_base", "minilm_l6", "gpt2_prefill", "gpt2_decode", "llama_decode")
_HEAD: Final = '<ir_version: 10, opset_import: ["" : 18]>'
_ROUND_NS: Final = 500_000  # short, so that some rounds of a shared machine are quiet
Call = Callable[[], object]


def bag(bags: int, words: int, rows: int = 30_000, width: int = 128) -> onnx.ModelProto:
    """The mean of `words` embedded words per bag, then a network of two layers."""
    text = (
        f"{_HEAD} bag (int64[{bags},{words}] ids, float[{rows},{width}] table,"
        f" float[{width},256] w, float[256,10] v) => (float[{bags},10] y) {{"
        " e = Gather (table, ids) axes = Constant <value_ints = [1]> ()"
        " m = ReduceMean <keepdims = 0> (e, axes)"
        " h = MatMul (m, w) r = Relu (h) y = MatMul (r, v) }"
    )
    return onnx.parser.parse_model(text)


def elements(rows: int = 512, columns: int = 512) -> onnx.ModelProto:
    """One element per index: the checks read as many bytes as the gather itself."""
    kind = f"[{rows},{columns}]"
    text = (
        f"{_HEAD} pick (float{kind} x, int64{kind} i) => (float{kind} y)"
        " { y = GatherElements <axis = 1> (x, i) }"
    )
    return onnx.parser.parse_model(text)


def inputs_of(model: tilewright.Model, kept: Path) -> list[np.ndarray]:
    """What the exporter kept beside the model; or random numbers, and indices in range."""
    if kept.exists():
        with np.load(kept) as arrays:
            return [arrays[name] for name, _, _ in model.inputs]
    random = np.random.default_rng(0)
    found: list[np.ndarray] = []
    for _, dtype, dims in model.inputs:
        shape = [d for d in dims if isinstance(d, int)]
        if dtype.is_float:
            found.append(random.standard_normal(shape).astype(dtype.numpy))
        else:
            found.append(random.integers(0, 512, shape).astype(dtype.numpy))
    return found


def measure(calls: Sequence[Call], seconds: float) -> tuple[float, float, float]:
    """(median ratio of the rounds, ratio of the least times, least µs without checks)."""
    least = [float("inf"), float("inf")]
    for call in calls:
        call()
    begin = time.perf_counter_ns()
    calls[0]()
    count = max(1, _ROUND_NS // max(1, time.perf_counter_ns() - begin))
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ratios) < 5:
        times = [0.0, 0.0]
        for side in (0, 1) if len(ratios) % 2 else (1, 0):
            start = time.perf_counter_ns()
            for _ in range(count):
                calls[side]()
            times[side] = (time.perf_counter_ns() - start) / count / 1000
            least[side] = min(least[side], times[side])
        ratios.append(times[1] / times[0])
    return statistics.median(ratios), least[1] / least[0], least[0]


def main() -> None:
    """Compile, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path("build/models"))
    parser.add_argument("--seconds", type=float, default=12.0, help="per model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    options = parser.parse_args()
    sources: dict[str, str | onnx.ModelProto] = {
        name: str(options.models / f"{name}.onnx") for name in EXPORTED
    }
    sources |= {"embedding bag 1x16": bag(1, 16), "embedding bag 32x64": bag(32, 64)}
    sources |= {"GatherElements 512x512": elements()}
    table = Table(title=f"calls with index checks against calls without, bar {BAR}")
    for heading in ("model", "checks", "us without", "median ratio", "ratio of least"):
        table.add_column(heading)
    for name, source in sources.items():
        if options.only and not any(word in name for word in options.only):
            continue
        plain, checked = (
            tilewright.compile(source, threads=options.threads, check_indices=wanted)
            for wanted in (False, True)
        )
        arrays = inputs_of(plain, options.models / f"{name}.inputs.npz")
        calls = [functools.partial(m, *arrays) for m in (plain, checked)]
        median, best, micros = measure(calls, options.seconds)
        count = len(checked.compiled.parts[0].plan.checks)
        table.add_row(name, str(count), f"{micros:.1f}", f"{median:.4f}", f"{best:.4f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
