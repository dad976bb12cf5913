import numpy as np
import pytest

from fakes.graphs import assert_becomes, assert_stays, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.transforms import FoldConstants, Simplify

S = [Simplify()]


def body(signature, *lines, result):
    return f"graph @g<N: 1..>({signature}) {{ {' '.join(lines)} return {result} }}"


def test_only_the_last_reshape_counts():
    x = "%x: f32[N, 2, 6]"
    assert_becomes(
        S,
        body(
            x,
            "%a: f32[N, 12] = reshape(%x) {shape = [N, 12]}",
            "%b: f32[N, 3, 4] = reshape(%a) {shape = [N, 3, 4]}",
            result="%b",
        ),
        body(x, "%b: f32[N, 3, 4] = reshape(%x) {shape = [N, 3, 4]}", result="%b"),
    )
    assert_becomes(
        S,
        body(
            x,
            "%a: f32[N, 12] = reshape(%x) {shape = [N, 12]}",
            "%b: f32[N, 2, 6] = reshape(%a) {shape = [N, 2, 6]}",
            result="%b",
        ),
        body(x, result="%x"),
    )


def scattered(reduction, shape, perm, result):
    return body(
        "%x: f32[2, N, 9, 5], %i: i64[3, 1], %u: f32[2, N, 3, 5]",
        "%a: f32[9, 2, N, 5] = transpose(%x) {perm = [2, 0, 1, 3]}",
        "%b: f32[3, 2, N, 5] = transpose(%u) {perm = [2, 0, 1, 3]}",
        f'%c: f32[9, 2, N, 5] = scatter_nd(%a, %i, %b) {{reduction = "{reduction}"}}',
        f"%y: f32[{shape}] = transpose(%c) {{perm = {perm}}}",
        result=result,
    )


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_slices_are_written_along_their_axis(reduction):
    assert_becomes(
        S,
        scattered(reduction, "2, N, 9, 5", "[1, 2, 0, 3]", "%y"),
        body(
            "%x: f32[2, N, 9, 5], %i: i64[3, 1], %u: f32[2, N, 3, 5]",
            "%a: i64[2, N, 3, 1] = iota {axis = 0, shape = [2, N, 3, 1]}",
            "%b: i64[2, N, 3, 1] = iota {axis = 1, shape = [2, N, 3, 1]}",
            "%c: i64[2, N, 3, 1] = broadcast_to(%i) {shape = [2, N, 3, 1]}",
            "%d: i64[2, N, 3, 3] = concat(%a, %b, %c) {axis = 3}",
            f'%y: f32[2, N, 9, 5] = scatter_nd(%x, %d, %u) {{reduction = "{reduction}"}}',
            result="%y",
        ),
    )


