from __future__ import annotations

import pytest

from fakes.loop_nests import (
    assert_same,
    body_text,
    chained,
    doubled,
    op_kernel,
    product,
    row_sums,
)
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import minimum, symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import AccessMode, Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.compiler.schedule.primitives import (
    bind,
    fuse,
    fuse_nests,
    interior,
    join,
    partition,
    privatize,
    reorder,
    shorten,
    specialize,
    split,
    split_counts,
    split_powers,
    tile,
    trim,
    unroll,
    vectorize,
    version,
    widen,
)
from tilewright.compiler.schedule.tree import find

N = symbol("N", 0)


def running() -> Kernel:
    """`y[i + 1] = y[i] + x[i]`: every iteration needs the one before."""
    b = KernelBuilder("running")
    x, y = b.parameter("x", f32, (6,)), b.result("y", f32, (7,))
    b.store(y, (0,), 0)
    with b.nest((6,), ("i",)) as (i,):
        b.store(y, (i + 1,), b.add(b.load(y, (i,)), b.load(x, (i,))))
    return b.build()


@pytest.mark.parametrize("tail", ["guard", "tight"])
@pytest.mark.parametrize("factor", [1, 2, 3, 4, 10, 16])
def test_split_keeps_the_tail_when_the_factor_does_not_divide(
    factor: int, tail: str
) -> None:
    assert_same(doubled(10), split(doubled(10), "i", factor, tail))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("tail", ["guard", "tight"])
def test_split_of_a_dynamic_loop(size: int, tail: str) -> None:
    assert_same(doubled(N), split(doubled(N), "i", 4, tail), {"N": size})


def test_split_puts_the_guard_inside_perfectly_nested_loops() -> None:
    b = KernelBuilder("k")
    y = b.result("y", f32, (5, 3))
    with b.nest((5, 3), ("i", "j")) as (i, j):
        b.store(y, (i, j), 1)
    assert body_text(split(b.build(), "i", 2)) == (
        "for i_o in range(3):\n"
        "    for i_i in range(2):\n"
        "        for j in range(3):\n"
        "            if (index<i64>(i_i + 2*i_o) < 5):\n"
        "                y[i_i + 2*i_o, j] = 1.0"
    )


def test_split_names_the_loops_as_told_and_refuses_a_taken_name() -> None:
    assert "for lane in range(5):" in body_text(
        split(doubled(), "i", 5, into=("o", "lane"))
    )
    with pytest.raises(ScheduleError, match="the name 'x' is taken"):
        split(doubled(), "i", 5, into=("x", "lane"))
    with pytest.raises(ScheduleError, match="cannot split 'i' by 0"):
        split(doubled(), "i", 0)
    with pytest.raises(ScheduleError, match="did you mean 'i'"):
        split(doubled(), "ii", 2)


def test_fuse_makes_one_loop_and_reads_back_both_variables() -> None:
    kernel = product()
    assert_same(kernel, fuse(kernel, "i", "j"))
    assert_same(kernel, fuse(kernel, "i", "j", "f"))


def test_fuse_of_dynamic_loops() -> None:
    kernel = product(symbol("M", 0), symbol("K", 1), 3)
    assert_same(kernel, fuse(kernel, "i", "j", "f"), {"M": 3, "K": 5})


def test_fuse_refuses_loops_that_are_not_nested_alone() -> None:
    with pytest.raises(ScheduleError, match="not directly inside"):
        fuse(product(), "j", "k")


def test_reorder_of_independent_loops() -> None:
    kernel = product()
    changed = reorder(kernel, ["j", "i"])
    assert body_text(changed).startswith("for j in range(7):\n    for i in range(5):")
    assert_same(kernel, changed)


def test_reorder_refuses_a_dependence_and_a_loop_elsewhere() -> None:
    b = KernelBuilder("k")
    y = b.parameter("y", f32, (6, 6))
    with b.nest((5, 5), ("i", "j")) as (i, j):
        b.store(y, (i + 1, j), b.load(y, (i, j + 1)))
    with pytest.raises(ScheduleError, match="depend on each other"):
        reorder(b.build(), ["j", "i"])
    with pytest.raises(ScheduleError, match="not perfectly nested"):
        reorder(product(), ["k", "i"])


