"""Kernel bodies of factors of matrices and of triangular systems.

Elimination goes by blocks of columns.  A block is turned round into a buffer of its own, so that a column lies in
order and lanes go along it: the row of the largest number, the quotients, and what they take off the other columns
of the block.  What is right of a block is then gone over once for all of its columns, row by row.  All is computed
in f64 and rounded once, as the oracles do.  Called by the rows of `linear_algebra`.

Source: Golub and Van Loan, "Matrix Computations", sections 3.1, 3.2, 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.dtypes import DType, f64, i32, i64
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes
from tilewright.compiler.kernel.builder import KernelBuilder, Source
from tilewright.compiler.kernel.expressions import fma
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops.bodies import Operands, Results, fold, given

_BLOCK: Final = 16
"""Columns, or rows, for which the rest of a matrix is gone over once."""
_TERMS: Final = 8
"""Of a sum that one statement subtracts."""
_FEW_SIDES: Final = 4
"""Right sides up to which lanes go along the rows of a triangle."""
_NOWHERE: Final = 1 << 62
"""Behind every row."""

Place = tuple[Dim, ...]


@final
@record
class _Matrix:
    """One matrix of a batch, in f64, that becomes its factors.

    Attributes:
        place: which of the batch.
        work: where it stands.
    """

    b: KernelBuilder
    place: Place
    work: Buffer

    @property
    def rows(self) -> Dim:
        return self.work.shape[-2]

    @property
    def columns(self) -> Dim:
        return self.work.shape[-1]

    @property
    def count(self) -> Dim:
        """Steps of elimination."""
        return symbolic.minimum(self.rows, self.columns)

    def get(self, buffer: Source, *indices: Dim) -> Expression:
        """What a buffer holds for this matrix."""
        return self.b.load(buffer, (*self.place, *indices))

    def put(self, buffer: Buffer, *indices: Dim, value: Expression | float) -> None:
        """Let a buffer hold something for this matrix."""
        self.b.store(buffer, (*self.place, *indices), value)

    def scratch(self, name: str, *shape: Dim, dtype: DType = f64) -> Buffer:
        """A buffer that holds so much for each matrix of the batch."""
        return self.b.temporary(dtype, (*self.work.shape[:-2], *shape), name)

    def take_off(
        self,
        to: Buffer,
        at: Callable[[Dim], Place],
        factors: Sequence[Expression],
        others: Sequence[Callable[[Dim], Expression]],
        extent: Dim,
    ) -> None:
        """Subtract products of numbers and lines from a line, one after the other."""
        b = self.b
        held = self.scratch("held", len(factors))
        for u, factor in enumerate(factors):
            self.put(held, u, value=b.neg(factor))
        with b.loop(extent, "j") as j:
            value = self.get(to, *at(j))
            for u, other in enumerate(others):
                value = fma(self.get(held, u), other(j), value)
            self.put(to, *at(j), value=value)


@final
@record
class _Block:
    """Some columns of a matrix, turned round.

    Attributes:
        turned: `turned[t, i]` is row i of column `first + t`.
        first, after: where its columns begin, and those right of it.
    """

    m: _Matrix
    turned: Buffer
    first: Dim
    after: Dim

    @property
    def width(self) -> Dim:
        return self.after - self.first

    def fill(self) -> None:
        """Read its columns, from the first row of the block on."""
        m = self.m
        with (
            m.b.loop(self.width, "t") as t,
            m.b.loop(m.rows - self.first, "i") as i,
        ):
            row = self.first + i
            m.put(self.turned, t, row, value=m.get(m.work, row, self.first + t))

    def write(self) -> None:
        """Put its columns back, from the first row of the block on."""
        m = self.m
        with (
            m.b.loop(m.rows - self.first, "i") as i,
            m.b.loop(self.width, "t") as t,
        ):
            row = self.first + i
            m.put(m.work, row, self.first + t, value=m.get(self.turned, t, row))


def _steps(part: Dim) -> list[Dim]:
    """Those of one part of a block."""
    return [part * _TERMS + u for u in range(_TERMS)]


def _line(
    m: _Matrix, buffer: Buffer, row: Dim, first: Dim = 0
) -> Callable[[Dim], Expression]:
    """The elements of a row, from `first` on."""
    return lambda j: m.get(buffer, row, first + j)


@contextmanager
def _blocks(m: _Matrix, count: Dim) -> Generator[_Block]:
    """A loop over blocks of the first `count` columns."""
    turned = m.scratch("turned", _BLOCK, m.rows)
    with m.b.loop(symbolic.ceildiv(count, _BLOCK), "block") as block:
        first = block * _BLOCK
        yield _Block(m, turned, first, symbolic.minimum(first + _BLOCK, count))


def _widened(b: KernelBuilder, place: Place, x: Source, work: Buffer) -> _Matrix:
    m = _Matrix(b, place, work)
    with b.nest((m.rows, m.columns), ("i", "j")) as (i, j):
        m.put(work, i, j, value=b.cast(m.get(x, i, j), f64))
    return m


def _work_of(b: KernelBuilder, result: Buffer) -> Buffer:
    """Where to compute in f64 what `result` is rounded from."""
    return result if result.dtype is f64 else b.temporary(f64, result.shape, "work")


def _round(m: _Matrix, result: Buffer) -> None:
    if m.work is result:
        return
    with m.b.nest((m.rows, m.columns), ("i", "j")) as (i, j):
        m.b.write(result, (*m.place, i, j), m.get(m.work, i, j))


# --- elimination ---------------------------------------------------------------------------------


@final
@record
class _Elimination:
    """What elimination keeps beside the matrix.

    Attributes:
        pivots: the row that was exchanged with each row, from 1.
        lost: the first pivot that is 0, from 1; or 0.
        quotients: of a block, a row of them for each row; zeros where the pivot is 0.
        upper: rows of the upper factor right of a block; zeros where the pivot is 0.
        exchanges: whether rows are exchanged.
    """

    m: _Matrix
    pivots: Buffer
    lost: Buffer
    quotients: Buffer
    upper: Buffer
    exchanges: bool

    def run(self) -> None:
        """Let the matrix become its factors."""
        m = self.m
        m.put(self.lost, value=0)
        with _blocks(m, m.count) as block:
            block.fill()
            with m.b.loop(block.width, "step") as t:
                self._step(block, t)
            self._keep_quotients(block)
            self._exchange_rest(block)
            block.write()
            self._right_of(block)
            self._below(block)

    def _step(self, block: _Block, t: Dim) -> None:
        """Column t of a block: its pivot, its quotients, and what these take off the columns behind it."""
        m, b, k = self.m, self.m.b, block.first + t
        chosen = self._choose(block, t) if self.exchanges else k
        m.put(self.pivots, k, value=b.index(chosen + 1, i32))
        if self.exchanges:
            held = m.scratch("held")
            with b.loop(block.width, "s") as s:
                m.put(held, value=m.get(block.turned, s, k))
                m.put(block.turned, s, k, value=m.get(block.turned, s, chosen))
                m.put(block.turned, s, chosen, value=m.get(held))
        pivot = m.get(block.turned, t, k)
        below = m.rows - k - 1
        with b.when(b.ne(pivot, 0)):
            with b.loop(below, "i") as i:
                row = k + 1 + i
                quotient = b.div(m.get(block.turned, t, row), pivot)
                m.put(block.turned, t, row, value=quotient)
            with b.loop(block.width - t - 1, "s") as s:
                m.take_off(
                    block.turned,
                    lambda i: (t + 1 + s, k + 1 + i),
                    [m.get(block.turned, t + 1 + s, k)],
                    [lambda i: m.get(block.turned, t, k + 1 + i)],
                    below,
                )
        with b.when(b.eq(pivot, 0)):
            first = b.eq(m.get(self.lost), 0)
            lost = b.select(first, b.index(k + 1, i32), m.get(self.lost))
            m.put(self.lost, value=lost)

    def _choose(self, block: _Block, t: Dim) -> Dim:
        """The first row with the largest number of a column; NaN is larger than all."""
        m, b, k = self.m, self.m.b, block.first + t
        left = m.rows - k
        largest, place = m.scratch("largest"), m.scratch("chosen", dtype=i64)

        def size(i: Dim) -> Expression:
            return b.abs(m.get(block.turned, t, k + i))

        def candidate(i: Dim) -> Expression:
            is_one = b.or_(b.eq(size(i), m.get(largest)), b.is_nan(size(i)))
            return b.select(is_one, b.index(i), _NOWHERE)

        fold(b, "max", largest, m.place, (left,), lambda i: size(*i))
        fold(b, "min", place, m.place, (left,), lambda i: candidate(*i))
        return k + b.as_index(b.min(m.get(place), b.index(left - 1)))

    def _keep_quotients(self, block: _Block) -> None:
        m, b = self.m, self.m.b
        with (
            b.loop(block.width, "t") as t,
            b.loop(m.rows - block.first, "i") as i,
        ):
            row = block.first + i
            is_lost = b.eq(m.get(block.turned, t, block.first + t), 0)
            quotient = b.select(is_lost, 0, m.get(block.turned, t, row))
            m.put(self.quotients, row, t, value=quotient)

    def _exchange_rest(self, block: _Block) -> None:
        """Exchange whole rows; the block's own columns are written behind this."""
        if not self.exchanges:
            return
        m, b = self.m, self.m.b
        line = m.scratch("line", m.columns)
        with b.loop(block.width, "step") as t:
            k = block.first + t
            chosen = b.cast(m.get(self.pivots, k), i64)
            other = b.as_index(b.sub(chosen, 1))
            with b.when(b.ne(chosen, b.index(k + 1))):
                with b.loop(m.columns, "j") as j:
                    m.put(line, j, value=m.get(m.work, other, j))
                with b.loop(m.columns, "j") as j:
                    m.put(m.work, other, j, value=m.get(m.work, k, j))
                with b.loop(m.columns, "j") as j:
                    m.put(m.work, k, j, value=m.get(line, j))

    def _right_of(self, block: _Block) -> None:
        """Rows of the upper factor that a block's rows become."""
        m, b = self.m, self.m.b
        rest = m.columns - block.after
        with b.loop(block.width, "step") as t:
            k = block.first + t
            with b.loop(rest, "j") as j:
                m.put(self.upper, t, j, value=m.get(m.work, k, block.after + j))
            with b.loop(t, "s") as s:
                m.take_off(
                    self.upper,
                    lambda j: (t, j),
                    [m.get(self.quotients, k, s)],
                    [lambda j: m.get(self.upper, s, j)],
                    rest,
                )
            with b.loop(rest, "j") as j:
                m.put(m.work, k, block.after + j, value=m.get(self.upper, t, j))
            with b.when(b.eq(m.get(block.turned, t, k), 0)), b.loop(rest, "j") as j:
                m.put(self.upper, t, j, value=0)

    def _below(self, block: _Block) -> None:
        """What all steps of a block leave of the rest.  Only whole blocks have both rows below and columns behind them."""
        m, b = self.m, self.m.b
        with (
            b.loop(m.rows - block.after, "i") as i,
            b.loop(_BLOCK // _TERMS, "part") as part,
        ):
            row, steps = block.after + i, _steps(part)
            m.take_off(
                m.work,
                lambda j: (row, block.after + j),
                [m.get(self.quotients, row, t) for t in steps],
                [_line(m, self.upper, t) for t in steps],
                m.columns - block.after,
            )


def _eliminate(m: _Matrix, pivots: Buffer, lost: Buffer, *, exchanges: bool) -> None:
    quotients = m.scratch("quotients", m.rows, _BLOCK)
    upper = m.scratch("upper", _BLOCK, m.columns)
    _Elimination(m, pivots, lost, quotients, upper, exchanges).run()


def lu_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """Factors in one matrix, exchanges of rows, and which pivot is 0."""
    x, (factors, pivots, lost) = given(operands, 0), results
    work = _work_of(b, factors)
    with b.nest(x.shape[:-2]) as place:
        m = _widened(b, place, x, work)
        _eliminate(m, pivots, lost, exchanges=bool(attributes["pivot"]))
        _round(m, factors)


def exchanged_rows_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """Rows in order, of which two are exchanged at each step."""
    del attributes
    pivots, (order,) = given(operands, 0), results
    rows, steps = order.shape[-1], pivots.shape[-1]
    batch = order.shape[:-1]
    held = b.temporary(i64, batch, "held")
    with b.nest(batch) as place:
        with b.loop(rows, "i") as i:
            b.store(order, (*place, i), b.index(i))
        with b.loop(symbolic.minimum(rows, steps), "k") as k:
            chosen = b.sub(b.cast(b.load(pivots, (*place, k)), i64), 1)
            last = b.index(rows - 1)
            other = b.as_index(b.min(b.max(chosen, 0), last))
            b.store(held, place, b.load(order, (*place, other)))
            b.store(order, (*place, other), b.load(order, (*place, k)))
            b.store(order, (*place, k), b.load(held, place))


# --- roots ---------------------------------------------------------------------------------------


def cholesky_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """A lower triangle, and the first step, from 1, that finds no root."""
    del attributes
    x, (factor, lost) = given(operands, 0), results
    work = _work_of(b, factor)
    with b.nest(x.shape[:-2]) as place:
        m = _Matrix(b, place, work)
        with b.nest((m.rows, m.rows), ("i", "j")) as (i, j):
            value = b.cast(m.get(x, i, j), f64)
            is_read = b.le(b.index(j), b.index(i))
            m.put(work, i, j, value=b.select(is_read, value, 0))
        m.put(lost, value=0)
        with _blocks(m, m.rows) as block:
            block.fill()
            with b.loop(block.width, "step") as t:
                _root_step(block, t, lost)
            block.write()
            _take_off_triangle(block)
        _round(m, factor)


def _root_step(block: _Block, t: Dim, lost: Buffer) -> None:
    """Column t of a block, and what it takes off the columns behind it."""
    m, b, k = block.m, block.m.b, block.first + t
    turned = block.turned
    pivot = m.get(turned, t, k)
    is_first = b.and_(b.eq(m.get(lost), 0), b.not_(b.gt(pivot, 0)))
    m.put(lost, value=b.select(is_first, b.index(k + 1, i32), m.get(lost)))
    root = m.scratch("root")
    m.put(root, value=b.sqrt(pivot))
    m.put(turned, t, k, value=m.get(root))
    with b.loop(m.rows - k - 1, "i") as i:
        row = k + 1 + i
        m.put(turned, t, row, value=b.div(m.get(turned, t, row), m.get(root)))
    with b.loop(block.width - t - 1, "s") as s:
        start = k + 1 + s
        m.take_off(
            turned,
            lambda i: (t + 1 + s, start + i),
            [m.get(turned, t, start)],
            [lambda i: m.get(turned, t, start + i)],
            m.rows - start,
        )


def _take_off_triangle(block: _Block) -> None:
    """What all steps of a block leave of the triangle below and behind it."""
    m, b, turned = block.m, block.m.b, block.turned
    with (
        b.loop(m.rows - block.after, "i") as i,
        b.loop(_BLOCK // _TERMS, "part") as part,
    ):
        row, steps = block.after + i, _steps(part)
        m.take_off(
            m.work,
            lambda j: (row, block.after + j),
            [m.get(turned, t, row) for t in steps],
            [_line(m, turned, t, block.after) for t in steps],
            i + 1,
        )


# --- triangular systems --------------------------------------------------------------------------


def triangular_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """Row after row, each without what those before it hold."""
    a, sides, (result,) = given(operands, 0), given(operands, 1), results
    lower, unit = bool(attributes["lower"]), bool(attributes["unit"])
    count = result.shape[-1]
    are_few = isinstance(count, int) and count <= _FEW_SIDES
    substitute = _substitute_along if are_few else _substitute_beside
    with b.nest(result.shape[:-2]) as place:
        substitute(b, place, (a, sides, result), lower=lower, unit=unit)


def _substitute_beside(
    b: KernelBuilder,
    place: Place,
    tensors: tuple[Source, Source, Buffer],
    *,
    lower: bool,
    unit: bool,
) -> None:
    """Lanes are right sides; the rows below a block are gone over once for all of its rows."""
    a, sides, result = tensors
    m = _widened(b, place, sides, _work_of(b, result))

    def at(row: Dim) -> Dim:
        return row if lower else m.rows - 1 - row

    def factor(row: Dim, column: Dim) -> Expression:
        return b.cast(m.get(a, at(row), at(column)), f64)

    def take_off(row: Dim, columns: Sequence[Dim]) -> None:
        m.take_off(
            m.work,
            lambda j: (at(row), j),
            [factor(row, column) for column in columns],
            [_line(m, m.work, at(column)) for column in columns],
            m.columns,
        )

    with b.loop(symbolic.ceildiv(m.rows, _BLOCK), "block") as block:
        first = block * _BLOCK
        after = symbolic.minimum(first + _BLOCK, m.rows)
        with b.loop(after - first, "t") as t:
            with b.loop(t, "s") as s:
                take_off(first + t, (first + s,))
            if not unit:
                with b.loop(m.columns, "j") as j:
                    row = first + t
                    value = b.div(m.get(m.work, at(row), j), factor(row, row))
                    m.put(m.work, at(row), j, value=value)
        with b.loop(m.rows - after, "i") as i, b.loop(_BLOCK // _TERMS, "part") as part:
            take_off(after + i, [first + t for t in _steps(part)])
    _round(m, result)


def _substitute_along(
    b: KernelBuilder,
    place: Place,
    tensors: tuple[Source, Source, Buffer],
    *,
    lower: bool,
    unit: bool,
) -> None:
    """Lanes go along a row of the triangle; right sides are turned round, so that each lies in order."""
    a, sides, result = tensors
    rows, count = result.shape[-2:]
    batch = result.shape[:-2]
    turned = b.temporary(f64, (*batch, count, rows), "turned")
    total = b.temporary(f64, batch, "total")
    with b.loop(rows, "i") as i, b.loop(count, "side") as side:
        row = i if lower else rows - 1 - i
        start = 0 if lower else row + 1

        def term(
            inner: tuple[Dim, ...], start: Dim = start, row: Dim = row, side: Dim = side
        ) -> Expression:
            (k,) = inner
            factor = b.cast(b.load(a, (*place, row, start + k)), f64)
            return b.mul(factor, b.load(turned, (*place, side, start + k)))

        fold(b, "add", total, place, (i,), term)
        value = b.cast(b.load(sides, (*place, row, side)), f64)
        value = b.sub(value, b.load(total, place))
        if not unit:
            value = b.div(value, b.cast(b.load(a, (*place, row, row)), f64))
        b.store(turned, (*place, side, row), value)
        b.write(result, (*place, row, side), value)
