"""Products of words that machines multiply two rows by two columns at a time."""

from __future__ import annotations

import pytest

from fakes.contractions import convolution as packed_convolution
from fakes.contractions import product as packed_product
from fakes.loop_nests import assert_same, body_text, emit
from tilewright.base.dtypes import i32, i64
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

V4 = MachineModel.of(Target.level("v4"))
TILES = MachineModel.of(Target.parse("aarch64 -mcpu=neoverse-n2"))
M = symbol("M", 1)


def bytes_in_long_words(rows: Dim, columns: int, panel: int, depth: int = 3) -> Kernel:
    """A product of bytes, eight to a word, and a bias."""
    b = KernelBuilder("long")
    a = b.parameter("a", i64, (rows, depth))
    w = b.parameter("w", i64, (-(-columns // panel), depth, panel))
    bias = b.parameter("bias", i32, (columns,))
    y = b.result("y", i32, (rows, columns))
    t = b.temporary(i32, (rows, columns))
    emit(b, "contract", packed_product(columns, product="long_bytes"), [a, w], t)
    emit(b, "add", {}, [t, bias], y)
    return b.build()


@pytest.mark.thinned(7)
@pytest.mark.parametrize("machine", [TILES, V4], ids=str)
@pytest.mark.parametrize(
    ("rows", "columns", "panel"),
    [(1, 20, 12), (2, 3, 4), (7, 20, 12), (19, 37, 8), (25, 16, 16), (M, 20, 12)],
)
def test_rows_and_columns_are_multiplied_in_tiles_where_there_is_an_instruction(
    rows: Dim, columns: int, panel: int, machine: MachineModel
) -> None:
    naive = bytes_in_long_words(rows, columns, panel)
    done = schedule(naive, machine)
    assert ("usmmla" in body_text(done)) == (machine is TILES and rows != 1)
    dims = [{}] if isinstance(rows, int) else [{"M": m} for m in (1, 2, 9, 17)]
    for each in dims:
        assert_same(naive, done, each)


@pytest.mark.slow
def test_places_of_images_are_multiplied_in_tiles() -> None:
    b = KernelBuilder("image")
    x, w = b.parameter("x", i64, (2, 6, 7, 2)), b.parameter("w", i64, (1, 2, 3, 3, 2, 8))
    y = b.result("y", i32, (2, 4, 5, 13))
    form = packed_convolution(13, product="long_bytes")
    emit(b, "contract", form, [x, w], y)
    naive = b.build()
    done = schedule(naive, TILES)
    assert "usmmla" in body_text(done)
    assert any("outcome: tiled" in note for note in done.notes)
    assert_same(naive, done)


def test_registers_hold_a_tile_of_an_instruction_and_its_words() -> None:
    for panel in (4, 8, 12, 16):
        done = schedule(bytes_in_long_words(200, 5 * panel, panel), TILES)
        shapes = [b.shape for b in done.locals if b.name.startswith("tiles")]
        assert shapes
        for pairs, columns, _ in shapes:
            assert pairs * columns + columns + 1 <= TILES.vector_registers
