"""Exports of the `vmvx` module about matrices in tiles: pack, multiply, unpack.

A tiled matrix is [rows of tiles, tiles of a row, tile rows, tile columns], each row of tiles dense.
`mmt4d` multiplies by a transposed right operand.  Sums of f32 are those of numpy's matmul: IREE's
own order depends on the processor it runs on, ours may differ in the last places; integers are
exact and wrap.

Source: IREE `builtins/ukernel/exported_bits.h` for the flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast, final

import numpy as np

from tilewright.base.budget import CURRENT
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.modules.vmvx.spans import (
    Array,
    charge,
    read_span,
    temporary,
    write_span,
)
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction

_TYPE_MASK: Final = 0xFF
_ACCUMULATE: Final = 0x100
_TRANSPOSE_INNER: Final = 0x100
_TRANSPOSE_OUTER: Final = 0x200
_ROLE_MASK: Final = 0xFF
_OPERATION_MASK: Final = 0xFF00

_F32: Final = np.dtype(np.float32)
_I32: Final = np.dtype(np.int32)
_U32: Final = np.dtype(np.uint32)
_S8: Final = np.dtype(np.int8)
_U8: Final = np.dtype(np.uint8)


@final
@dataclass(frozen=True, slots=True)
class _Product:
    """Element types of a multiplication; sums are made in `wide`, where they are exact or f32."""

    operand: np.dtype[Any]
    result: np.dtype[Any]
    wide: np.dtype[Any]


_PRODUCTS: Final = {
    1: _Product(_F32, _F32, _F32),
    2: _Product(_S8, _I32, np.dtype(np.float64)),
}
_PACKED: Final = {1: _U32, 2: _U8, 3: _U32}
_UNPACKED: Final = {1: _U32, 3: _U32}

_TILE_M: Final = 8
_TILE_N: Final = 8
_TILE_K: Final = 4
_TILES: Final = {1: (_TILE_M, _TILE_K), 2: (_TILE_N, _TILE_K), 3: (_TILE_M, _TILE_N)}
_PIECE: Final = 1 << 28
"""Products of numbers between which the clock is looked at."""
_MATMULS: Final = frozenset(range(1, 7))


def _entry(table: dict[int, Any], flags: int, subject: str) -> Any:
    found = table.get(flags & _TYPE_MASK)
    if found is None:
        raise failure(StatusCode.INVALID_ARGUMENT, f"{subject}: flags {flags:#x}")
    return found


def _multiply(
    left: VmBuffer,
    left_offset: int,
    left_stride: int,
    right: VmBuffer,
    right_offset: int,
    right_stride: int,
    out: VmBuffer,
    out_offset: int,
    out_stride: int,
    m: int,
    n: int,
    k: int,
    m0: int,
    n0: int,
    k0: int,
    flags: int,
) -> None:
    product = cast("_Product", _entry(_PRODUCTS, flags, "mmt4d"))
    dtype = product.operand
    a = read_span(
        left,
        dtype,
        left_offset,
        (m, k, m0, k0),
        (left_stride, m0 * k0, k0, 1),
        distinct=True,
    )
    b = read_span(
        right,
        dtype,
        right_offset,
        (n, k, n0, k0),
        (right_stride, n0 * k0, k0, 1),
        distinct=True,
    )
    c = write_span(
        out, product.result, out_offset, (m, n, m0, n0), (out_stride, m0 * n0, n0, 1)
    )
    if not c.size:
        return
    rows = m if CURRENT.account is None else max(1, _PIECE // max(1, m0 * k * k0 * n * n0))
    with temporary(b.size + rows * (a.size + 2 * c.size) // m, product.wide):
        wide = b.astype(product.wide)
        for row in range(0, m, rows):
            charge(a[row : row + rows].size * n * n0)
            piece = slice(row, row + rows)
            _multiply_rows(c[piece], a[piece], wide, product, flags)


def _multiply_rows(c: Array, a: Array, wide: Array, product: _Product, flags: int) -> None:
    """Rows of tiles of a product; those that are not trusted go piece by piece."""
    total = c.astype(product.wide) if flags & _ACCUMULATE else np.zeros((), product.wide)
    if a.size and wide.size:
        total = total + _product(a.astype(product.wide), wide)
    if product.wide != product.result:
        total = total.astype(np.int64)
    np.copyto(c, total, casting="unsafe")


def _product(a: Array, b: Array) -> Array:
    """[m, k, m0, k0] by [n, k, n0, k0] gives [m, n, m0, n0]."""
    m, k, m0, k0 = a.shape
    n, _, n0, _ = b.shape
    rows = a.transpose(0, 2, 1, 3).reshape(m * m0, k * k0)
    columns = b.transpose(0, 2, 1, 3).reshape(n * n0, k * k0)
    flat: Array = rows @ columns.T
    return flat.reshape(m, m0, n, n0).transpose(0, 2, 1, 3)


def _pack(
    source: VmBuffer,
    offset: int,
    stride0: int,
    stride1: int,
    out: VmBuffer,
    out_offset: int,
    out_stride0: int,
    out_stride1: int,
    size0: int,
    size1: int,
    out_size0: int,
    out_size1: int,
    out_size2: int,
    out_size3: int,
    padding: int,
    flags: int,
) -> None:
    dtype = cast("np.dtype[Any]", _entry(_PACKED, flags, "pack"))
    matrix = read_span(source, dtype, offset, (size0, size1), (stride0, stride1))
    tiles = write_span(
        out,
        dtype,
        out_offset,
        (out_size0, out_size1, out_size2, out_size3),
        (out_stride0, out_stride1, out_size3, 1),
    )
    if not tiles.size:
        return
    upright = _upright(tiles, flags)
    rows, columns = _covered(upright, size0, size1, "pack")
    charge(tiles.size)
    with temporary(rows * columns, dtype):
        padded = np.full((rows, columns), padding & (1 << 8 * dtype.itemsize) - 1, dtype)
        if matrix.size:
            padded[:size0, :size1] = matrix
        outer0, outer1, tile0, tile1 = upright.shape
        upright[...] = padded.reshape(outer0, tile0, outer1, tile1).transpose(0, 2, 1, 3)


def _pack_2024(
    source: VmBuffer,
    offset: int,
    stride0: int,
    out: VmBuffer,
    out_offset: int,
    out_stride0: int,
    *sizes: int,
) -> None:
    """Until release 20240410: columns and tiles lie next to each other."""
    tile = sizes[4] * sizes[5]
    _pack(source, offset, stride0, 1, out, out_offset, out_stride0, tile, *sizes)


def _unpack_2024(
    source: VmBuffer,
    offset: int,
    stride0: int,
    out: VmBuffer,
    out_offset: int,
    out_stride0: int,
    *sizes: int,
) -> None:
    """Until release 20240410: columns and tiles lie next to each other."""
    tile = sizes[2] * sizes[3]
    _unpack(source, offset, stride0, tile, out, out_offset, out_stride0, 1, *sizes)


def _unpack(
    source: VmBuffer,
    offset: int,
    stride0: int,
    stride1: int,
    out: VmBuffer,
    out_offset: int,
    out_stride0: int,
    out_stride1: int,
    size0: int,
    size1: int,
    size2: int,
    size3: int,
    out_size0: int,
    out_size1: int,
    flags: int,
) -> None:
    dtype = cast("np.dtype[Any]", _entry(_UNPACKED, flags, "unpack"))
    tiles = read_span(
        source,
        dtype,
        offset,
        (size0, size1, size2, size3),
        (stride0, stride1, size3, 1),
    )
    matrix = write_span(
        out, dtype, out_offset, (out_size0, out_size1), (out_stride0, out_stride1)
    )
    if not matrix.size:
        return
    upright = _upright(tiles, flags)
    _covered(upright, out_size0, out_size1, "unpack")
    charge(matrix.size)
    # Only what the matrix takes, in place: strides of zero make the tiles as many as they like.
    tile0, tile1 = upright.shape[2:]
    for rows in _whole_and_rest(out_size0, tile0):
        for columns in _whole_and_rest(out_size1, tile1):
            target = matrix[rows.begin : rows.end, columns.begin : columns.end]
            target.reshape(rows.tiles, rows.length, columns.tiles, columns.length)[...] = (
                upright[
                    rows.first : rows.first + rows.tiles,
                    columns.first : columns.first + columns.tiles,
                    : rows.length,
                    : columns.length,
                ].transpose(0, 2, 1, 3)
            )


class _TileRange(NamedTuple):
    """A range of rows or columns that is made of equal parts of tiles."""

    begin: int
    end: int
    first: int  # tile
    tiles: int
    length: int  # of each tile's part


def _whole_and_rest(size: int, tile: int) -> list[_TileRange]:
    """The whole tiles of a dimension, and the part of one behind them."""
    tiles, rest = divmod(size, tile)
    parts = [
        _TileRange(0, tiles * tile, 0, tiles, tile),
        _TileRange(size - rest, size, tiles, 1, rest),
    ]
    return [part for part in parts if part.begin < part.end]


def _upright(tiles: Array, flags: int) -> Array:
    """The same tiles in the order of the matrix, whichever transposition the flags say."""
    if flags & _TRANSPOSE_OUTER:
        tiles = tiles.transpose(1, 0, 2, 3)
    if flags & _TRANSPOSE_INNER:
        tiles = tiles.transpose(0, 1, 3, 2)
    return tiles


def _covered(upright: Array, size0: int, size1: int, subject: str) -> tuple[int, int]:
    """Rows and columns of the tiles laid out.  Raises: DeviceError when the matrix has more."""
    outer0, outer1, tile0, tile1 = upright.shape
    rows, columns = outer0 * tile0, outer1 * tile1
    if rows < size0 or columns < size1:
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            f"{subject}: tiles for {rows}x{columns}, the matrix is {size0}x{size1}",
        )
    return rows, columns


def _query_tile_sizes(size0: int, size1: int, flags: int) -> tuple[int, int]:
    """The tiles that executables lay matrices out in: 8x4 by 8x4, whatever the processor."""
    del size0, size1
    tile = _TILES.get(flags & _ROLE_MASK)
    if tile is None or (flags & _OPERATION_MASK) >> 8 not in _MATMULS:
        raise failure(StatusCode.INVALID_ARGUMENT, f"query_tile_sizes: flags {flags:#x}")
    return tile


ROWS: Final = (
    NativeFunction("mmt4d", ("0rIIrIIrIIIIIiiii_v",), _multiply, "bytes bytes bytes"),
    NativeFunction("pack", ("0rIIIrIIIIIIIIIIi_v",), _pack, "bytes bytes"),
    NativeFunction("pack", ("0rIIrIIIIIIIIIi_v",), _pack_2024, "bytes bytes"),
    NativeFunction("unpack", ("0rIIIrIIIIIIIIIi_v",), _unpack, "bytes bytes"),
    NativeFunction("unpack", ("0rIIrIIIIIIIIi_v",), _unpack_2024, "bytes bytes"),
    NativeFunction("query_tile_sizes.2d", ("0IIi_II",), _query_tile_sizes),
)
