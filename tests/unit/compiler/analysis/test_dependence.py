from __future__ import annotations

import pytest

from fakes.loop_nests import doubled, product, row_sums
from tilewright.base import symbolic
from tilewright.base.dtypes import bool_, f32, i64
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Expr, Symbol, symbol
from tilewright.compiler.analysis.accesses import (
    Access,
    accesses,
    known_facts,
    update_operator,
)
from tilewright.compiler.analysis.dependence import (
    carried,
    is_private,
    live_outside,
    only_inside,
    overlap,
    private_buffers,
)
from tilewright.compiler.analysis.proofs import (
    _is_never_negative,
    disjoint,
    distinct,
    within,
)
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.expressions import const
from tilewright.compiler.kernel.ir import (
    Buffer,
    Compare,
    For,
    If,
    Index,
    Kernel,
    Load,
    Space,
    Store,
)
from tilewright.compiler.kernel.rewrite import as_index
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.compiler.schedule.primitives import fuse_nests, privatize, split
from tilewright.compiler.schedule.tree import find, make_loop, reference, with_inner


def stored(loop: For):
    return [a for a in accesses((loop,)) if a.write]


def copy(index, extent: int, *outer: int):
    """A nest that stores y at `index(*variables)`."""
    b = KernelBuilder("k")
    y = b.result("y", f32, (1000,))
    with b.nest((extent, *outer), ("i", "j")[: 1 + len(outer)]) as variables:
        b.store(y, (index(*variables),), 1)
    return b.build()


def test_distinct_sees_mixed_radix_indices() -> None:
    kernel = copy(lambda i, j: 8 * i + j, 5, 8)
    (write,) = [a for a in accesses(find(kernel, "j").body) if a.write]
    shared = [find(kernel, "i").var, find(kernel, "j").var]
    assert distinct(write, write, shared)


def test_distinct_is_not_fooled_by_overlapping_blocks() -> None:
    kernel = copy(lambda i, j: 7 * i + j, 5, 8)
    (write,) = [a for a in accesses(find(kernel, "j").body) if a.write]
    assert not distinct(write, write, [find(kernel, "i").var, find(kernel, "j").var])


