"""What a schedule knows of a machine: widths, ports, latencies, memories, as plain data.

A model ranks schedules; it is no simulator.  Every number that rules or the cost model take from hardware
stands here, and a CPU that differs from the usual one is a row of `_CORES`.  A back end makes the model of
a `Target` (`MachineModel.of`); rules and spaces see nothing else of the target.

Source: the rows of `_CORES`, Agner Fog's instruction tables and the makers' optimization guides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, final

from tilewright.base.dtypes import DType, bf16, f16
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.compiler.kernel.dot_products import TILES, dot_of_long_words, tile_side


@final
@record(kw_only=True)
class Core:
    """One core at work.  Units: starts per cycle, cycles, GHz.

    Attributes:
        issue: operations that start in a cycle when none waits for another.
        multiply_adds: vector multiply-adds that start in a cycle.
        wide_multiply_adds: the same for vectors of 512 bits.
        loads, stores: vectors that go from and to the first level cache in a cycle.
        latency: cycles from an addition to the next of the same sum.
        miss: cycles that are lost where a branch goes the other way than it was taken to go.
        tile: cycles between the last step of a register tile and the first of the next, but for its stores.
        load: cycles that each load delays a step beyond what the ports allow: they share them with addresses.
        crowded: how much longer steps take whose operands fall into one set of the first level cache.
        across: operations to combine the lanes of a vector.
        fill: cycles that a line which comes from the second level cache delays a step, though it was foreseen.
        second_level_ways: places of the second level cache that one line may be in.
        third_level: bytes that the third level cache brings to one core in a cycle.
        memory: bytes that main memory brings to one core in a nanosecond, where work hides a part of it.
        read_ahead: how many bytes ahead a row of packed words (numbers of a few bits) is asked for from main memory; 0: it is
            enough to ask for the block that is used next.
        written_ahead: bytes ahead of a run of stores for whose lines it pays to ask; 0: stores fetch their lines soon enough.
        clock: of a usual core of that kind at work.
    """

    issue: int = 3
    multiply_adds: int = 2
    wide_multiply_adds: int = 2
    loads: int = 2
    stores: int = 1
    latency: int = 4
    miss: int = 15
    tile: int = 40
    load: float = 0.04
    crowded: float = 1.3
    across: int = 24
    fill: float = 0.0
    second_level_ways: int = 8
    third_level: float = 25.0
    memory: float = 25.0
    read_ahead: int = 0
    written_ahead: int = 0
    clock: float = 3.0


_USUAL: Final = Core()
_WORD_PRODUCTS: Final[Mapping[str, frozenset[str]]] = {
    "bytes": frozenset({"avx512vnni", "avxvnni", "i8mm", "dotprod"}),
    "long_bytes": frozenset({"i8mm"}),
    "small_bytes": frozenset({"ssse3", "avxvnni", "avx512vnni", "dotprod"}),
    "extended": frozenset({"sse2"}),
    "shorts": frozenset({"sse2"}),
    "pairs": frozenset({"avx512bf16"}),
    "moved_bytes": frozenset({"ssse3"}),
}
"""Extensions of which any multiplies words so, by rows of `WORD_PRODUCTS`; `small_bytes`: unsigned bytes of 7 bits, as weights of 4 are."""
_WIDENED: Final[Mapping[DType, frozenset[str]]] = {
    f16: frozenset({"f16c", "avx512f", "neon"}),
    bf16: frozenset({"sse2", "neon"}),
}
"""Extensions of which any makes f32 of floats of 16 bits in a step or two."""
_TALL_TILES: Final = frozenset({"avx512f", "neon"})
_LOOKUPS: Final = frozenset({"avx512f"})
"""Extensions that look numbers up by the lowest 4 bits of words."""
_EXTENSION: Final = 0.3
_MESH: Final = Core(
    fill=0.2,
    second_level_ways=16,
    third_level=9,
    memory=16,
    read_ahead=4096,
    written_ahead=1024,
)
"""Two multiply-adds of 512 bits a cycle, and a third level cache that lies in slices over the chip.