BETWEEN = {
    "an axis behind others": ("3, 4, 5, 6", [2, 0, 1, 3], "7, 1", "7, 3, 4, 6", "scatter_nd"),
    "the last axis": ("3, 4, 5", [2, 0, 1], "7, 1", "7, 3, 4", "scatter_elements"),
    "an axis between": ("3, 4, 5, 6", [0, 2, 1, 3], "7, 2", "7, 4, 6", "scatter_nd"),
    "axes that change sides": ("3, 4, 5, 6", [2, 0, 1, 3], "7, 2", "7, 4, 6", "scatter_nd"),
    "places in rows": ("3, 4, 5, 6", [1, 0, 2, 3], "2, 7, 1", "2, 7, 3, 5, 6", "scatter_nd"),
    "one place": ("3, 4, 5", [1, 0, 2], "1", "3, 5", "scatter_nd"),
    "neighbours": ("3, 4, 5, 6", [1, 2, 0, 3], "7, 2", "7, 3, 6", "scatter_nd"),
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("name", BETWEEN)
def test_places_count_from_the_end_and_their_order_counts_wherever_slices_are_written(
    name, reduction
):
    shape, perm, places, updates, op = BETWEEN[name]
    sizes = [int(n) for n in shape.split(",")]
    turned = ", ".join(str(sizes[p]) for p in perm)
    back = [perm.index(axis) for axis in range(len(perm))]
    text = body(
        f"%x: f32[{shape}], %i: i64[{places}], %u: f32[{updates}]",
        f"%a: f32[{turned}] = transpose(%x) {{perm = {perm}}}",
        f'%c: f32[{turned}] = scatter_nd(%a, %i, %u) {{reduction = "{reduction}"}}',
        f"%y: f32[{shape}] = transpose(%c) {{perm = {back}}}",
        result="%y",
    )
    graph = run(S, text)
    assert ops(graph)[-1] == op
    rng = np.random.default_rng(5)
    count = [int(n) for n in places.split(",")]
    feeds = [
        rng.standard_normal(sizes).astype(np.float32),
        rng.integers(-2, 2, count),
        rng.standard_normal([int(n) for n in updates.split(",")]).astype(np.float32),
    ]
    wanted, found = (evaluate(g, feeds)[0] for g in (parse(text), graph))
    np.testing.assert_array_equal(found, wanted)


def test_elements_at_places_along_several_axes_stay():
    text = body(
        "%x: f32[3, 4, 5], %i: i64[7, 2], %u: f32[7, 4]",
        "%a: f32[3, 5, 4] = transpose(%x) {perm = [0, 2, 1]}",
        "%c: f32[3, 5, 4] = scatter_nd(%a, %i, %u)",
        "%y: f32[3, 4, 5] = transpose(%c) {perm = [0, 2, 1]}",
        result="%y",
    )
    assert ops(run(S, text)) == ["transpose", "scatter_nd", "transpose"]


@pytest.mark.parametrize(
    ("shape", "perm", "result"),
    [("N, 2, 9, 5", "[2, 1, 0, 3]", "%y"), ("2, N, 9, 5", "[1, 2, 0, 3]", "%y, %c")],
)
def test_slices_that_do_not_go_back_stay(shape, perm, result):
    assert "scatter_nd" in ops(run(S, scattered("none", shape, perm, result)))


def test_transposes_compose_and_cancel():
    x = "%x: f32[N, 2, 6]"
    assert_becomes(
        S,
        body(
            x,
            "%a: f32[6, N, 2] = transpose(%x) {perm = [2, 0, 1]}",
            "%b: f32[2, 6, N] = transpose(%a) {perm = [2, 0, 1]}",
            result="%b",
        ),
        body(x, "%b: f32[2, 6, N] = transpose(%x) {perm = [1, 2, 0]}", result="%b"),
    )
    assert_becomes(
        S,
        body(
            x,
            "%a: f32[6, N, 2] = transpose(%x) {perm = [2, 0, 1]}",
            "%b: f32[N, 2, 6] = transpose(%a) {perm = [1, 2, 0]}",
            result="%b",
        ),
        body(x, result="%x"),
    )


def test_a_transpose_of_unit_axes_is_a_reshape():
    x = "%x: f32[N, 1, 6, 1]"
    assert_becomes(
        S,
        body(x, "%a: f32[N, 6, 1, 1] = transpose(%x) {perm = [0, 2, 1, 3]}", result="%a"),
        body(x, "%a: f32[N, 6, 1, 1] = reshape(%x) {shape = [N, 6, 1, 1]}", result="%a"),
    )
    assert_stays(
        S, body(x, "%a: f32[6, N, 1, 1] = transpose(%x) {perm = [2, 0, 1, 3]}", result="%a")
    )


def test_transposes_meet_across_a_reshape_of_unit_axes():
    x = "%x: f32[1, N, 12, 5]"
    assert_becomes(
        S,
        body(
            x,
            "%a: f32[1, 12, N, 5] = transpose(%x) {perm = [0, 2, 1, 3]}",
            "%b: f32[12, N, 5] = reshape(%a) {shape = [12, N, 5]}",
            "%c: f32[12, 5, N] = transpose(%b) {perm = [0, 2, 1]}",
            result="%c",
        ),
        body(
            x,
            "%a: f32[1, 12, 5, N] = transpose(%x) {perm = [0, 2, 3, 1]}",
            "%b: f32[12, 5, N] = reshape(%a) {shape = [12, 5, N]}",
            result="%b",
        ),
    )


def test_broadcasts_compose_and_unit_broadcasts_are_views():
    x = "%x: f32[N, 4]"
    assert_becomes(
        S,
        body(
            x,
            "%a: f32[3, N, 4] = broadcast_to(%x) {shape = [3, N, 4]}",
            "%b: f32[2, 3, N, 4] = broadcast_to(%a) {shape = [2, 3, N, 4]}",
            result="%b",
        ),
        body(
            x, "%b: f32[2, 3, N, 4] = broadcast_to(%x) {shape = [2, 3, N, 4]}", result="%b"
        ),
    )
    assert_becomes(
        S,
        body(x, "%a: f32[1, N, 4] = broadcast_to(%x) {shape = [1, N, 4]}", result="%a"),
        body(x, "%a: f32[1, N, 4] = reshape(%x) {shape = [1, N, 4]}", result="%a"),
    )


def test_a_tile_of_unit_axes_is_a_broadcast():
    x = "%x: f32[N, 1]"
    assert_becomes(
        S,
        body(x, "%a: f32[N, 3] = tile(%x) {repeats = [1, 3]}", result="%a"),
        body(x, "%a: f32[N, 3] = broadcast_to(%x) {shape = [N, 3]}", result="%a"),
    )
    assert_stays(  # of a known size, which a place's remainder by is cheap
        S, body("%x: f32[N, 2]", "%a: f32[N, 6] = tile(%x) {repeats = [1, 3]}", result="%a")
    )


@pytest.mark.parametrize(
    ("shape", "repeats", "result"),
    [
        ("N, 2", "[3, 1]", "3*N, 2"),
        ("2, N, 3", "[1, 4, 2]", "2, 4*N, 6"),
        ("N", "[0]", "0"),
    ],
)
def test_repetitions_of_an_open_axis_are_an_axis_of_their_own(shape, repeats, result):
    graph = run(
        S,
        body(
            f"%x: f32[{shape}]",
            f"%a: f32[{result}] = tile(%x) {{repeats = {repeats}}}",
            result="%a",
        ),
    )
    assert "tile" not in ops(graph)


def slice_(name, source, type_, axes, starts, sizes, steps):
    return (
        f"%{name}: {type_} = slice(%{source}) {{axes = {axes}, starts = {starts},"
        f" sizes = {sizes}, steps = {steps}}}"
    )


def test_slices_of_everything_vanish():
    x = "%x: f32[N, 4]"
    assert_becomes(
        S,
        body(
            x,
            slice_("a", "x", "f32[N, 4]", [0, 1], "[0, 0]", "[N, 4]", [1, 1]),
            result="%a",
        ),
        body(x, result="%x"),
    )
    assert_becomes(
        S,
        body(
            x,
            slice_("a", "x", "f32[N, 3]", [0, -1], "[0, 1]", "[N, 3]", [1, 1]),
            result="%a",
        ),
        body(x, slice_("a", "x", "f32[N, 3]", [1], [1], [3], [1]), result="%a"),
    )


def test_slices_compose_with_steps_and_directions():
    x = "%x: f32[20, N]"
    assert_becomes(
        S,
        body(
            x,
            slice_("a", "x", "f32[9, N]", [0], [1], [9], [2]),
            slice_("b", "a", "f32[4, N]", [0], [8], [4], [-2]),
            result="%b",
        ),
        body(x, slice_("b", "x", "f32[4, N]", [0], [17], [4], [-4]), result="%b"),
    )


def test_steps_of_slices_stay_numbers_that_an_index_may_be_multiplied_by():
    x, far = "%x: f32[N]", 2**32
    count = f"((N + {far - 1}) // {far})"
    assert_becomes(
        S,
        body(
            x,
            slice_("a", "x", f"f32[{count}]", [0], [0], f"[{count}]", [far]),
            slice_("b", "a", "f32[1]", [0], [0], [1], [-far]),
            result="%b",
        ),
        body(x, slice_("b", "x", "f32[1]", [0], [0], [1], [-far]), result="%b"),
    )


def test_a_slice_within_one_part_of_a_concat_is_of_that_part():
    xy = "%x: f32[N, 4], %y: f32[N, 5]"
    joined = "%c: f32[N, 9] = concat(%x, %y) {axis = -1}"
    assert_becomes(
        S,
        body(xy, joined, slice_("s", "c", "f32[N, 3]", [1], [5], [3], [1]), result="%s"),
        body(xy, slice_("s", "y", "f32[N, 3]", [1], [1], [3], [1]), result="%s"),
    )
    assert_stays(
        S, body(xy, joined, slice_("s", "c", "f32[N, 3]", [1], [2], [3], [1]), result="%s")
    )


def test_a_slice_of_a_symbolic_concat_finds_its_part():
    xy = "%x: f32[N, 4], %y: f32[1, 4]"
    joined = "%c: f32[N + 1, 4] = concat(%x, %y) {axis = 0}"
    assert_becomes(
        S,
        body(xy, joined, slice_("s", "c", "f32[N, 4]", [0], [0], "[N]", [1]), result="%s"),
        body(xy, result="%x"),
    )
    assert_becomes(
        S,
        body(xy, joined, slice_("s", "c", "f32[1, 4]", [0], "[N]", [1], [1]), result="%s"),
        body(xy, result="%y"),
    )


def test_concats_of_one_of_empty_and_of_concats_flatten():
    xy = "%x: f32[N, 4], %e: f32[N, 0], %y: f32[N, 5]"
    assert_becomes(
        S,
        body(xy, "%c: f32[N, 4] = concat(%x, %e) {axis = 1}", result="%c"),
        body(xy, result="%x"),
    )
    assert_becomes(
        S,
        body(
            xy,
            "%a: f32[N, 9] = concat(%x, %y) {axis = 1}",
            "%c: f32[N, 14] = concat(%y, %a) {axis = -1}",
            result="%c",
        ),
        body(xy, "%c: f32[N, 14] = concat(%y, %x, %y) {axis = -1}", result="%c"),
    )


def test_neighbouring_slices_join_again():
    x = "%x: f32[N, 9]"
    parts = [
        slice_("a", "x", "f32[N, 4]", [1], [0], [4], [1]),
        slice_("b", "x", "f32[N, 5]", [1], [4], [5], [1]),
    ]
    assert_becomes(
        S,
        body(x, *parts, "%c: f32[N, 9] = concat(%a, %b) {axis = 1}", result="%c"),
        body(x, result="%x"),
    )
    assert_stays(
        S, body(x, *parts, "%c: f32[N, 9] = concat(%b, %a) {axis = 1}", result="%c")
    )


def test_pads_of_nothing_vanish_and_pads_add_up():
    x = "%x: f32[N, 4]"
    assert_becomes(
        S,
        body(x, "%a: f32[N, 4] = pad(%x) {pads = [0, 0, 0, 0]}", result="%a"),
        body(x, result="%x"),
    )
    assert_becomes(
        S,
        body(
            x,
            "%a: f32[N + 1, 7] = pad(%x) {pads = [0, 1, 1, 2]}",
            "%b: f32[N + 3, 7] = pad(%a) {pads = [2, 0, 0, 0]}",
            result="%b",
        ),
        body(x, "%b: f32[N + 3, 7] = pad(%x) {pads = [2, 1, 1, 2]}", result="%b"),
    )
    assert_stays(
        S,
        body(
            x,
            "%v: f32[] = constant {value = f32[] [3.0]}",
            "%a: f32[N, 5] = pad(%x) {pads = [0, 1, 0, 0]}",
            "%b: f32[N, 6] = pad(%a, %v) {pads = [0, 0, 0, 1]}",
            result="%b",
        ),
    )


@pytest.mark.parametrize(
    ("first", "then", "total", "sizes"),
    [
        ("[0, -1, 0, 0]", "[0, 1, 0, 0]", None, (3, 4)),
        ("[0, 0, 0, -1]", "[0, 0, 0, 2]", None, (3, 5)),
        ("[0, 2, 0, 0]", "[0, -3, 0, 1]", None, (6, 4)),
        ("[0, 2, 0, 0]", "[0, -1, 0, 1]", "[0, 1, 0, 1]", (6, 6)),
        ("[0, -1, 0, -1]", "[0, 0, 0, -1]", "[0, -1, 0, -2]", (2, 1)),
    ],
)
def test_a_border_does_not_bring_back_what_was_cropped(first, then, total, sizes):
    x = "%x: f32[N, 4]"
    before = body(
        x,
        f"%a: f32[N, {sizes[0]}] = pad(%x) {{pads = {first}}}",
        f"%b: f32[N, {sizes[1]}] = pad(%a) {{pads = {then}}}",
        result="%b",
    )
    if total is None:
        assert_stays(S, before)
        return
    after = body(x, f"%b: f32[N, {sizes[1]}] = pad(%x) {{pads = {total}}}", result="%b")
    assert_becomes(S, before, after)


@pytest.mark.parametrize(("index", "start"), [("2", "2"), ("-1", "(N - 1)")])
def test_a_gather_at_one_known_place_is_a_slice(index, start):
    x = "%x: f32[4, N]"
    axis, sizes, kept = (0, [1], "1, N") if index == "2" else (1, [1], "4, 1")
    result = "f32[N]" if axis == 0 else "f32[4]"
    shape = "[N]" if axis == 0 else "[4]"
    assert_becomes(
        S,
        body(
            x,
            f"%i: i64[] = constant {{value = i64[] [{index}]}}",
            f"%g: {result} = gather(%x, %i) {{axis = {axis}}}",
            result="%g",
        ),
        body(
            x,
            slice_("s", "x", f"f32[{kept}]", [axis], f"[{start}]", sizes, [1]),
            f"%g: {result} = reshape(%s) {{shape = {shape}}}",
            result="%g",
        ),
    )


def test_reductions_of_unit_axes_are_views_and_kept_axes_drop_into_the_reduction():
    x = "%x: f32[N, 1, 4]"
    assert_becomes(
        S,
        body(
            x, "%a: f32[N, 4] = reduce_max(%x) {axes = [1], keepdims = false}", result="%a"
        ),
        body(x, "%a: f32[N, 4] = reshape(%x) {shape = [N, 4]}", result="%a"),
    )
    assert_becomes(
        S,
        body(
            x,
            "%a: f32[N, 1, 1] = reduce_sum(%x) {axes = [2]}",
            "%b: f32[N, 1] = reshape(%a) {shape = [N, 1]}",
            result="%b",
        ),
        body(
            x, "%b: f32[N, 1] = reduce_sum(%x) {axes = [2], keepdims = false}", result="%b"
        ),
    )


def test_simplify_and_folding_clear_a_shape_computation():
    graph = run(
        [FoldConstants(), Simplify()],
        body(
            "%x: f32[N, 4]",
            "%s: i64[2] = constant {value = i64[2] [3, 1]}",
            "%one: i64[] = constant {value = i64[] [1]}",
            "%g: i64[] = gather(%s, %one) {axis = 0}",
            "%f: f32[] = cast(%g) {dtype = f32}",
            "%y: f32[N, 4] = mul(%x, %f)",
            result="%y",
        ),
    )
    assert ops(graph) == []
