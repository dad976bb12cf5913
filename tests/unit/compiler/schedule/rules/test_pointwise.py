from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest

from fakes.contractions import product
from fakes.loop_nests import assert_same, op_kernel
from tilewright.base.dtypes import DType, f32, f64, i8, i16, u8
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import ceildiv, symbol, symbols
from tilewright.base.target import Target
from tilewright.compiler.analysis.sizes import trip_count
from tilewright.compiler.analysis.strides import stride
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.grid import grid_loops
from tilewright.compiler.kernel.ir import For, If, LoopKind, walk
from tilewright.compiler.kernel.rewrite import loads, loops, stores
from tilewright.compiler.kernel.text import expression_text
from tilewright.compiler.lowering.flatten import flatten
from tilewright.compiler.program.in_place import may_overwrite
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule
from tilewright.compiler.schedule.rules.pointwise import (
    _BLOCK,
    _STRIP,
    _block,
    fuse_contiguous,
)
from tilewright.compiler.schedule.trace import Schedule


@pytest.mark.thinned(5)
@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("dtype", [f32, f64, i8])
def test_loops_that_fill_half_a_register_take_half_of_one(dtype: DType, level: str) -> None:
    machine = MachineModel.of(Target.level(level))
    whole, least = machine.lanes(dtype), 128 // dtype.bits
    for extent in (1, least, least + 1, whole // 2, whole // 2 + 1, whole, whole + 1):
        kernel = op_kernel("add", [(extent,), (extent,)], (extent,), dtype=dtype)
        changed = schedule(kernel, machine)
        assert_same(kernel, changed)
        widths = {x.extent for x in loops(changed.body) if x.kind is LoopKind.VECTOR}
        fitting = max(least, 1 << (extent - 1).bit_length())
        assert widths <= {min(fitting, whole)}, (extent, widths)
        assert widths or extent == 1


@pytest.mark.parametrize("guarded", [False, True])
def test_neighbouring_loops_are_one_unless_a_guard_looks_at_them(guarded: bool) -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (6, 8)), b.result("y", f32, (6, 8))
    with b.nest((6, 8), ("i", "j")) as (i, j):
        if guarded:
            with b.when(b.lt(b.index(j), b.index(3))):
                b.store(y, (i, j), b.load(x, (i, j)))
        else:
            b.store(y, (i, j), b.load(x, (i, j)))
    names = fuse_contiguous(Schedule(b.build()), ["i", "j"])
    assert names == (["i", "j"] if guarded else ["i_f"])


@pytest.mark.parametrize(("times", "blocks"), [(1, 0), (2, 0), (3, 1)])
def test_only_loops_of_several_blocks_have_blocks(times: int, blocks: int) -> None:
    kernel = op_kernel("neg", [(times * _BLOCK,)], (times * _BLOCK,))
    (loop,) = loops(kernel.body)
    s = Schedule(kernel)
    outer, inner = _block(s, loop.var.name, 4)
    assert len(outer) == blocks
    extents = {x.var.name: x.extent for x in loops(s.kernel.body)}
    assert extents[inner] == (_BLOCK if blocks else times * _BLOCK)
    assert_same(kernel, s.kernel)


@pytest.mark.parametrize("places", [5, 2 * _STRIP + 37])
def test_rows_written_in_between_take_turns_in_strips(places: int) -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", u8, (3, places)), b.result("y", i16, (places, 3))
    with b.nest((places, 3), ("place", "colour")) as (place, colour):
        b.store(y, (place, colour), b.cast(b.load(x, (colour, place)), i16))
    kernel = b.build()
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    assert_same(kernel, changed)
    order = [loop.var.name for loop in loops(changed.body)]
    if places > _STRIP:
        assert order.index("colour") > 0, "each strip has all colours"
        assert any(loop.kind is LoopKind.VECTOR for loop in loops(changed.body))


@pytest.mark.parametrize("colours", [2, 3, 5, 7])
def test_colours_are_lanes_of_no_register(colours: int) -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (colours, 71)), b.result("y", f32, (71, colours))
    with b.nest((71, colours), ("place", "colour")) as (place, colour):
        b.store(y, (place, colour), b.load(x, (colour, place)))
    kernel = b.build()
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    assert_same(kernel, changed)
    lanes = [x for x in loops(changed.body) if x.kind is LoopKind.VECTOR]
    read = [a for loop in lanes for a in loads(loop.body)]
    assert read
    assert all(stride(a, loop.var.name) == 1 for loop in lanes for a in loads(loop.body))


