"""Contractions of operands that were rounded to 16 bits by consent: how far off they are, where nothing changes."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes.onnx_models import one_node
from tilewright.base.dtypes import bf16, f16
from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.compiler.kernel import numerics

TYPES = {"bf16": bf16, "f16": f16}
TARGETS = [
    "host",
    pytest.param("x86_64-v3", marks=pytest.mark.slow),
    pytest.param("c host", marks=pytest.mark.slow),
]


def compiled(model: bytes, precision: str, target: str) -> tilewright.Model:
    if not Target.parse(target).runs_on(Target.host()):
        pytest.skip(f"needs a CPU of {target}")
    return tilewright.compile(model, precision=precision, target=target, threads=1)


def rounded(x: np.ndarray, precision: str) -> np.ndarray:
    return numerics.cast(x, TYPES[precision]).astype(np.float64)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(37, 131, 70), (1, 65, 33), (5, 1, 1), (0, 4, 3)],
)
def test_a_product_is_that_of_rounded_operands(
    rows: int, depth: int, columns: int, precision: str, target: str
) -> None:
    random = np.random.default_rng(rows)
    x = random.standard_normal((rows, depth)).astype(np.float32)
    w = random.standard_normal((depth, columns)).astype(np.float32)
    result = compiled(one_node("MatMul", [x, w], constants=[1]), precision, target)(x)
    # Activations are rounded where that gains: then the result is exact but for f32 sums.
    weights = rounded(w, precision)
    nearest = [x.astype(np.float64) @ weights, rounded(x, precision) @ weights]
    spread = np.abs(x.astype(np.float64)) @ np.abs(weights) + 1e-30
    errors = [np.max(np.abs(result - near) / spread, initial=0) for near in nearest]
    assert min(errors) < 1e-6


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_is_close(groups: int, target: str) -> None:
    random = np.random.default_rng(groups)
    x = random.standard_normal((1, 6, 13, 9)).astype(np.float32)
    w = random.standard_normal((10, 6 // groups, 3, 3)).astype(np.float32)
    model = one_node("Conv", [x, w], constants=[1], pads=[1, 0, 0, 1], group=groups)
    exact = compiled(model, "f32", target)(x)
    result = compiled(model, "bf16", target)(x)
    size = 3 * 3 * 6 // groups
    assert (
        0 < np.abs(result - exact).max() < size * 2**-8 * np.abs(x).max() * np.abs(w).max()
    )


def test_a_filter_for_each_channel_stays_exact() -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal((1, 8, 9, 9)).astype(np.float32)
    w = random.standard_normal((8, 1, 3, 3)).astype(np.float32)
    model = one_node("Conv", [x, w], constants=[1], group=8)
    exact, short = (compiled(model, name, "host")(x) for name in ("f32", "bf16"))
    np.testing.assert_array_equal(short, exact)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_no_number_stays_none(target: str) -> None:
    x = np.zeros((4, 7), np.float32)
    x[0, 1], x[1, 2], x[2, 3] = np.nan, np.inf, -np.inf
    w = np.ones((7, 5), np.float32)
    result = compiled(one_node("MatMul", [x, w], constants=[1]), "bf16", target)(x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result, x @ w)


def test_weights_take_half_the_memory_where_pairs_are_multiplied() -> None:
    if not Target.host().has("avx512bf16"):
        pytest.skip("needs a CPU with AVX512-BF16")
    x, w = np.zeros((9, 256), np.float32), np.ones((256, 512), np.float32)
    model = one_node("MatMul", [x, w], constants=[1])
    full, half = (
        sum(
            np.asarray(node.attributes["value"]).nbytes
            for node in compiled(model, name, "host").compiled.graph
            if node.op == "constant"
        )
        for name in ("f32", "bf16")
    )
    assert half <= 0.51 * full


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(UserError, match=r"precision.*f8.*bf16"):
        tilewright.compile(one_node("Relu", [np.ones(3, np.float32)]), precision="f8")