def test_distinct_reads_a_quotient_and_remainder_as_one_value() -> None:
    b = KernelBuilder("k")
    y = b.result("y", f32, (6, 9))
    with b.nest((5, 7), ("i", "j")) as (i, j):
        flat = 7 * i + j
        b.store(y, (flat // 7 + 1, flat % 7 + 1), 1)
    kernel = b.build()
    (write,) = [a for a in accesses(find(kernel, "j").body) if a.write]
    assert distinct(write, write, [find(kernel, "i").var, find(kernel, "j").var])


def test_distinct_puts_several_digits_of_one_value_together() -> None:
    """Rows of windows of 7 x 7 in an image of 2 x 3 of them, and a place that is lost."""
    b = KernelBuilder("k")
    y, z = b.result("y", f32, (1, 2, 7, 3, 7)), b.result("z", f32, (1, 2, 7, 3, 7))
    with b.nest((5, 59), ("i", "j")) as (i, j):
        row = 59 * i + j
        place = (row // 294, row // 147 % 2, row // 7 % 7, row // 49 % 3, row % 7)
        b.store(y, place, 1)
        b.store(z, (*place[:3], 0, place[4]), 1)
    loops = b.build()
    kept, lost = (a for a in accesses(find(loops, "j").body) if a.write)
    shared = [find(loops, "i").var, find(loops, "j").var]
    assert distinct(kept, kept, shared)
    assert not distinct(lost, lost, shared)


@pytest.mark.parametrize(("rows", "is_told_apart"), [(8, True), (9, False)])
def test_distinct_tells_digits_of_digits_apart(rows: int, is_told_apart: bool) -> None:
    """Images to channels last in squares of 8 x 8: where squares lie is divided, and so is what is left of that."""
    kernel = parse_kernel(
        f"""
kernel k(write y: f32[56, 57, 256]):
    for b in range(13):
        for n in range(min((-16*b + 196), 16)):
            for t in range(8):
                for i in range({rows}):
                    for j in range(64):
                        y[(8*((16*b + n) % 49) + t) // 7, 8*((8*((16*b + n) % 49) + t) % 7) + i, 64*((16*b + n) // 49) + j] = 1.0
"""
    )
    (write,) = accesses(find(kernel, "b").body)
    assert distinct(write, write, [find(kernel, "b").var]) is is_told_apart


@pytest.mark.parametrize(("panels", "is_told_apart"), [(8, True), (9, False)])
def test_distinct_sees_that_loops_inside_of_a_digit_stay_in_it(
    panels: int, is_told_apart: bool
) -> None:
    """Groups of a convolution: 8 panels of 16 in steps of 6 and 2, which one by one would reach 191 and not 127."""
    kernel = parse_kernel(
        f"""
kernel k(write y: f32[7, 288]):
    for g in range(14):
        for p in range(2):
            for n in range(min((-6*p + {panels}), 6)):
                for lane in range(16):
                    y[g % 7, 128*(g // 7) + 96*p + 16*n + lane] = 1.0
"""
    )
    (write,) = accesses(find(kernel, "g").body)
    assert distinct(write, write, [find(kernel, "g").var]) is is_told_apart


@pytest.mark.parametrize("count", [4, pytest.param(7, marks=pytest.mark.slow)])
def test_distinct_ends_where_digits_make_more_digits(count: int) -> None:
    value = " + ".join(
        f"4*((3*i + 5*j) // {n}) + 2*((3*i + 5*j) % {n})" for n in range(2, 2 + count)
    )
    kernel = parse_kernel(
        f"""
kernel k(write y: f32[1000, 1000, 1000]):
    for i in range(9):
        for j in range(9):
            y[{value}, 2*({value}) + j, 3*({value}) + i] = 1.0
"""
    )
    (write,) = accesses(find(kernel, "i").body)
    # It holds and is not found; that an answer comes is what counts.
    assert not distinct(write, write, [find(kernel, "i").var])


def _in_open_blocks(count, index) -> bool:
    """Whether elements at `index(i, j, n)` of all i and of j below 9 are proven to be different, `count(n)` of them in a row."""
    size = symbol("N", 1)
    b = KernelBuilder("k", symbolic.symbols(size))
    y = b.result("y", f32, (1000, 1000 * size))
    with b.nest((5 * count(size), 9), ("i", "j")) as (i, j):
        b.store(y, index(i, j, size), 1)
    kernel = b.build()
    (write,) = [a for a in accesses(find(kernel, "i").body) if a.write]
    return distinct(write, write, [find(kernel, "i").var])


def test_distinct_reads_quotient_and_remainder_by_an_open_size_as_one_value() -> None:
    def blocks(n):
        return (n + 11) // 12

    assert _in_open_blocks(
        blocks, lambda i, j, n: (9 * (i // blocks(n)) + j, 12 * (i % blocks(n)) + j)
    )
    assert _in_open_blocks(
        blocks, lambda i, j, n: (i // blocks(n), 9 * (i % blocks(n)) + j)
    )


@pytest.mark.parametrize(
    "index",
    [
        lambda i, j, n: (8 * (i // n) + j, 9 * (i % n) + j),
        lambda i, j, n: (9 * (i // n) + j, 8 * (i % n) + j),
        lambda i, j, n: (9 * (i // n) + j, j),
        lambda i, j, n: (9 * (i // n) + j, 9 * (i % (n + 1)) + j),
        lambda i, j, n: (9 * (i // (n + j)) + j, 9 * (i % (n + j)) + j),
        lambda i, j, n: (9 * (i // (n - 1)) + j, 9 * (i % (n - 1)) + j),
    ],
)
def test_distinct_is_not_fooled_by_digits_of_open_sizes_that_overlap_or_differ(
    index,
) -> None:
    assert not _in_open_blocks(lambda n: n, index)


@pytest.mark.parametrize("limit", [1, 3])
def test_distinct_takes_a_minimum_for_no_division(limit: int) -> None:
    b = KernelBuilder("k")
    y = b.result("y", f32, (5, 8, 4))
    with b.nest((40,), ("i",)) as (i,):
        b.store(y, (i // 8, i % 8, symbolic.minimum(i, limit)), 1)
    kernel = b.build()
    (write,) = [a for a in accesses(find(kernel, "i").body) if a.write]
    assert distinct(write, write, [find(kernel, "i").var])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("tiles", [42, 25, 49, 7])
def test_distinct_puts_digits_together_whose_blocks_are_multiples_of_a_digit(
    tiles: int,
) -> None:
    """42 tiles of 4 rows are 24 times 7: part of the row leaves the remainders by 7."""
    b = KernelBuilder("k")
    y = b.result("y", f32, (4, 7, 2, 7))
    with b.nest((2, tiles, 4), ("i", "j", "r")) as (i, j, r):
        row = 4 * (tiles * i + j) + r
        b.store(y, (row // 98, row // 7 % 7, row // 49 % 2, row % 7), 1)
    kernel = b.build()
    (write,) = [a for a in accesses(find(kernel, "r").body) if a.write]
    assert distinct(write, write, [find(kernel, name).var for name in "ijr"])


@pytest.mark.parametrize("down", [1, -1])
def test_distinct_takes_digits_in_any_order_where_none_reaches_the_next(down: int) -> None:
    def of(step: int) -> bool:
        kernel = copy(
            lambda i: 16 * (i // 4 % 4) + step * (i // 16) + down * (i % 4) + 3, 64
        )
        loop = find(kernel, "i")
        (write,) = stored(make_loop("around", 1, loop.body))
        return distinct(write, write, [loop.var])

    assert of(4)
    assert not of(3)


def test_distinct_uses_guards_on_a_loop() -> None:
    b = KernelBuilder("k")
    y = b.result("y", f32, (24,))
    with b.nest((2, 16), ("g", "e")) as (g, e), b.when(b.lt(b.index(e), b.index(12))):
        b.store(y, (12 * g + e,), 1)
    kernel = b.build()
    (write,) = [a for a in accesses(find(kernel, "e").body) if a.write]
    assert distinct(write, write, [find(kernel, "g").var, find(kernel, "e").var])


def test_disjoint_sees_borders_beside_a_tight_block() -> None:
    b = KernelBuilder("k")
    y = b.result("y", f32, (12,))
    with b.nest((10,), ("i",)) as (i,):
        b.store(y, (i + 1,), 1)
    b.store(y, (11,), 0)
    kernel = split(b.build(), "i", 4, "tight")
    (inner,) = stored(kernel.body[0])
    (border,) = accesses((kernel.body[1],))
    assert disjoint(inner, border)
    assert overlap([inner], [border]) is None


@pytest.mark.parametrize(
    ("border", "is_apart"),
    [
        (lambda n: (n + 1, 0), True),  # behind the last quotient
        (lambda n: (0, n + 1), True),  # behind the last remainder
        (lambda n: (n, 5), False),
        (lambda n: (5, n), False),
        (lambda n: (2 * n - 1, 5), False),
    ],
)
def test_disjoint_sees_borders_around_quotients_and_remainders_by_an_open_size(
    border, is_apart: bool
) -> None:
    size = symbol("N", 1)
    b = KernelBuilder("k", symbolic.symbols(size))
    y = b.result("y", f32, (size + 2, size + 2))
    with b.nest((size * size,), ("i",)) as (i,):
        b.store(y, (i // size + 1, i % size + 1), 1)
    b.store(y, border(size), 0)
    kernel = split(b.build(), "i", 4)
    (inner,) = stored(kernel.body[0])
    (outer,) = accesses((kernel.body[1],))
    assert disjoint(inner, outer) is is_apart
    assert disjoint(outer, inner) is is_apart


@pytest.mark.parametrize(
    ("place", "border"),
    [
        (lambda i, n: i // n + 1, lambda n: n + 1),  # the last quotient is begun only
        (lambda i, n: 2 * (i % n) + 1, lambda n: n + 2),
        (lambda i, n: 2 * (i // n) + 1, lambda n: n + 2),
    ],
)
def test_disjoint_bounds_quotients_and_remainders_by_an_open_size_no_lower_than_they_reach(
    place, border
) -> None:
    size = symbol("N", 1)
    b = KernelBuilder("k", symbolic.symbols(size))
    y = b.result("y", f32, (2 * size + 2,))
    with b.nest((size * size + 1,), ("i",)) as (i,):
        b.store(y, (place(i, size),), 1)
    b.store(y, (border(size),), 0)
    (inner,), (outer,) = stored(b.build().body[0]), accesses((b.build().body[1],))
    assert not disjoint(inner, outer)
    assert not disjoint(outer, inner)


def test_disjoint_says_nothing_of_quotients_by_a_size_that_may_be_0() -> None:
    size = symbol("N", 0)
    b = KernelBuilder("k", symbolic.symbols(size))
    y = b.result("y", f32, (size + 2,))
    with b.nest((5 * size,), ("i",)) as (i,):
        b.store(y, (i % size + 1,), 1)
    b.store(y, (size + 1,), 0)
    (inner,), (outer,) = stored(b.build().body[0]), accesses((b.build().body[1],))
    assert not disjoint(inner, outer)


def test_disjoint_needs_a_proof() -> None:
    kernel = copy(lambda i: i, 10)
    (write,) = stored(kernel.body[0])
    assert not disjoint(write, write, [find(kernel, "i").var])


def test_updates_with_one_operator_do_not_depend_on_each_other() -> None:
    kernel = product()
    loop = find(kernel, "k")
    assert carried(loop, scope=kernel.body) is None
    assert carried(loop, scope=kernel.body, updates_commute=False) is not None
    (store,) = [s for s in loop.body if isinstance(s, Store)]
    assert update_operator(store) == "add"


@pytest.mark.parametrize(
    ("index", "is_carried"),
    [
        (lambda i, j: i, False),
        (lambda i, j: 999 - i, False),
        (lambda i, j: 3 * i + symbol("n", 0, 9), False),
        (lambda i, j: j, True),
        (lambda i, j: i + j, True),
        (lambda i, j: symbol("n", 0, 9), True),
    ],
)
def test_an_index_tells_iterations_apart_that_moves_with_them_and_nothing_inside(
    index, is_carried: bool
) -> None:
    kernel = copy(index, 5, 3)
    found = carried(find(kernel, "i"), scope=kernel.body)
    assert (found is not None) == is_carried


def test_a_buffer_written_first_is_private() -> None:
    kernel = privatize(fuse_nests(row_sums(), "i", "j"), "t", "i")
    assert [b.name for b in private_buffers(find(kernel, "i").body)] == ["t"]
    assert carried(find(kernel, "i"), scope=kernel.body) is None


def test_one_buffer_is_private_where_it_is_among_the_private_ones() -> None:
    kernel = privatize(fuse_nests(row_sums(), "i", "j"), "t", "i")
    body = find(kernel, "i").body
    private = private_buffers(body)
    buffers = dict.fromkeys(access.buffer for access in accesses(body))
    assert len(private) == 1 < len(buffers)
    assert [b for b in buffers if is_private(body, b)] == private
    assert not is_private((), private[0])


def test_what_only_one_part_touches_is_what_is_not_live_outside_of_it() -> None:
    kernel = row_sums()
    part = find(kernel, "i")
    buffers = list(dict.fromkeys(access.buffer for access in accesses(kernel.body)))
    inside = [b for b in buffers if not live_outside(kernel.body, part, b)]
    assert only_inside(buffers, kernel.body, part) == inside
    assert inside != buffers
    assert only_inside(buffers, part.body, part) != inside
    assert only_inside((), kernel.body, part) == []


@pytest.mark.parametrize(
    ("read", "private"),
    [
        ("same loop", True),
        ("first", False),
        ("longer loop", False),
        ("beside another loop", False),
    ],
)
def test_a_loop_that_may_not_run_defines_what_as_many_iterations_read(
    read: str, private: bool
) -> None:
    n = symbol("n", 0)
    count = symbolic.minimum(n - 5, 3)
    t, y = Buffer("t", f32, (9,), Space.WORKGROUP), Buffer("y", f32, (9,))
    write = make_loop("i", count, ())
    i = reference(write.var)
    code = with_inner(write, (Store(t, (i,), const(1, f32)),))
    if read == "beside another loop":
        around = make_loop("k", 4, ())
        place = reference(around.var)
        code = with_inner(
            around, (with_inner(write, (Store(t, (place,), const(1, f32)),)),)
        )
        count = 4
    user = make_loop("j", {"longer loop": count + 1}.get(read, count), ())
    at = 0 if read == "first" else reference(user.var)
    use = Store(y, (at,), Load(t, (at,)))
    after = use if read == "first" else with_inner(user, (use,))
    assert private_buffers((code, after)) == ([t] if private else [])


def test_within_uses_loops_with_symbolic_extents_and_facts() -> None:
    n = symbol("N", 1)
    outer = make_loop("p", (n + 31) // 32, ())
    base = symbol("p", 0) * 32
    assert within(base, n, [outer])
    assert not within(base + 1, n, [outer])
    row = symbol("r", 0, 3)
    assert within(base + row, n, [outer], [(base + 4, n)])


def test_within_takes_either_side_of_a_minimum() -> None:
    n, most = symbol("N", 1), symbol("M", 1)
    seen = symbolic.minimum(most, n)
    block = make_loop("b", seen // 128, ())
    inner = make_loop("j", 128, ())
    place = symbol("b", 0) * 128 + symbol("j", 0, 127)
    assert within(place, n, [block, inner])
    assert within(place, most, [block, inner])
    assert not within(place + 1, n, [block, inner])
    rest = make_loop("r", seen - seen // 128 * 128, ())
    assert within(seen // 128 * 128 + symbol("r", 0), n, [rest])
    assert not within(seen // 128 * 128 + symbol("r", 0) + 1, n, [rest])


def test_facts_come_from_comparisons_of_indices() -> None:
    kernel = split(doubled(10), "i", 4)
    (guard,) = [s for s in find(kernel, "i_i").body if isinstance(s, If)]
    ((low, high),) = known_facts((guard,))
    assert (str(low), high) == ("(i_i + 4*i_o)", 9)


def test_accesses_of_different_buffers_never_conflict() -> None:
    kernel = doubled()
    found = accesses(kernel.body)
    assert {a.buffer.name for a in found} == {"x", "y"}
    reads = [a for a in found if not a.write]
    writes = [a for a in found if a.write]
    assert overlap(reads, writes) is None
    assert isinstance(reads[0].buffer, Buffer)


def scattered(index, *, writes_table: bool = False) -> For:
    """`for i in 4: y[index(i, table)] = 1`, the table changed in the same loop if asked for."""
    table, y = Buffer("table", i64, (4,)), Buffer("y", f32, (64,))
    loop = make_loop("i", 4, ())
    i = reference(loop.var)
    body = [Store(y, (index(i, table),), const(1, f32))]
    if writes_table:
        body.append(Store(table, (0,), Index(i * 4)))
    return make_loop("i", 4, body)


def test_a_place_read_from_memory_says_nothing_about_another_iteration() -> None:
    # 16 * i + table[i] may be 16 twice: table[0] = 16, table[1] = 0.
    loop = scattered(lambda i, table: 16 * i + as_index(Load(table, (i,))))
    (write,) = stored(loop)
    assert not distinct(write, write, [loop.var])
    assert carried(loop, scope=(loop,)) is not None


def test_one_place_in_memory_is_the_same_for_all_iterations_unless_they_change_it() -> None:
    def index(i, table):
        return 4 * i + as_index(Load(table, (0,)))

    loop = scattered(index)
    assert carried(loop, scope=(loop,)) is None
    changing = scattered(index, writes_table=True)
    assert carried(changing, scope=(changing,)) is not None


def test_a_buffer_is_not_private_if_the_place_written_is_forgotten() -> None:
    """`t[table[0]] = 1; table[0] = 3; y[0] = t[table[0]]` reads what was there before."""
    table, y = Buffer("table", i64, (4,)), Buffer("y", f32, (4,))
    t = Buffer("t", f32, (4,), Space.WORKGROUP)
    place = as_index(Load(table, (0,)))
    write, read = Store(t, (place,), const(1, f32)), Store(y, (0,), Load(t, (place,)))
    assert private_buffers((write, read)) == [t]
    assert private_buffers((write, Store(table, (0,), const(3, i64)), read)) == []


def test_a_guard_makes_no_digit_of_a_sum_that_the_other_index_lacks() -> None:
    """`if 12 * i + j < 7: t[j] = t[12 * i + j]` reads t[1] at j = 1 and j = 0."""
    t = Buffer("t", f32, (64,))
    loop = make_loop("j", 2, ())
    i, j = symbol("i", 0, 8), reference(loop.var)
    low = 12 * i + 4 * j
    store = Store(t, ((j + symbol("n", 1, 5)) // 3,), Load(t, (low,)))
    guard = If(Compare("lt", Index(low), const(7, i64)), (store,))
    read, write = accesses((guard,))
    assert not distinct(read, write, [loop.var])


@pytest.mark.parametrize(
    ("limit", "apart"), [(7, True), (8, True), (9, False), (12, False)]
)
def test_a_guard_makes_a_digit_of_what_stays_below_the_next_factor(
    limit: int, apart: bool
) -> None:
    """`if 4 * p + lane < limit: y[8 * g + 4 * p + lane] = 1`, where `p` and `lane` alone reach 11."""
    b = KernelBuilder("k")
    y = b.result("y", f32, (100,))
    with b.nest((3, 3, 4), ("g", "p", "lane")) as (g, p, lane):
        digit = 4 * p + lane
        with b.when(b.lt(b.index(digit), limit)):
            b.store(y, (8 * g + digit,), 1)
    kernel = b.build()
    (write,) = (a for a in accesses(find(kernel, "lane").body) if a.write)
    shared = [find(kernel, name).var for name in ("g", "p", "lane")]
    assert distinct(write, write, shared) is apart


@pytest.mark.parametrize(
    ("constant", "never"), [(0, True), (3, True), (-1, False), (-5, False)]
)
def test_a_sum_of_open_sizes_is_never_negative_with_a_constant_that_is_not(
    constant: int, never: bool
) -> None:
    value = symbol("n", 0) * symbol("m", 0) // 2 * symbol("k", 0) + constant
    assert _is_never_negative(value, ()) is never


def test_within_takes_a_variable_that_is_subtracted_at_its_first_iteration() -> None:
    body = For(Symbol("i", 0, 2), 3, ())
    offset = 10 - Expr.of_atom(body.var)
    assert within(offset, 11, (body,))
    assert not within(offset, 10, (body,))
    assert not within(offset, 9, (body,))


def tile_of(written: int, *, guarded: bool = False):
    """Each iteration stores `written` elements of a tile one by one and reads all four in a loop."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (9,)), b.result("y", f32, (9, 4))
    t = b.temporary(f32, (9, 4), "t")
    with b.nest((9,), ("i",)) as (i,):
        for j in range(written):
            with b.when(b.lt(b.index(i), 5) if guarded else b.const(True, bool_)):
                b.store(t, (i, j), b.load(x, (i,)))
        with b.nest((4,), ("j",)) as (j,):
            b.store(y, (i, j), b.load(t, (i, j)))
    return b.build()


def test_elements_stored_one_by_one_are_private_if_all_are_there() -> None:
    assert privatize(tile_of(4), "t", "i").locals[0].shape == (4,)


@pytest.mark.parametrize("kernel", [tile_of(3), tile_of(4, guarded=True)])
def test_elements_that_nobody_stores_or_that_a_guard_leaves_out_are_not_private(
    kernel: Kernel,
) -> None:
    with pytest.raises(ScheduleError):
        privatize(kernel, "t", "i")


def test_disjoint_sees_what_no_multiple_reaches() -> None:
    x = Buffer("x", f32, (64,))
    i, j = symbol("i", 0, 7), symbol("j", 0, 7)
    even, odd = (Access(x, (index,), True, ()) for index in (4 * i + 2 * j, 4 * j + 1))
    assert disjoint(even, odd)
    assert not disjoint(even, Access(x, (6 * symbol("k", 0, 7) + 2,), False, ()))


def test_rows_with_different_numbers_are_apart_unless_lanes_reach_from_one_to_the_other() -> (
    None
):
    y = Buffer("y", f32, (2, 1000))

    def carries(first: tuple[object, ...], second: tuple[object, ...], lanes: int) -> bool:
        stores = [
            Store(y, place, const(value, f32, lanes))
            for place, value in ((first, 1.0), (second, 2.0))
        ]
        loop = make_loop("i", 100, stores)
        return carried(loop, scope=(loop,)) is not None

    at = symbol("i", 0, 99)
    assert not carries((0, at), (1, at), 1)
    assert carries((0, at), (0, at + 1), 1)
    assert carries((0, 3), (0, 3), 1)
    assert carries((0, 3), (0, 5), 4)
