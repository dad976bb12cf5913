"""Which algorithm a contraction takes: products summed directly, fewer of them between transforms, in parts, or in bands.

The same model of time for both, so that it decides what is shared by them: register tiles over packed
panels, weights that come from main memory once in a call.  Called by the pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base.dtypes import DType, f32, i16
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.sizes import estimate
from tilewright.compiler.schedule.machine_model import MachineModel, MemoryLevel
from tilewright.compiler.schedule.rules.tiles import choose_tile

_TILES: Final = (2, 4)
_SQUARES: Final = (3,)
"""Filters whose points are few and small: more of them lose digits."""
_WORTH: Final = 0.9
"""Of the direct time: less is gained than a model of time can tell."""
_PRICE: Final = 5
"""Of a byte that is added to an artifact, in times that memory takes to bring it: who quantizes asks for small files, too."""
_STEPS: Final = 3
"""Additions and multiplications of a transform for each number that comes out of one of its axes."""
_NEAR: Final = 2
"""Times the first level cache: what it has lost of a band by the time it is read again is still in the second."""
_PLACES_OF_A_CHANNEL: Final = 3584
"""Places along a side times channels, of usual networks for pictures of 224 pixels a side: 64 channels of 56 x 56, 512 of 7 x 7."""
_LIKELY_SIZES: Final = (1, 2, 4)
_WORKGROUPS: Final = 16
"""As many as keep the cores of most machines busy; the threads of a call are not known when code is made."""


@final
@record
class Layer:
    """A convolution with stride 1 whose filters may be kept in Winograd's domain.

    Attributes:
        places: images, height and width of the result, the latter two of any size.
        channels, filters: of each of the groups, which take equal times.
        taps: along each side of a filter.
        dtype: of the sums: f32, or i32 of words of two 16-bit numbers.
        steps: from a tap to the next, down and right; places so many steps apart are moved, to be an image of their own.
    """

    places: tuple[Dim, ...]
    channels: int
    filters: int
    taps: int
    groups: int = 1
    dtype: DType = f32
    steps: tuple[int, ...] = (1, 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of `places`, estimated."""
        return tuple(map(estimate, self.places))

    @property
    def depth(self) -> int:
        """Steps of a sum: of words, one multiplies two channels, and bytes are extended to as many if they are not in the domain."""
        channels = self.channels
        return -(-channels // 2) if self.dtype.is_integer else channels

    def times(self, machine: MachineModel) -> dict[int, float]:
        """What a machine takes with each tile, and without one, by 0.  Unit: ns."""
        machine, row = machine.for_sums_of(self.dtype), self.groups * self.depth
        sums = self.taps**2 * self.depth
        times = {0: _product_ns(machine, self.sizes, self.filters, sums, row)}
        for tile in _TILES:
            crowded = self._crowded_ns(machine, tile, row)
            times[tile] = self._winograd_ns(machine, tile) + crowded
        return times

    def own_tile(self, machine: MachineModel, times: Mapping[int, float]) -> int:
        """What one machine chooses."""
        least = [
            (times[t], t) for t in _TILES if self._is_small_in_domain(machine, times, t)
        ]
        time, tile = min(least, default=(math.inf, 0))
        return tile if time < _WORTH * times[0] else 0

    def _is_small_in_domain(
        self, machine: MachineModel, times: Mapping[int, float], tile: int
    ) -> bool:
        """Whether filters may take what they do in the domain, where those of bytes are several times as large.

        They may take no more there than one image does, unless what is saved is several times what memory takes to
        bring what is added.
        """
        if not self.dtype.is_integer or self.filters <= self._tile_count(tile):
            return True
        # Bytes are 16-bit numbers in the domain.
        grown = self._points(tile) ** 2 * i16.itemsize - self.taps**2
        added = self.depth * 2 * self.filters * grown
        return times[0] - times[tile] > _PRICE * added * machine.ns_per_byte

    def _points(self, tile: int) -> int:
        """Along each side of a tile."""
        return tile + self.taps - 1

    def _tile_counts(self, tile: int) -> list[int]:
        """Along each side, of places so many steps apart."""
        pairs = zip(self.sizes[1:], self.steps, strict=True)
        return [-(-size // (step * tile)) for size, step in pairs]

    def _tile_count(self, tile: int) -> int:
        images = self.sizes[0] * math.prod(self.steps)
        return images * math.prod(self._tile_counts(tile))

    def _moving_ns(self, machine: MachineModel, tile: int) -> float:
        """Time to bring places so many steps apart together, and their results back."""
        if math.prod(self.steps) == 1:
            return 0.0
        counts, beyond = self._tile_counts(tile), self.taps - 1
        read = math.prod(count * tile + beyond for count in counts) * self.channels
        written = math.prod(count * tile for count in counts) * self.filters
        each = self.sizes[0] * math.prod(self.steps) * self.groups
        return machine.elements.pointwise * each * (read + written)

    def _winograd_ns(self, machine: MachineModel, tile: int) -> float:
        tiles, points = self._tile_count(tile), self._points(tile)
        product = _product_ns(machine, (tiles,), self.filters, self.depth, self.depth)
        transforms = _transform_ns(machine, tiles * self.depth, points, points)
        transforms += _transform_ns(machine, tiles * self.filters, points, tile)
        return points * points * product + transforms + self._moving_ns(machine, tile)

    def _crowded_ns(self, machine: MachineModel, tile: int, row: int) -> float:
        """Time that the pixels of a tile wait where they are too many for one set of the first level cache.

        They lie `row` numbers apart, and are read again for what they share with the next tile and the next lanes.
        """
        pixels = self._points(tile) ** 2
        sets = machine.way_bytes // math.gcd(row * f32.itemsize, machine.way_bytes)
        if pixels <= machine.l1.ways * sets:
            return 0.0
        vectors = self._tile_count(tile) * -(-self.depth // machine.lanes(f32))
        return vectors * pixels * machine.core.miss * machine.cycle_ns


def winograd_tile(
    machine: MachineModel, layer: Layer, *, others: Sequence[MachineModel] = ()
) -> int:
    """Results along each side of a tile of a convolution; 0: products are summed directly.

    Few channels or filters, of which times are not known well, are summed directly.  Where `others` read the same filters,
    no machine has its own choice: it is the one whose time, in that of a machine's own choice, is the least on the machine
    that it suits worst; of open heights and widths, for the image that it suits worst (`_likely_places`).
    Of bytes `machine` decides alone, as their choice is one of size, too.
    """
    readers = () if layer.dtype.is_integer else others
    lanes = max(each.lanes(f32) for each in (machine, *readers))
    if layer.taps not in _SQUARES or min(layer.channels, layer.filters) < lanes:
        return 0
    times: list[Mapping[int, float]] = []
    own: list[int] = []
    most = max(layer.channels, layer.filters) * layer.groups
    for places in _likely_places(layer.places, most):
        likely = replace(layer, places=places)
        for reader in (machine, *readers):
            times.append(likely.times(reader))
            own.append(likely.own_tile(reader, times[-1]))
    if len({*own}) == 1:
        return own[0]

    def worst(tile: int) -> float:
        ratios = zip(times, own, strict=True)
        return max(taken[tile] / taken[best] for taken, best in ratios)

    return min((0, *own), key=worst)


def _likely_places(places: Sequence[Dim], channels: int) -> list[tuple[int, ...]]:
    """`places` for each of some likely images, where heights and widths are open.

    Networks halve images where they double channels: pictures of 224 pixels a side, and of two and four times as many.
    """
    if all(isinstance(size, int) for size in places):
        return [tuple(map(estimate, places))]
    sides = [max(1, times * _PLACES_OF_A_CHANNEL // channels) for times in _LIKELY_SIZES]
    return [tuple(n if isinstance(n, int) else side for n in places) for side in sides]


def _product_ns(
    machine: MachineModel, rows: tuple[int, ...], columns: int, depth: int, row: int
) -> float:
    """Time to multiply rows that lie `row` numbers apart, and to bring the right operand from main memory."""
    lanes = machine.lanes(f32)
    row_bytes = row * f32.itemsize
    tile = choose_tile(machine, rows, columns, depth, lanes, row_bytes=row_bytes)
    stream = columns * depth * f32.itemsize * machine.ns_per_byte
    return tile.cost * machine.cycle_ns + stream


def _transform_ns(machine: MachineModel, columns: int, points: int, others: int) -> float:
    """Time to bring so many columns of tiles into their points, or out of them.

    Either axis is gone over once; what the product reads or wrote is large, and comes and goes through
    the last level cache.
    """
    numbers = points * (points + others) * _STEPS
    operations = columns * numbers / machine.lanes(f32) / machine.core.issue
    moved = 2 * columns * points * points * f32.itemsize
    return operations * machine.cycle_ns + moved / machine.l3.bandwidth


def reduction_parts(
    machine: MachineModel, rows: int, columns: int, steps: int, *, products: bool
) -> int:
    """Parts that the sums of a reduction, or of a product of matrices, are cut into; below 2: none.

    As many that workgroups number `_WORKGROUPS` where the sums alone do not, as long as each runs for its least time.
    """
    if not rows * columns:
        return 0
    lanes = machine.lanes(f32)
    if products:
        tile = choose_tile(machine, (rows,), columns, steps, lanes, row_bytes=0)
        groups = math.ceil(rows / tile.rows) * math.ceil(columns / tile.columns)
        time = 2 * machine.elements.flop * groups * tile.rows * tile.columns * steps
    else:
        groups = rows * math.ceil(columns / lanes)
        time = machine.elements.row * rows * columns * steps
    wanted = min(_WORKGROUPS, int(time / machine.workgroup_ns))
    return wanted // groups


def band_rows(machine: MachineModel, rows: int, row_bytes: int) -> int:
    """How many of `rows`, of `row_bytes` each, are a band that stays near; 0: not one of them.

    Bands are equal: a rest would be code of its own.
    """
    most = min(rows, _NEAR * machine.l1.size_bytes // max(1, row_bytes))
    return next((n for n in range(most, 0, -1) if rows % n == 0), 0)


def joined_band(machine: MachineModel, rows: int, row_bytes: int, right_bytes: int) -> int:
    """Rows of a band of the tensor between two sums; 0: the second starts when all of the first is there.

    Then the tensor goes to memory and comes back; a band spares that where the second level cache does not hold
    the tensor, and reads the right operand of the second sum, of `right_bytes`, again and again.
    """
    count = band_rows(machine, rows, row_bytes)
    total = rows * row_bytes
    if not count or total <= machine.l2.size_bytes:
        return 0
    spared = 2 * total / _level(machine, total).bandwidth
    again = (rows // count - 1) * right_bytes
    return count if again / _level(machine, right_bytes).bandwidth < spared else 0


def _level(machine: MachineModel, size_bytes: int) -> MemoryLevel:
    """The nearest memory that holds so much beside what else is used; half of a cache is others'."""
    levels = (machine.l1, machine.l2, machine.l3)
    near = (level for level in levels if 2 * size_bytes <= level.size_bytes)
    return next(near, machine.main)
