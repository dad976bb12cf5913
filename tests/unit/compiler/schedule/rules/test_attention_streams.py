"""Few rows of queries: keys and values are read once, in vectors along whatever lies in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from fakes.loop_nests import assert_same, emit, op_kernel
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.analysis.accesses import update_operator
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import (
    Binary,
    For,
    If,
    Kernel,
    LoopKind,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import (
    expression_symbols,
    loads,
    loops,
    stores,
    subexpressions,
)
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule, space_of
from tilewright.compiler.schedule.rules.attention import RowTiles
from tilewright.compiler.schedule.rules.attention_streams import KeyStreams
from tilewright.compiler.schedule.tree import path_to

V4 = MachineModel.of(Target.level("v4"))
V2 = MachineModel.of(Target.level("v2"))
M, N = symbol("M", 0), symbol("N", 0)


def attention(heads: int, shared: int, rows: int, keys: Dim, size: int = 20) -> Kernel:
    query, memory = (2, heads, rows, size), (2, shared, keys, size)
    return op_kernel("attention", [query, memory, memory], query)


def turned_keys(keys: int, size: int) -> Kernel:
    """One row over keys that lie as [size, keys]."""
    b = KernelBuilder("turned")
    q = b.parameter("q", f32, (1, 2, 1, size))
    k = b.parameter("k", f32, (1, 2, size, keys))
    v = b.parameter("v", f32, (1, 2, keys, size))
    t = b.temporary(f32, (1, 2, keys, size))
    emit(b, "transpose", {"perm": (0, 1, 3, 2)}, [k], t)
    emit(b, "attention", {}, [q, t, v], b.result("y", f32, (1, 2, 1, size)))
    return b.build()


@pytest.mark.thinned(6)
@pytest.mark.parametrize(
    ("heads", "shared", "rows", "kind"),
    [
        (2, 2, 1, KeyStreams),
        (8, 1, 1, KeyStreams),
        (9, 1, 1, RowTiles),
        (4, 2, 4, KeyStreams),
        (2, 2, 8, KeyStreams),
        (2, 2, 9, RowTiles),
    ],
)
def test_rows_that_fill_no_lanes_stream(
    heads: int, shared: int, rows: int, kind: type
) -> None:
    (space,) = space_of(attention(heads, shared, rows, 5), V4).nests
    assert isinstance(space.best(), kind)


def test_fewer_rows_stream_where_vectors_are_short() -> None:
    best = [space_of(attention(2, 2, rows, 5), V2).nests[0].best() for rows in (2, 3)]
    assert [type(each) for each in best] == [KeyStreams, RowTiles]


def test_rows_that_share_keys_are_apart_only_where_threads_would_wait() -> None:
    together = [
        space_of(attention(4, 1, 1, 5), V4, threads=threads).nests[0].best().together
        for threads in (1, 2)
    ]
    assert together == [True, False]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("keys", [16, 37])
def test_keys_that_lie_side_by_side_are_lanes(keys: int) -> None:
    kernel = turned_keys(keys, 20)
    done = schedule(kernel, V4)
    assert_same(kernel, done, exact=False)
    lanes = {x.var.name for x in loops(done.body) if x.kind is LoopKind.VECTOR}
    turned = [x for x in _innermost(done) for y in loads(x.body) if y.buffer.name == "k"]
    assert turned
    assert all(x.var.name in lanes and not x.reduction for x in turned)


def _innermost(kernel: Kernel) -> list[For]:
    return [
        x for x in loops(kernel.body) if not any(isinstance(y, For) for y in loops(x.body))
    ]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("keys", [0, 1, 130])
def test_a_number_of_keys_that_is_not_known_may_be_any(keys: int) -> None:
    kernel = attention(4, 2, 1, N, 6)
    assert_same(kernel, schedule(kernel, V2), {"N": keys}, exact=False)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("target", ["x86_64-v4", "x86_64-v2", "x86_64 -mcpu=znver3"])
@pytest.mark.parametrize(("size", "columns"), [(3, 1), (1, 3), (1, 1)])
def test_rows_of_one_element_are_summed_up(target: str, size: int, columns: int) -> None:
    """What the values of one column add up to is a sum of products that no loop goes around."""
    shapes = [(1, 2, 17, size), (1, 2, 9, size), (1, 2, 9, columns)]
    kernel = op_kernel("attention", shapes, (1, 2, 17, columns))
    machine = MachineModel.of(Target.parse(target))
    assert_same(kernel, schedule(kernel, machine), exact=False)


def open_rows(**attributes: object) -> Kernel:
    query, memory = (1, 4, M, 2), (1, 2, N, 2)
    return op_kernel("attention", [query, memory, memory], query, attributes)


@cache
def scheduled_open_rows() -> tuple[Kernel, Kernel]:
    kernel = open_rows()
    return kernel, schedule(kernel, V2, threads=2)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_call_of_few_rows_runs_code_for_few(rows: int) -> None:
    kernel, done = scheduled_open_rows()
    assert any("2 and fewer one by one" in note for note in done.notes)
    assert_same(kernel, done, {"M": rows, "N": 5}, exact=False)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("machine", [V2, V4], ids=["v2", "v4"])
@pytest.mark.parametrize("causal", [(), (3,)], ids=["all", "causal"])
@pytest.mark.parametrize("sizes", [(3, 129), (9, 1), (24, 128), (33, 5), (41, 40)])
def test_tiles_and_few_rows_meet(
    machine: MachineModel, causal: tuple[int, ...], sizes: tuple[int, int]
) -> None:
    kernel = open_rows(causal=causal)
    done = schedule(kernel, machine)
    assert_same(kernel, done, dict(zip("MN", sizes, strict=True)), exact=False)


@pytest.mark.slow
def test_scores_of_any_number_of_keys_stay_near() -> None:
    done = schedule(open_rows(), V4)
    assert all(x.space is not Space.DEVICE for x in done.locals)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [(), (0,)])
def test_rows_that_are_not_there_are_multiplied_as_others(causal: tuple[int, ...]) -> None:
    """A guard in each step of a sum takes several times as long as the step."""
    shapes = [(1, 12, symbol("s", 1), 16)] * 3
    kernel = op_kernel("attention", shapes, shapes[0], {"causal": causal})
    done = schedule(kernel, MachineModel.of(Target.level("v3")))
    products = [s for s in stores(done.body) if is_step(s)]
    assert len(products) > 4
    assert not [s for s in products if lane_guards(path_to(done.body, s) or ())]


def is_step(store: Store) -> bool:
    """Whether a product is added to a sum."""
    parts = subexpressions(store.value)
    multiplies = any(isinstance(x, Binary) and x.op == "mul" for x in parts)
    return multiplies and update_operator(store) == "add"


def lane_guards(path: Sequence[Statement]) -> list[If]:
    """The guards that leave out lanes of a vector."""
    return [
        guard
        for guard in path
        if isinstance(guard, If)
        and any("lane" in x.name for x in expression_symbols(guard.condition))
    ]
