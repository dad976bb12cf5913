import numpy as np
import pytest

from fakes.graphs import parse
from tilewright.base import dtypes, symbolic
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.transforms import matching

N, S = symbolic.symbol("N", 1), symbolic.symbol("S", 1)


@pytest.mark.parametrize(
    ("array", "splat"),
    [
        (np.zeros((3, 4), np.float32), 0.0),
        (np.float16(0.5), 0.5),
        (np.full((2,), True), True),
        (np.arange(2), None),
        (np.zeros((0,)), None),
        (np.array([1.0] * 99 + [2.0]), None),
        (np.broadcast_to(np.int64(7), (1 << 20, 1 << 20)), 7),
        (np.full(3, np.nan), None),
        (np.float32(np.nan), None),
        (np.full((1, 1), 7, np.int8), 7),
    ],
)
def test_splats_of_arrays(array, splat):
    found = matching.array_splat(np.asarray(array))
    assert found == splat
    assert type(found) is type(splat)


def test_splats_are_seen_through_views_and_broadcasts():
    graph = parse(
        "graph @g<N: 1..>(%x: f32[N]) { %c: f32[1] = constant {value = f32[1] [3.0]}"
        " %b: f32[N, 2] = broadcast_to(%c) {shape = [N, 2]}"
        " %r: f32[2*N] = reshape(%b) {shape = [2*N]} %e: f32[1] = exp(%c) return %r, %e }"
    )
    assert matching.splat_of(graph.outputs[0]) == 3.0
    assert matching.splat_of(graph.outputs[1]) is None
    assert matching.splat_of(graph.inputs[0]) is None
    assert matching.splat_of(None) is None


def test_a_splat_is_one_number():
    text = "graph @g() { %c: f32[2] = constant {value = f32[2] [1.0, NUMBER]} return %c }"
    for number, equal in (("1.0", True), ("1.001", False)):
        (value,) = parse(text.replace("NUMBER", number)).outputs
        assert matching.is_splat(value, 1.0) is equal


@pytest.mark.parametrize(
    ("source", "target", "groups"),
    [
        ((6, 4), (2, 3, 4), [((0,), (0, 1)), ((1,), (2,))]),
        ((N, S, 8), (N * S, 8), [((0, 1), (0,)), ((2,), (1,))]),
        ((N * S, 8), (N, S, 2, 4), [((0,), (0, 1)), ((1,), (2, 3))]),
        ((6, 4), (8, 3), [((0, 1), (0, 1))]),
        ((N, 5), (N, 1, 5), None),
        ((N, 4), (S, 4), "unknown"),
    ],
)
def test_groups_of_a_reshape(source, target, groups):
    found = matching.dim_groups(source, target)
    if groups == "unknown":
        assert found is None
    elif groups is None:
        assert found is not None
        assert [a for mine, _ in found for a in mine] == list(range(len(source)))
        assert [a for _, theirs in found for a in theirs] == list(range(len(target)))
    else:
        assert found == groups


def test_trailing_axes():
    type_ = TensorType(dtypes.f32, (2, 3, 4))
    assert matching.last_axes(type_, (-1,)) == 2
    assert matching.last_axes(type_, (2, 1)) == 1
    assert matching.last_axes(type_, (1,)) is None
    assert matching.last_axes(type_, ()) is None
    assert matching.last_axes(TensorType(dtypes.f32, ()), (0,)) is None


def test_permutations():
    assert matching.inverse((2, 0, 1)) == (1, 2, 0)
    assert matching.to_channels_last(4) == matching.inverse(matching.to_channels_first(4))
    assert matching.permuted((N, 3, S), matching.to_channels_last(3)) == (N, S, 3)
