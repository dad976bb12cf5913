from __future__ import annotations

from fakes.loop_nests import doubled, product, row_sums
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Buffer, For, If, Store
from tilewright.compiler.schedule.accesses import accesses, known_facts, update_operator
from tilewright.compiler.schedule.dependence import carried, overlap, private_buffers
from tilewright.compiler.schedule.primitives import fuse_nests, privatize, split
from tilewright.compiler.schedule.proofs import disjoint, distinct, within
from tilewright.compiler.schedule.tree import find, make_loop


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


def test_a_buffer_written_first_is_private() -> None:
    kernel = privatize(fuse_nests(row_sums(), "i", "j"), "t", "i")
    assert [b.name for b in private_buffers(find(kernel, "i").body)] == ["t"]
    assert carried(find(kernel, "i"), scope=kernel.body) is None


def test_within_uses_loops_with_symbolic_extents_and_facts() -> None:
    n = symbol("N", 1)
    outer = make_loop("p", (n + 31) // 32, ())
    base = symbol("p", 0) * 32
    assert within(base, n, [outer])
    assert not within(base + 1, n, [outer])
    row = symbol("r", 0, 3)
    assert within(base + row, n, [outer], [(base + 4, n)])


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