def row_chains(shape: tuple[int, ...]):
    """Rows, each a chain of steps that is kept in a temporary of so many dimensions."""
    b = KernelBuilder("chained")
    x, y = b.parameter("x", f32, (5, 7)), b.result("y", f32, (5, 7))
    t = b.temporary(f32, shape, "t")
    with b.nest((5,), ("i",)) as (i,):
        b.store(t, (i,) if shape else (), 1)
    with b.nest((5, 7), ("i", "j")) as (i, j):
        at = (i,) if shape else ()
        b.store(t, at, b.mul(b.add(b.load(t, at), 1), b.load(x, (i, j))))
        b.store(y, (i, j), b.load(t, at))
    return b.build()


def test_reorder_moves_independent_rows_inside_of_a_chain_of_steps() -> None:
    kernel = row_chains((5,))
    changed = reorder(kernel, ["j", "i_2"])
    assert "for j in range(7):\n    for i_2 in range(5):" in body_text(changed)
    assert_same(kernel, changed)


def test_reorder_refuses_to_mix_steps_of_rows_that_share_a_temporary() -> None:
    with pytest.raises(ScheduleError, match="depend on each other"):
        reorder(row_chains(()), ["j", "i_2"])


def test_reorder_refuses_an_extent_that_needs_an_outer_loop() -> None:
    kernel = split(doubled(10), "i", 4, "tight")
    with pytest.raises(ScheduleError, match="the extent of 'i_i' depends on 'i_o'"):
        reorder(kernel, ["i_i", "i_o"])


def test_tile_splits_and_reorders() -> None:
    kernel = product()
    changed = tile(kernel, [["i", 2], ["j", 4]])
    names = [line.split()[1] for line in body_text(changed).splitlines() if "for" in line]
    assert names[:4] == ["i_o", "j_o", "i_i", "j_i"]
    assert_same(kernel, changed)
    for wrong in ([2, "i"], ["i"], ["i", 2, 3]):
        with pytest.raises(ScheduleError, match="a tile is"):
            tile(kernel, [wrong])


@pytest.mark.parametrize("at", [0, 1, 7, 10, 12])
def test_partition_runs_both_parts(at: int) -> None:
    assert_same(doubled(10), partition(doubled(10), "i", at))


@pytest.mark.parametrize("size", [0, 1, 5, 8])
def test_partition_of_a_dynamic_loop_at_a_computed_point(size: int) -> None:
    assert_same(doubled(N), partition(doubled(N), "i", N // 4 * 4), {"N": size})
    assert_same(doubled(N), partition(doubled(N), "i", "4*(N // 4)"), {"N": size})


def test_partition_refuses_unknown_symbols() -> None:
    with pytest.raises(ScheduleError, match="unknown symbol 'Q'"):
        partition(doubled(), "i", "Q")


@pytest.mark.parametrize("tail", ["exact", "guarded"])
@pytest.mark.parametrize("extent", [3, 8, 9, 15])
def test_specialize_gives_full_and_last_blocks_their_own_code(
    extent: int, tail: str
) -> None:
    kernel = split(doubled(extent), "i", 4)
    if extent % 4:
        changed = specialize(kernel, "i_i", tail=tail)
        assert body_text(changed).count("if (index<i64>(i_i + 4*i_o)") == 0
        assert_same(kernel, changed)
    else:
        with pytest.raises(ScheduleError, match="no guard to specialize"):
            specialize(kernel, "i_i")


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8])
@pytest.mark.parametrize("tail", ["exact", "guarded"])
def test_specialize_of_a_dynamic_loop(size: int, tail: str) -> None:
    kernel = split(doubled(N), "i", 4)
    assert_same(kernel, specialize(kernel, "i_i", tail=tail), {"N": size})


def test_specialize_in_front_of_an_outer_loop() -> None:
    kernel = reorder(split(product(5, 7), "j", 4), ["j_o", "i", "j_i"])
    changed = specialize(kernel, "j_i", "i")
    assert body_text(changed).splitlines()[1].startswith("    if")
    assert_same(kernel, changed)


def test_specialize_refuses_when_the_case_changes_inside() -> None:
    kernel = split(product(5, 7), "j", 4)
    with pytest.raises(ScheduleError, match="changes inside"):
        specialize(kernel, "j_i", "j_o")


