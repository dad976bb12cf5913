"""Register tiles of contractions: rows times columns of accumulators that fit the machine, and what they cost.

Counts cycles per step of the sum: multiply-adds against the latency of a chain of them, loads against the ports, and
rows of the left operand that fall into one set of the first level cache, and panels that come from farther away.
Called by `tilings`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.schedule.cost import Demand
from tilewright.compiler.schedule.machine_model import MachineModel

TALL: Final = 2
"""Vectors in the columns of the tiles that have most rows but for those of a single vector."""
OPEN_ROWS: Final = 6
"""Rows of a tile that lie a distance apart which only a call knows: each has a pointer of its own, and beside more of them LLVM
makes places of several steps at once, and waits for what it read there on the stack."""
STAYS: Final = 0.65
"""Of the second level cache: so much of a panel, or of rows, stays there while the other passes and the next one comes."""

Likely = tuple[int, ...]
"""What a number may be that only a call knows."""


@final
@record
class Tile:
    """`rows` x `columns` accumulators.  Units: elements; `cost` in cycles."""

    rows: int
    columns: int
    cost: float


def most_rows(machine: MachineModel, vectors: int, products: int = 1) -> int:
    """Rows whose accumulators fit beside the right operand's vectors and one broadcast.

    The sum of the `products` of one step, if there are several, stands beside the accumulator.
    """
    each, together = vectors if products == 1 else 2 * vectors, machine.rows_at_once
    most = (machine.vector_registers - together * vectors - 1) // each
    return max(1, most // together * together)


def step_cycles(machine: MachineModel, rows: int, vectors: int, products: int = 1) -> float:
    """Cycles per step of the sum for one tile.

    Where a step has several `products`, their numbers are made of a word, once for all rows, and their sum is scaled.
    """
    latency, together = machine.core.latency, machine.rows_at_once
    rows = -(-rows // together) * together
    # Few accumulators wait for each other: sums are not split, that their order be one.
    few = rows * vectors < latency * machine.multiply_adds_per_cycle
    made = vectors * (products + rows) if products > 1 else vectors * machine.extension
    step = Demand(
        multiply_adds=rows * vectors * products + made,
        loads=rows * products + together * vectors,
        waits=latency if few else 0,
    )
    return step.cycles(machine) + machine.core.load * step.loads


def in_first_level(machine: MachineModel, vectors: int, depth: int) -> bool:
    """Whether a panel of so many vectors and steps stays in the first level cache while rows pass: it takes half of it at most."""
    return 2 * depth * vectors * machine.vector_bits // 8 <= machine.l1.size_bytes


def panel_cycles(machine: MachineModel, vectors: int, depth: int, reached: float) -> float:
    """Cycles per step where each tile of rows reads a panel again, which `reached` cycles of work do not hide.

    A panel that does not stay in the first level cache comes from the second, and one that leaves there no room for
    what of the next one is fetched meanwhile, and for rows, from the third.
    """
    if in_first_level(machine, vectors, depth):
        return reached
    step = vectors * machine.vector_bits // 8
    if depth * step > STAYS * machine.l2.size_bytes > 0:
        reached = max(reached, step / machine.core.third_level)
    return reached + machine.core.fill * step / machine.line_bytes


def aliasing(machine: MachineModel, rows: int, row_bytes: int) -> bool:
    """Whether a tile's rows of the left operand crowd one set of the first level cache."""
    if row_bytes <= 0 or rows == 1:
        return False
    distinct_places = machine.way_bytes // math.gcd(row_bytes, machine.way_bytes)
    lines = -(-rows // max(1, distinct_places))
    return lines > max(1, machine.l1.ways - 2)


def row_gap(machine: MachineModel, rows: int, row_bytes: int, step: int = 1) -> int:
    """Bytes to leave free behind each row of a left operand of which every `step`-th is read; 0 for none.

    Where rows meet in one set of the first level cache, tiles have few of them, and these push each other out; a line
    between them spreads them over the sets.
    """
    tall, gap = min(rows, most_rows(machine, TALL)), machine.line_bytes
    if not aliasing(machine, tall, step * row_bytes):
        return 0
    return gap if not aliasing(machine, tall, step * (row_bytes + gap)) else 0


def row_sizes(extents: Sequence[Dim], most: int) -> tuple[int, ...]:
    """How many rows of each of the innermost loops a tile of at most `most` takes.

    Outermost first; a loop is entered only where a tile has all rows of the loops inside of it.
    """
    sizes: list[int] = []
    for extent in reversed(extents):
        size = _row_size(extent, most)
        sizes.insert(0, size)
        most //= size
        if most <= 1 or not isinstance(extent, int) or size < extent:
            break
    return tuple(sizes)


def _row_size(extent: Dim, most: int) -> int:
    """Rows of one loop that go into a tile of at most `most`."""
    if not isinstance(extent, int) or extent > 2 * most:
        return most
    if extent <= most:
        return max(1, extent)
    # Two tiles: as equal as possible.
    return -(-extent // 2)


def tile_counts(extents: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """How many tiles of so many rows loops of `extents` come to, full ones and rests."""
    outer = len(extents) - len(sizes)
    counts = {1: math.prod(extents[:outer])}
    for extent, size in zip(extents[outer:], sizes, strict=True):
        full, rest = divmod(extent, size)
        found: dict[int, int] = {}
        for rows, times in counts.items():
            for part, count in ((size, full), (rest, 1)):
                if part and count:
                    found[rows * part] = found.get(rows * part, 0) + times * count
        counts = found
    return counts


def tile_cycles(
    machine: MachineModel,
    depth: int,
    products: int,
    rows: int,
    vectors: int,
    *,
    bad: bool,
    again: bool,
) -> float:
    """Cycles for one tile of so many rows and vectors: rows that crowd a set are `bad`, `again` if other tiles read the panel, too."""
    step = step_cycles(machine, rows, vectors, products)
    step *= machine.core.crowded if bad else 1.0
    if again:
        step = panel_cycles(machine, vectors, depth, step)
    return depth * step + machine.core.tile + 2 * rows * vectors


@functools.lru_cache(maxsize=1024)
def choose_tile(
    machine: MachineModel,
    extents: tuple[int | Likely, ...],
    columns: int | Likely,
    depth: int,
    lanes: int,
    *,
    row_bytes: int | None,
    panel: int | None = None,
    products: int = 1,
) -> Tile:
    """The cheapest tile; `extents` are those of the loops over rows, `panel` fixes its columns.

    `row_bytes`: from a row to the next, 0 where rules cannot tell, None where only a call does.
    `depth` counts steps of so many `products`.  Of likely numbers the tile is the cheapest on average, by row and column: of
    rows the innermost loop alone may have them, and tiles go along that loop then; of columns, those in lines of so many.
    Remembered: a model asks for few of them, often.
    """
    widths, lines = _likely(extents[-1]), _likely(columns)
    outer = tuple(n for n in extents[:-1] if isinstance(n, int))
    rows, most = math.prod(outer) * max(widths), max(widths) * max(lines)
    limit = rows if row_bytes is not None else min(rows, OPEN_ROWS)
    best: Tile | None = None
    usual = (1, 2, 3, 4)
    own = () if panel is None or panel % lanes else (panel // lanes,)
    # Loops come to the same few tiles again and again, above all as rests.
    cycles = functools.cache(functools.partial(tile_cycles, machine, depth, products))
    for vectors in usual if panel is None else own:
        width = vectors * lanes
        if panel is None and width > lanes and width >= max(lines) + lanes:
            continue
        fit = min(most_rows(machine, vectors, products), limit)
        for sizes in dict.fromkeys(_tile_sizes(extents, n) for n in range(1, fit + 1)):
            bad = aliasing(machine, math.prod(sizes), row_bytes or 0)
            of_panels = functools.partial(
                _total,
                cycles,
                vectors=vectors,
                lanes=lanes,
                bad=bad,
                halves=lines is columns,
            )
            totals = [
                of_panels(tile_counts((*outer, n), sizes), line) * (most / (n * line))
                for n in widths
                for line in lines
            ]
            total = sum(totals) / len(totals)
            if best is None or total < best.cost * 0.999:
                best = Tile(math.prod(sizes), width, total)
    if best is None:
        width = panel or lanes
        fit = min(limit, most_rows(machine, -(-width // lanes), products))
        best = Tile(fit, width, 0.0)
    return best


def _likely(number: int | Likely) -> Likely:
    return (number,) if isinstance(number, int) else number


def _tile_sizes(extents: tuple[int | Likely, ...], most: int) -> tuple[int, ...]:
    """`row_sizes`; of likely extents, any of which may be shorter, the most."""
    known = [n for n in extents if isinstance(n, int)]
    return row_sizes(known, most) if len(known) == len(extents) else (most,)


def _total(
    cycles: Callable[..., float],
    tiles: Mapping[int, int],
    columns: int,
    *,
    vectors: int,
    lanes: int,
    bad: bool,
    halves: bool,
) -> float:
    """Cycles for all tiles: of each panel of `vectors`, and of the columns that are left, in whole or half panels with `halves`."""
    again = sum(tiles.values()) > 1

    def of_panel(wide: int) -> float:
        return sum(
            count * cycles(rows, wide, bad=bad, again=again)
            for rows, count in tiles.items()
        )

    panels, rest = divmod(columns, vectors * lanes)
    total, left = panels * of_panel(vectors), -(-rest // lanes)
    if halves and left:
        left = vectors if left > -(-vectors // 2) else -(-vectors // 2)
    return total + of_panel(left) if left else total
