"""Windows over inputs whose size only a call knows: what they take, and what comes out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import Index, Kernel
from tilewright.compiler.kernel.rewrite import expressions, loops
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.ops import catalogue

POOLS = ("average_pool", "max_pool", "lp_pool", "max_pool_indices")
SIZE = symbol("size", 1)
PLACES = list(
    itertools.product((5, 40), (1, 3), ((0, 0), (9, 2), (16, 16), (-1, 1)), (False, True))
)
"""Strides, dilations, pads, and whether the last window may stick out."""


def pooling(op: str, attributes: dict[str, object]) -> Kernel:
    """The kernel of a pooling of `size` elements in two channels."""
    row, x = catalogue.lookup(op), TensorType(f32, (1, 2, SIZE))
    types = row.schema.infer([x], row.complete(attributes))
    b = KernelBuilder("pooled")
    source = b.parameter("x", f32, x.shape)
    results = [b.result(f"y{n}", t.dtype, t.shape) for n, t in enumerate(types)]
    assert row.body is not None
    row.body.emit(b, row.complete(attributes), [source], results)
    return b.build()


def taps(kernel: Kernel, size: int) -> int:
    """Steps of the loops around one window."""
    return math.prod(
        symbolic.evaluate(loop.extent, {"size": size})
        for loop in loops(kernel.body)
        if loop.var.name.startswith("k")
    )


@pytest.mark.parametrize("op", POOLS)
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_a_window_larger_than_an_open_size_takes_what_the_input_holds(op, ceil_mode):
    attributes = {"kernel": (1280,), "strides": (1280,), "ceil_mode": ceil_mode}
    if not ceil_mode:
        attributes["pads"] = (640, 640)
    kernel = pooling(op, attributes)
    assert taps(kernel, 7) == 7
    assert taps(kernel, 2000) == 1280


@pytest.mark.parametrize("op", POOLS)
def test_a_window_that_surely_lies_inside_keeps_its_number_of_taps(op):
    kernel = pooling(op, {"kernel": (40,), "strides": (3,)})
    assert {loop.extent for loop in loops(kernel.body) if loop.var.name == "k0"} == {40}


@pytest.mark.parametrize("strides", [(1,), (2,)])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_a_mean_that_counts_its_padding_divides_by_all_taps_unless_a_window_sticks_out(
    strides, ceil_mode
):
    attributes = {"kernel": (3,), "strides": strides, "pads": (1, 1)}
    attributes |= {"count_include_pad": True, "ceil_mode": ceil_mode}
    kernel = pooling("average_pool", attributes)
    counts = [x.dim for x in expressions(kernel.body) if isinstance(x, Index)]
    is_whole = not ceil_mode or strides == (1,)
    assert ("/ 3.0" in kernel_text(kernel)) == is_whole, counts


@pytest.mark.thinned(3)
@pytest.mark.parametrize("op", POOLS)
@pytest.mark.parametrize("window", [17, 40])
def test_large_windows_over_open_sizes_are_those_of_the_oracle(op, window):
    row, met = catalogue.lookup(op), 0
    for stride, dilation, pads, ceil_mode in PLACES:
        attributes = {
            "kernel": (window,), "strides": (stride,), "dilations": (dilation,),
            "pads": pads, "ceil_mode": ceil_mode,
        }  # fmt: skip
        kernel = pooling(op, attributes)
        for size in (1, 7, 18, 120):
            if (window - 1) * dilation + 1 > size + sum(pads) + ceil_mode * (stride - 1):
                continue  # not one window
            x = np.random.default_rng(size).standard_normal((1, 2, size))
            x = x.astype(np.float32)
            wanted = row.schema.evaluate([x], row.complete(attributes))
            if not all(np.isfinite(w).all() for w in wanted):
                continue  # a window of padding
            found = [np.empty_like(w) for w in wanted]
            evaluate(kernel, [x, *found], {"size": size})
            for actual, expected in zip(found, wanted, strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
            met += 1
    assert met > 30
