"""Register tiles of contractions: rows times columns of accumulators that fit the target.

The model counts cycles per step of the sum: multiply-adds against the latency of a chain of them,
loads against the two ports, and rows of the left operand that fall into one set of the first
level cache.  It ranks tiles; it does not predict time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.base.target import Target

_LATENCY: Final = 4
_LOADS_PER_CYCLE: Final = 2
_TILE_OVERHEAD: Final = 40
_LOAD_COST: Final = 0.03
_ALIAS_PENALTY: Final = 1.3
_LIKELY_COLUMNS: Final = 128
"""Columns that are known only at run time: positions of a sequence, more often than not a
multiple of a power of two; a panel should divide it, and be narrow where it does not."""


@final
@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` x `columns` accumulators.  Units: elements; `cost` in cycles."""

    rows: int
    columns: int
    cost: float


def fma_per_cycle(target: Target) -> int:
    """Vector multiply-adds that start in one cycle."""
    return 1 if target.vector_bits == 512 and target.cpu.startswith("znver4") else 2


def most_rows(target: Target, vectors: int) -> int:
    """Rows whose accumulators fit beside the right operand's vectors and one broadcast."""
    return max(1, (target.vector_registers - vectors - 1) // vectors)


def step_cycles(target: Target, rows: int, vectors: int) -> float:
    """Cycles per step of the sum for one tile."""
    rate = fma_per_cycle(target)
    work = rows * vectors / rate
    loads = (rows + vectors) / _LOADS_PER_CYCLE
    # Few accumulators wait for each other: sums are not split, that their order be one.
    chain = _LATENCY if rows * vectors < _LATENCY * rate else 0
    return max(work, loads, chain) + _LOAD_COST * (rows + vectors)


def aliasing(target: Target, rows: int, row_bytes: int) -> bool:
    """Whether a tile's rows of the left operand crowd one set of the first level cache."""
    ways = target.caches.l1d_ways
    way_bytes = max(target.line_bytes, target.l1d_bytes // ways)
    if row_bytes <= 0 or rows == 1:
        return False
    distinct_places = way_bytes // math.gcd(row_bytes, way_bytes)
    lines = -(-rows // max(1, distinct_places))
    return lines > max(1, ways - 2)


def column_cost(
    target: Target,
    rows: int,
    tile_rows: int,
    columns: int,
    depth: int,
    lanes: int,
    bad: bool,
) -> float:
    """Cycles for all row tiles of one panel with `columns` columns in use."""
    vectors = -(-columns // lanes)
    full, rest = divmod(rows, tile_rows)

    def one(count: int) -> float:
        penalty = _ALIAS_PENALTY if bad else 1.0
        steps = depth * step_cycles(target, count, vectors) * penalty
        return steps + _TILE_OVERHEAD + 2 * count * vectors

    return full * one(tile_rows) + (one(rest) if rest else 0.0)


def choose_tile(
    target: Target,
    rows: int,
    columns: int,
    depth: int,
    lanes: int,
    *,
    row_bytes: int,
    panel: int | None = None,
) -> Tile:
    """The cheapest tile; `panel` fixes its columns."""
    best: Tile | None = None
    for vectors in (1, 2, 3, 4):
        width = vectors * lanes
        if panel is not None and width != panel:
            continue
        if panel is None and width > lanes and width >= columns + lanes:
            continue
        for tile_rows in range(1, min(most_rows(target, vectors), rows) + 1):
            bad = aliasing(target, tile_rows, row_bytes)
            total = _total(target, rows, columns, tile_rows, width, depth, lanes, bad)
            if best is None or total < best.cost * 0.999:
                best = Tile(tile_rows, width, total)
    if best is None:
        width = panel or lanes
        vectors = max(1, -(-width // lanes))
        best = Tile(min(rows, most_rows(target, vectors)), width, 0.0)
    return best


def _total(
    target: Target,
    rows: int,
    columns: int,
    tile_rows: int,
    width: int,
    depth: int,
    lanes: int,
    bad: bool,
) -> float:
    panels, rest = divmod(columns, width)
    total = panels * column_cost(target, rows, tile_rows, width, depth, lanes, bad)
    if rest:
        total += column_cost(target, rows, tile_rows, rest, depth, lanes, bad)
    return total


def contraction_panel(target: Target, m: Dim, n: Dim, k: Dim, dtype: DType) -> int:
    """Columns per panel that the right operand of a contraction is packed in.

    Units: elements.  `m` rows (of all images and positions), `n` columns, `k` products each.
    """
    lanes = target.vector_lanes(dtype)
    rows = m if isinstance(m, int) else 1 << 10
    columns = n if isinstance(n, int) else _LIKELY_COLUMNS
    depth = k if isinstance(k, int) else 1 << 10
    if rows <= 1:
        # One row: memory decides, wide panels keep several streams of loads in flight.
        return min(4, max(1, -(-columns // lanes))) * lanes
    row_bytes = depth * dtype.itemsize
    return choose_tile(
        target, max(1, rows), max(1, columns), max(1, depth), lanes, row_bytes=row_bytes
    ).columns
