"""Convolutions in fewer products: Winograd's minimal filtering, as three ops and a matrix product.

    v = winograd_input(x)                 # [points², tiles, channels]: B' d B of each tile of the image
    m = matmul(v, u)                      # one product for each pair of points
    y = winograd_output(m)                # [images, height, width, filters]: A' m A of each tile

`u` is `winograd_filter(w)`, G g G', which is folded.  A tile of `tile` x `tile` results takes
(tile + r - 1)² products per channel in the place of (tile r)².  Filters in groups are as many convolutions, each of
its own channels: their points lie one group behind another along the first axis, and the product sees only more points.

Bytes have their own points, whole numbers: 16-bit integers on either side of the product, whose sums wrap at 32 bits.
What the filters are a multiple of is divided out behind it, the odd part by its inverse modulo 2³², so that a result of few
enough bits is exact (`largest_sum`).

Source: S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray, Fast Algorithms for
Convolutional Neural Networks, CVPR 2016, section 4; B. Barabasz et al., Error Analysis and Improving the Accuracy of
Winograd Convolution for Deep Neural Networks, ACM TOMS 46, 2020, for what points cost.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, Protocol, TypeVar, cast, final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import FLOATS, DType, from_numpy, i8, i16, i32, u8
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.placement import empty_at_line
from tilewright.compiler.graph.schema import Attributes, Role, TensorType, Trait
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops.bodies import Operands, Results, given
from tilewright.compiler.ops.contraction import narrow
from tilewright.compiler.ops.declaration import Types, attr, declare, operand
from tilewright.compiler.ops.shapes import check_positive, check_same, first

Matrix = tuple[tuple[Fraction, ...], ...]
_POINTS: Final = {
    2: tuple(map(Fraction, ("0", "1", "-1"))),
    4: tuple(map(Fraction, ("0", "5/8", "-5/8", "3/2", "-3/2"))),
}
"""By tile, where polynomials are evaluated, beside infinity.

Pairs of opposite sign share their work.  Whole numbers need fewer multiplications, but 1 and 2 lose four times as
many digits as 5/8 and 3/2, whose powers are exact, too (tests/e2e/test_winograd.py measures).
"""

_WHOLE_POINTS: Final = {
    2: tuple(map(Fraction, (0, 1, -1))),
    4: tuple(map(Fraction, (0, 1, -1, 2, -2))),
}
"""The same for integers, whose matrices are whole then."""
_WORD: Final = 32

# --- the matrices ----------------------------------------------------------------------------


def _product(factors: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of Π (x - f), lowest first."""
    result = [Fraction(1)]
    for factor in factors:
        shifted = [Fraction(0), *result]
        result = [
            a - factor * b for a, b in zip(shifted, [*result, Fraction(0)], strict=True)
        ]
    return result


