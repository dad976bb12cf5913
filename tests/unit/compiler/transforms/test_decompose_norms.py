import pytest

from fakes.graphs import assert_same_results, assert_stays, ops, parse, run
from tilewright.compiler.transforms import DecomposeNorms

P = [DecomposeNorms()]


def group_norm(shape, dtype="f32", operands="%x, %s, %b", more=""):
    channels = shape.split(", ")[1]
    return (
        f"graph @g<N: 1.., W: 1..>(%x: {dtype}[{shape}], %s: f32[{channels}],"
        f" %b: f32[{channels}]) {{ %y: {dtype}[{shape}] = group_norm({operands})"
        f" {{groups = 3, epsilon = 0.001{more}}} return %y }}"
    )


@pytest.mark.parametrize("shape", ["2, 6, 5, 7", "N, 9, 4", "1, 3, 2, 3, 4", "2, 6, 3, W"])
def test_a_group_norm_is_an_instance_norm_of_folded_groups(shape):
    text = group_norm(shape)
    graph = run(P, text)
    assert ops(graph)[:3] == ["reshape", "instance_norm", "reshape"]
    assert "group_norm" not in ops(graph)
    assert_same_results(parse(text), graph)


def test_sixteen_bits_are_normalized_in_more():
    text = group_norm("2, 6, 5", "f16")
    graph = run(P, text)
    assert ops(graph)[0] == ops(graph)[-1] == "cast"
    assert_same_results(parse(text), graph, tolerance=2e-3)


def test_without_scale_and_bias_nothing_is_scaled():
    graph = run(P, group_norm("2, 6, 5", operands="%x"))
    assert ops(graph) == ["reshape", "instance_norm", "reshape"]


def test_channels_last_stay():
    text = group_norm("2, 5, 7, 6", more=', layout = "NHWC"').replace("[5]", "[6]")
    assert_stays(P, text)
