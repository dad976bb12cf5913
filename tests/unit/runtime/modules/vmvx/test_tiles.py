"""Matrices in tiles: pack, multiply, unpack."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tilewright.base.budget import Budget, Limits
from tilewright.base.errors import DeviceError, LimitError
from tilewright.runtime.modules.vmvx import create_vmvx_module
from tilewright.runtime.vm.buffer import VmBuffer

MODULE = create_vmvx_module()
F32, S8 = 1, 2
ACCUMULATE = 0x100
INNER, OUTER = 0x100, 0x200


def call(name: str, *arguments: object) -> object:
    function = MODULE.bind(None, name, None)
    assert function is not None
    return function(*arguments)


def pack(
    matrix: np.ndarray, tile0: int, tile1: int, flags: int, padding: int
) -> np.ndarray:
    rows, columns = matrix.shape
    outer = [-(-rows // tile0), -(-columns // tile1)]
    inner = [tile0, tile1]
    shape = (
        *(outer[::-1] if flags & OUTER else outer),
        *(inner[::-1] if flags & INNER else inner),
    )
    out = np.zeros(shape, matrix.dtype)
    call(
        "pack", VmBuffer(matrix), 0, columns, 1, VmBuffer(out), 0,
        shape[1] * shape[2] * shape[3], shape[2] * shape[3], rows, columns, *shape, padding, flags,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("flags", [0, INNER, OUTER, INNER | OUTER])
@pytest.mark.parametrize(
    ("rows", "columns", "tile0", "tile1"), [(7, 5, 4, 2), (8, 4, 4, 4), (1, 1, 3, 2)]
)
def test_packing_puts_elements_where_the_flags_say(
    flags: int, rows: int, columns: int, tile0: int, tile1: int
) -> None:
    matrix = np.arange(1, rows * columns + 1, dtype=np.int32).reshape(rows, columns)
    tiles = pack(matrix, tile0, tile1, flags | 3, -9)
    for i, j in product(
        range(-(-rows // tile0) * tile0), range(-(-columns // tile1) * tile1)
    ):
        outer, inner = (i // tile0, j // tile1), (i % tile0, j % tile1)
        outer = outer[::-1] if flags & OUTER else outer
        inner = inner[::-1] if flags & INNER else inner
        inside = i < rows and j < columns
        assert tiles[(*outer, *inner)] == (matrix[i, j] if inside else -9)


@pytest.mark.parametrize("flags", [0, INNER, OUTER, INNER | OUTER])
def test_unpacking_undoes_packing(flags: int) -> None:
    matrix = np.random.default_rng(1).standard_normal((9, 11)).astype(np.float32)
    tiles = pack(matrix, 4, 3, flags | F32, 0)
    out = np.zeros((9, 13), np.float32)
    shape = tiles.shape
    call(
        "unpack", VmBuffer(tiles), 0, shape[1] * shape[2] * shape[3], shape[2] * shape[3],
        VmBuffer(out), 2, 13, 1, *shape, 9, 11, flags | F32,
    )  # fmt: skip
    np.testing.assert_array_equal(out[:, 2:], matrix)
    assert (out[:, :2] == 0).all()


@pytest.mark.parametrize("flags", [0, INNER, OUTER, INNER | OUTER])
def test_until_20240410_columns_and_tiles_lie_next_to_each_other(flags: int) -> None:
    matrix = np.random.default_rng(1).standard_normal((9, 11)).astype(np.float32)
    wanted = pack(matrix, 4, 3, flags | F32, 0)
    tiles, back = np.zeros_like(wanted), np.zeros_like(matrix)
    shape = wanted.shape
    stride = shape[1] * shape[2] * shape[3]
    arguments = VmBuffer(matrix), 0, 11, VmBuffer(tiles), 0, stride, 9, 11
    MODULE.bind(None, "pack", "0rIIrIIIIIIIIIi_v")(*arguments, *shape, 0, flags | F32)
    np.testing.assert_array_equal(tiles, wanted)
    arguments = VmBuffer(tiles), 0, stride, VmBuffer(back), 0, 11, *shape
    MODULE.bind(None, "unpack", "0rIIrIIIIIIIIi_v")(*arguments, 9, 11, flags | F32)
    np.testing.assert_array_equal(back, matrix)


def test_bytes_are_packed_with_the_low_bits_of_the_padding() -> None:
    tiles = pack(np.ones((1, 1), np.int8), 2, 2, 2, 0x1FE)
    assert tiles.reshape(-1).tolist() == [1, -2, -2, -2]


def multiply(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, tile: tuple[int, int, int], flags: int
) -> np.ndarray:
    m, n = len(a), len(b)
    m0, n0, k0 = tile
    kind = 2 if a.dtype == np.int8 else 1
    left, right = pack(a, m0, k0, kind, 0), pack(b, n0, k0, kind, 0)
    out = pack(c, m0, n0, 1 if c.dtype == np.float32 else 3, 0)
    call(
        "mmt4d", VmBuffer(left), 0, left[0].size, VmBuffer(right), 0, right[0].size,
        VmBuffer(out), 0, out[0].size, left.shape[0], right.shape[0], left.shape[1],
        m0, n0, k0, flags,
    )  # fmt: skip
    return out.transpose(0, 2, 1, 3).reshape(-1, out.shape[1] * n0)[:m, :n]


@pytest.mark.parametrize("tile", [(8, 8, 1), (8, 8, 4), (1, 1, 1), (3, 5, 2)])
@pytest.mark.parametrize("accumulate", [0, ACCUMULATE])
def test_products_of_floats(tile: tuple[int, int, int], accumulate: int) -> None:
    random = np.random.default_rng(2)
    a, b, c = (
        random.standard_normal(s).astype(np.float32) for s in ((13, 29), (7, 29), (13, 7))
    )
    got = multiply(a, b, c, tile, F32 | accumulate)
    wanted = a.astype(np.float64) @ b.T + (c if accumulate else 0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("accumulate", [0, ACCUMULATE])
def test_products_of_bytes_are_exact_and_wrap(accumulate: int) -> None:
    a = np.full((3, 5), -128, np.int8)
    b = np.full((2, 5), -128, np.int8)
    c = np.full((3, 2), 2**31 - 1, np.int32)
    got = multiply(a, b, c, (8, 8, 2), S8 | accumulate)
    wanted = 5 * 128 * 128 + (2**31 - 1 if accumulate else 0)
    assert (got == (wanted + 2**31) % 2**32 - 2**31).all()


def test_a_sum_over_nothing_is_zero_or_what_was_there() -> None:
    empty, out = VmBuffer.allocate(0), np.full((1, 1, 2, 2), 5, np.float32)
    arguments = empty, 0, 0, empty, 0, 0, VmBuffer(out), 0, 4, 1, 1, 0, 2, 2, 1
    call("mmt4d", *arguments, F32 | ACCUMULATE)
    assert (out == 5).all()
    call("mmt4d", *arguments, F32)
    assert (out == 0).all()


SHAPE = {"left_offset": 0, "left_stride": 8, "right_offset": 0, "right_stride": 8, "out_offset": 0,
         "out_stride": 8, "m": 2, "n": 2, "k": 2, "m0": 2, "n0": 2, "k0": 2}  # fmt: skip


def multiply_shaped(
    left: VmBuffer, right: VmBuffer, out: VmBuffer, shape: dict[str, int]
) -> None:
    s = {**SHAPE, **shape}
    call(
        "mmt4d", left, s["left_offset"], s["left_stride"], right, s["right_offset"],
        s["right_stride"], out, s["out_offset"], s["out_stride"], s["m"], s["n"], s["k"], s["m0"],
        s["n0"], s["k0"], F32,
    )  # fmt: skip


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", sorted(SHAPE))
@pytest.mark.parametrize("value", [-1, 9, 2**31, 2**62])
def test_tiles_outside_of_their_buffers_fail(name: str, value: int) -> None:
    out = np.zeros(16, np.float32)
    left, right = (VmBuffer(np.ones(16, np.float32)) for _ in range(2))
    multiply_shaped(left, right, VmBuffer(out), {})
    assert (out == 4).all(), "the shape fits as it is"
    with pytest.raises(DeviceError):
        multiply_shaped(left, right, VmBuffer(out), {name: value})
    assert (out == 4).all()


def test_memory_is_not_multiplied_by_rows_that_are_the_same() -> None:
    buffer = VmBuffer.allocate(4096)
    with pytest.raises(DeviceError, match="name elements twice"):
        call("mmt4d", buffer, 0, 0, buffer, 0, 8, buffer, 0, 1, 512, 1, 8, 1, 1, 1, F32)


def test_a_matrix_that_is_larger_than_its_tiles_fails() -> None:
    matrix, tiles = VmBuffer.allocate(400), VmBuffer.allocate(64)
    with pytest.raises(DeviceError, match="tiles for 4x4, the matrix is 5x4"):
        call("pack", matrix, 0, 4, 1, tiles, 0, 16, 16, 5, 4, 1, 1, 4, 4, 0, F32)
    with pytest.raises(DeviceError, match="tiles for 4x4, the matrix is 4x5"):
        call("unpack", tiles, 0, 16, 16, matrix, 0, 5, 1, 1, 1, 4, 4, 4, 5, F32)


@pytest.mark.parametrize(("name", "flags"), [("mmt4d", 3), ("pack", 0), ("unpack", 2)])
def test_unknown_element_types_are_refused(name: str, flags: int) -> None:
    convention = next(f.convention for f in MODULE.functions if f.name == name)
    buffer = VmBuffer.allocate(64)
    arguments: list[object] = [buffer if b == "ref" else 1 for b in convention.arguments]
    arguments[-1] = flags
    with pytest.raises(DeviceError, match=f"{name}: flags {flags:#x}"):
        call(name, *arguments)


@pytest.mark.parametrize(("role", "tile"), [(1, (8, 4)), (2, (8, 4)), (3, (8, 8))])
def test_tile_sizes_fit_each_other(role: int, tile: tuple[int, int]) -> None:
    for operation in range(1, 7):
        assert call("query_tile_sizes.2d", 10, -(2**63), operation << 8 | role) == tile


@pytest.mark.parametrize("flags", [0, 1, 4, 0x100, 0x701])
def test_tile_sizes_of_something_else_are_refused(flags: int) -> None:
    with pytest.raises(DeviceError, match="query_tile_sizes: flags"):
        call("query_tile_sizes.2d", 1, 1, flags)


def test_unpacking_takes_what_the_matrix_takes_of_tiles_without_end() -> None:
    """Strides of zero make 2**60 tiles of one number; two of them are wanted."""
    out = np.zeros((2, 3), np.float32)
    source = np.array([7], np.float32)
    call(
        "unpack", VmBuffer(source), 0, 0, 0, VmBuffer(out), 0, 3, 1,
        1 << 30, 1 << 30, 1, 1, 2, 3, F32,
    )  # fmt: skip
    assert (out == 7).all()


def test_pieces_of_a_product_are_the_whole_product(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    a, b = (
        rng.integers(-128, 128, shape).astype(np.int8) for shape in ((37, 20), (18, 20))
    )
    c = rng.integers(-1000, 1000, (37, 18)).astype(np.int32)
    whole = multiply(a, b, c, (8, 8, 4), S8 | ACCUMULATE)
    monkeypatch.setattr("tilewright.runtime.modules.vmvx.tiles._PIECE", 1)
    with Budget(Limits()).call():
        np.testing.assert_array_equal(multiply(a, b, c, (8, 8, 4), S8 | ACCUMULATE), whole)


def test_a_product_of_a_stranger_is_charged_before_and_while_it_is_made() -> None:
    a = np.ones((512, 512), np.float32)
    with (
        Budget(Limits(max_steps=1000)).call(),
        pytest.raises(LimitError, match="more than 1000 steps"),
    ):
        multiply(a, a, a.copy(), (8, 8, 4), F32)