@functools.cache
def matrices(tile: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """(A', G, B') of F(tile, taps): A' [tile, n], G [n, taps], B' [n, n], n = tile + taps - 1.

    Cook and Toom's construction at n - 1 points and infinity; what rows of
    B' would be divided by stands in G.
    """
    return _toom(_POINTS.get(tile, ()), tile, taps)


@functools.cache
def whole_matrices(tile: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """(A', G, B') in whole numbers, whose results are those of F(tile, taps) times `_multiple(tile, taps)` for each axis."""
    a, g, b = _toom(_WHOLE_POINTS.get(tile, ()), tile, taps)
    scales = _row_scales(g)
    most = math.lcm(*scales)
    wide = [[x * scale for x in row] for row, scale in zip(g, scales, strict=True)]
    sums = [[x * (most // s) for x, s in zip(row, scales, strict=True)] for row in a]
    return _frozen(sums), _frozen(wide), b


def _row_scales(g: Matrix) -> list[int]:
    """What makes each row of a matrix whole."""
    return [math.lcm(*(x.denominator for x in row)) for row in g]


def _multiple(tile: int, taps: int) -> int:
    """How many times a result along one axis is what `whole_matrices` make of it."""
    return math.lcm(*_row_scales(_toom(_WHOLE_POINTS.get(tile, ()), tile, taps)[1]))


def largest_sum(tile: int, taps: int) -> int:
    """The size below which results of integers are exact."""
    square = _multiple(tile, taps) ** 2
    return (1 << (_WORD - 1)) // (square & -square)


def _matrices_for(dtype: DType, tile: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    return whole_matrices(tile, taps) if dtype.is_integer else matrices(tile, taps)


def _toom(
    points: Sequence[Fraction], tile: int, taps: int
) -> tuple[Matrix, Matrix, Matrix]:
    if len(points) != tile + taps - 2:
        raise ModelError(f"no points for tiles of {tile} and filters of {taps} taps")
    a = [[p**i for p in points] + [Fraction(int(i == tile - 1))] for i in range(tile)]
    g: list[list[Fraction]] = []
    b: list[list[Fraction]] = []
    for i, point in enumerate(points):
        others = [p for j, p in enumerate(points) if j != i]
        scale = functools.reduce(lambda x, y: x * y, (point - p for p in others))
        g.append([point**j / scale for j in range(taps)])
        b.append([*_product(others), Fraction(0)])
    g.append([Fraction(int(j == taps - 1)) for j in range(taps)])
    b.append(_product(points))
    return _frozen(a), _frozen(g), _frozen(b)


def _frozen(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(map(tuple, rows))


def _array(matrix: Matrix) -> np.ndarray:
    return np.array([[float(x) for x in row] for row in matrix])


# --- one axis of a transform -----------------------------------------------------------------

V = TypeVar("V")


class Arithmetic(Protocol[V]):
    """Who adds: a builder of kernels makes expressions, an oracle computes arrays."""

    def add(self, x: V, y: V, /) -> V:
        """The sum."""
        ...

    def sub(self, x: V, y: V, /) -> V:
        """The difference."""
        ...

    def mul(self, x: V, y: float, /) -> V:
        """The product with a number."""
        ...


Sum = tuple[tuple[float, int], ...]
"""Coefficients, plain additions first, each with the place of the value it multiplies."""


@final
@record
class _Plan:
    """How a matrix is multiplied: which values are taken together first, and what each row is then.

    Attributes:
        pairs: places i where values i and i + 1 are replaced by their sum and their difference, in order.
        rows: one sum for a row; two for a pair of rows, which are the sum and the difference of both.
    """

    pairs: tuple[int, ...]
    rows: tuple[tuple[Sum, ...], ...]


@functools.cache
def _plan(matrix: Matrix) -> _Plan:
    """The plan of a matrix.

    Points come in pairs of opposite sign: rows of such a pair are the sum and the difference of an even
    and an odd part, columns are taken together before rows are summed.
    """
    matrix, pairs = _paired_columns(matrix)
    rows: list[tuple[Sum, ...]] = []
    done = 0
    while done < len(matrix):
        row, *after = matrix[done:]
        even, odd = _halves(row, after[0]) if after else (row, ())
        if any(odd) and not any(x and y for x, y in zip(even, odd, strict=True)):
            rows.append((_ordered(even), _ordered(odd)))
        else:
            rows.append((_ordered(row),))
        done += len(rows[-1])
    return _Plan(pairs, tuple(rows))


def _ordered(row: Sequence[Fraction]) -> Sum:
    terms = [(factor, place) for place, factor in enumerate(row) if factor]
    terms.sort(key=lambda term: (abs(term[0]) != 1, term[0] < 0))
    return tuple((float(factor), place) for factor, place in terms)


def _combine(b: Arithmetic[V], terms: Sum, values: Sequence[V]) -> V:
    """The sum of coefficients times values."""
    (factor, place), *rest = terms
    total = values[place] if factor == 1 else b.mul(values[place], factor)
    for factor, place in rest:
        value = values[place]
        part = value if abs(factor) == 1 else b.mul(value, abs(factor))
        total = b.add(total, part) if factor > 0 else b.sub(total, part)
    return total


def transform(b: Arithmetic[V], matrix: Matrix, values: Sequence[V]) -> list[V]:
    """`matrix` times a column of values."""
    plan, changed = _plan(matrix), list(values)
    for i in plan.pairs:
        one, other = changed[i : i + 2]
        changed[i : i + 2] = [b.add(one, other), b.sub(one, other)]
    found: list[V] = []
    for sums in plan.rows:
        parts = [_combine(b, terms, changed) for terms in sums]
        if len(parts) == 1:
            found += parts
        else:
            one, other = parts
            found += [b.add(one, other), b.sub(one, other)]
    return found


def _halves(
    row: Sequence[Fraction], other: Sequence[Fraction]
) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Half the sum and half the difference of two rows."""
    even = tuple((x + y) / 2 for x, y in zip(row, other, strict=True))
    odd = tuple((x - y) / 2 for x, y in zip(row, other, strict=True))
    return even, odd


def _paired_columns(matrix: Matrix) -> tuple[Matrix, tuple[int, ...]]:
    """A matrix with columns that agree up to signs replaced by half their sum and difference, and where."""
    columns = [list(column) for column in zip(*matrix, strict=True)]
    pairs: list[int] = []
    for i in range(len(columns) - 1):
        pair = columns[i], columns[i + 1]
        if all(x and abs(x) == abs(y) for x, y in zip(*pair, strict=True)):
            columns[i], columns[i + 1] = map(list, _halves(*pair))
            pairs.append(i)
    return _frozen(list(zip(*columns, strict=True))), tuple(pairs)


def _both_axes(
    b: Arithmetic[V], matrix: Matrix, read: Callable[[int, int], V]
) -> list[list[V]]:
    """`matrix` X `matrix`', X read once element by element."""
    count = len(matrix[0])
    columns = [
        transform(b, matrix, [read(i, j) for i in range(count)]) for j in range(count)
    ]
    return [transform(b, matrix, list(row)) for row in zip(*columns, strict=True)]


@final
class _Arrays:
    """Sums of arrays: what an infinity or NaN reaches, it reaches in machine code, too."""

    add = staticmethod(np.add)
    sub = staticmethod(np.subtract)
    mul = staticmethod(np.multiply)


@final
@record
class _Integers:
    """Sums in kernels of integers, which wrap; factors are whole."""

    b: KernelBuilder

    def add(self, x: Expression, y: Expression, /) -> Expression:
        return self.b.add(x, y)

    def sub(self, x: Expression, y: Expression, /) -> Expression:
        return self.b.sub(x, y)

    def mul(self, x: Expression, y: float, /) -> Expression:
        return self.b.mul(x, int(y))


def _arithmetic(b: KernelBuilder, dtype: DType) -> Arithmetic[Expression]:
    return _Integers(b) if dtype.is_integer else b


# --- filters ---------------------------------------------------------------------------------

_GROUPS: Final = attr("groups", "int", 1)
_ROOM_BYTES: Final = 1 << 18
"""Of filters in f64 at a time, which stay in a core's cache and are too few for threads of numpy."""


def _square(w: TensorType) -> int:
    """The taps along each side of filters [F, C, r, r]."""
    if w.rank != 4 or w.shape[2] != w.shape[3] or not isinstance(w.shape[2], int):
        raise ModelError(f"winograd_filter needs square filters [F, C, r, r], got {w}")
    return w.shape[2]


def _of_group(size: Dim, attributes: Attributes) -> Dim:
    """The channels or filters of one group, which are equally many in each."""
    groups = cast("int", attributes["groups"])
    if groups < 1:
        raise ModelError(f"groups must be positive, got {groups}")
    count = symbolic.floordiv(size, groups)
    check_same("groups of channels or filters", count * groups, size)
    return count


def _filter_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    w = first(types)
    points = cast("int", attributes["tile"]) + _square(w) - 1
    groups, filters = cast("int", attributes["groups"]), _of_group(w.shape[0], attributes)
    dtype, panel = i16 if w.dtype is i8 else w.dtype, cast("int", attributes["panel"])
    matrix: tuple[Dim, ...] = (w.shape[1], filters)
    if panel:
        matrix = (symbolic.ceildiv(filters, panel), w.shape[1], panel)
    return (TensorType(dtype, (groups * points * points, *matrix)),)


def _filter_oracle(w: np.ndarray, *, tile: int, groups: int, panel: int) -> np.ndarray:
    g = _array(_matrices_for(from_numpy(w.dtype), tile, w.shape[2])[1])
    filters, channels, *square = w.shape
    own = filters // groups
    # G g G' of some filters as one product of matrices: rows of `both` are points, its columns taps.
    both = np.kron(g, g)
    dtype = np.dtype(np.int16) if w.dtype == np.int8 else w.dtype
    grouped = w.reshape(groups, own, channels, *square)
    width, panels = (panel, -(-own // panel)) if panel else (own, 1)
    found = empty_at_line((groups, len(both), panels, channels, width), dtype)
    step = max(1, _ROOM_BYTES // max(1, both.itemsize * len(both) * width))
    blocks = itertools.product(range(groups), range(panels), range(0, channels, step))
    for group, p, at in blocks:
        part = grouped[group, p * width : (p + 1) * width, at : at + step]
        taps = np.empty((*square, part.shape[1], len(part)))
        taps[...] = part.transpose(2, 3, 1, 0)
        points = both @ taps.reshape(math.prod(square), -1)
        place = found[group, :, p, at : at + step]
        place[..., : len(part)] = points.reshape(len(both), part.shape[1], len(part))
        place[..., len(part) :] = 0
    return found.reshape(groups * len(both), *found.shape[2 if panel else 3 :])


winograd_filter: Final = declare(
    name="winograd_filter",
    summary="Filters [F, C, r, r] in the domain of Winograd's algorithm: G g G' as [groups points², C, F / groups]; of i8 in i16; with `panel` as `pack_panels` has them",
    operands=(operand("w", (*FLOATS, i8)),),
    attributes=(attr("tile", "int"), _GROUPS, attr("panel", "int", 0)),
    infer=_filter_infer,
    evaluate=_filter_oracle,
    traits=Trait.PURE,
    cases=(
        "f32[3,5,3,3]; tile=4",
        "f32[2,1,3,3]; tile=2",
        "f32[6,2,3,3]; tile=4 groups=3",
        "f32[5,3,3,3]; tile=4 panel=2",
        "i8[3,5,3,3]:index(128); tile=4",
        "i8[4,1,3,3]:index(128); tile=2 groups=2",
    ),
    on_host="filters are known when a model is compiled",
    source="Lavin and Gray, 2016, equation 8",
)

# --- input -----------------------------------------------------------------------------------

_SIZES: Final = (attr("tile", "int"), attr("taps", "int"), _GROUPS)


def _tile_count(size: Dim, tile: int, taps: int) -> Dim:
    """How many tiles a padded axis holds, which are whole."""
    check_positive("tiles and taps are", (tile, taps))
    count = symbolic.floordiv(size - (taps - 1), tile)
    check_same("an axis of padded tiles", count * tile + taps - 1, size)
    return count


def _loops(
    tiles: Sequence[Dim], own: Dim, name: str, attributes: Attributes
) -> tuple[tuple[Dim, ...], tuple[str, ...]]:
    """Extents and names of loops over tiles, groups where there are several, and the `own` channels of one."""
    groups = cast("int", attributes["groups"])
    if groups == 1:
        return (*tiles, own), ("n", "h", "w", name)
    return (*tiles, groups, own), ("n", "h", "w", "g", name)


def _joined(group: Sequence[Dim], size: Dim, index: Dim) -> Dim:
    """Where an index within a group lies among those of all groups, `size` each."""
    return group[0] * size + index if group else index


def _input_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    tile, taps = cast("int", attributes["tile"]), cast("int", attributes["taps"])
    if x.rank != 4:
        raise ModelError(f"winograd_input needs images [N, H, W, C], got {x}")
    images, height, width, channels = x.shape
    rows, columns = (_tile_count(size, tile, taps) for size in (height, width))
    points = cast("int", attributes["groups"]) * (tile + taps - 1) ** 2
    own = _of_group(channels, attributes)
    dtype = i16 if x.dtype is u8 else x.dtype
    return (TensorType(dtype, (points, images * rows * columns, own)),)


def _input_oracle(x: np.ndarray, *, tile: int, taps: int, groups: int) -> np.ndarray:
    rows, columns = ((size - taps + 1) // tile for size in x.shape[1:3])

    def read(i: int, j: int) -> np.ndarray:
        cut = x[:, i : i + rows * tile : tile, j : j + columns * tile : tile]
        return cut.astype(np.float64)

    whole = x.dtype == np.uint8
    points = _both_axes(_Arrays(), _matrices_for(from_numpy(x.dtype), tile, taps)[2], read)
    v = np.array([value for row in points for value in row])
    own = x.shape[-1] // groups
    tiles = v.reshape(len(v), v[0, ..., 0].size, groups, own)
    found = np.moveaxis(tiles, 2, 0).reshape(-1, tiles.shape[1], own)
    return found.astype(np.int16) if whole else narrow(found, x)


def _input_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    tile, taps = cast("int", attributes["tile"]), cast("int", attributes["taps"])
    images, height, width, channels = x.shape
    rows, columns = (_tile_count(size, tile, taps) for size in (height, width))
    matrix = _matrices_for(x.dtype, tile, taps)[2]
    arithmetic = _arithmetic(b, x.dtype)
    own = _of_group(channels, attributes)
    extents, names = _loops((images, rows, columns), own, "c", attributes)
    with b.nest(extents, names) as (n, h, w, *g, c):

        def read(i: int, j: int) -> Expression:
            value = b.read(x, (n, h * tile + i, w * tile + j, _joined(g, own, c)))
            return b.cast(value, i16) if x.dtype is u8 else value

        at = (n * rows + h) * columns + w
        for i, row in enumerate(_both_axes(arithmetic, matrix, read)):
            for j, value in enumerate(row):
                point = _joined(g, len(matrix) ** 2, i * len(matrix) + j)
                b.write(result, (point, at, c), value)


winograd_input: Final = declare(
    name="winograd_input",
    summary="Overlapping tiles of padded images in the domain of Winograd's algorithm: B' d B as [groups points², tiles, C / groups]; of u8 in i16",
    operands=(operand("x", (*FLOATS, u8)),),
    attributes=_SIZES,
    infer=_input_infer,
    evaluate=_input_oracle,
    body=_input_body,
    traits=Trait.PURE,
    cases=(
        "[1,6,10,3]; tile=4 taps=3",
        "[2,4,6,5]; tile=2 taps=3",
        "[1,6,6,1]; tile=4 taps=3",
        "[2,4,6,6]; tile=2 taps=3 groups=3",
        "u8[1,6,10,3]:count(255); tile=4 taps=3",
        "u8[2,4,6,6]:count(255); tile=2 taps=3 groups=3",
    ),
    source="Lavin and Gray, 2016, section 4",
)

# --- output ----------------------------------------------------------------------------------


def _tiles_of(sizes: Sequence[Dim], tile: int) -> tuple[Dim, Dim]:
    rows, columns = (symbolic.ceildiv(size, tile) for size in sizes)
    return rows, columns


def _output_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    m = first(types)
    tile, taps = cast("int", attributes["tile"]), cast("int", attributes["taps"])
    images, *sizes = cast("tuple[Dim, ...]", attributes["shape"])
    if m.rank != 3 or len(sizes) != 2:
        raise ModelError(
            f"winograd_output needs [groups points², tiles, F] and (N, H, W), got {m}"
        )
    rows, columns = _tiles_of(sizes, tile)
    groups = cast("int", attributes["groups"])
    check_same(f"points of {m}", m.shape[0], groups * (tile + taps - 1) ** 2)
    check_same(f"tiles of {m}", m.shape[1], images * rows * columns)
    return (m.with_shape((images, *sizes, groups * m.shape[2])),)


def _output_oracle(
    m: np.ndarray, *, tile: int, taps: int, groups: int, shape: tuple[int, ...]
) -> np.ndarray:
    points = tile + taps - 1
    images, height, width = shape
    rows, columns = -(-height // tile), -(-width // tile)
    wide = m.astype(np.float64).reshape(groups, points, points, *m.shape[1:])
    tiles = np.moveaxis(wide, 0, -2)
    tiles = tiles.reshape(points, points, images, rows, columns, groups * m.shape[-1])
    matrix = _matrices_for(from_numpy(m.dtype), tile, taps)[0]
    parts = _both_axes(_Arrays(), matrix, lambda i, j: tiles[i, j])
    whole = np.empty((images, rows * tile, columns * tile, tiles.shape[-1]))
    for i, row in enumerate(parts):
        for j, value in enumerate(row):
            whole[:, i::tile, j::tile] = value
    found = whole[:, :height, :width]
    if m.dtype == np.int32:
        inverse, shift = _division(tile, taps)
        modulus = np.int64(1 << _WORD)
        words = (found.astype(np.int64) % modulus * inverse) & (modulus - 1)
        return words.astype(np.uint32).view(np.int32) >> shift
    return narrow(found, m)


def _division(tile: int, taps: int) -> tuple[int, int]:
    """(f, s): an exact multiple of `_multiple`² in 32 bits is that times x, x being (multiple f mod 2³²) >> s, signed."""
    square = _multiple(tile, taps) ** 2
    even = square & -square
    return pow(square // even, -1, 1 << _WORD), even.bit_length() - 1


def _divided(
    b: KernelBuilder, value: Expression, dtype: DType, tile: int, taps: int
) -> Expression:
    """A result without the multiple that integers have."""
    if not dtype.is_integer:
        return value
    inverse, shift = _division(tile, taps)
    signed = inverse - (1 << _WORD) if inverse >> (_WORD - 1) else inverse
    odd = value if signed == 1 else b.mul(value, signed)
    return b.shr(odd, shift)


def _output_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    m, (result,) = given(operands, 0), results
    tile, taps = cast("int", attributes["tile"]), cast("int", attributes["taps"])
    images, height, width, filters = result.shape
    rows, columns = _tiles_of((height, width), tile)
    points = tile + taps - 1
    matrix = _matrices_for(m.dtype, tile, taps)[0]
    arithmetic = _arithmetic(b, m.dtype)
    own = _of_group(filters, attributes)
    outer, names = _loops((images, rows, columns), own, "f", attributes)
    y = b.temporary(compute_dtype(m.dtype), (*outer, tile, tile), "y")
    with b.nest(outer, names) as (n, h, w, *g, f):
        at = (n * rows + h) * columns + w

        def read(i: int, j: int) -> Expression:
            return b.read(m, (_joined(g, points * points, i * points + j), at, f))

        for i, row in enumerate(_both_axes(arithmetic, matrix, read)):
            for j, value in enumerate(row):
                result_value = _divided(b, value, m.dtype, tile, taps)
                b.store(y, (n, h, w, *g, f, i, j), result_value)
    with b.nest((*outer, tile, tile), (*names, "i", "j")) as (n, h, w, *g, f, i, j):
        row, column = h * tile + i, w * tile + j
        inside = b.and_(
            b.lt(b.index(row), b.index(height)), b.lt(b.index(column), b.index(width))
        )
        with b.when(inside):
            value = b.load(y, (n, h, w, *g, f, i, j))
            b.write(result, (n, row, column, _joined(g, own, f)), value)


winograd_output: Final = declare(
    name="winograd_output",
    summary="Sums of products in Winograd's domain as images of all groups: A' m A, `shape` = (N, H, W)",
    operands=(operand("m", (*FLOATS, i32)),),
    attributes=(*_SIZES, attr("shape", "dims")),
    infer=_output_infer,
    evaluate=_output_oracle,
    body=_output_body,
    traits=Trait.PURE,
    role=Role.POOLING,
    cases=(
        "[36,6,3]; tile=4 taps=3 shape=(1,7,9)",
        "[16,6,5]; tile=2 taps=3 shape=(1,4,6)",
        "[36,2,1]; tile=4 taps=3 shape=(2,4,1)",
        "[32,6,5]; tile=2 taps=3 groups=2 shape=(1,4,5)",
        "i32[36,6,3]:index(2147483647); tile=4 taps=3 shape=(1,7,9)",
        "i32[16,6,5]:index(2147483647); tile=2 taps=3 shape=(1,4,6)",
    ),
    source="Lavin and Gray, 2016, section 4",
)

OPS: Final = (winograd_filter, winograd_input, winograd_output)
"""The rows of this file."""
