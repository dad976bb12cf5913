"""Transforms whose lengths, steps and edges are data, beside numpy and beside the same operands as numbers."""

import numpy as np
import pytest

import tilewright as tw
from fakes import onnx_models
from fakes.computed_operands import both
from fakes.onnx_models import run_node
from tilewright.base.errors import InputError, ModelError, TilewrightError
from tilewright.compiler.frontends.onnx.load import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(8)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("length", [1, 2, 5, 7, 12])
def test_a_computed_length_crops_or_pads(length: int) -> None:
    for last in (1, 2):
        x = floats(2, 7, last)
        for inverse, onesided in ((0, 0), (0, 1), (1, 0), (1, 1)):
            if onesided and not inverse and last == 2:
                continue
            both("DFT", [x, np.array(length)], [1], inverse=inverse, onesided=onesided)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("last", [1, 2])
def test_the_transform_of_nothing_is_nothing(last: int, inverse: int) -> None:
    (found,) = run_node("DFT", [np.zeros((2, 0, last), np.float32)], inverse=inverse)
    assert found.shape == (2, 0, 2)
    with pytest.raises(ModelError, match="the length is 0"):
        run_node("DFT", [np.zeros((2, 0, 1), np.float32)], onesided=1)


def test_length_and_axis_may_both_be_data() -> None:
    for axis in (0, 1, -2):
        both("DFT", [floats(3, 4, 1), np.array(5), np.array(axis)], [1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 6, 9])
def test_an_axis_of_dynamic_size_is_transformed(size: int) -> None:
    model = onnx_models.parse("""graph (float[B,N,1] x) => (float[B,N,2] y, float[B,P,1] z) {
      y = DFT (x)
      z = DFT<inverse = 1, onesided = 1> (y)
    }""")
    x = floats(2, size, 1)
    found = tw.compile(model)(x)[0]
    wide = np.fft.fft(x[..., 0].astype(np.float64))
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wide, atol=1e-4)


def test_a_call_decides_whether_there_are_imaginary_parts() -> None:
    graph = load(
        onnx_models.parse("""graph (float[B,4,K] x) => (float[B,4,2] y, float[B,6,1] z) {
      y = DFT (x)
      z = DFT<inverse = 1, onesided = 1> (x)
    }""")
    )
    for parts in (1, 2):
        x = floats(3, 4, parts)
        y, z = evaluate(graph, [x])
        held = (x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)).astype(np.complex128)
        wide = np.fft.fft(held)
        np.testing.assert_allclose(y, np.stack([wide.real, wide.imag], -1), atol=1e-5)
        np.testing.assert_allclose(z[..., 0], np.fft.irfft(held, axis=1), atol=1e-5)
    for parts in (0, 3):
        with pytest.raises(InputError, match=r"node .* expected (at least 1|at most 2)"):
            evaluate(graph, [floats(3, 4, parts)])


@pytest.mark.parametrize("window", [False, True])
def test_frames_by_computed_steps_and_lengths(window: bool) -> None:
    for step, length in ((1, 4), (3, 5), (20, 16), (16, 1)):
        shape = np.hanning(length + 2)[1:-1].astype(np.float32) if window else None
        arrays = [floats(2, 17, 1), np.array(step), shape, np.array(length)]
        both("STFT", arrays, [1, 3])
        both("STFT", arrays, [1, 3], onesided=0)


@pytest.mark.parametrize("bins", [1, 8, 13])
def test_mel_weights_of_data(bins: int) -> None:
    numbers = [np.array(n) for n in (bins, 64, 8192)]
    edges = [np.array(n, np.float32) for n in (125.0, 3800.0)]
    arrays = [*numbers, *edges]
    both("MelWeightMatrix", arrays, [0, 1, 2, 3, 4])
    both("MelWeightMatrix", arrays, [0, 1], output_datatype=11)


def test_rising_and_falling_edges_of_mel_weights_beside_their_definition() -> None:
    bins, length, rate, low, high = 5, 40, 8000, 0.0, 4000.0
    mels = np.linspace(0, 2595 * np.log10(1 + high / 700) * 6 / 7, bins + 2)
    edges = (length + 1) * 700 * (10 ** (mels / 2595) - 1) // rate
    rows = np.arange(length // 2 + 1)[:, None]
    left, peak, right = edges[:-2], edges[1:-1], edges[2:]
    with np.errstate(all="ignore"):
        up, down = (rows - left) / (peak - left), (right - rows) / (right - peak)
    expected = np.where((rows >= left) & (rows < peak), up, rows == peak)
    expected = np.where((rows >= peak) & (rows < right), down, expected)
    given = [np.array(n) for n in (bins, length, rate)]
    given += [np.array(n, np.float32) for n in (low, high)]
    (found,) = run_node("MelWeightMatrix", given)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_frames_that_are_none_fail_the_call() -> None:
    x = floats(1, 12, 1)
    graph = load(onnx_models.one_node("STFT", [x, np.array(2), None, np.array(4)]))
    for step, length, low in ((0, 4, 1), (-1, 4, 1), (2, 0, 1), (2, -3, 1), (2, 20, 0)):
        given = [np.array(step), np.array(length)]
        with pytest.raises(InputError, match=f"node .* at least {low}$"):
            evaluate(graph, [x, *given])
        numbers = [x, given[0], None, given[1]]
        with pytest.raises(TilewrightError):
            load(onnx_models.one_node("STFT", numbers, constants=[1, 3]))


def test_a_transform_of_no_length_fails_the_call() -> None:
    x = floats(1, 12, 1)
    graph = load(onnx_models.one_node("DFT", [x, np.array(3)]))
    with pytest.raises(
        InputError, match=r"node .*: the data gives size 0, expected at least 1"
    ):
        evaluate(graph, [x, np.array(0)])


def test_a_size_of_two_elements_is_refused() -> None:
    arrays = [np.array([8, 9]), np.array(64), np.array(8192)]
    arrays += [np.array(n, np.float32) for n in (125.0, 3800.0)]
    for constants in ([], [0]):
        with pytest.raises(ModelError, match="number of bins has 2 elements, expected 1"):
            load(onnx_models.one_node("MelWeightMatrix", arrays, constants=constants))