def test_a_nest_that_writes_nothing_stays_as_it_is() -> None:
    """A row of a table that has none: simplified, nothing is left of the body."""
    kernel = parse_kernel("""kernel k(read in0: f32[0, 1], write out0: f32[n, 1], *, n: 0..):
    for i0 in range(n):
        pass
""")
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    assert_same(kernel, changed, dims={"n": 5})


@pytest.mark.parametrize("size", ["200", "n"])
def test_nothing_is_asked_in_the_loop_over_whole_vectors(size: str) -> None:
    dims = ", *, n: 0.." if size == "n" else ""
    kernel = parse_kernel(f"""kernel k(read in0: f32[{size}], write out0: f32[{size}]{dims}):
    for i in range({size}):
        out0[i] = exp(in0[i])
""")
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    *whole, rest = (x for x in loops(changed.body) if x.extent == 8)
    assert len(whole) == (2 if size == "n" else 1)  # two vectors at a time, then one
    assert not any(isinstance(s, If) for loop in whole for s in loop.body)
    assert all(isinstance(s, If) for s in rest.body) == (size == "n")
    for count in (0, 1, 15, 16, 17, 40):
        assert_same(kernel, changed, dims={"n": count} if size == "n" else {})


@pytest.mark.parametrize("type_", ["f32", "f16", "u8"])
@pytest.mark.parametrize("level", ["v3", "v4"])
def test_the_last_vector_of_a_row_that_is_moved_begins_earlier(
    level: str, type_: str
) -> None:
    kernel = parse_kernel(f"""kernel k(read x: {type_}[m, n], write y: {type_}[m, n + 1], *, n: 0.., m: 0..):
    for i in range(m):
        for j in range(n):
            y[i, j + 1] = x[i, j]
""")
    changed = schedule(kernel, MachineModel.of(Target.level(level)))
    *whole, rest = (x for x in loops(changed.body) if x.kind is LoopKind.VECTOR)
    assert len(whole) == 3  # four side by side, one, and the last
    assert not any(isinstance(x, If) for vector in whole for x in vector.body)
    # Where masks are no registers, rows that fill no vector have shorter ones.
    assert isinstance(rest.body[0], If) == (level == "v4")
    assert (rest.extent == whole[0].extent) == (level == "v4")
    for count in (*range(41), 63, 64, 65, 97, 130, 257):
        assert_same(kernel, changed, dims={"n": count, "m": 3})


def test_a_row_that_may_stand_over_an_operand_has_a_mask() -> None:
    """A vector that began earlier would add to what it has added to."""
    kernel = parse_kernel("""kernel k(read x: f32[m, n], read z: f32[m], write y: f32[m, n], *, n: 0.., m: 0..):
    for i in range(m):
        for j in range(n):
            y[i, j] = (x[i, j] + z[i])
""")
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    x, _, y = (parameter.buffer for parameter in changed.parameters)
    assert may_overwrite(changed, x, y)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("perm", [(1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_rows_of_open_length_may_fill_no_vector(perm: Sequence[int], level: str) -> None:
    """Such as the colours of a picture: they are written a strip of each in turn, along the longer rows that are read."""
    shape = (symbol("c", 0), symbol("h", 0), symbol("w", 0))
    kernel = op_kernel("transpose", [shape], tuple(shape[p] for p in perm), {"perm": perm})
    machine = MachineModel.of(Target.level(level))
    changed = schedule(kernel, machine)
    lanes = machine.lanes(f32)
    asked = [expression_text(x.condition) for x in walk(changed.body) if isinstance(x, If)]
    assert [text for text in asked if text.endswith(f"< {lanes})")]
    for sizes in (
        (3, 33, 17), (1, 1, 1), (0, 5, 3), (5, 0, 3), (lanes - 1, lanes, 65), (lanes, 3, 1), (17, 2, 33), (3, 300, 2), (70, 1, 90),
        (2, 20, 30), (4, 300, 1), (70, 5, 4), (2, 2, 2), (20, 40, 3),
    ):  # fmt: skip
        assert_same(kernel, changed, dims=dict(zip("chw", sizes, strict=True)))


@pytest.mark.parametrize("width", ["n", "16"])
def test_nothing_is_asked_in_the_loops_over_whole_square_blocks(width: str) -> None:
    """Sides that no block divides have code of their own, so that its constants take no register of the shuffles."""
    kernel = parse_kernel(f"""kernel k(read a: f32[m, {width}], write y: f32[{width}, m], *, m: 0.., n: 0..):
    for i in range({width}):
        for j in range(m):
            y[i, j] = a[j, i]
""")
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    squares = [
        x for x in loops(changed.body) if x.kind is LoopKind.UNROLL and x.extent == 8
    ]
    (around,) = (x for x in loops(changed.body) if x.body in [(s,) for s in squares])
    assert any(x.body == (around,) for x in loops(changed.body))  # both loops over blocks
    for m, n in ((0, 3), (3, 0), (8, 8), (70, 9), (9, 70), (16, 1), (67, 130)):
        assert_same(kernel, changed, dims={"m": m, "n": n})


@pytest.mark.thinned(2)
@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 3, 2)])
def test_transpositions_of_open_sizes_stay_in_the_first_level_cache(
    perm: Sequence[int],
) -> None:
    shape = (symbol("b", 0), 16, symbol("h", 0), symbol("w", 0))
    result = tuple(shape[p] for p in perm)
    kernel = op_kernel("transpose", [shape], result, {"perm": perm})
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    assert any(x.kind is LoopKind.VECTOR and x.extent == 8 for x in loops(changed.body))
    assert any("64" in str(x.extent) for x in loops(changed.body))
    for b, h, w in ((1, 9, 17), (2, 8, 8), (1, 1, 3), (1, 0, 5), (2, 13, 10)):
        assert_same(kernel, changed, dims={"b": b, "h": h, "w": w})


