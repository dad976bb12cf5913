"""Attention to blocks of keys, beside onnxruntime's CPU kernel, which writes into the caches that it reads."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import onnx_models
from fakes.contributed import ours

RNG = np.random.default_rng(31)
LAYOUTS = np.array(
    [
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]],
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]],
    ]
)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def compressed(layouts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where rows begin, and the columns of their blocks, filled up with -1."""
    sums = layouts.sum(axis=2).cumsum(axis=1)
    begins = np.concatenate([np.zeros((len(layouts), 1)), sums], axis=1)
    columns = np.full((len(layouts), sums.max()), -1)
    for own, layout in zip(columns, layouts, strict=True):
        found = np.nonzero(layout)[1]
        own[: len(found)] = found
    return begins.astype(np.int32), columns.astype(np.int32)


def operands(rows: int, total: int, ends: list[int], layouts: int = 2) -> list[np.ndarray]:
    batch = len(ends)
    own = [floats(batch, rows, size) for size in (64, 32, 32)]
    past = [floats(batch, 2, 64, 16) for _ in range(2)]
    sizes = np.array([total], np.int32), np.array(ends, np.int32)
    return [*own, *past, *compressed(LAYOUTS[:layouts]), *sizes]


def theirs(arrays: list[np.ndarray], **options: object) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_models.one_node(
        "SparseAttention", arrays, domain="com.microsoft", outputs=3, **options
    )
    session = runtime.InferenceSession(model.SerializeToString())
    binding = session.io_binding()
    held = [runtime.OrtValue.ortvalue_from_numpy(a.copy()) for a in arrays]
    for i, value in enumerate(held):
        binding.bind_ortvalue_input(f"x{i}", value)
    binding.bind_output("y0")
    for place in (1, 2):
        binding.bind_ortvalue_output(f"y{place}", held[place + 2])
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


@pytest.mark.thinned(5)
@pytest.mark.parametrize("layouts", [1, 2])
@pytest.mark.parametrize(("rows", "ends"), [(37, [37, 37]), (1, [60, 33]), (1, [1, 1])])
@pytest.mark.parametrize("rotary", [0, 1])
def test_rows_see_the_blocks_of_their_head(
    layouts: int, rows: int, ends: list[int], rotary: int
) -> None:
    """onnxruntime computes one sequence after the other: of several lengths at once it reads the wrong rows."""
    arrays = operands(rows, max(ends), ends, layouts)
    if rotary:
        arrays += [floats(64, 8), floats(64, 8)]
    options = {
        "num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16, "do_rotary": rotary
    }  # fmt: skip
    found = ours("SparseAttention", arrays, outputs=3, **options)
    for b, end in enumerate(ends):
        alone = [x[b : b + 1] for x in arrays[:5]] + arrays[5:7]
        alone += [np.array([end], np.int32), np.array([end], np.int32), *arrays[9:]]
        wanted = theirs(alone, **options)
        np.testing.assert_allclose(found[0][b], wanted[0][0], rtol=1e-4, atol=1e-5)
        for one, other in zip(found[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(
                one[b, :, :end], other[0, :, :end], rtol=1e-5, atol=1e-6
            )


def test_the_caches_may_be_long_and_the_first_call_short() -> None:
    """Rows that are padding change nothing of those that are not."""
    arrays = operands(37, 37, [37, 20])
    options = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
    whole = ours("SparseAttention", arrays, outputs=3, **options)
    for place in range(3):
        arrays[place][1, 20:] = 9
    short = ours("SparseAttention", arrays, outputs=3, **options)
    np.testing.assert_array_equal(short[0][0], whole[0][0])
    np.testing.assert_array_equal(short[0][1, :20], whole[0][1, :20])
