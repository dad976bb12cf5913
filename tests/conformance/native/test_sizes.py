"""Scheduled code at sizes around what schedules cut at: one kernel for all sizes, one per size.

Buffers end before, or begin behind, an inaccessible page; results and scratch memory are poisoned.
"""

from __future__ import annotations

import numpy as np
import pytest

from conformance.native.size_sweeps import SWEEPS, Sweep
from fakes.native_kernel import needs_x86, targets_here
from fakes.native_library import NativeLibrary
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.target import Target
from tilewright.compiler.lowering.build_kernel import build_kernel
from tilewright.compiler.ops import catalogue
from tilewright.runtime import native

pytestmark = needs_x86
HOST, V3 = Target.host(), Target.level("v3")
by_name = pytest.mark.parametrize("name", SWEEPS)
# One of each kind of schedule; the night has the others.
DISTANT = (
    "matmul", "conv3", "conv_packed", "depthwise", "softmax", "log_softmax", "layer_norm_wide", "max_middle", "mean_all",
    "add_rows", "transpose_inner", "pad", "concat", "max_pool", "trilu",
)  # fmt: skip
assert SWEEPS.keys() >= set(DISTANT)
by_target = pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
TOLERANCE = {"f32": 1e-4, "f16": 2e-2}
# Sizes that once went wrong.
REGRESSIONS: dict[str, list[dict[str, int]]] = {
    "depthwise": [{"N": 1, "H": 3, "W": 6, "C": 1}],
}


def agree(actual: np.ndarray, expected: np.ndarray, context: str) -> None:
    """Close enough for sums in any order: what these tests look for are wrong elements."""
    assert actual.dtype == expected.dtype
    name = dtypes.from_numpy(expected.dtype).name
    tolerance = TOLERANCE.get(name, 0.0)
    np.testing.assert_allclose(actual, expected, tolerance, tolerance, err_msg=context)


def check_dynamic(sweep: Sweep, target: Target, dtype: DType, sizes: list[dict[str, int]]):
    library = NativeLibrary([build_kernel(sweep.node(None, dtype), sweep.op)], target)
    for dims in sizes:
        check(library, 0, sweep, dtype, dims, dynamic=True)


def check_static(sweep: Sweep, target: Target, dtype: DType, sizes: list[dict[str, int]]):
    kernels = [build_kernel(sweep.node(dims, dtype), sweep.op) for dims in sizes]
    library = NativeLibrary(kernels, target)
    for index, dims in enumerate(sizes):
        check(library, index, sweep, dtype, dims, dynamic=False)


def check(
    library: NativeLibrary,
    index: int,
    sweep: Sweep,
    dtype: DType,
    dims: dict[str, int],
    *,
    dynamic: bool,
) -> None:
    arrays = sweep.arrays(dims, dtype, np.random.default_rng(7))
    attributes = sweep.node(dims, dtype).attributes
    expected = catalogue.lookup(sweep.op).schema.evaluate(arrays, attributes)
    types = [(a.shape, a.dtype) for a in expected]
    for at_end in (True, False):
        results = library.run(index, arrays, types, dims if dynamic else {}, at_end=at_end)
        for actual, wanted in zip(results, expected, strict=True):
            agree(actual, wanted, f"{dims} {'end' if at_end else 'start'}")


def drawn(name: str, count: int, seed: int = 0) -> list[dict[str, int]]:
    random = np.random.default_rng(seed)
    return [*REGRESSIONS.get(name, ()), *(SWEEPS[name].draw(random) for _ in range(count))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [n if n in DISTANT else pytest.param(n, marks=pytest.mark.nightly) for n in SWEEPS],
)
def test_one_kernel_is_right_at_every_size(name: str) -> None:
    check_dynamic(SWEEPS[name], HOST, dtypes.f32, drawn(name, 12))


@pytest.mark.sampled(3)
@by_name
def test_kernels_for_one_size_are_right(name: str) -> None:
    check_static(SWEEPS[name], HOST, dtypes.f32, drawn(name, 2, seed=1))


@pytest.mark.thinned(2)
@pytest.mark.skipif(V3 not in targets_here(), reason="runs code for AVX2")
@pytest.mark.parametrize("name", ["log_softmax", "layer_norm", "rms_norm"])
def test_rows_of_16_bits_are_right_around_whole_vectors_of_both_widths(name: str) -> None:
    """Their sums have 8 lanes, what stores 16 bits may have 16."""
    lengths = (1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40)
    sizes = [{"A": 3, "B": 3, "C": length} for length in lengths]
    check_dynamic(SWEEPS[name], V3, dtypes.f16, sizes)


@pytest.mark.nightly
@by_target
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f16], ids=str)
@by_name
def test_every_size_on_every_level(name: str, dtype: DType, target: Target) -> None:
    check_dynamic(SWEEPS[name], target, dtype, drawn(name, 40, seed=2))
    check_static(SWEEPS[name], target, dtype, drawn(name, 8, seed=3))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["matmul", "conv3", "softmax", "sum_first", "layer_norm"])
def test_threads_do_not_change_a_bit(name: str) -> None:
    sweep = SWEEPS[name]
    (dims,) = drawn(name, 1, seed=4)
    arrays = sweep.arrays(dims, dtypes.f32, np.random.default_rng(7))
    node = sweep.node(dims, dtypes.f32)
    kernel = build_kernel(node, sweep.op)
    expected = catalogue.lookup(sweep.op).schema.evaluate(arrays, node.attributes)
    types = [(a.shape, a.dtype) for a in expected]
    found = set()
    for threads in (1, 2, 3):
        library = NativeLibrary([kernel], HOST, threads=threads)
        with native.Pool(threads) as pool:
            found |= {
                library.run(0, arrays, types, pool=pool)[0].tobytes() for _ in range(3)
            }
    assert len(found) == 1