def test_specialize_refuses_a_loop_that_never_runs() -> None:
    """A guard is one of whole blocks if the extent divides what it compares; 0 divides nothing."""
    text = """\
kernel k(write y: f32[8]):
    for i in range(0):
        if (index<i64>(i + 5) < 4):
            y[i] = 1.0
"""
    with pytest.raises(ScheduleError, match="no guard to specialize"):
        specialize(parse_kernel(text), "i")


@pytest.mark.parametrize("size", [*range(10), 12, 15])
def test_shorten_gives_few_iterations_a_shorter_loop(size: int) -> None:
    kernel = split(doubled(N), "i", 4)
    changed = shorten(kernel, "i_i", 2)
    assert [x.extent for x in loops(changed.body)][1:] == [4, 2]
    assert_same(doubled(N), changed, {"N": size})
    assert_same(
        doubled(N),
        shorten(specialize(kernel, "i_i", tail="guarded"), "i_i_2", 3),
        {"N": size},
    )


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 9])
def test_shorten_to_nothing_leaves_no_code_where_no_iteration_is_left(size: int) -> None:
    kernel = specialize(split(doubled(N), "i", 4), "i_i", tail="guarded")
    changed = shorten(kernel, "i_i_2", 0)
    assert [x.extent for x in loops(changed.body)][1:] == [4, 4]
    assert_same(doubled(N), changed, {"N": size})


