import pytest

from fakes.graphs import (
    EVERYTHING_HELD,
    assert_same_results,
    copy_of,
    ops,
    parse,
    run,
)
from tilewright.compiler.passes import run_passes
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


def channels_last(shape, channels, dtype="f32", groups=3, operands="%x, %s, %b"):
    text = group_norm(f"2, {channels}", dtype, operands, more=', layout = "NHWC"')
    return text.replace(f"[2, {channels}]", f"[{shape}]").replace(
        "groups = 3", f"groups = {groups}"
    )


@pytest.mark.parametrize("shape", ["2, 5, 7, 6", "N, 4, 6", "1, 2, 3, 4, 6", "2, 3, W, 6"])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_channels_last_have_the_means_of_their_groups(shape, groups):
    graph = run(P, channels_last(shape, 6, groups=groups))
    assert ops(graph).count("reduce_mean") == ops(graph).count("mean_of_groups") == 2
    assert not {"group_norm", "transpose"} & set(ops(graph))


def test_channels_last_far_from_zero_keep_their_digits():
    """Squares are taken around means: those of the numbers themselves would leave nothing of a spread of 1."""
    text = channels_last("2, 4, 5, 6", 6)
    text = text.replace("group_norm(%x", "group_norm(%far").replace(
        "{ %y",
        "{ %c: f32[] = constant {value = f32[] [3000.0]} %far: f32[2, 4, 5, 6] = add(%x, %c) %y",
    )
    before = parse(text)
    graph = copy_of(before)
    run_passes(graph, P, held=EVERYTHING_HELD)
    assert_same_results(before, graph, tolerance=2e-3)


def test_every_channel_last_that_is_a_group_is_an_instance():
    graph = run(P, channels_last("2, 5, 7, 6", 6, groups=6))
    assert ops(graph) == ["instance_norm"]


def test_sixteen_bits_of_channels_last_are_normalized_in_more():
    text = channels_last("2, 4, 5, 6", 6, "f16")
    graph = run(P, text)
    assert ops(graph)[0] == ops(graph)[-1] == "cast"
