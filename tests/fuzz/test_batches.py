"""A row of a batch is the row computed alone, bit for bit: `docs/numerics.md` promises it.

Random networks, batches known when compiling and open ones, one thread and two, at every level that
this machine runs.
"""

from __future__ import annotations

import numpy as np
import pytest

from fakes.native_kernel import needs_x86, targets_apart, targets_here
from fakes.small_models import mlp
from fuzz.batched_networks import make_network, samples_for
from fuzz.comparison import compiled, run
from tilewright.api.model import Model
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

pytestmark = needs_x86
BATCHES = (1, 2, 3, 4, 14, 27)
KNOWN = (1, 3, 14)  # each is a compilation; `slow` compiles for all of them
OPEN = symbol("N", 1)
FEW, MANY = 2, 40


def bits(model: Model, x: np.ndarray) -> np.ndarray:
    return run(model, [x])[0].view(np.uint32)


def alone(model: Model, x: np.ndarray) -> np.ndarray:
    return np.concatenate([bits(model, row[None]) for row in x])


def check_network(seed: int, target: Target, known: tuple[int, ...] = BATCHES) -> None:
    graph = make_network(seed, OPEN)
    x = samples_for(graph, max(BATCHES))
    open_ = [compiled(graph, target, threads=threads) for threads in (1, 2)]
    wanted = alone(open_[0], x)
    for count in BATCHES:
        models = [("one thread", open_[0]), ("two", open_[1])]
        if count in known:
            fixed = compiled(make_network(seed, count), target, threads=1 + count % 2)
            models.append(("known", fixed))
        for name, model in models:
            found = bits(model, x[:count])
            np.testing.assert_array_equal(
                found, wanted[:count], err_msg=f"seed {seed}, batch {count}, {name}"
            )


@pytest.mark.parametrize("seed", range(FEW))
@pytest.mark.slow
def test_a_row_of_a_batch_is_the_row_alone(seed: int) -> None:
    check_network(seed, Target.host(), KNOWN)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FEW + 1))
def test_a_row_of_a_batch_is_the_row_alone_whatever_is_known(seed: int) -> None:
    check_network(seed, Target.host())


@pytest.mark.nightly
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("seed", range(FEW, MANY))
def test_a_row_of_a_batch_is_the_row_alone_at_every_level(
    seed: int, target: Target
) -> None:
    check_network(seed, target)


@pytest.mark.skipif(
    all(t.cpu != "x86-64-v4" for t in targets_here()), reason="needs AVX-512"
)
def test_a_product_with_one_column_is_the_same_sum_in_any_batch() -> None:
    check_network(10, Target.level("v4"), KNOWN)


def convolved(
    batch: Dim, image: tuple[int, ...], taps: tuple[int, ...], stride: int
) -> Graph:
    """Channels first before and after: such results need not be moved."""
    builder = GraphBuilder()
    rank = len(image) - 1
    x = builder.input("x", TensorType(f32, (batch, *image)))
    rng = np.random.default_rng(4)
    w = builder.constant(rng.standard_normal(taps).astype(np.float32))
    b = builder.constant(rng.standard_normal((taps[0], *(1,) * rank)).astype(np.float32))
    y = builder.conv(x, w, strides=(*(1,) * (rank - 1), stride))
    builder.output("y", builder.relu(builder.add(y, b)))
    return builder.graph


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize(
    ("image", "taps", "stride"),
    [
        ((5, 9, 21), (3, 5, 3, 3), 1),
        ((2, 101), (24, 2, 4), 2),
        ((6, 9, 21), (1, 6, 3, 3), 1),
    ],
    ids=["few filters", "neighbours as channels", "one filter"],
)
def test_places_in_lanes_keep_their_bits_in_any_batch(
    image: tuple[int, ...], taps: tuple[int, ...], stride: int, target: Target
) -> None:
    open_ = compiled(convolved(OPEN, image, taps, stride), target)
    x = np.random.default_rng(3).standard_normal((14, *image)).astype(np.float32)
    wanted = alone(open_, x)
    for count in (1, 3, 14):
        known = compiled(convolved(count, image, taps, stride), target, threads=2)
        assert any("conv_planar" in kernel.name for kernel in known.kernels)
        for model in (open_, known):
            np.testing.assert_array_equal(bits(model, x[:count]), wanted[:count])


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "known",
    [(1, 3, 100), pytest.param((1, 2, 3, 4, 14, 27, 100), marks=pytest.mark.slow)],
    ids=["few", "all"],
)
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
def test_rows_of_a_perceptron_keep_their_bits_in_any_batch(
    target: Target, known: tuple[int, ...]
) -> None:
    options = pipeline.CompileOptions(targets=(target,), threads=1, jobs=1)

    def made(batch: int | str) -> Model:
        return Model(pipeline.compile_model(mlp(batch), options), threads=1)

    open_ = made("batch")
    (_, _, (_, *sample)) = open_.inputs[0]
    x = np.random.default_rng(2).standard_normal((100, *sample)).astype(np.float32)
    wanted = alone(open_, x)
    for count in (1, 2, 3, 4, 14, 27, 100):
        np.testing.assert_array_equal(bits(open_, x[:count]), wanted[:count])
        if count in known:
            np.testing.assert_array_equal(bits(made(count), x[:count]), wanted[:count])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("length", [2, 3, 5, 8, 12])
def test_sums_of_short_rows_keep_their_bits_in_any_batch(
    length: int, target: Target
) -> None:
    x = np.random.default_rng(length).standard_normal((27, length)).astype(np.float32)
    open_ = compiled(short_rows(OPEN, length), target)
    wanted = alone(open_, x)
    np.testing.assert_array_equal(alone(compiled(short_rows(1, length), target), x), wanted)
    for count in BATCHES:
        np.testing.assert_array_equal(bits(open_, x[:count]), wanted[:count])
    known = bits(compiled(short_rows(27, length), target), x)
    np.testing.assert_array_equal(known, wanted)


def short_rows(batch: Dim, length: int) -> Graph:
    """Sums of the elements and of their squares, and what softmax makes of those."""
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (batch, length)))
    mean = b.reduce_mean(x, axes=(1,), keepdims=True)
    norm = b.reduce_sum(b.mul(x, x), axes=(1,), keepdims=True)
    b.output("y", b.softmax(b.add(b.sub(x, mean), b.sqrt(norm)), axis=1))
    return b.graph
