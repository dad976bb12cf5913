"""The primitive that gives a tile of a product to an instruction for two rows and two columns: multiply_tiles.

Such an instruction has four totals in the lanes of one register, so totals change places before and after the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.accesses import update_operator
from tilewright.compiler.analysis.strides import depends, stride
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.dot_products import TILES, tile_side
from tilewright.compiler.kernel.expressions import bitcast
from tilewright.compiler.kernel.fields import children
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.rewrite import FreshNames, only_statement
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.trace import primitive

_LEAST_LOOPS: Final = 3
"""Of a tile: over rows, vectors and lanes."""


@primitive
def multiply_tiles(kernel: ir.Kernel, loop: str, tile: str, instruction: str) -> ir.Kernel:
    """Let an instruction add the products of two rows and two columns of words at once.

    `loop` is the outermost loop of the sum, `tile` the outermost of those over rows, vectors and lanes, which stand
    inside of it.  Where the number of rows is odd, the last row is multiplied twice and kept once.

    rewrite:
        for k: for i in 2: for v in 1: for l in 2: acc[i, v, l] += dot(a[i, k], b[k, l])
        ->
        t[0, 0, 0 : 2 lanes] = acc[0, 0, 0 : 2 lanes]
        t[0, 0, 2 : 2 lanes] = acc[1, 0, 0 : 2 lanes]
        for k: y[0, 0 : 2 lanes] = b[k, 0 : 2 lanes]
               x[0, 0] = a[0, k]
               x[0, 1] = a[1, k]
               t[0, 0, 0 : 4 lanes] = usmmla(t[...], bits<i32>(x[...]), bits<i32>(y[...]))
        acc[0, 0, 0 : 2 lanes] = t[0, 0, 0 : 2 lanes]
        acc[1, 0, 0 : 2 lanes] = t[0, 0, 2 : 2 lanes]

    Raises: ScheduleError unless the loops hold one sum of products of words that the instruction multiplies, over
    lanes side by side, of which there are whole tiles.
    """
    row = INSTRUCTIONS.get(instruction)
    if row is None or row not in TILES.values():
        known = ", ".join(sorted(x.name for x in TILES.values()))
        raise ScheduleError(
            f"'{instruction}' multiplies no tiles of words", hint=f"there is {known}"
        )
    nest, inside = tree.chain(tree.find(kernel, loop)), tree.find(kernel, tile)
    steps = nest[: nest.index(inside)] if inside in nest else ()
    found = _Tiles(kernel, row, steps, nest[len(steps) :])
    return found.multiplied()


@final
@record
class _Sum:
    """What a nest adds up: words of `left` times words of `right`, to elements of `total`."""

    total: ir.Load
    left: ir.Load
    right: ir.Load


@final
class _Tiles:
    """One sum over `steps` for all elements of `tile`, which are rows, vectors and lanes."""

    def __init__(
        self,
        kernel: ir.Kernel,
        row: ir.Instruction,
        steps: Sequence[ir.For],
        tile: Sequence[ir.For],
    ) -> None:
        self.kernel: ir.Kernel = kernel
        self.row: ir.Instruction = row
        self.side: int = tile_side(row)
        self.steps: Sequence[ir.For] = steps
        self.tile: Sequence[ir.For] = tile
        if not steps or len(tile) < _LEAST_LOOPS or not all(x.reduction for x in steps):
            raise self.fail("expected loops over rows, vectors and lanes inside of a sum")
        sizes = [x.extent for x in tile if isinstance(x.extent, int)]
        if len(sizes) < len(tile) or sizes[-1] % self.side:
            raise self.fail("rows and columns must be known, and columns be pairs")
        self.sum: _Sum = self._found_sum()
        names = [x.var.name for x in tile]
        self.rows: list[dict[str, Dim]] = [
            dict(zip(names, place, strict=False))
            for place in product(*map(range, sizes[:-2]))
        ]
        self.columns: list[dict[str, Dim]] = [
            dict(zip(names[-2:], place, strict=True))
            for place in product(range(sizes[-2]), range(0, sizes[-1], self.side))
        ]

    def fail(self, reason: str) -> ScheduleError:
        """The error that says why the instruction does not compute the nest."""
        return ScheduleError(
            f"'{self.row.name}' does not compute this: {reason}", location=self.kernel.name
        )

    # --- what there is -----------------------------------------------------------------------

    def _found_sum(self) -> _Sum:
        """The sum in the nest.  Raises: ScheduleError."""
        store = only_statement(self.tile[-1].body)
        if not isinstance(store, ir.Store) or update_operator(store) != "add":
            raise self.fail("expected one sum inside")
        for words in children(store.value):
            if isinstance(words, ir.Call) and TILES.get(words.function.name) is self.row:
                left, right = words.operands
                if isinstance(left, ir.Load) and isinstance(right, ir.Load):
                    total = ir.Load(store.buffer, store.indices, store.value.lanes)
                    return self._checked(store, _Sum(total, left, right))
        raise self.fail("expected a sum of its products of words")

    def _checked(self, store: ir.Store, found: _Sum) -> _Sum:
        total, left, right = found.total, found.left, found.right
        if store.mask or any(x.mask or x.lanes != 1 for x in (total, left, right)):
            raise self.fail("some lanes of it are left out")
        *rows, vector, lane = (x.var.name for x in self.tile)
        if any(depends(total, x.var.name) for x in self.steps):
            raise self.fail("every step has a total of its own")
        if any(depends(left, name) for name in (vector, lane)):
            raise self.fail("a row has other words in every column")
        if any(depends(right, name) for name in rows):
            raise self.fail("a column has other words in every row")
        if any(not self._is_side_by_side(x, lane) for x in (total, right)):
            raise self.fail("columns do not lie side by side")
        return found

    def _is_side_by_side(self, load: ir.Load, lane: str) -> bool:
        """Whether the last index alone counts lanes."""
        last = symbolic.linear(load.indices[-1], lane)
        return stride(load, lane) == 1 and last is not None and last[0] == 1

    # --- what becomes of it ------------------------------------------------------------------

    def multiplied(self) -> ir.Kernel:
        """The kernel in which the instruction takes every step."""
        names, count = FreshNames.of(self.kernel), -(-len(self.rows) // self.side)
        columns, word, lanes = len(self.columns), self.sum.left.dtype, self.row.tile_lanes
        tiles = tree.register(names, "tiles", self.row.dtype, count, columns, lanes)
        pairs = tree.register(names, "pairs", word, count, self.side)
        read = tree.register(names, "columns", word, columns, self.side)
        step = (*self._read_columns(read), *self._multiply(tiles, pairs, read))
        sums = tree.nested(self.steps, step)
        changed = (*self._totals_in(tiles), *sums, *self._totals_of(tiles))
        kernel = tree.rewrite(self.kernel, self.steps[0], changed)
        return tree.add_locals(kernel, (tiles, pairs, read))

    def _read_columns(self, read: ir.Buffer) -> Iterator[ir.Store]:
        for place, column in enumerate(self.columns):
            yield ir.Store(read, (place, 0), _placed(self.sum.right, column, self.side))

    def _multiply(
        self, tiles: ir.Buffer, pairs: ir.Buffer, read: ir.Buffer
    ) -> Iterator[ir.Store]:
        """Pair by pair, so that few registers hold words of rows."""
        lanes, types = self.row.tile_lanes, self.row.operands
        for pair in range(-(-len(self.rows) // self.side)):
            for side in range(self.side):
                row = self.rows[min(pair * self.side + side, len(self.rows) - 1)]
                yield ir.Store(pairs, (pair, side), _placed(self.sum.left, row))
            left = bitcast(ir.Load(pairs, (pair, 0), self.side), types[1])
            for place in range(len(self.columns)):
                right = bitcast(ir.Load(read, (place, 0), self.side), types[2])
                where = (pair, place, 0)
                total = ir.Load(tiles, where, lanes)
                yield ir.Store(
                    tiles, where, ir.Intrinsic(self.row, (total, left, right), lanes)
                )

    def _totals_in(self, tiles: ir.Buffer) -> Iterator[ir.Store]:
        for where, total in self._places():
            yield ir.Store(tiles, where, total)

    def _totals_of(self, tiles: ir.Buffer) -> Iterator[ir.Store]:
        for where, total in self._places():
            yield ir.Store(total.buffer, total.indices, ir.Load(tiles, where, self.side))

    def _places(self) -> Iterator[tuple[tuple[Dim, ...], ir.Load]]:
        """Where the totals of each row stand in tiles, two columns at a time."""
        for number, row in enumerate(self.rows):
            pair, half = divmod(number, self.side)
            for place, column in enumerate(self.columns):
                total = _placed(self.sum.total, {**row, **column}, self.side)
                yield (pair, place, half * self.side), total


def _placed(load: ir.Load, at: dict[str, Dim], lanes: int = 1) -> ir.Load:
    """A load at some place of the loops over a tile."""
    indices = tuple(symbolic.substitute(index, at) for index in load.indices)
    return ir.Load(load.buffer, indices, lanes)