@pytest.mark.parametrize("perm", [(1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_two_to_four_elements_side_by_side_have_code_of_their_own(
    perm: Sequence[int],
) -> None:
    """Lanes are a known distance apart there: what is read or written strided is whole vectors and shuffles."""
    shape = (symbol("c", 1), symbol("h", 1), symbol("w", 1))
    kernel = op_kernel("transpose", [shape], tuple(shape[p] for p in perm), {"perm": perm})
    changed = schedule(kernel, MachineModel.of(Target.level("v4")))
    known = {
        expression_text(x.condition): x for x in walk(changed.body) if isinstance(x, If)
    }
    short = [text for text in known if re.search(r"== [234]\)$", text)]
    assert len(short) >= 3
    flat = flatten(changed)
    for size, number in re.findall(r"\((\w+)\) == ([234])\)", " ".join(short)):
        inside = [
            x for x in walk(flat.body)
            if isinstance(x, If) and expression_text(x.condition) in short
            and f"({size}) == {number})" in expression_text(x.condition)
        ]  # fmt: skip
        for part in inside:
            indices = [a.indices[0] for a in (*loads(part.body), *stores(part.body))]
            assert indices
            assert all(size not in i.names for i in indices if not isinstance(i, int))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("is_summed", [False, True])
def test_blocks_of_open_sizes_are_whole_squares_unless_results_may_stand_over_operands(
    is_summed: bool, level: str
) -> None:
    """Of which the last of a side begins earlier: what is read beside would be what it made."""
    machine = MachineModel.of(Target.level(level))
    count, height, width = (symbol(name, 0) for name in "BMN")
    b = KernelBuilder("k", (*symbols(count), *symbols(height), *symbols(width)))
    x = b.parameter("x", f32, (count, height, width))
    other = b.parameter("other", f32, (count, width, height))
    y = b.result("y", f32, (count, width, height))
    with b.nest((count, width, height), ("i", "j", "k")) as (i, j, k):
        turned = b.load(x, (i, k, j))
        b.store(
            y, (i, j, k), b.add(turned, b.load(other, (i, j, k))) if is_summed else turned
        )
    kernel = b.build()
    done = schedule(kernel, machine)
    assert any("in whole squares" in note for note in done.notes) is not is_summed
    lanes = machine.lanes(f32)
    sides = (0, 1, 3, lanes - 1, lanes, lanes + 1, 2 * lanes + 3, _BLOCK + 2)
    for m, n in itertools.product(sides, (1, lanes, lanes + 5)):
        assert_same(kernel, done, {"B": 2, "M": m, "N": n})
        assert_same(kernel, done, {"B": 1, "M": n, "N": m})


@pytest.mark.thinned(2)
def test_lines_of_equal_open_distance_are_written_to_their_end() -> None:
    """Either side may be the longer; rows of squares are the outer loop around those that one line of results has."""
    machine = MachineModel.of(Target.level("v3"))
    shape = tuple(symbol(name, 1) for name in "BMN")
    count, height, width = shape
    kernel = op_kernel("transpose", [shape], (count, width, height), {"perm": (0, 2, 1)})
    done = schedule(kernel, machine)
    tiles = [x.var.name for x in loops(done.body) if x.var.name.endswith("_t")]
    assert tiles[:2] == ["i1_n_t", "i2_n_t"]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("phases", [2, 3, 15])
def test_a_side_that_is_known_to_be_short_is_no_square(phases: int) -> None:
    """Such as the phases that a transposed convolution interleaves: nothing asks which of sixteen rows there are."""
    n, w = symbol("n", 1), symbol("w", 1)
    shape = (phases, n, w)
    kernel = op_kernel("transpose", [shape], (n, w, phases), {"perm": (1, 2, 0)})
    changed = schedule(kernel, MachineModel.of(Target.level("v4")))
    asked = [expression_text(x.condition) for x in walk(changed.body) if isinstance(x, If)]
    assert not [text for text in asked if text.endswith(f"< {phases})")]
    for sizes in ((1, 1), (3, 5), (2, 40), (7, 300)):
        assert_same(kernel, changed, dims=dict(zip("nw", sizes, strict=True)))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize("block", [2, 3])
def test_lines_of_open_length_that_few_rows_make_share_a_workgroup(
    block: int, level: str
) -> None:
    """Pictures whose channels become places: a line of a small one is little work."""
    n, h, w = (symbol(name, 1) for name in "nhw")
    shape = (n, 64, block, block, h, w)
    perm = (0, 1, 4, 2, 5, 3)
    result = tuple(shape[axis] for axis in perm)
    kernel = op_kernel("transpose", [shape], result, {"perm": perm})
    done = schedule(kernel, MachineModel.of(Target.level(level)))
    (grid,) = grid_loops(done)
    assert trip_count([grid], {"n": 1, "h": 28}) < 28 * 64
    for sizes in ({"n": 1, "h": 3, "w": 5}, {"n": 2, "h": 1, "w": 18}):
        assert_same(kernel, done, sizes)


@pytest.mark.parametrize("mode", ["wrap", "reflect"])
def test_a_few_elements_at_remainders_by_an_open_size_are_no_lanes(mode: str) -> None:
    """Each place is one number for all rows; in lanes they would be gathered anew in every row."""
    n, w = symbol("n", 1), symbol("w", 1)
    attributes = {"pads": (0, 3, 0, 2), "mode": mode}
    kernel = op_kernel("pad", [(n, w)], (n, w + 5), attributes)
    changed = schedule(kernel, MachineModel.of(Target.level("v4")))
    for loop in (x for x in loops(changed.body) if x.kind is LoopKind.VECTOR):
        assert all(stride(a, loop.var.name) == 1 for a in loads(loop.body))
    for sizes in ((1, 1), (3, 2), (2, 40), (7, 5)):
        assert_same(kernel, changed, dims=dict(zip("nw", sizes, strict=True)))


@pytest.mark.parametrize("level", ["v3", "v4"])
def test_a_side_that_is_known_to_fill_a_vector_is_one_of_a_square(level: str) -> None:
    machine = MachineModel.of(Target.level(level))
    lanes, w = machine.lanes(f32), symbol("w", 1)
    kernel = op_kernel("transpose", [(w, lanes)], (lanes, w), {"perm": (1, 0)})
    changed = schedule(kernel, machine)
    written_out = [x for x in loops(changed.body) if x.kind is LoopKind.UNROLL]
    assert any(x.extent == lanes and not find_guards(x) for x in written_out)
    for size in (1, lanes, 3 * lanes + 1, 300):
        assert_same(kernel, changed, dims={"w": size})


def find_guards(loop: For) -> list[If]:
    """Conditions inside of a loop."""
    return [x for x in walk(loop.body) if isinstance(x, If)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize("row", ["i64", "f32"])
def test_few_elements_of_another_type_than_the_row_beside_them_are_lanes(
    row: str, level: str
) -> None:
    """More narrow lanes run along one side than wide ones fill a turn along the other."""
    value = f"{row}(x[j, i])"
    if row == "f32":
        value = f"exp(sin({value}))"  # dear: a vector in one turn
    kernel = parse_kernel(f"""kernel k(read x: u8[n, m], read v: {row}[n], write y: bool[m, n], *, m: 1.., n: 1..):
    for i in range(m):
        for j in range(n):
            y[i, j] = ({value} == v[j])
""")
    changed = schedule(kernel, MachineModel.of(Target.level(level)))
    assert changed.verdict is not None
    assert changed.verdict.outcome is Outcome.POINTWISE
    assert not [text for text in changed.notes if "does not apply" in text]
    for m, n in ((1, 1), (2, 70), (3, 17), (70, 4), (70, 5), (17, 33)):
        assert_same(kernel, changed, dims={"m": m, "n": n}, exact=row != "f32")


def test_sides_by_which_another_size_is_divided_keep_their_lanes() -> None:
    """No code is for 2, 3 and 4 of `n`, an eighth of which divides."""
    kernel = parse_kernel("""kernel k(read x: f32[n, m], read z: f32[16 * m, n // 8], write y: f32[m, n], *, m: 1.., n: 1..):
    for i in range(m):
        for j in range(n):
            y[i, j] = (x[j, i] + z[(i * n + j) // (n // 8), (i * n + j) % (n // 8)])
""")
    changed = schedule(kernel, MachineModel.of(Target.level("v4")))
    assert not [text for text in changed.notes if "by zero" in text]
    assert changed.verdict is not None
    assert changed.verdict.outcome is Outcome.POINTWISE
    for m, n in ((1, 8), (2, 24), (3, 17), (4, 40), (20, 33)):
        assert_same(kernel, changed, dims={"m": m, "n": n})


@pytest.mark.thinned(3)
@pytest.mark.parametrize("level", ["v3", "v4"])
@pytest.mark.parametrize(("images", "size"), [(1, 93), (2, 70)])
def test_as_many_channels_as_lanes_are_transposed_in_squares_of_any_image(
    level: str, images: int, size: int
) -> None:
    machine = MachineModel.of(Target.level(level))
    lanes = machine.lanes(f32)
    kernel = op_kernel(
        "transpose",
        [(images, size, size, lanes)],
        (images, lanes, size, size),
        {"perm": (0, 3, 1, 2)},
    )
    changed = schedule(kernel, machine)
    assert_same(kernel, changed)
    assert changed.verdict.outcome is Outcome.POINTWISE
    grid = [loop for loop in loops(changed.body) if loop.kind is LoopKind.GRID_X]
    assert grid, "a large image is more than one workgroup's"


@pytest.mark.parametrize("level", ["v3", "v4"])
def test_products_of_one_step_ask_for_the_end_of_an_open_row_behind_its_whole_vectors(
    level: str,
) -> None:
    """The last panel has columns that nobody asks for, so every vector was stored under a mask."""
    m, n = symbol("m", 1), symbol("n", 1)
    shapes = [(m, 1), (ceildiv(n, 8), 1, 8)]
    kernel = op_kernel("contract", shapes, (m, n), product(n))
    changed = schedule(kernel, MachineModel.of(Target.level(level)))
    vectors = [loop for loop in loops(changed.body) if loop.kind is LoopKind.VECTOR]
    assert not any(isinstance(x, If) for x in walk(vectors[0].body))
    for sizes in ((1, 1), (3, 31), (2, 40), (7, 72)):
        assert_same(kernel, changed, dict(zip("mn", sizes, strict=True)))


@pytest.mark.parametrize("few", [2, 4, 16])
def test_what_few_elements_side_by_side_have_in_common_is_computed_where_it_is_read(
    few: int,
) -> None:
    """Two coordinates, or four, have no lanes of their own: those of the loop around them must stand alone in it."""
    naive = parse_kernel(f"""kernel k(read a: f32[3, {few}], read w: f32[35], read h: f32[5], write y: f32[3, 5, 35, {few}]):
    local s: f32[3, 35, {few}]@device
    for i in range(3):
        for j in range(35):
            for k in range({few}):
                s[i, j, k] = (a[i, k] * w[j])
    for i2 in range(3):
        for g in range(5):
            for j2 in range(35):
                for k2 in range({few}):
                    y[i2, g, j2, k2] = (s[i2, j2, k2] + h[g])
""")
    done = schedule(naive, MachineModel.of(Target.level("v3")))
    assert bool(done.locals) == (few > 4)
    assert done.verdict is not None
    assert done.verdict.outcome is not Outcome.GENERIC
    assert_same(naive, done)
