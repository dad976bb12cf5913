"""What the graph tells of the elements of a tensor holds for what it computes."""

import numpy as np
import pytest

from fakes.graphs import parse
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.ops.ranges import is_at_least
from tilewright.compiler.transforms.value_ranges import ValueRanges

HEAD = (
    "graph @g(%x: i64[4], %f: f32[4, 7], %b: bool[4]) {"
    " %lo: i64[] = constant() {value = i64[] [2]} %hi: i64[] = constant() {value = i64[] [9]}"
    " %v: i64[4] = constant() {value = i64[4] [3, -1, 8, 5]}"
    " %p: i64[4] = iota() {shape = [4], axis = 0, dtype = i64}"
)
EXPECTED = {
    "%y: i64[4] = clip(%x, %lo, %hi)": (2, 9),
    "%y: i64[4] = max(%x, %lo)": (2, None),
    "%y: i64[4] = min(%x, %hi)": (None, 9),
    "%y: i64[4] = add(%v, %p)": (-1, 11),
    "%y: i64[4] = sub(%v, %p)": (-4, 8),
    "%y: i64[4] = mul(%p, %hi)": (0, 27),
    "%y: i64[4] = mul(%v, %hi)": (None, None),
    "%y: i64[4] = where(%b, %v, %p)": (-1, 8),
    "%y: i64[8] = concat(%v, %p) {axis = 0}": (-1, 8),
    "%y: i64[4] = cast(%b) {dtype = i64}": (0, 1),
    "%y: i64[4] = arg_max(%f) {axis = 1, keepdims = false, select_last = false}": (0, 6),
    "%y: i64[2, 2] = reshape(%p) {shape = [2, 2]}": (0, 3),
    "%y: i64[4] = neg(%p)": (None, None),
    "%y: i64[4] = identity(%x)": (None, None),
}


@pytest.mark.parametrize("line", EXPECTED)
def test_a_range_holds_what_is_computed(line):
    graph = parse(f"{HEAD} {line} return %y }}")
    low, high = found = ValueRanges().of(graph.outputs[0])
    assert tuple(found) == EXPECTED[line]
    rng = np.random.default_rng(3)
    for _ in range(5):
        x = rng.integers(-40, 40, 4)
        f = rng.standard_normal((4, 7)).astype(np.float32)
        (y,) = evaluate(graph, [x, f, rng.random(4) < 0.5])
        assert low is None or y.min() >= low
        assert high is None or y.max() <= high


NARROW = {
    "%y: u8[4] = identity(%u)": (0, 255),
    "%y: i32[4] = cast(%u) {dtype = i32}": (0, 255),
    "%y: u8[4] = add(%u, %u)": (0, 255),
    "%y: i32[4] = sub(%w, %z)": (-3, 252),
    "%y: u8[4] = max(%u, %k)": (3, 255),
    '%y: i32[6] = pad(%w) {pads = [1, 1], mode = "constant"}': (0, 255),
    "%y: i32[4] = add(%g, %g)": (None, None),
}


@pytest.mark.parametrize("line", NARROW)
def test_a_range_lies_in_that_of_its_type_and_what_may_wrap_is_not_known(line):
    graph = parse(
        "graph @g(%u: u8[4]) { %z: i32[] = constant() {value = i32[] [3]}"
        " %g: i32[4] = constant() {value = i32[4] splat 2000000000}"
        " %k: u8[] = constant() {value = u8[] [3]} %w: i32[4] = cast(%u) {dtype = i32}"
        f" {line} return %y }}"
    )
    low, high = found = ValueRanges().of(graph.outputs[0])
    assert tuple(found) == NARROW[line]
    for array in ([0, 1, 2, 255], [3, 128, 254, 7]):
        (y,) = evaluate(graph, [np.array(array, np.uint8)])
        assert low is None or y.min() >= low
        assert high is None or y.max() <= high


def test_positions_on_an_axis_whose_size_is_open_lie_on_it():
    graph = parse(
        "graph @g(%x: f32[N, 2]) {"
        " %p: i64[N] = iota() {shape = [N], axis = 0, dtype = i64} return %p }"
    )
    found = ValueRanges().of(graph.outputs[0])
    size = graph.inputs[0].type.shape[0]
    assert is_at_least(found.low, 0)
    assert is_at_least(size - 1, found.high)
    assert not is_at_least(size - 2, found.high)


def test_nothing_is_at_least_what_is_not_known():
    n = symbol("n", 1)
    assert is_at_least(n, 1)
    assert not is_at_least(n, 2)
    assert not is_at_least(None, 0)
    assert not is_at_least(0, None)


def test_columns_of_a_constant_have_ranges_of_their_own():
    graph = parse(
        "graph @g(%x: f32[2]) {"
        " %c: i64[2, 2] = constant() {value = i64[2, 2] [0, 7, 1, 9]}"
        " %y: i64[3, 2, 2] = broadcast_to(%c) {shape = [3, 2, 2]} return %y }"
    )
    ranges = ValueRanges()
    assert tuple(ranges.of_column(graph.outputs[0], 0)) == (0, 1)
    assert tuple(ranges.of_column(graph.outputs[0], 1)) == (7, 9)


WRAPPED = {
    "%y: i64[3] = sub(%m, %one)": (None, None),
    "%y: i64[3] = add(%l, %one)": (None, None),
    "%y: i64[3] = mul(%l, %two)": (None, None),
    "%y: i32[3] = cast(%m) {dtype = i32}": (None, None),
    "%y: u8[3] = cast(%m) {dtype = u8}": (0, 255),
    "%n: i32[3] = cast(%x) {dtype = i32} %o: i32[3] = min(%n, %nine)"
    " %y: i64[3] = cast(%o) {dtype = i64}": (None, 9),
    "%y: i32[3] = cast(%c) {dtype = i32}": (1, 9),
}


@pytest.mark.parametrize("line", WRAPPED)
def test_numbers_bounded_on_one_side_may_wrap_to_the_other(line):
    graph = parse(
        "graph @g(%x: i64[3]) { %one: i64[] = constant() {value = i64[] [1]}"
        " %two: i64[] = constant() {value = i64[] [2]}"
        " %hi: i64[] = constant() {value = i64[] [9]}"
        " %nine: i32[] = constant() {value = i32[] [9]}"
        " %m: i64[3] = min(%x, %hi) %l: i64[3] = max(%x, %one) %c: i64[3] = min(%l, %hi)"
        f" {line} return %y }}"
    )
    low, high = found = ValueRanges().of(graph.outputs[0])
    assert tuple(found) == WRAPPED[line]
    (y,) = evaluate(graph, [np.array([-(1 << 63), -(1 << 31) - 1, (1 << 63) - 1])])
    assert low is None or y.min() >= low
    assert high is None or y.max() <= high


def test_a_column_is_that_of_the_part_it_comes_from():
    graph = parse(
        f"{HEAD} %t: i64[1, 4] = reshape(%x) {{shape = [1, 4]}}"
        " %c: i64[1, 2] = constant() {value = i64[1, 2] [3, 7]}"
        " %j: i64[1, 6] = concat(%t, %c) {axis = 1}"
        " %y: i64[5, 6] = broadcast_to(%j) {shape = [5, 6]} return %y }"
    )
    found = [ValueRanges().of_column(graph.outputs[0], column) for column in range(6)]
    assert found == [(None, None)] * 4 + [(3, 3), (7, 7)]