@pytest.mark.parametrize("size", [0, 1, 4, 5, 6, 9])
def test_widen_runs_a_known_number_of_times_where_a_guard_says_how_many(size: int) -> None:
    kernel = version(doubled(N), "i", N, 6)
    changed = widen(kernel, "i_2", 5)
    assert [x.extent for x in loops(changed.body)] == [N, 5]
    assert_same(doubled(N), changed, {"N": size})
    assert_same(doubled(N), widen(kernel, "i_2", 8), {"N": size})


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8])
def test_widen_needs_no_guard_where_the_bounds_of_a_length_say_how_many(size: int) -> None:
    kernel = partition(split(doubled(N), "i", 4), "i_o", N // 4)
    changed = widen(kernel, "i_o_2", 1)
    assert [x.extent for x in loops(changed.body)][2:] == [1, 4]
    assert_same(doubled(N), changed, {"N": size})


def test_widen_refuses_a_length_that_is_known_or_may_be_larger() -> None:
    with pytest.raises(ScheduleError, match="runs 8 times in every call"):
        widen(doubled(8), "i", 8)
    kernel = version(doubled(N), "i", N, 6)
    for loop, extent in (("i", 5), ("i_2", 4)):
        with pytest.raises(ScheduleError, match=f"nothing says that '{loop}' runs at most"):
            widen(kernel, loop, extent)


def test_shorten_refuses_what_is_no_shorter_or_has_no_guard() -> None:
    kernel = split(doubled(N), "i", 4)
    for extent in (-1, 4, 5):
        with pytest.raises(ScheduleError, match=f"runs 4 times, not more than {extent}"):
            shorten(kernel, "i_i", extent)
    with pytest.raises(ScheduleError, match="no guard to specialize"):
        shorten(split(doubled(8), "i", 4), "i_i", 2)
    rows = split(product(5, 7), "j", 4)
    with pytest.raises(ScheduleError, match="changes inside"):
        shorten(rows, "j_i", 2, "j_o")


def test_copies_get_their_own_private_buffers_but_share_what_others_read() -> None:
    kernel = privatize(fuse_nests(row_sums(5), "i", "j"), "t", "i")
    changed = specialize(split(kernel, "i", 2), "i_i")
    assert len(changed.locals) == 2
    assert_same(row_sums(5), changed)


@pytest.mark.parametrize("size", range(9))
def test_split_powers_covers_every_remainder(size: int) -> None:
    kernel = specialize(split(doubled(N), "i", 8), "i_i")
    changed = split_powers(kernel, "i_i_2", 4)
    assert_same(doubled(N), changed, {"N": size})


@pytest.mark.parametrize("size", range(9))
def test_split_counts_has_a_code_for_every_remainder(size: int) -> None:
    kernel = specialize(split(doubled(N), "i", 4), "i_i")
    changed = split_counts(kernel, "i_i_2")
    counts = [x.extent for x in loops(changed.body) if x.var.name.startswith("i_i")]
    assert counts == [4, 3, 2, 1]
    assert_same(doubled(N), changed, {"N": size})


@pytest.mark.parametrize("size", range(17))
def test_split_counts_runs_a_block_in_front_of_what_it_counts(size: int) -> None:
    kernel = specialize(split(doubled(N), "i", 8), "i_i")
    changed = split_counts(kernel, "i_i_2", 4)
    counts = [x.extent for x in loops(changed.body) if x.var.name.startswith("i_i")]
    assert counts[0] == 8
    assert [n for n in counts[1:] if isinstance(n, int)] == [4, 3, 2, 1]
    assert_same(doubled(N), changed, {"N": size})


@pytest.mark.parametrize("block", [-1, 1, 3])
def test_a_block_in_front_of_what_is_counted_runs_once_at_most(block: int) -> None:
    kernel = specialize(split(doubled(N), "i", 8), "i_i")
    with pytest.raises(ScheduleError, match="may run 7 times"):
        split_counts(kernel, "i_i_2", block)


@pytest.mark.parametrize("extent", [3, N])
def test_split_counts_needs_a_number_that_is_not_known_but_bounded(extent) -> None:
    with pytest.raises(ScheduleError, match="which is no number up to a bound"):
        split_counts(doubled(extent), "i")


@pytest.mark.parametrize(
    "change",
    [
        lambda k: partition(k, "i", 1),
        lambda k: specialize(k, "i"),
        lambda k: split_counts(k, "i"),
        lambda k: split_powers(k, "i", 4),
        lambda k: interior(k, "i"),
    ],
    ids=["partition", "specialize", "split_counts", "split_powers", "interior"],
)
def test_workgroups_are_not_cut_in_parts(change) -> None:
    with pytest.raises(ScheduleError, match="'i' is made of workgroups"):
        change(bind(doubled(symbol("N", 0, 5)), "i", "x"))


TRIMMED = """
kernel trimmed(read x: f32[8], write y: f32[5], write z: f32[8]):
    local t: f32[]@register
    for i in range(8):
        t[] = (x[i] + x[i])
        if (index<i64>(i) < 5):
            y[i] = t[]
"""


def test_trim_leaves_out_what_nobody_sees() -> None:
    kernel = parse_kernel(TRIMMED)
    changed = trim(kernel, "i")
    assert find(changed, "i").extent == 5
    assert "if" not in kernel_text(changed)
    assert_same(kernel, changed)


def test_trim_leaves_out_what_the_last_of_an_open_number_of_panels_has_too_many() -> None:
    text = """
kernel trimmed(write y: f32[n], *, n: 1..):
    for i in range(8*((n + 7) // 8)):
        if (index<i64>(i) < index<i64>(n)):
            y[i] = 2.0
"""
    kernel = parse_kernel(text)
    changed = trim(kernel, "i")
    assert str(find(changed, "i").extent) == "n"
    assert "if" not in kernel_text(changed)
    for count in (1, 8, 9):
        assert_same(kernel, changed, {"n": count})
    for old, new in (("range(8*((n + 7) // 8))", "range(5)"), ("(n))", "(n - 3))")):
        with pytest.raises(ScheduleError, match="says that 'i' has as many"):
            trim(parse_kernel(text.replace(old, new)), "i")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRIMMED.replace("t[] = (", "z[i] = ("), "stores to 'z' outside the guard"),
        (TRIMMED.replace("(i) <", "(i + 1) <"), "no guard on its own index"),
        (TRIMMED + "    z[0] = t[]\n", "what 'i' computes is read elsewhere"),
    ],
)
def test_trim_refuses_what_somebody_sees(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        trim(parse_kernel(text), "i")


@pytest.mark.parametrize("change", [trim, specialize], ids=["trim", "specialize"])
@pytest.mark.parametrize("test", ["i) < index<i64>(j", "i + 16*j) < index<i64>(n"])
def test_a_guard_that_differs_inside_a_loop_is_none_of_the_loop(change, test: str) -> None:
    text = f"""kernel triangle(write y: f32[16, 8], *, n: 1..16):
    for i in range(16):
        for j in range(8):
            if (index<i64>({test})):
                y[i, j] = 1.0
"""
    with pytest.raises(ScheduleError, match="'i' has no guard"):
        change(parse_kernel(text), "i")


def test_trim_reads_no_memory_to_know_how_far_a_loop_goes() -> None:
    kernel = parse_kernel(
        """kernel counted(read m: i64[1], write y: f32[16]):
    for i in range(16):
        if (index<i64>(i) < index<i64>(max(min(<m[0]>, 16), 0))):
            y[i] = 1.0
"""
    )
    with pytest.raises(ScheduleError, match="memory says how many iterations 'i' has"):
        trim(kernel, "i")


def test_split_powers_needs_a_bound() -> None:
    with pytest.raises(ScheduleError, match="not below twice the power of two 4"):
        split_powers(doubled(10), "i", 4)
    with pytest.raises(ScheduleError, match="power of two"):
        split_powers(doubled(3), "i", 3)


def test_unroll_and_vectorize_mark_loops_of_constant_extent() -> None:
    assert "# unroll" in body_text(unroll(doubled(4), "i"))
    assert "# vector" in body_text(vectorize(doubled(4), "i"))
    for mark in (unroll, vectorize):
        with pytest.raises(ScheduleError, match="its extent is 'N'"):
            mark(doubled(N), "i")


def test_vectorize_refuses_iterations_that_meet() -> None:
    with pytest.raises(ScheduleError, match="its iterations meet in 'y'"):
        vectorize(running(), "i")
    with pytest.raises(ScheduleError, match="its iterations meet in 'y'"):
        vectorize(product(), "k")


def test_bind_makes_workgroups_of_outer_loops() -> None:
    kernel = bind(bind(product(), "i", "y"), "j", "x")
    assert "# grid.y" in body_text(kernel)
    assert_same(product(), kernel)


def test_bind_refuses_dependent_inner_and_doubly_bound_loops() -> None:
    with pytest.raises(ScheduleError, match="not alone at the top"):
        bind(running(), "i", "x")
    with pytest.raises(ScheduleError, match="inside other code"):
        bind(product(), "j", "x")
    with pytest.raises(ScheduleError, match="axis 'x' is taken"):
        bind(bind(product(), "i", "x"), "j", "x")
    with pytest.raises(ScheduleError, match="grid axes are"):
        bind(product(), "i", "w")
    with pytest.raises(ScheduleError, match="not alone at the top"):
        bind(chained(), "i", "x")


def test_join_puts_independent_nests_into_one_grid() -> None:
    kernel = op_kernel("pad", [(4, 5)], (6, 7), {"pads": (1, 1, 1, 1), "mode": "constant"})
    first = kernel.body[-1].var.name
    changed = bind(join(kernel, first, "w"), "w", "x")
    assert len(changed.body) == 1
    assert_same(kernel, changed)


def test_join_refuses_nests_that_depend_on_each_other() -> None:
    with pytest.raises(ScheduleError, match="both touch 't'"):
        join(chained(), "i", "w")


def counted(*, inner: bool = False) -> Kernel:
    """`n[0]` times, as it was at first: `y[i] = n[0] -= 1`."""
    b = KernelBuilder("counted")
    x, y = b.parameter("n", i64, (2,), AccessMode.READ_WRITE), b.result("y", i64, (3, 6))
    z = b.result("z", f32, (2,))
    times = minimum(b.as_index(b.abs(b.load(x, (0,)))), 6)
    with b.loop(3 if inner else 1, "o") as o, b.loop(times, "i") as i:
        b.store(x, (0,), b.sub(b.load(x, (0,)), 1))
        b.store(y, (o, i), b.load(x, (0,)))
    with b.nest((1 if inner else 2,), ("k",)) as (k,):
        b.store(z, (k,), 1)
    return b.build()


@pytest.mark.parametrize(
    "change",
    [
        lambda k: split(k, "i", 2),
        lambda k: split(k, "i", 2, "tight"),
        lambda k: partition(k, "i", 1),
        lambda k: split_counts(k, "i"),
        lambda k: split_powers(k, "i", 4),
        lambda k: join(k, "i", "all"),
    ],
    ids=["split", "tight", "partition", "split_counts", "split_powers", "join"],
)
def test_a_loop_that_changes_its_own_count_keeps_it(change) -> None:
    with pytest.raises(ScheduleError, match="'n' decides how often 'i' runs"):
        change(counted())


def test_a_loop_whose_count_the_loop_around_it_changes_stays_inside() -> None:
    with pytest.raises(ScheduleError, match="'n' decides how often 'i' runs"):
        fuse(counted(inner=True), "o", "i")
    with pytest.raises(ScheduleError):
        reorder(counted(inner=True), ["i", "o"])
