"""Fourier transforms of any length, against numpy's."""

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit import fourier
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.graph import ir
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.schema import TensorType

CHOOSE = np.random.default_rng(2)
# One product; factors; several levels of them; a prime that is one product, one that is a convolution; both.
LENGTHS = [1, 2, 7, 64, 65, 67, 96, 128, 1000, 521, 1042, 4096, 7919]


def computed(function, *arrays):
    """What a function of tensors gives."""
    graph = ir.Graph("g")
    e = NodeMaker(graph)
    for n, array in enumerate(arrays):
        dtype = dtypes.from_numpy(array.dtype)
        graph.inputs.append(ir.Value(TensorType(dtype, array.shape), f"x{n}"))
    found = function(e, *(e.of_value(value) for value in graph.inputs))
    for n, tensor in enumerate(found):
        graph.outputs.append(e.value(tensor))
        graph.output_names.append(f"y{n}")
    return evaluate(graph, list(arrays))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize(("before", "after"), [((), ()), ((2,), (3,))])
def test_transforms_are_those_of_numpy(size, before, after):
    axis, shape = len(before), (*before, size, *after)
    z = CHOOSE.normal(size=shape) + 1j * CHOOSE.normal(size=shape)
    for sign, expected in (
        (-1, np.fft.fft(z, axis=axis)),
        (1, np.fft.ifft(z, axis=axis)),
    ):
        scale = 1 / size if sign > 0 else 1.0
        found = computed(
            lambda e, x, y: fourier.transform(e, (x, y), axis, size, sign, scale),  # noqa: B023
            z.real.copy(),
            z.imag.copy(),
        )
        near = 1e-13 * np.abs(expected).max()
        np.testing.assert_allclose(found[0] + 1j * found[1], expected, rtol=0, atol=near)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", LENGTHS)
def test_transforms_of_real_numbers_are_half_and_come_back(size):
    x, count = CHOOSE.normal(size=(2, size)), size // 2 + 1
    half = [
        np.array(part)
        for part in computed(lambda e, x: fourier.of_real(e, x, 1, size, count), x)
    ]
    expected = np.fft.rfft(x)
    found, near = half[0] + 1j * half[1], 1e-13 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=near)
    whole = computed(lambda e, x: fourier.of_real(e, x, 1, size, size), x)
    expected = np.fft.fft(x)
    np.testing.assert_allclose(whole[0] + 1j * whole[1], expected, rtol=0, atol=near)
    # What is its own conjugate has no imaginary part, whatever is given as one.
    half[1][:, 0] = 7
    half[1][:, -1] += 7 * (size % 2 == 0)
    back = computed(lambda e, x, y: [fourier.to_real(e, (x, y), 1, size, 1 / size)], *half)
    np.testing.assert_allclose(back[0], x, atol=1e-12)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", LENGTHS)
def test_what_is_its_own_conjugate_has_no_imaginary_part(size):
    """Not a rounding of one either: its sign would be that of the angle of a negative number."""
    x = -np.abs(CHOOSE.normal(size=(2, size)))
    _, imaginary = computed(lambda e, x: fourier.of_real(e, x, 1, size, size // 2 + 1), x)
    own = imaginary[:, [0, -1]] if size % 2 == 0 else imaginary[:, [0]]
    assert not own.any()
    assert not np.signbit(own).any()


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("value", [np.inf, -np.inf, -1.0])
def test_short_transforms_multiply_nothing(size, place, value):
    """So 0 times infinity, which is NaN, is not added to anything."""
    x = np.arange(1.0, size + 1)[None]
    x[0, place] = value
    for sign, expected in ((-1, np.fft.fft(x)), (1, np.fft.fft(x).conj())):
        found = computed(lambda e, x: fourier.transform(e, (x, None), 1, size, sign), x)  # noqa: B023
        np.testing.assert_array_equal(found[0], expected.real)
        np.testing.assert_array_equal(found[1], expected.imag)
        own = found[1][:, :: max(size // 2, 1)]
        assert not np.signbit(own).any()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_what_is_its_own_conjugate_is_real_beside_infinities(size, sign):
    x = np.ones((2, size))
    x[:, 0] = np.inf
    places = [0, size // 2] if size % 2 == 0 else [0]
    with np.errstate(invalid="ignore"):
        _, whole = computed(lambda e, x: fourier.transform(e, (x, None), 1, size, sign), x)
        _, half = computed(lambda e, x: fourier.of_real(e, x, 1, size, size // 2 + 1), x)
    assert (whole[:, places] == 0).all()
    assert (half[:, places] == 0).all()


@pytest.mark.parametrize("steps", [0, 2, 4, 6, 8, 12, 1 << 20])
def test_steps_onto_an_axis_are_whole_numbers(steps):
    for sign in (-1, 1):
        (found,) = fourier._turned(np.array([steps]), 8, sign)
        assert found == 1j ** ((sign * steps // 2) % 4)


def test_a_long_transform_needs_no_matrix_of_its_length():
    graph = ir.Graph("g")
    e = NodeMaker(graph)
    graph.inputs.append(ir.Value(TensorType(dtypes.f64, (1 << 16,)), "x"))
    pair = fourier.transform(e, (e.of_value(graph.inputs[0]), None), 0, 1 << 16, -1)
    graph.outputs.append(e.value(pair[0]))
    held = sum(int(n.result.type.size_bytes) for n in graph.nodes if n.op == "constant")
    assert held < 8 << 20