Measured: Cascade Lake.  The others of its line have that cache too, and its numbers unmeasured.
"""
_CORES: Final[Mapping[str, Core]] = {
    "x86-64-v4": _MESH,
    "skylake-avx512": _MESH,
    "cascadelake": _MESH,
    "icelake-server": _MESH,
    "sapphirerapids": _MESH,
    "emeraldrapids": _MESH,
    "graniterapids": _MESH,
    "znver4": Core(wide_multiply_adds=1),  # 512 bits are two halves of 256
}


@final
@record(kw_only=True)
class MemoryLevel:
    """One memory as one core sees it.  Units: bytes (0: no bound, or none there); bytes per ns.

    Attributes:
        ways: places that one line may be in; 0 where that does not matter.
    """

    size_bytes: int
    bandwidth: float
    ways: int = 0

    def ways_taken(self, rows: int, row_bytes: int, apart: int) -> int:
        """Lines that meet in one set when rows of `row_bytes`, so many bytes `apart`, are all there; 0 where ways do not matter."""
        if not self.ways or apart <= 0:
            return 0
        way_bytes = self.size_bytes // self.ways
        step = math.gcd(apart, way_bytes)
        return -(-rows * step // way_bytes) * -(-row_bytes // step)


@final
@record(kw_only=True)
class ElementTimes:
    """What kernels take over one element in practice, waits and loops included.  Unit: ns.

    Rough figures of a usual core, by which workgroups are sized and nothing else: one that is wrong by a factor of two
    costs little.  What ranks tiles against each other is counted in cycles instead (`Core`).

    Attributes:
        operation: each operation upon an element that is at hand.
        pointwise: an element that comes from memory once and goes back once.
        row: an element in one pass over a row, which the first level cache holds from the second pass on.
        column: a step of an inner loop, of which all lanes are computed side by side.
        flop: half a multiply-add of a register tile.
    """

    operation: float = 0.02
    pointwise: float = 0.3
    row: float = 0.1
    column: float = 0.4
    flop: float = 0.01


_ELEMENTS: Final = ElementTimes()
SLOW_OPERATIONS: Final[Mapping[str, int]] = {
    "div": 10,
    "mod": 10,
    "pow": 50,
    **dict.fromkeys(
        (
            "exp",
            "exp_nonpositive",
            "log",
            "sin",
            "cos",
            "tanh",
            "erf",
            "normal_cdf",
            "sigmoid",
        ),
        20,
    ),
}
"""Multiply-adds that take as long as an operation does, on a usual core; those of any other are 1."""


@final
@record(kw_only=True)
class MachineModel:
    """One machine to schedule for.

    Attributes:
        name: of the CPU.
        vector_bits, vector_registers: of the vectors that schedules use.
        has_masks: loads and stores of any lanes are one instruction.
        has_partial_vectors: a vector of which some lanes are left out is worth its code.
        instructions: names of the instruction set's extensions, as the target has them.
        line_bytes: what memory moves at least.
        l1, l2, l3, main: memories from the nearest to the farthest.
        workgroup_ns: what a workgroup should run for at least, to be worth its start.
        awake_ns: the same where fewer workgroups than threads would be left, and each byte is read once, by whichever thread it is.
        elements: what one element takes, to size workgroups by.
        extension: multiply-adds that take as long as a vector of the right operand to be extended.
        rows_at_once: rows that one instruction multiplies, by as many columns fewer: their words are as many times as long.
    """

    name: str
    core: Core
    vector_bits: int
    vector_registers: int
    has_masks: bool
    has_partial_vectors: bool
    instructions: frozenset[str]
    line_bytes: int
    l1: MemoryLevel
    l2: MemoryLevel
    l3: MemoryLevel
    main: MemoryLevel
    workgroup_ns: float = 20_000
    awake_ns: float = 5_000
    elements: ElementTimes = _ELEMENTS
    extension: float = 0.0
    rows_at_once: int = 1

    @staticmethod
    @functools.cache
    def of(target: Target) -> MachineModel:
        """The model of a CPU that there is code for."""
        caches, core = target.caches, _CORES.get(target.cpu, _USUAL)
        return MachineModel(
            name=target.cpu,
            core=core,
            vector_bits=target.vector_bits,
            vector_registers=target.vector_registers,
            has_masks=target.has_masks,
            has_partial_vectors=target.has_masks
            or target.has("avx")
            or target.arch != "x86_64",
            instructions=target.features,
            line_bytes=caches.line_bytes,
            l1=MemoryLevel(
                size_bytes=caches.l1d_bytes, bandwidth=190, ways=caches.l1d_ways
            ),
            l2=MemoryLevel(
                size_bytes=caches.l2_bytes, bandwidth=118, ways=core.second_level_ways
            ),
            l3=MemoryLevel(
                size_bytes=caches.l3_bytes, bandwidth=core.third_level * core.clock
            ),
            main=MemoryLevel(size_bytes=0, bandwidth=core.memory),
        )

    def __str__(self) -> str:
        return self.name

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector, at least 1."""
        return max(1, self.vector_bits // max(8, dtype.bits))

    def for_sums_of(self, dtype: DType) -> MachineModel:
        """The same as sums of `dtype` find it.

        A product that another instruction adds to its sum takes a register in between, and bytes take time to be extended.
        """
        if dtype.is_integer and "long_bytes" in self.word_products:
            return replace(self, rows_at_once=tile_side(TILES[dot_of_long_words().name]))
        if not dtype.is_integer or "extended" not in self.word_products:
            return self
        return replace(
            self, vector_registers=self.vector_registers - 1, extension=_EXTENSION
        )

    @property
    def way_bytes(self) -> int:
        """Of one way of the first level cache: places so far apart fall into one set."""
        return max(self.line_bytes, self.l1.size_bytes // self.l1.ways)

    @property
    def multiply_adds_per_cycle(self) -> int:
        """Vector multiply-adds that start in one cycle."""
        wide = self.vector_bits >= 512
        return self.core.wide_multiply_adds if wide else self.core.multiply_adds

    @property
    def halved(self) -> MachineModel | None:
        """The same with vectors of half the bits, where two of those take as long as one of all the bits."""
        if (
            self.vector_bits < 512
            or self.core.multiply_adds < 2 * self.core.wide_multiply_adds
        ):
            return None
        return replace(self, vector_bits=self.vector_bits // 2)

    @property
    def word_products(self) -> frozenset[str]:
        """The rows of `WORD_PRODUCTS`, `small_bytes` and `moved_bytes`, that take fewer instructions than products of their numbers as f32.

        Bytes are extended, and 16-bit numbers multiplied, where there is no product of bytes themselves.  `moved_bytes`: numbers of 4
        and 8 bits are moved and converted byte by byte, as nothing looks them up.
        """
        found = {
            product
            for product, extensions in _WORD_PRODUCTS.items()
            if not self.instructions.isdisjoint(extensions)
        }
        if not self.instructions.isdisjoint(_LOOKUPS):
            found.discard("moved_bytes")
        return frozenset(found - {"extended", "shorts"} if "bytes" in found else found)

    @property
    def widened(self) -> tuple[DType, ...]:
        """Floats of 16 bits that become f32 in an instruction or two, the more exact first."""
        rows = _WIDENED.items()
        return tuple(
            dtype for dtype, used in rows if not self.instructions.isdisjoint(used)
        )

    @property
    def has_tall_tiles(self) -> bool:
        """Whether registers hold the sums of so many rows that a tile widens its panel in no time."""
        return not self.instructions.isdisjoint(_TALL_TILES)

    @property
    def cycle_ns(self) -> float:
        """Nanoseconds of one cycle."""
        return 1 / self.core.clock

    @property
    def ns_per_byte(self) -> float:
        """What main memory takes to bring a byte to one core."""
        return 1 / self.main.bandwidth
