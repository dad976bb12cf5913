"""An artifact with a dynamic model of which one op has no kernel, and sessions over it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx

import tilewright as tw
from tilewright.api.load import run_reference
from tilewright.base.target import Target
from tilewright.runtime.session import Session

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[N, 6] x, float[6] b) => (float[N, 6] v, int64[N] i, float[N, 6] s) {
    s = Add(x, b)
    r = Relu(s)
    i = ArgMax <axis = 1, keepdims = 0> (r)
    c = Cast <to = 17> (r)
    q = Cast <to = 1> (c)
    counts = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
        ngram_counts = [0], ngram_indexes = [0, 1, 2, 3, 4, 5], pool_int64s = [0, 1, 2, 3, 4, 5]> (i)
    d = ReduceMax <keepdims = 0> (counts)
    size = Abs (d)
    below = Neg (size)
    v = Max (q, below)
}"""
ENGINES = ("plan", "vm")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def opened(path: Path, engine: str | None = None, **options: object) -> Session:
    return Session.from_file(path, engine=engine, host_function=run_reference, **options)


def inputs(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n)
    return random.standard_normal((n, 6)).astype(np.float32), np.arange(6, dtype=np.float32)


def check(results: object, x: np.ndarray, b: np.ndarray) -> None:
    v, i, s = results
    assert np.array_equal(s, x + b)
    rounded = np.maximum(x + b, 0).astype(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(v, rounded.astype(np.float32))
    assert np.array_equal(i, np.argmax(np.maximum(x + b, 0), axis=1))
    assert i.dtype == np.int64


def save_model(target: Path) -> Path:
    """Compile the model to a file, for two levels of x86-64 where that is the CPU."""
    levels = ("v2", "v3") if Target.host().arch == "x86_64" else None
    with quiet():
        model = tw.compile(onnx.parser.parse_model(MODEL), threads=1, jobs=1, levels=levels)
    model.save(target)
    return target
