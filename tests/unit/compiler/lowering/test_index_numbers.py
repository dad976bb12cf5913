"""Kernels whose indices 64 bits do not hold are refused where they are found."""

from __future__ import annotations

import onnx
import pytest

import tilewright as tw
from tilewright.base.dtypes import f32
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, floordiv, maximum, mod, symbol, symbols
from tilewright.compiler.graph.ir import Location
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.lowering.index_numbers import check_index_numbers

N = symbol("N", 1)
PLACE = Location("net.onnx", "cut")


def copy(shape: tuple[Dim, Dim], extent: Dim, step: Dim, first: Dim = 0) -> Kernel:
    """`out[i] = in[i * step + first, 0]` for i below `extent`."""
    b = KernelBuilder("copy", list(symbols(N)))
    x, out = b.parameter("x", f32, shape), b.result("out", f32, (extent,))
    with b.nest((extent,)) as (i,):
        b.store(out, (i,), b.load(x, (i * step + first, 0)))
    return b.build()


def check(kernel: Kernel) -> bool:
    """Whether nothing is wrong with the indices of a kernel."""
    check_index_numbers(kernel, kernel_text(kernel), PLACE)
    return True


FAR = 1 << 62


@pytest.mark.parametrize(
    ("shape", "extent", "step", "first"),
    [
        ((8, 8), 3, FAR, 0),  # a factor times the distance of rows
        ((8, 1), 3, FAR, 0),  # times the last index
        ((8, 1), N, 2 * FAR, 0),
        ((8, 1), 3, -FAR, 0),
        ((8, 1), 3, 1, 2 * FAR),
        ((8, 1), 3, 1, -2 * FAR - 1),
        ((8, FAR), N, 2, 0),
        ((N, FAR), N, N * 2, 0),
    ],
)
def test_indices_beyond_64_bits_are_refused_with_the_node(
    shape: tuple[Dim, Dim], extent: Dim, step: Dim, first: Dim
) -> None:
    with pytest.raises(ModelError, match=r"^net\.onnx: node 'cut': places of elements"):
        check(copy(shape, extent, step, first))


@pytest.mark.parametrize(
    ("shape", "extent", "step", "first"),
    [
        ((8, 8), 3, FAR // 32, 0),
        ((8, 1), N, FAR, 0),
        ((8, 1), N, N * N * N, FAR),
        ((FAR, 1), FAR, 1, 0),
        ((8, 1), 3, 1, -2 * FAR + 5),
    ],
)
def test_others_are_not(shape: tuple[Dim, Dim], extent: Dim, step: Dim, first: Dim) -> None:
    assert check(copy(shape, extent, step, first))


def test_remainders_and_extremes_are_as_large_as_what_bounds_them() -> None:
    b = KernelBuilder("copy", list(symbols(N)))
    x, out = b.parameter("x", f32, (FAR,)), b.result("out", f32, (4,))
    with b.nest((4,)) as (i,):
        place = mod(i * FAR // 8, 5) + floordiv(i * FAR // 8, N) + maximum(i, N)
        b.store(out, (i,), b.load(x, (place,)))
    assert check(b.build())


def test_a_model_of_such_a_step_is_refused_at_its_node() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[N, 4294967296] x) => (float[M, 4294967296] y)
            <int64[1] b = {0}, int64[1] e = {9223372036854775807}, int64[1] a = {0}, int64[1] t = {9223372036854775807}>
            { [cut] y = Slice (x, b, e, a, t) }"""
    )
    with pytest.raises(
        ModelError, match=r"node 'cut': places of elements are numbers of 65 bits"
    ):
        tw.compile(model, jobs=1)


def test_what_a_pass_cannot_make_has_the_name_of_its_node() -> None:
    """The border of a convolution becomes a node of its own, which no memory holds."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[1,1,8,8] x, float[1,1,1,2] w) => (float[1,1,A,B] y)
            { [wide] y = Conv <dilations = [1, 4611686018427387904], pads = [0,0,0,4611686018427387904]> (x, w) }"""
    )
    with pytest.raises(ModelError, match=r"node 'wide': the result would be"):
        tw.compile(model, jobs=1)
